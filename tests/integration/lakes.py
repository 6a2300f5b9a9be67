"""For tests of the lake: a pipeline into a directory, and what is really in topic and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.kafka.connection import KafkaCluster
from penstock.lake import query
from penstock.lake.landing import Landed
from penstock.testbed.cluster import Cluster

Place = tuple[str, int, int]


def pipeline(cluster: Cluster, lake: Path, topic: str, **fields: Any) -> Pipeline:
    """One topic into the table `events`, unless told otherwise; quick and in small pieces."""
    return Pipeline(
        **{
            "name": "test",
            "bootstrap_servers": cluster.bootstrap_servers,
            "streams": (Stream(topics=(topic,), table="events"),),
            "lake": str(lake),
            "lanes": 2,
            "every_s": 0.2,
            "discover_s": 0.2,
            **fields,
        }
    )


def config(spec: Pipeline, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": spec.bootstrap_servers, **more}


def start(
    spark: SparkSession,
    spec: Pipeline,
    only_what_is_there: bool = False,
    tell: Callable[[Landed], None] = lambda _: None,
) -> query.Running:
    prepared = query.prepare(spec, config(spec))
    return query.start(spark, prepared, only_what_is_there=only_what_is_there, tell=tell)


def land(spark: SparkSession, spec: Pipeline, timeout_s: float = 60) -> list[Landed]:
    """All that the topics hold now."""
    landed: list[Landed] = []
    running = start(spark, spec, only_what_is_there=True, tell=landed.append)
    try:
        assert running.wait(timeout_s), "it did not end"
    finally:
        running.stop()
    return landed


def send(cluster: KafkaCluster, topic: str, values: Iterable[bytes | None], **kw: Any) -> None:
    """Each with its number as key; spread over the partitions in turn unless `partition` is given."""
    producer = Producer({**cluster.client_config, "linger.ms": 5})
    failed: list[Any] = []
    for i, value in enumerate(values):
        producer.produce(
            topic,
            value,
            key=str(i).encode(),
            on_delivery=lambda error, _: failed.append(error) if error else None,
            **kw,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed, failed[0]


def in_tables(spec: Pipeline, *tables: str) -> Counter[Place]:
    """Every record that the tables hold, with how often, by a reader that has nothing to do with
    the audit's."""
    places: Counter[Place] = Counter()
    for table in tables or (*spec.tables, spec.rejects_table):
        rows = DeltaTable(f"{spec.lake}/{table}").to_pyarrow_table(
            columns=["kafka_topic", "kafka_partition", "kafka_offset"]
        )
        places.update(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    return places


def rows(spec: Pipeline, *tables: str) -> int:
    """How many rows the tables hold, from the ends of their files: cheap enough to ask often."""
    count = 0
    for table in tables or (*spec.tables, spec.rejects_table):
        path = Path(spec.lake, table)
        if any((path / "_delta_log").glob("*.json")):
            count += DeltaTable(path).to_pyarrow_dataset().count_rows()
    return count


def in_topic(cluster: KafkaCluster, topic: str, partitions: int) -> Counter[Place]:
    """Every record that the topic holds, read from the beginning to the end by a plain consumer."""
    consumer = Consumer(
        {
            **cluster.client_config,
            "group.id": "independent",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    places: Counter[Place] = Counter()
    at_end = 0
    try:
        while at_end < partitions:
            # It waits so long for the 5,000, although the partitions' ends may be among them.
            for message in consumer.consume(5000, 0.1):
                if (error := message.error()) is not None:
                    at_end += error.code() == KafkaError._PARTITION_EOF
                    continue
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None
                places[(topic, partition, offset)] += 1
    finally:
        consumer.close()
    return places
