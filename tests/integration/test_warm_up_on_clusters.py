"""Warming a real cluster up, and a load that it cannot carry."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_cli import answer, penstock

from penstock import specs
from penstock.analysis.analyze import analyze
from penstock.domain.network.condition import PERFECT, Link, LinkCondition
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.run import Run, RunSpec
from penstock.domain.warm_up import RequestKind, WarmUpLimits
from penstock.runs import warm_up
from penstock.runs.execute import execute
from penstock.runs.run_directory import RunDirectory
from penstock.stats import flatness
from penstock.testbed.cluster import Cluster
from penstock.testbed.compilers import BrokerCpu

pytestmark = pytest.mark.integration

KIND = RequestKind(message_bytes=100, partitions=3)


def topics(cluster: Cluster) -> set[str]:
    return {name for name in cluster.admin.topics() if name.startswith("penstock-warm-up")}


def test_brokers_are_warmed_up_until_it_is_flat_or_the_time_is_over(cluster: Cluster) -> None:
    progress: list[str] = []
    cpu = BrokerCpu(cluster)
    before_s, _ = cpu.read()
    done = warm_up.warm_up(cluster, KIND, WarmUpLimits(limit_s=3), progress.append)
    after_s, compilers_s = cpu.read()
    assert done is not None
    # Ten seconds are the least that the test needs.
    assert done.state == "still warming up"
    assert "after 3 s" in done.sentence or "after 4 s" in done.sentence
    assert done.requests > 20
    assert 0 < (done.cpu_ms_per_request or 0) < 1000
    assert 0.5 < after_s - before_s < 20
    assert 0 < compilers_s < after_s
    assert any("requests/s" in text for text in progress)
    assert topics(cluster) == set()


def test_what_brokers_are_warm_for_is_remembered_as_long_as_they_live(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flatness, "reasons", lambda intervals, *_: [] if intervals else ["cold"])
    kind = RequestKind(message_bytes=100, partitions=3, compression="lz4")
    done = warm_up.warm_up(cluster, kind)
    assert done is not None
    assert done.state == "warm"
    assert warm_up.warm_up(cluster, kind) is None
    assert warm_up.warm_up(cluster, RequestKind(acks="1"), WarmUpLimits(limit_s=0)) is not None
    # One of them was started again since: it is cold.
    monkeypatch.setattr(warm_up, "_pids", lambda _: [1, 2, 3])
    assert warm_up.warm_up(cluster, kind) is not None


@pytest.mark.root
def test_the_network_is_unspoiled_meanwhile_and_afterwards_as_before(cluster: Cluster) -> None:
    slow = LinkCondition(delay=ConstantDelay(ms=100))
    assert cluster.network is not None
    cluster.network.set((Link(src="brokers", dst="brokers", condition=slow),))
    spoiled = cluster.network.conditions
    conditions: list[Any] = []

    def say(_: str) -> None:
        assert cluster.network is not None
        conditions.append(set(cluster.network.conditions.values()))

    try:
        done = warm_up.warm_up(cluster, KIND, WarmUpLimits(limit_s=2), say)
        assert cluster.network.conditions == spoiled
        assert slow in spoiled.values()
    finally:
        cluster.network.set((Link(src="brokers", dst="brokers", condition=PERFECT),))
    assert conditions[-1] == {PERFECT}
    # With a tenth of a second between the brokers it would be 30 a second at most.
    assert done is not None
    assert done.requests > 80


def run_of(cluster: Cluster, directory: Path, topic: str, **more: Any) -> tuple[Run, RunDirectory]:
    fields = {
        "name": "test",
        "topic": {"name": topic, "partitions": 3, "replication": 3},
        "workload": {"arrivals": {"kind": "poisson", "rate_per_s": 300}, "duration_s": 5},
        "schedule_lag_ms": 1000,
        **more,
    }
    directory.mkdir()
    run_directory = RunDirectory(directory)
    run = execute(specs.parse(fields, RunSpec), cluster, run_directory)
    assert run.status == "complete", run.reason
    return run, run_directory


def test_a_run_is_measured_for_its_time_however_long_it_took_to_get_warm(
    cluster: Cluster, spark: Any, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    run, directory = run_of(
        cluster, tmp_path / "run", unique("warm"), warm_up_s=1, cluster_warm_up={"limit_s": 15}
    )
    assert run.measured_to_ns - run.measured_from_ns == 5_000_000_000
    state = run.cluster_state
    assert state is not None and state.warm_up is not None
    assert state.warm_up.state in ("warm", "still warming up")
    assert bool(run.coldness) == (state.warm_up.state == "still warming up")
    assert state.warm_up.took_s >= 5
    assert (state.requests_served or 0) > 0
    assert (state.age_s or 0) > 5
    metrics = analyze(spark, [directory.path])[directory.path]
    assert metrics.counts.sent == pytest.approx(1500, rel=0.15)
    assert metrics.counts.sent == metrics.counts.delivered
    assert metrics.counts.warm_up >= 5 * 300 * 0.8
    assert metrics.counts.warm_up + metrics.counts.sent == metrics.counts.records
    # Brokers were asked before and after the measured time, and not in it.
    looks = json.loads((directory.path / "brokers.json").read_text())
    own_looks_ns = [look["at_ns"] for look in looks if look.get("own")]
    assert min(own_looks_ns) < run.measured_from_ns
    assert max(own_looks_ns) > run.measured_to_ns
    assert not [at for at in own_looks_ns if run.measured_from_ns < at < run.measured_to_ns]
    assert run.observer is not None
    assert run.observer.looks >= 2
    assert run.observer.share < 0.01


def test_a_load_above_the_limit_is_reported_as_such(
    cluster: Cluster, spark: Any, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """One message per request and one request at a time: a few hundred a second."""
    _, directory = run_of(
        cluster,
        tmp_path / "run",
        unique("overload"),
        workload={"arrivals": {"kind": "constant", "rate_per_s": 2000}, "duration_s": 4},
        settings={
            "acks": "all",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "max.in.flight.requests.per.connection": 1,
        },
        warm_up_s=0.5,
        cluster_warm_up={"limit_s": 0},
    )
    steadiness = analyze(spark, [directory.path])[directory.path].steadiness
    assert steadiness is not None
    assert steadiness.state == "unsteady"
    assert steadiness.offered_per_s == pytest.approx(2000, rel=0.05)
    assert (steadiness.done_per_s or 0) < 0.9 * (steadiness.offered_per_s or 0)
    assert (steadiness.latency_last_ms or 0) > (steadiness.latency_first_ms or 0)
    assert "messages/s offered" in steadiness.sentence


def test_a_testbed_is_kept_warm_between_commands(
    tmp_path: Path, unique: Callable[[str], str]
) -> None:
    scenario = {
        "name": "kept",
        "cluster": {"brokers": 1},
        "topic": {"name": "kept", "partitions": 2},
        "workload": {"arrivals": {"kind": "constant", "rate_per_s": 100}, "duration_s": 4},
        "warm_up_s": 1,
        "cluster_warm_up": {"limit_s": 6},
        "schedule_lag_ms": 1000,
    }
    file, other = tmp_path / "kept.yaml", tmp_path / "other.yaml"
    file.write_text(specs.dump_yaml(scenario))
    other.write_text(specs.dump_yaml({**scenario, "cluster": {"brokers": 2}}))
    name = unique("kept")[:20]
    up = answer("testbed", "up", str(file), "--name", name, "--warm", "--warm-limit", "3")
    try:
        (warmed,) = up["warm_up"]
        assert warmed["kind"]["messages_per_request"] == 1
        assert warmed["result"]["took_s"] >= 3
        out = ("--out", str(tmp_path / "runs"), "--testbed", name)
        refused = penstock("run", str(other), *out)
        assert refused.returncode == 2
        assert "brokers is 1, not 2" in refused.stderr
        done = penstock("run", str(file), *out, "--json", timeout_s=240)
        assert done.returncode in (0, 10), done.stderr
        (ran,) = json.loads(done.stdout)["runs"]
        assert ran["metrics"]["counts"]["delivered"] == 400
        run = RunDirectory(Path(ran["directory"])).run()
        assert run.cluster_state is not None
        # Its brokers are those that were warmed up, and they are still there.
        assert (run.cluster_state.age_s or 0) > 3
        assert answer("testbed", "status", name, "--interval", "0.1")["healthy"] is True
    finally:
        answer("testbed", "down", name)
    gone = penstock("run", str(file), "--out", str(tmp_path / "runs"), "--testbed", name)
    assert gone.returncode == 4
    assert f"no testbed {name!r}" in gone.stderr
