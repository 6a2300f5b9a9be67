"""Logs that were rewritten after they were landed, topics that changed while a pipeline was down,
partitions that stall: on real clusters. And what must not be taken for any of these."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import pytest
from clients import produce
from confluent_kafka import Producer
from deltalake import DeltaTable

from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import PenstockError, TestbedError
from penstock.domain.lake.order import Position, Range
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline
from penstock.kafka.waiting import wait_until
from penstock.lake.audit import audit
from penstock.lake.checkpoint import Checkpoint
from penstock.lake.consumer import LaneConsumer
from penstock.lake.gathered import Gathered
from penstock.testbed.cluster import Cluster
from penstock.testbed.faults.restart import Restart
from penstock.testbed.toolchain import Toolchain

pytestmark = pytest.mark.integration
Unique = Callable[[str], str]


@pytest.fixture
def careless(toolchain: Toolchain) -> Iterator[Cluster]:
    """A cluster that prefers a leader without the newest records to none."""
    spec = ClusterSpec(
        brokers=2,
        controllers=1,  # so that a broker may die and the other still be elected
        properties={
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            "unclean.leader.election.enable": True,
        },
    )
    with Cluster(spec, toolchain=toolchain, name=f"careless-{os.getpid()}") as cluster:
        yield cluster


def kill(cluster: Cluster, broker: int) -> None:
    cluster.process(broker).send(signal.SIGKILL)
    cluster.process(broker).wait_ended(10)


def await_end(cluster: Cluster, topic: str, end: int) -> None:
    """A broker that has just become the leader may know an older epoch for a moment."""

    def is_there() -> bool:
        with suppress(TestbedError):
            return cluster.admin.end_offsets(topic) == {0: end}
        return False

    wait_until(is_there, timeout_s=20, what=f"{topic} to end at {end}")


def reached(pipeline: Pipeline, partition: Partition) -> Position:
    """By the newest report that has it."""
    checkpoint = Checkpoint(Path(pipeline.checkpoint_path))
    for batch in range(checkpoint.newest_report, -1, -1):
        report = checkpoint.report(batch)
        if report is not None and partition in report.reached:
            return report.reached[partition]
    raise AssertionError(f"no report has {partition}")


def take_up(pipeline: Pipeline, partition: Partition, at: Position, end: int) -> Gathered:
    """By a consumer that has never seen the partition."""
    fresh = LaneConsumer(lakes.config(pipeline), 10**6, 1)
    offsets = Range(at.offset, end, at.offset, at.leader_epoch, at.epoch_end)
    try:
        return fresh.gather({partition: offsets}, 10**6, until_s=time.monotonic() + 20)
    finally:
        fresh.close()


def ledger(pipeline: Pipeline) -> list[dict[str, Any]]:
    table = DeltaTable(f"{pipeline.lake}/{pipeline.ledger_table}").to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda row: row["start_offset"])


# --- logs that were rewritten ----------------------------------------------------------------------


def test_landed_records_that_an_unclean_election_lost_stop_it_or_are_recorded(
    spark: Any, careless: Cluster, tmp_path: Path, unique: Unique
) -> None:
    topic = unique("cut")
    partition = Partition(topic, 0)
    careless.create_topic(TopicSpec(name=topic, partitions=1, replication=2))
    pipeline = lakes.pipeline(careless, tmp_path, topic, lanes=1)
    assert produce(careless, topic, 20, acks="all") == []
    lakes.land(spark, pipeline)

    # Only the leader has the next ten, and it dies.
    leader = careless.admin.leader(topic, 0)
    (follower,) = set(careless.broker_ids) - {leader}
    kill(careless, follower)
    wait_until(
        lambda: any(line.startswith(f"{topic}-0:") for line in careless.admin.out_of_sync()),
        timeout_s=20,
        what="the follower to be out of sync",
    )
    assert produce(careless, topic, 10, acks="1") == []
    lakes.land(spark, pipeline)
    position = reached(pipeline, partition)
    assert position.offset == 30 and position.leader_epoch is not None
    kill(careless, leader)
    careless.start_broker(follower)
    await_end(careless, topic, 20)  # else the fault did not take

    # The log ends before the position.
    lost = rf"{topic}-0: \[20, 30\) was landed and is no longer in the topic"
    with pytest.raises(PenstockError, match=lost):
        lakes.land(spark, pipeline)
    # It has grown past the position: only the leader epoch shows it.
    assert produce(careless, topic, 25, acks="1") == []
    careless.start_broker(leader)
    await_end(careless, topic, 45)
    assert take_up(pipeline, partition, position, 45).diverged == {partition: 20}
    with pytest.raises(PenstockError, match=lost):
        lakes.land(spark, pipeline)
    assert lakes.in_tables(pipeline).total() == 30

    lakes.land(spark, replace(pipeline, lost_offsets="continue"))
    assert lakes.in_tables(pipeline) == Counter({(topic, 0, n): 1 for n in range(45)})
    recorded = [row for row in ledger(pipeline) if row["truncated_from"] is not None]
    assert [(row["truncated_from"], row["start_offset"]) for row in recorded] == [(20, 30)]
    assert audit(spark, pipeline).problems == ()

    # And that is all: it reads on, and is not told of it again.
    assert produce(careless, topic, 5, acks="all") == []
    lakes.land(spark, pipeline)
    assert lakes.in_tables(pipeline).total() == 50
    after = reached(pipeline, partition)
    assert after.leader_epoch is not None and after.leader_epoch > position.leader_epoch


def test_a_clean_leader_change_is_not_a_truncation(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    """The marker that ends a transaction may be of a later epoch than the last record."""
    topic = unique("handed-over")
    partition = Partition(topic, 0)
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=1, replication=3))
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic, lanes=1)
    producer = Producer({**lake_cluster.client_config, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for i in range(5):
        producer.produce(topic, str(i).encode())
    producer.flush(30)
    before = lake_cluster.admin.leader(topic, 0)
    Restart(broker=before).strike(lake_cluster)
    assert lake_cluster.admin.leader(topic, 0) != before, "the fault did not take"
    producer.commit_transaction(30)
    lakes.land(spark, pipeline)
    position = reached(pipeline, partition)
    assert (position.offset, position.epoch_end) == (6, 5)

    lakes.send(lake_cluster, topic, [b"after"])
    gathered = take_up(pipeline, partition, position, 7)
    assert (gathered.diverged, gathered.records.offsets) == ({}, [6])
    assert gathered.ends[partition].leader_epoch != position.leader_epoch
    # What it would be if the epoch were taken for that of the marker.
    naive = take_up(pipeline, partition, position._replace(epoch_end=None), 7)
    assert naive.diverged == {partition: 5}

    lakes.land(spark, pipeline)
    assert lakes.in_tables(pipeline) == lakes.in_topic(lake_cluster, topic, 1)
    assert [row["truncated_from"] for row in ledger(pipeline)] == [None, None]


# --- topics that changed while it was down ---------------------------------------------------------


def test_an_order_that_was_not_carried_out_is_not_repeated_on_another_topic_of_that_name(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    topic = unique("again")
    spec = TopicSpec(name=topic, partitions=1, replication=1)
    lake_cluster.create_topic(spec)
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic, lanes=1)
    assert produce(lake_cluster, topic, 10, acks="all") == []
    lakes.land(spark, pipeline)

    # The order is in the checkpoint; its lane cannot write.
    running = lakes.start(spark, pipeline)
    table, aside = tmp_path / "events", tmp_path / "aside"
    table.rename(aside)
    table.touch()
    try:
        assert produce(lake_cluster, topic, 10, acks="all") == []
        with pytest.raises(PenstockError):
            running.wait(60)
    finally:
        with suppress(PenstockError):
            running.stop()
        table.unlink()
        aside.rename(table)
    checkpoint = Checkpoint(Path(pipeline.checkpoint_path))
    assert checkpoint.newest_order > checkpoint.newest_report, "there is nothing to repeat"

    lake_cluster.admin.delete_topic(topic)
    wait_until(lambda: topic not in lake_cluster.admin.topics(), timeout_s=20, what="it to go")
    lake_cluster.create_topic(spec)
    assert produce(lake_cluster, topic, 100, acks="all") == []
    with pytest.raises(PenstockError, match=f"the topic {topic} was deleted and created again"):
        lakes.land(spark, pipeline)
    assert lakes.in_tables(pipeline).total() == 10


# --- stalls ------------------------------------------------------------------------------------------


def test_a_leaderless_partition_is_reported_and_others_continue(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    topic = unique("orphaned")
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=3, replication=1))
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic)
    leaders = lake_cluster.admin.leaders(topic)
    dead = leaders[0]
    others = [p for p, leader in leaders.items() if leader != dead]
    assert others, "all partitions are on one broker"
    for number in range(3):
        lakes.send(lake_cluster, topic, [b"before"] * 5, partition=number)
    running = lakes.start(spark, pipeline)
    try:
        wait_until(lambda: lakes.in_tables(pipeline).total() == 15, timeout_s=60, what="a start")
        kill(lake_cluster, dead)
        try:
            # Before that, elections may keep all partitions waiting for a while.
            wait_until(
                lambda: (
                    (blocker := running.blocker) is not None
                    and f"{topic}-0 cannot be read since" in blocker.message
                ),
                timeout_s=60,
                what="the stall to be told",
                explain=lambda: str(running.blocker),
            )
            last_blocker = running.blocker
            assert (
                last_blocker is not None
                and not last_blocker.is_final
                and last_blocker.stalled_partitions > 0
            )
            for number in others:
                lakes.send(lake_cluster, topic, [b"meanwhile"] * 5, partition=number)
            enough = 15 + 5 * len(others)
            wait_until(
                lambda: lakes.in_tables(pipeline).total() == enough,
                timeout_s=30,
                what="the others to go on",
            )
        finally:
            lake_cluster.start_broker(dead)
        wait_until(lambda: running.blocker is None, timeout_s=30, what="the stall to end")
        lakes.send(lake_cluster, topic, [b"after"] * 5, partition=0)
        wait_until(
            lambda: lakes.in_tables(pipeline).total() == enough + 5,
            timeout_s=30,
            what="it to go on",
        )
    finally:
        running.stop()
    assert audit(spark, pipeline).problems == ()
