"""`penstock pipeline` as users run it: a process that is stopped, killed and started again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import psutil
import pytest
from click.testing import CliRunner

from penstock import specs
from penstock.cli.pipeline import pipeline
from penstock.domain.cluster import TopicSpec
from penstock.domain.lake.pipeline import Pipeline
from penstock.kafka.waiting import wait_until
from penstock.testbed.cluster import Cluster
from penstock.testbed.spark import SparkCluster

pytestmark = pytest.mark.integration
PARTITIONS = 6
SECRET = "quiet-as-a-mouse"


@pytest.fixture
def topic(lake_cluster: Cluster, unique: Callable[[str], str]) -> str:
    name = unique("command")
    lake_cluster.create_topic(TopicSpec(name=name, partitions=PARTITIONS, replication=1))
    return name


@pytest.fixture
def file(lake_cluster: Cluster, tmp_path: Path, topic: str) -> Path:
    """A pipeline whose lanes read the secrets of its clients where they run."""
    properties = tmp_path / "client.properties"
    properties.write_text(f"sasl.username=me\nsasl.password={SECRET}\n")  # the brokers ask for none
    spec = lakes.pipeline(
        lake_cluster,
        tmp_path / "lake",
        topic,
        lane_bytes=300_000,
        every_s=0.1,
        client_properties=str(properties),
        lane_secrets="from-file",
    )
    path = tmp_path / "pipeline.yaml"
    path.write_text(specs.dump_yaml(spec))
    return path


class Command:
    """One life of `penstock pipeline run`."""

    def __init__(self, file: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(file), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, number: signal.Signals, timeout_s: float = 60) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out, err

    def workers(self) -> list[psutil.Process]:
        """The processes that lanes run in: children of Spark's daemon."""
        processes = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # others come and go
                parent = process.parent()
                if parent and "penstock.lake.daemon" in " ".join(parent.cmdline()):
                    processes.append(process)
        return processes


@pytest.fixture
def run(file: Path) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def start(*options: str) -> Command:
        started.append(Command(file, *options))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def test_a_kill_at_any_point_leaves_no_gap_or_duplicate(
    spark: Any, lake_cluster: Cluster, file: Path, topic: str, run: Callable[..., Command]
) -> None:
    spec = specs.load(file, Pipeline)
    lakes.send(lake_cluster, topic, (bytes(1000) for _ in range(20_000)))
    first = run()
    _until_landed(spec, first, 1000)
    # A worker in the middle of its lane: Spark gives the lane to another.
    workers = first.workers()
    assert workers
    workers[0].kill()
    _until_landed(spec, first, 5000)
    first.end(signal.SIGKILL)
    assert lakes.rows(spec) < 20_000, "it was killed too late to show anything"
    second = run()
    _until_landed(spec, second, 20_000)
    code, out, err = second.end(signal.SIGTERM)
    assert code == 0, err
    assert "rows landed" in out
    assert lakes.in_tables(spec) == lakes.in_topic(lake_cluster, topic, PARTITIONS)
    done = CliRunner().invoke(pipeline, ["audit", str(file), "--json"])  # in the tests' Spark
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["is_clean"] is True


def test_on_a_standalone_cluster_an_executor_is_killed_nothing_is_lost_and_no_secret_is_shown(
    lake_cluster: Cluster, tmp_path: Path, file: Path, topic: str, run: Callable[..., Command]
) -> None:
    # Its secrets travel from the driver to the executors, which are on this machine.
    spec = replace(specs.load(file, Pipeline), lane_secrets="encrypted")
    file.write_text(specs.dump_yaml(spec))
    events = tmp_path / "events"
    events.mkdir()
    logged = {"enabled": "true", "dir": events.as_uri(), "compress": "false"}
    conf = [part for name in logged for part in ("--conf", f"spark.eventLog.{name}={logged[name]}")]
    with SparkCluster(workers=2) as standalone:
        lakes.send(lake_cluster, topic, (bytes(1000) for _ in range(10_000)))
        command = run("--master", standalone.master, *conf)
        _until_landed(spec, command, 1000)
        executors = _executors()
        assert len(executors) == 2
        assert _showing_the_secret() == []
        executors[0].kill()
        _until_landed(spec, command, 10_000)
        code, _, err = command.end(signal.SIGTERM)
        assert code == 0, err
    assert lakes.in_tables(spec) == lakes.in_topic(lake_cluster, topic, PARTITIONS)
    assert not _executors()
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(events in path.parents and path.stat().st_size > 1000 for path in written)
    assert [path.name for path in written if SECRET.encode() in path.read_bytes()] == [
        "client.properties"
    ]


def _showing_the_secret() -> list[str]:
    """Processes that have it on their command line or in their environment."""
    names = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            texts = [*process.cmdline(), *process.environ().values()]
            if any(SECRET in text for text in texts):
                names.append(process.name())
    return names


def _executors() -> list[psutil.Process]:
    executors = []
    for process in psutil.process_iter(["cmdline"]):
        if "CoarseGrainedExecutorBackend" in " ".join(process.info["cmdline"] or []):
            executors.append(process)
    return executors


def _until_landed(spec: Pipeline, command: Command, rows: int, timeout_s: float = 90) -> None:
    def landed() -> bool:
        if command.process.poll() is not None:
            pytest.fail(f"it ended: {command.process.communicate()}")
        return lakes.rows(spec, "events") >= rows

    wait_until(landed, timeout_s=timeout_s, what=f"{rows} rows to be landed")
