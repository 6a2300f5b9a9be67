"""Topics to tables, exactly once, on a real cluster and a real Spark; and the audit that says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lakes
import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)
from deltalake import DeltaTable, write_deltalake

from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline, Stream, TableBy
from penstock.domain.lake.plan import Plan
from penstock.kafka.waiting import wait_until
from penstock.lake import query
from penstock.lake.audit import audit
from penstock.lake.checkpoint import Checkpoint
from penstock.lake.compact import compact
from penstock.lake.decoders.json import JsonDecoder
from penstock.lake.ownership import owned
from penstock.lake.reland import reland
from penstock.load.paced_producer import PacedProducer
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import Toolchain

pytestmark = pytest.mark.integration
Unique = Callable[[str], str]


@pytest.fixture
def topic(lake_cluster: Cluster, unique: Unique) -> str:
    name = unique("lake")
    lake_cluster.create_topic(TopicSpec(name=name, partitions=3, replication=1))
    return name


@pytest.fixture
def admin(lake_cluster: Cluster) -> AdminClient:
    return AdminClient(lake_cluster.client_config)


def values(count: int, first: int = 0) -> list[bytes]:
    return [json.dumps({"n": i, "kind": "ab"[i % 2]}).encode() for i in range(first, first + count)]


def assert_clean(spark: Any, pipeline: Pipeline, records: int) -> None:
    result = audit(spark, pipeline)
    assert result.problems == ()
    assert sum(topic.records for topic in result.topics) == records


# --- what is landed --------------------------------------------------------------------------------


def test_every_record_is_landed_once_and_what_does_not_decode_is_kept_with_the_reason(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    sent = [*values(500), b"no JSON", b'{"n": "no number"}', b'{"n": 1, "kind": "c"}']
    lakes.send(lake_cluster, topic, sent)
    pipeline = lakes.pipeline(
        lake_cluster,
        tmp_path,
        topic,
        streams=(
            Stream(
                topics=(f"^{topic}$",),
                decoder=JsonDecoder(columns={"n": "long", "kind": "string"}),
                ignore={"n": (7, 8)},
                table_by=TableBy(column="kind", tables={"a": "as", "b": "bs"}),
            ),
        ),
    )
    landed = lakes.land(spark, pipeline)
    assert lakes.in_tables(pipeline, "as").total() == 249
    assert lakes.in_tables(pipeline, "bs").total() == 249
    rejects = DeltaTable(f"{tmp_path}/test_rejects").to_pyarrow_table().to_pylist()
    assert {row["value"] for row in rejects} == set(sent[500:])
    assert all(row["reason"] for row in rejects)
    result = audit(spark, pipeline)
    assert (result.problems, result.topics[0].records, result.topics[0].ignored) == ((), 501, 2)
    assert sum(r.ignored for one in landed for lane in one.report.lanes for r in lane.ranges) == 2
    row = DeltaTable(f"{tmp_path}/as").to_pyarrow_table().slice(0, 1).to_pylist()[0]
    assert row["kafka_topic"] == topic and row["kafka_timestamp"] is not None
    assert row["kafka_key"] == str(row["n"]).encode()


def test_hostile_records_are_rejected_and_landed_again_once_when_the_cause_is_fixed(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    """Each of these once ended a pipeline for good, or made a whole file unreadable."""
    hostile = [
        b'{"kind": "a", "deep":\n' + b"[" * 2000 + b"]" * 2000 + b"}",
        b'{"kind": "\xff\xfe"}',
        b'{"kind": "a", "n": 1e400}',
        b"\xff" * 100,
    ]
    stream = Stream(
        topics=(topic,),
        decoder=JsonDecoder(columns={"n": "long", "kind": "string"}),
        table_by=TableBy(column="kind", tables={"a": "as"}),
    )
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic, streams=(stream,))
    lakes.send(lake_cluster, topic, [*values(50), *hostile, *values(50)])
    producer = Producer(lake_cluster.client_config)
    producer.produce(topic, b'{"kind": "a"}', headers=[("good", b"1")])
    assert producer.flush(30) == 0
    lakes.land(spark, pipeline)
    first = Counter(
        row["reason"].partition(":")[0]
        for row in DeltaTable(f"{tmp_path}/{pipeline.rejects_table}").to_pyarrow_table().to_pylist()
    )
    # The deep one is JSON, and what it says beyond the columns is left out.
    assert first == {"no-table": 50, "not-utf8": 1, "not-json": 2}
    assert_clean(spark, pipeline, 105)

    fixed = replace(stream, table_by=TableBy(column="kind", tables={"a": "as", "b": "bs"}))
    later = replace(pipeline, streams=(fixed,))
    with owned(later):
        done = reland(later)
    assert (done.landed, done.rejected) == ({"bs": 50}, {"not-utf8": 1, "not-json": 2})
    assert_clean(spark, later, 105)
    assert audit(spark, later).rows == {"as": 52, "bs": 50, pipeline.rejects_table: 3}
    assert lakes.in_tables(later) == lakes.in_topic(lake_cluster, topic, 3)
    lakes.send(lake_cluster, topic, values(10))
    lakes.land(spark, later)
    assert_clean(spark, later, 115)


def test_a_restart_continues_where_the_first_process_ended(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic, lane_bytes=2000)
    lakes.send(lake_cluster, topic, values(300))
    first = lakes.land(spark, pipeline)
    assert len(first) > 1, "a lane's bytes ought to have cut it into several micro-batches"
    assert lakes.land(spark, pipeline) == []
    lakes.send(lake_cluster, topic, values(200, 300))
    lakes.land(spark, pipeline)
    assert lakes.in_tables(pipeline) == lakes.in_topic(lake_cluster, topic, 3)
    assert_clean(spark, pipeline, 500)


def test_partitions_and_topics_that_appear_are_landed_from_their_beginning(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, topic: str, admin: AdminClient
) -> None:
    streams = (Stream(topics=(f"^{topic}",), table="events"),)
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic, streams=streams, start="latest")
    lakes.send(lake_cluster, topic, values(50))  # before it begins at the end
    running = lakes.start(spark, pipeline)
    try:
        _until(lambda: (tmp_path / "_pipelines/test/spark/offsets").exists())
        _until(lambda: _grows(lake_cluster, topic, pipeline))
        admin.create_partitions([NewPartitions(topic, 5)])[topic].result(10)
        lakes.send(lake_cluster, topic, values(100), partition=4)
        lake_cluster.create_topic(TopicSpec(name=f"{topic}-more", partitions=2, replication=1))
        lakes.send(lake_cluster, f"{topic}-more", values(100))
        _until(lambda: lakes.in_tables(pipeline)[(f"{topic}-more", 0, 0)] == 1)
        _until(lambda: lakes.in_tables(pipeline)[(topic, 4, 99)] == 1)
    finally:
        running.stop()
    held = lakes.in_tables(pipeline)
    assert sum(1 for t, p, _ in held if (t, p) == (topic, 4)) == 100
    assert sum(1 for t, _, _ in held if t == f"{topic}-more") == 100
    assert max(held.values()) == 1
    assert audit(spark, pipeline).problems == ()


def test_the_plan_says_which_lane_reads_what_and_may_change(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic)
    checkpoint = Checkpoint(Path(pipeline.checkpoint_path))
    lakes.send(lake_cluster, topic, values(60))
    lakes.land(spark, pipeline)
    for version, lanes in enumerate([[[0, 1, 2]], [[0], [1], [2]], [[2], [0, 1]]], 1):
        plan = Plan(version=version, lanes=tuple(tuple(f"{topic}-{p}" for p in ps) for ps in lanes))
        checkpoint.write_plan(plan)
        lakes.send(lake_cluster, topic, values(60))
        (one,) = lakes.land(spark, pipeline)
        read = sorted(one.report.lanes, key=lambda lane: lane.lane)  # as they came to their turn
        assert [[r.partition for r in lane.ranges] for lane in read] == lanes
    assert_clean(spark, pipeline, 240)


# --- offsets that are not there ---------------------------------------------------------------------


def test_offsets_deleted_before_they_were_read_end_it_or_are_counted(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, topic: str, admin: AdminClient
) -> None:
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic)
    lakes.send(lake_cluster, topic, values(20), partition=1)
    lakes.land(spark, pipeline)
    lakes.send(lake_cluster, topic, values(80), partition=1)
    gone = TopicPartition(topic, 1, 60)
    next(iter(admin.delete_records([gone]).values())).result(10)
    with pytest.raises(PenstockError, match=f"{topic}-1: offsets 20 to 59 were deleted") as error:
        lakes.land(spark, pipeline)
    assert "lost_offsets: continue" in str(error.value)
    lakes.land(spark, replace(pipeline, lost_offsets="continue"))
    assert lakes.in_tables(pipeline).total() == 60
    result = audit(spark, pipeline)
    assert (result.problems, result.lost) == ((), 40)
    assert "40 were deleted" in result.sentence


def test_gaps_of_transactions_and_compaction_raise_no_alarm(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    topic = unique("compacted")
    lake_cluster.create_topic(
        TopicSpec(
            name=topic,
            partitions=1,
            replication=1,
            config={
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": 0.01,
                "segment.ms": 200,
                "max.compaction.lag.ms": 200,
            },
        )
    )
    for _ in range(3):
        lakes.send(lake_cluster, topic, values(100))
        time.sleep(0.4)
    producer = Producer({**lake_cluster.client_config, "transactional.id": topic})
    producer.init_transactions()
    for ends in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for i in range(10):
            producer.produce(topic, b"in a transaction", key=f"t{i}".encode())
        producer.flush()
        ends()
    _until(lambda: lakes.in_topic(lake_cluster, topic, 1).total() < 250, 30)
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic)
    lakes.land(spark, pipeline)
    held = lakes.in_tables(pipeline)
    assert max(held.values()) == 1
    result = audit(spark, pipeline)
    assert result.problems == ()
    # Aborted, and the two markers; and what was compacted away before it was read.
    assert result.topics[0].gaps >= 12 + 50
    assert result.topics[0].records == held.total()


# --- compaction (what the audit finds: test_lake_audit_on_spark.py) -------------------------------------------


@pytest.fixture(scope="module")
def whole(spark: Any, lake_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A lake to make copies of."""
    topic = f"whole-{uuid.uuid4().hex[:8]}"
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=3, replication=1))
    lake = tmp_path_factory.mktemp("whole")
    pipeline = lakes.pipeline(lake_cluster, lake, topic, lane_bytes=1000)
    lakes.send(lake_cluster, topic, values(600))
    lakes.land(spark, pipeline)
    assert_clean(spark, pipeline, 600)
    return pipeline


