"""The command line on the real thing, as a person would use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.kafka.waiting import wait_until
from penstock.testbed import lease

pytestmark = pytest.mark.integration

PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
PLACE = "namespaces" if os.geteuid() == 0 else "loopback"


def penstock(*arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PENSTOCK, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )


def answer(*arguments: str) -> Any:
    done = penstock(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def name() -> Iterator[str]:
    """A testbed that outlives the command that started it."""
    name = f"cli-{os.getpid()}"
    started = answer("testbed", "up", "--brokers", "1", "--place", PLACE, "--name", name)
    assert started["name"] == name
    yield name
    assert answer("testbed", "down", name)["removed"] == [name]
    assert _held(name) is None


def _held(name: str) -> lease.Lease | None:
    leases = [held for held in lease.leases(lease.default_root()) if held.name == name]
    return leases[0] if leases else None


def test_status_tells_the_brokers_own_view(name: str) -> None:
    status = answer("testbed", "status", name, "--interval", "0.2")
    assert status["healthy"] is True
    (broker,) = status["brokers"]
    assert broker["state"] == "running"
    assert broker["own"]["requests"]["Produce"]["total"]["count"] >= 1
    assert broker["process"]["open_handles"] > 0
    assert "All 1 brokers run" in penstock("testbed", "status", name).stdout


def test_status_of_an_existing_cluster_needs_no_testbed(name: str) -> None:
    held = _held(name)
    assert held is not None
    servers = answer("testbed", "status", name, "--interval", "0.1")["bootstrap_servers"]
    there = ["testbed", "exec", "--name", name, "producer-1", "--", *PENSTOCK]
    properties = held.directory / "client.properties"
    done = penstock(
        *(there if PLACE == "namespaces" else []),
        *("testbed", "status", "--bootstrap-servers", servers),
        *("--client-properties", str(properties), "--json"),
    )
    assert json.loads(done.stdout)["brokers"] == [1]


def test_a_property_that_no_client_knows_is_named(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("no.such.property=1\n")
    done = penstock(
        *("testbed", "status", "--bootstrap-servers", "127.0.0.1:1"),
        *("--client-properties", str(file)),
    )
    assert done.returncode == 2
    assert "no.such.property" in done.stderr


@pytest.mark.root
def test_an_unknown_host_in_a_cluster_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "{brokers: 1, place: namespaces, network: "
        "{links: [{src: broker-2, dst: any, condition: {cut: true}}]}}"
    )
    done = penstock("testbed", "up", str(file), "--name", "never")
    assert done.returncode == 2
    assert "'broker-2' is not a host here" in done.stderr


def test_an_existing_cluster_that_does_not_answer_is_an_error() -> None:
    done = penstock("testbed", "status", "--bootstrap-servers", "127.0.0.1:1")
    assert done.returncode == 4
    assert "no broker answers at 127.0.0.1:1" in done.stderr


@pytest.mark.root
def test_links_change_from_another_command(name: str, tmp_path: Path) -> None:
    links = tmp_path / "links.yaml"
    links.write_text(
        "links:\n- {src: producers, dst: brokers, condition: {delay: {kind: constant, ms: 5}}}\n"
    )
    changed = answer("testbed", "network", str(links), "--name", name)
    assert changed["outcome"] == "2 links changed."
    link = changed["links"]["producer-1 > broker-1"]
    assert link["condition"]["delay"] == {"kind": "constant", "ms": 5}

    trace = tmp_path / "trace.yaml"
    trace.write_text(
        "steps:\n"
        "- {at_s: 0, links: [{src: producers, dst: brokers, condition: {cut: true}}]}\n"
        "- {at_s: 0.3, links: [{src: producers, dst: brokers, condition: {}}]}\n"
    )
    assert "Replayed 2 steps" in answer("testbed", "replay", str(trace), "--name", name)["outcome"]

    links.write_text("links:\n- {src: producer-9, dst: brokers, condition: {}}\n")
    refused = penstock("testbed", "network", str(links), "--name", name)
    assert refused.returncode == 2
    assert "producer-9" in refused.stderr


def test_faults_from_a_file(name: str, tmp_path: Path) -> None:
    plan = tmp_path / "faults.yaml"
    plan.write_text("faults:\n- {kind: pause, broker: 1, for_s: 0.3}\n")
    events = answer("testbed", "fault", str(plan), "--name", name)["events"]
    assert [event["sentence"] for event in events] == [
        "paused broker 1",
        "undone: paused broker 1",
    ]
    plan.write_text("faults:\n- {kind: kill, broker: 7}\n")
    refused = penstock("testbed", "fault", str(plan), "--name", name)
    assert refused.returncode == 2
    assert "there is no broker 7" in refused.stderr


def test_a_name_that_is_taken_is_refused(name: str) -> None:
    refused = penstock("testbed", "up", "--brokers", "1", "--name", name)
    assert refused.returncode == 4
    assert "exists already" in refused.stderr
    assert answer("testbed", "status", name, "--interval", "0.1")["healthy"] is True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_foreground_leaves_nothing(unique: Callable[[str], str], number: signal.Signals) -> None:
    name = unique("fg")
    running = subprocess.Popen(
        [*PENSTOCK, "testbed", "up", "--brokers", "1", "--name", name, "--foreground"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert "ready" in running.stdout.readline()
    running.send_signal(number)
    running.communicate(timeout=30)
    assert running.returncode == 128 + number
    assert _held(name) is None


def test_a_start_that_is_killed_leaves_nothing(unique: Callable[[str], str]) -> None:
    name = unique("killed")
    starting = subprocess.Popen(
        [*PENSTOCK, "testbed", "up", "--brokers", "1", "--place", PLACE, "--name", name],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def has_brokers() -> bool:
        held = _held(name)
        return held is not None and (held.directory / "state.json").exists()

    wait_until(has_brokers, timeout_s=60, what="the brokers")
    starting.kill()
    starting.wait()
    wait_until(lambda: _held(name) is None, timeout_s=20, what="everything to be gone")


def test_doctor() -> None:
    report = answer("doctor")
    assert report["ready"] is True
    assert {check["name"] for check in report["checks"]} >= {"Java", "Kafka", "memory", "Spark"}


def test_no_java_is_a_clear_message(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PENSTOCK, "testbed", "up"],
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path), "HOME": os.environ["HOME"]},
        check=False,
    )
    assert done.returncode == 3
    assert "openjdk-17" in done.stderr
