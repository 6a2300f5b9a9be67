"""Each experiment on a real cluster, as small as it can be, against independent counts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.domain.cluster import TopicSpec
from penstock.domain.facts import PointConditions
from penstock.domain.grid import ExperimentGrid
from penstock.domain.warm_up import WarmUpLimits
from penstock.kafka.waiting import wait_until
from penstock.runs.experiments import catching_up
from penstock.runs.experiments import series as experiments
from penstock.runs.experiments.assemble import assemble
from penstock.runs.experiments.catching_up import CatchUp, catch_up
from penstock.runs.experiments.clients import REPORTS
from penstock.runs.experiments.kinds import PointJob
from penstock.runs.experiments.kinds.consumption import ConsumptionExperiment
from penstock.runs.experiments.kinds.production import ProductionExperiment
from penstock.runs.experiments.unavailability import kill_leader
from penstock.runs.resuming import Step
from penstock.testbed import lease
from penstock.testbed.cluster import Cluster
from penstock.testbed.observe import observe
from penstock.testbed.toolchain import Toolchain

pytestmark = pytest.mark.integration

# On a machine that does other things too, a generator may be late; these tests are not about that.
GRID = ExperimentGrid(
    seconds=2,
    warm_up_s=1,
    cluster_warm_up=WarmUpLimits(limit_s=8),  # enough for the test of warmth, warm or not
    schedule_lag_ms=10_000,
    unavailability=False,
)
WHERE = PointConditions(message_bytes=1000, partitions=6, replication=3, brokers=3)


@pytest.fixture
def tidy(cluster: Cluster) -> Iterator[None]:
    """The shared cluster without the topics that an experiment leaves on its own."""
    before = cluster.admin.topics()
    yield
    new_topics = {name for name in cluster.admin.topics() - before if not name.startswith("__")}
    for name in new_topics:
        cluster.admin.delete_topic(name)
    wait_until(
        lambda: not new_topics & cluster.admin.topics(), timeout_s=30, what="topics to be deleted"
    )


@pytest.mark.usefixtures("tidy")
def test_production(cluster: Cluster, tmp_path: Path) -> None:
    where = PointConditions(**{**vars(WHERE), "producers": 2})
    for _ in range(3):  # the first looks at a broker cost it many times what later ones do
        observe(cluster, timeout_s=20)
    result = ProductionExperiment().measure(PointJob(cluster, where, GRID, tmp_path, seed=1))
    rate = result.figures["throughput_records_per_s"]
    reports = json.loads((tmp_path / "saturation" / REPORTS).read_text())
    acknowledged = sum(words["records"][-1] for words in reports)
    # All that was counted as acknowledged is in the topic; what was on its way then may be too.
    assert 0 < acknowledged <= sum(cluster.admin.end_offsets("production").values())
    assert rate.value > 0
    assert result.figures["throughput_mb_per_s"].value == pytest.approx(rate.value / 1e3)
    sent = GRID.latency_per_s * GRID.seconds
    assert result.distributions["latency"].count == pytest.approx(sent, rel=0.5)  # Poisson
    assert result.figures["replication_ms"].value > 0, result.warnings
    assert result.figures["latency_ms"].value >= result.distributions["latency"].min_ms
    for figure in ("broker_open_handles", "client_open_handles", "client_cpu_cores"):
        assert result.figures[figure].value > 0


def test_partitions_are_gone_while_their_leader_is_dead(
    cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("gone")
    cluster.create_topic(TopicSpec(name=topic, partitions=9, replication=3))
    leaders = cluster.admin.leaders(topic)
    outage = kill_leader(cluster, topic)
    assert outage is not None
    try:
        led = {p for p, leader in leaders.items() if leader == outage.broker}
        assert set(outage.per_partition_ms) == led
        # A session is 3 s here, counted from a sign of life that is up to half a second old.
        assert outage.detection_ms is not None
        assert 2_000 < outage.detection_ms < outage.first_ms <= outage.mean_ms <= outage.longest_ms
        assert not cluster.process(outage.broker).is_running
    finally:
        cluster.start_broker(outage.broker)


@pytest.mark.usefixtures("tidy")
def test_consumption(cluster: Cluster, tmp_path: Path) -> None:
    where = PointConditions(**{**vars(WHERE), "consumers": 2, "assignor": "range"})
    result = ConsumptionExperiment().measure(PointJob(cluster, where, GRID, tmp_path, seed=1))
    assert result.warnings == ()
    whole = result.figures["throughput_mb_per_s"].value
    assert whole == pytest.approx(2 * result.figures["consumer_mb_per_s"].value)
    assert result.figures["throughput_records_per_s"].value == pytest.approx(whole * 1e3)
    for figure in ("rebalance_form_ms", "rebalance_join_ms", "rebalance_leave_ms"):
        assert result.figures[figure].value > 0
    events = json.loads((tmp_path / REPORTS).read_text())["events"]
    assert [e["what"] for e in events].count("joins") == 3
    # 3 of 6 partitions for each of two members; 2 when there are three.
    partition_counts = [len(e["partitions"]) for e in events if e["what"] == "assigned"]
    assert {2, 3} <= set(partition_counts)


def test_a_consumer_that_is_behind_leaves_nothing_on_the_cluster(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "_MOST_BYTES", 2_000_000)
    monkeypatch.setattr(catching_up, "_MEASURED_S", 2.0)
    before = cluster.admin.topics()
    # Batches of 10 messages of 500 B, of which an answer has at most three of each partition.
    what = CatchUp(500, 10, 3, 3, {"max.partition.fetch.bytes": 17_000})
    done = catch_up(cluster, what, tmp_path)
    assert done.messages_per_s > 1_000
    assert 10 <= done.fetch_messages <= 30
    assert cluster.admin.topics() - before <= {"__consumer_offsets"}


def test_an_interrupted_experiment_resumes_to_facts(toolchain: Toolchain, tmp_path: Path) -> None:
    grid = ExperimentGrid(
        partitions=(1, 4),
        message_bytes=(2_000,),
        replication=(1,),
        brokers=(1,),
        policies=("bro-min",),
        producers=(2,),
        consumers=(1,),
        repeats=1,
        seconds=2,
        warm_up_s=1,
        cluster_warm_up=WarmUpLimits(limit_s=0),
        schedule_lag_ms=10_000,
    )
    series = experiments.create("end-to-end", grid, tmp_path)

    def ours() -> list[lease.Lease]:
        """Other testbeds of this machine may come and go."""
        return [held for held in lease.leases(toolchain.root) if _is_owned_by_us(held)]

    before = ours()

    def interrupt(now: Step) -> None:
        if now.done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiments.carry_on(series, toolchain=toolchain, on_step=interrupt)
    assert ours() == before
    steps: list[Step] = []
    results = experiments.carry_on(
        experiments.reopen(series.path), toolchain=toolchain, on_step=steps.append
    )
    assert [now.label for now in steps] == [series.points[1].label]
    assert [r.status for r in results] == ["complete", "complete"], [r.reason for r in results]
    facts = assemble("end-to-end", series.grid, results, "now")
    for point in facts.points:
        # Two producers, 30 messages/s each, for 2 s; the first of each may be due a bit later.
        assert point.distributions["end_to_end"].count == pytest.approx(120, abs=2)
    assert facts.end_to_end is not None
    assert facts.end_to_end.min_ms > 0


def _is_owned_by_us(held: lease.Lease) -> bool:
    with suppress(OSError, ValueError):
        owner = json.loads((held.directory / lease.OWNER_FILE).read_text())["owner"]
        return owner is not None and owner["pid"] == os.getpid()
    return False
