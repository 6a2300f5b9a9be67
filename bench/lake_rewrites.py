"""Topics that change under a pipeline: a log rewritten by an unclean election, a topic re-created.

Each has a pipeline of its own, on Spark or of plain consumers, that lands all of the topic before and
after. It must stop and say why, land nothing twice, and where it is told to go on, record what it
went on from.
"""

from __future__ import annotations

import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import SparkSession

from lake_lives import command
from penstock import specs
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import GroupStopped, PenstockError
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.kafka.waiting import wait_until
from penstock.lake.audit import audit
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import Toolchain

TABLE = "events"
PATIENCE_S = 120.0


class Lander(ABC):
    """Runs a pipeline."""

    @abstractmethod
    def land(self, pipeline: Pipeline, place: Path, rows: int) -> None:
        """Until the table has so many rows, each once."""

    @abstractmethod
    def expect_stop(self, pipeline: Pipeline, place: Path, text: str) -> None:
        """It must end by itself, with this text."""


class OnSpark(Lander):
    def land(self, pipeline: Pipeline, place: Path, rows: int) -> None:
        done = self._run(pipeline, place)
        if done.returncode:
            raise PenstockError(f"landing failed: {done.stderr[-2000:]}")
        check(pipeline, rows)

    def expect_stop(self, pipeline: Pipeline, place: Path, text: str) -> None:
        done = self._run(pipeline, place)
        if done.returncode == 0 or text not in done.stderr:
            raise PenstockError(f"it was to stop ({text!r}), and said: {done.stderr[-2000:]}")

    def _run(self, pipeline: Pipeline, place: Path) -> subprocess.CompletedProcess[str]:
        asked = command("pipeline", "run", str(_file(pipeline, place)), "--once")
        return subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE_S)


class PlainConsumers(Lander):
    def land(self, pipeline: Pipeline, place: Path, rows: int) -> None:
        with self._running(pipeline, place) as process:
            wait_until(
                lambda: len(_offsets(pipeline)) >= rows or process.poll() is not None,
                timeout_s=PATIENCE_S,
                what=f"{rows} rows",
            )
        check(pipeline, rows)

    def expect_stop(self, pipeline: Pipeline, place: Path, text: str) -> None:
        with self._running(pipeline, place) as process:
            code = process.wait(PATIENCE_S)
        said = (place / "log").read_text()
        if code != GroupStopped.exit_code or text not in said:
            raise PenstockError(f"it was to stop ({text!r}), ended with {code}: {said[-2000:]}")

    @contextmanager
    def _running(self, pipeline: Pipeline, place: Path) -> Iterator[subprocess.Popen[bytes]]:
        asked = command("autoscaler", "run", str(_file(pipeline, place)), "--consumers")
        with (place / "log").open("w") as log:
            process = subprocess.Popen(asked, stdout=log, stderr=log)
            try:
                yield process
            finally:
                process.terminate()
                process.wait(90)


LANDERS: dict[str, Lander] = {"spark": OnSpark(), "consumers": PlainConsumers()}


@contextmanager
def careless_cluster(toolchain: Toolchain) -> Iterator[Cluster]:
    """One that prefers a leader without the newest records to none."""
    spec = ClusterSpec(
        brokers=3,  # the topics of a group need two of them
        controllers=1,
        properties={
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            "unclean.leader.election.enable": True,
        },
    )
    with Cluster(spec, toolchain=toolchain) as cluster:
        yield cluster


def unclean_election(spark: SparkSession, cluster: Cluster, place: Path, lander: Lander) -> None:
    """Records that only a dead leader had are landed; then the log has others at their offsets."""
    topic = place.name
    cluster.create_topic(TopicSpec(name=topic, partitions=1, replication=2))
    pipeline = _pipeline(cluster, topic, place)
    _send(cluster, topic, 20)
    lander.land(pipeline, place, 20)
    leader = cluster.admin.leader(topic, 0)
    known = AdminClient(cluster.client_config).list_topics(topic, timeout=10).topics[topic]
    (follower,) = set(known.partitions[0].replicas) - {leader}
    _kill(cluster, follower)
    wait_until(
        lambda: any(line.startswith(f"{topic}-0:") for line in cluster.admin.out_of_sync()),
        timeout_s=30,
        what="the follower to be out of sync",
    )
    _send(cluster, topic, 10)
    lander.land(pipeline, place, 30)
    _kill(cluster, leader)
    cluster.start_broker(follower)
    _send(cluster, topic, 25)
    cluster.start_broker(leader)
    lander.expect_stop(pipeline, place, "no longer in the topic")
    check(pipeline, 30)
    lander.land(replace(pipeline, lost_offsets="continue"), place, 45)
    found = audit(spark, pipeline)
    if not found.is_clean or found.truncated != 10:
        raise PenstockError(
            f"the audit of a truncated topic says {found.sentence} {found.problems}"
        )


def recreated_topic(spark: SparkSession, cluster: Cluster, place: Path, lander: Lander) -> None:
    """Its offsets mean something else now: the pipeline must not read on."""
    topic = place.name
    cluster.create_topic(TopicSpec(name=topic, partitions=1, replication=1))
    pipeline = _pipeline(cluster, topic, place)
    _send(cluster, topic, 20)
    lander.land(pipeline, place, 20)
    cluster.admin.delete_topic(topic)
    cluster.create_topic(TopicSpec(name=topic, partitions=1, replication=1))
    _send(cluster, topic, 40)
    lander.expect_stop(pipeline, place, "deleted and created again")
    check(pipeline, 20)
    found = audit(spark, pipeline)
    if not found.is_clean:
        raise PenstockError(f"the audit says {found.sentence} {found.problems}")


def check(pipeline: Pipeline, rows: int) -> None:
    offsets = _offsets(pipeline)
    if sorted(offsets) != list(range(rows)):
        raise PenstockError(
            f"{rows} rows were to be landed once each, and there are {len(offsets)}"
        )


def _offsets(pipeline: Pipeline) -> list[int]:
    try:
        table = DeltaTable(f"{pipeline.lake}/{TABLE}").to_pyarrow_table(columns=["kafka_offset"])
    except TableNotFoundError:
        return []
    found: list[int] = table.column(0).to_pylist()
    return found


def _file(pipeline: Pipeline, place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    file = place / "pipeline.yaml"
    file.write_text(specs.dump_yaml(pipeline))
    return file


def _pipeline(cluster: Cluster, topic: str, place: Path) -> Pipeline:
    return Pipeline(
        name=place.name.replace("-", "_"),
        bootstrap_servers=cluster.bootstrap_servers,
        streams=(Stream(topics=(topic,), table=TABLE),),
        lake=str(place / "lake"),
        lanes=1,
    )


def _send(cluster: Cluster, topic: str, count: int) -> None:
    producer = Producer({**cluster.client_config, "acks": 1})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    if left := producer.flush(60):
        raise PenstockError(f"{left} of {count} messages could not be sent to {topic}")


def _kill(cluster: Cluster, broker: int) -> None:
    cluster.process(broker).send(signal.SIGKILL)
    cluster.process(broker).wait_ended(10)