def test_the_pipeline_continues_after_compaction(
    spark: Any, lake_cluster: Cluster, whole: Pipeline
) -> None:
    before = lakes.in_tables(whole)
    stray, young = (Path(whole.lake) / "events" / name for name in ("stray.parquet", "a.parquet"))
    for file in (stray, young):
        file.write_bytes(b"written by a lane that was killed")
    os.utime(stray, (time.time() - 7200, time.time() - 7200))
    done = {one.table: one for one in compact(whole, 10_000_000, vacuum_hours=1)}
    assert done["events"].files_after == 1 < done["events"].files_before
    assert (stray.exists(), young.exists()) == (False, True)
    assert lakes.in_tables(whole) == before
    lakes.send(lake_cluster, whole.streams[0].topics[0], values(30))
    lakes.land(spark, whole)
    assert_clean(spark, whole, 630)


# --- trouble --------------------------------------------------------------------------------------


def test_a_broker_that_dies_and_comes_back_costs_no_record(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    topic = unique("killed")
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=6, replication=3))
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic, lane_bytes=20_000)
    with _stream(lake_cluster, topic):
        time.sleep(0.5)
        lakes.land(spark, pipeline)  # which ends, though more is written all the while
        with owned(pipeline):
            running = lakes.start(spark, pipeline)
            try:
                before = lakes.in_tables(pipeline).total()
                _until(lambda: lakes.in_tables(pipeline).total() > before)
                now = audit(spark, pipeline)
                assert now.problems == ()
                lake_cluster.process(2).send(signal.SIGKILL)
                lake_cluster.process(2).wait_ended(10)
                time.sleep(1)
                lake_cluster.start_broker(2)
            finally:
                running.stop()
    lakes.land(spark, replace(pipeline, lane_bytes=10**7))  # the rest, in a few micro-batches
    held = lakes.in_topic(lake_cluster, topic, 6)
    assert lakes.in_tables(pipeline) == held
    assert_clean(spark, pipeline, held.total())


def test_the_start_waits_for_kafka_and_reports_it(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    lakes.send(lake_cluster, topic, values(30))
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic)
    for broker in lake_cluster.broker_ids:
        lake_cluster.process(broker).send(signal.SIGSTOP)
    try:
        running = lakes.start(spark, pipeline)
        try:
            _until(lambda: running.blocker is not None, 30)
            assert "waiting for Kafka" in str(running.blocker)
            for broker in lake_cluster.broker_ids:
                lake_cluster.process(broker).send(signal.SIGCONT)
            _until(lambda: lakes.in_tables(pipeline).total() == 30, 30)
            assert running.blocker is None
        finally:
            running.stop()
    finally:
        for broker in lake_cluster.broker_ids:
            lake_cluster.process(broker).send(signal.SIGCONT)
    lake_cluster.wait_ready()


# --- bad input ------------------------------------------------------------------------------------


def test_a_table_with_other_columns_is_refused(
    lake_cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    write_deltalake(f"{tmp_path}/events", pa.table({"kafka_offset": ["text"]}))
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic)
    with pytest.raises(PenstockError, match=r"has other columns .*kafka_offset: is"):
        query.prepare(pipeline, lakes.config(pipeline))


def test_a_topic_that_is_not_there_is_refused_with_its_name(
    lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    pipeline = lakes.pipeline(lake_cluster, tmp_path, unique("nowhere"))
    with pytest.raises(PenstockError, match=r"topic nowhere-.* does not exist"):
        query.check_topics(query.prepare(pipeline, lakes.config(pipeline)))


def test_a_forbidden_topic_is_reported_and_landed_once_allowed(
    spark: Any, toolchain: Toolchain, tmp_path: Path
) -> None:
    topic, of_topic = "guarded", (ResourceType.TOPIC, "guarded", ResourcePatternType.LITERAL)
    # None is any principal and any host, which confluent-kafka's types do not know.
    anybody: tuple[Any, Any] = (None, None)
    everything = AclBindingFilter(*of_topic, *anybody, AclOperation.ANY, AclPermissionType.ANY)
    # One broker: several would have to let one another in before they know who may come in.
    spec = ClusterSpec(
        brokers=1,
        properties={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": True,
        },
    )
    with Cluster(spec, toolchain=toolchain, name=f"guarded-{os.getpid()}") as cluster:
        cluster.create_topic(TopicSpec(name=topic, partitions=2, replication=1))
        lakes.send(cluster, topic, values(30))
        admin = AdminClient(cluster.client_config)
        # Where there are rules, what they do not allow is forbidden.
        for allowed, reason in (
            (AclOperation.WRITE, "topic guarded does not exist, or the user may not see it"),
            (AclOperation.DESCRIBE, "may not be read"),
        ):
            pipeline = lakes.pipeline(cluster, tmp_path / reason[:3], topic)
            who = ("User:ANONYMOUS" if allowed is AclOperation.DESCRIBE else "User:other", "*")
            rule = AclBinding(*of_topic, *who, allowed, AclPermissionType.ALLOW)
            next(iter(admin.create_acls([rule]).values())).result(10)
            with pytest.raises(PenstockError, match=reason) as error:
                lakes.land(spark, pipeline)
            assert "give the pipeline's user" in str(error.value)
            next(iter(admin.delete_acls([everything]).values())).result(10)
        lakes.land(spark, pipeline)
        assert_clean(spark, pipeline, 30)


def test_the_checkpoint_of_another_pipeline_is_refused(
    lake_cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic, checkpoint=f"{tmp_path}/memory")
    query.prepare(pipeline, lakes.config(pipeline))
    other = replace(pipeline, name="other")
    with pytest.raises(PenstockError, match="is the checkpoint of the pipeline test"):
        query.prepare(other, lakes.config(other))


def test_two_pipelines_on_one_checkpoint_are_refused(
    lake_cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic)
    with (
        owned(pipeline),
        pytest.raises(PenstockError, match="in use by another command"),
        owned(pipeline),
    ):
        pass


@pytest.mark.root
def test_a_disk_that_is_full_or_read_only_ends_it_with_the_reason_and_loses_nothing(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, topic: str
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "lake", small], check=True)
    try:
        pipeline = lakes.pipeline(
            lake_cluster,
            small / "lake",
            topic,
            checkpoint=f"{tmp_path}/memory",
            compression="none",
            lane_bytes=500_000,
        )
        lakes.send(lake_cluster, topic, [os.urandom(1000) for _ in range(4000)])
        with pytest.raises(PenstockError, match=r"cannot be written|cannot be committed"):
            lakes.land(spark, pipeline)
        subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
        lakes.land(spark, pipeline)
        lakes.send(lake_cluster, topic, values(30))
        # The worker that found it full may have a file open for a moment yet.
        remount = ["mount", "-o", "remount,ro", str(small)]
        _until(lambda: subprocess.run(remount, capture_output=True).returncode == 0, 30)
        with pytest.raises(PenstockError, match=r"cannot be written.*Read-only file system"):
            lakes.land(spark, pipeline)
        subprocess.run(["mount", "-o", "remount,rw", small], check=True)
        lakes.land(spark, pipeline)
        assert_clean(spark, pipeline, 4030)
        assert lakes.in_tables(pipeline) == lakes.in_topic(lake_cluster, topic, 3)
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)


# --- help -----------------------------------------------------------------------------------------


def _until(holds: Callable[[], bool], timeout_s: float = 20) -> None:
    wait_until(holds, timeout_s=timeout_s, what="that")


def _grows(cluster: Cluster, topic: str, pipeline: Pipeline) -> bool:
    """Whether what is sent now is landed: a pipeline that begins at the end has begun."""
    lakes.send(cluster, topic, values(3))
    return lakes.in_tables(pipeline).total() > 0


@contextmanager
def _stream(cluster: Cluster, topic: str, per_s: int = 500) -> Iterator[None]:
    """A producer that sends all the while."""
    partitions = len(cluster.admin.end_offsets(topic))
    rates = dict.fromkeys(range(partitions), per_s / partitions)
    producer = PacedProducer({**cluster.client_config, "acks": "all"}, topic, size_bytes=100)
    with producer.sending(rates):
        yield
