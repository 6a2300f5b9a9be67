"""Lanes that follow the write speed, against what people have without us.

A pipeline on real Spark lands a topic of a real cluster. Every lane writes to a sink that takes no
more than so many bytes/s, so a lane is really saturable, whatever the machine has left; the cycles
in which it was are counted. The load is skewed and shifts suddenly: some partitions are hot, every
while others become it, and the whole rises and falls. The same trace is carried out once per policy:
ours; Kafka's range and cooperative-sticky assignment with as many lanes as ours had on average;
Kubernetes' rule; a threshold of lag.

Latency is from a record's time to the moment when it can be read in the table; what was not landed
half a minute after the load ended counts with the age that it had by then. Cost is lanes × seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from pyspark.sql import SparkSession

from harness import Figure, Row, main
from penstock.autoscaler.channel import HostLink, Topics
from penstock.autoscaler.controller import Phase, Tell
from penstock.autoscaler.run import Pilot
from penstock.domain.autoscaling import Autoscaling, Measurement
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.pipeline.lake import query
from penstock.pipeline.lake.agent import Agent
from penstock.pipeline.lake.executors import Executors
from penstock.pipeline.lake.landing import Landed
from penstock.pipeline.session import session
from penstock.testbed.cluster import Cluster
from penstock.testbed.parts import find_parts
from penstock.testbed.warm_up import warm_up

PARTITIONS, SIZE_BYTES = 16, 1000
SINK_BYTES_PER_S = 500_000.0
HOT, HOT_PER_S, COLD_PER_S = 4, 250, 25
# The whole rises and falls with these, one per shift.
LEVELS = (1.0, 0.6, 1.2, 0.8)
SEED = 3
DRAIN_S = 30.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Shift:
    """From this moment on, records/s of each partition."""

    at_s: float
    per_s: tuple[float, ...]


def trace(shifts: int, every_s: float) -> list[Shift]:
    rng = random.Random(SEED)
    found = []
    for n in range(shifts):
        hot = set(rng.sample(range(PARTITIONS), HOT))
        level = LEVELS[n % len(LEVELS)]
        rates = [level * (HOT_PER_S if p in hot else COLD_PER_S) for p in range(PARTITIONS)]
        found.append(Shift(n * every_s, tuple(rates)))
    return found


@dataclass(frozen=True)
class Outcome:
    """One policy on the trace."""

    policy: str
    p50_ms: float
    p99_ms: float
    left: int
    lane_s: float
    lanes: float
    saturated_cycles: int
    measure_s: list[float]
    hand_over_s: list[float]
    batch_s: float


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    shifts = trace(3, 15.0) if quick else trace(8, 30.0)
    seconds = shifts[-1].at_s + (15.0 if quick else 30.0)
    outcomes: dict[str, Outcome] = {}
    with (
        Cluster(ClusterSpec(brokers=3), parts=find_parts(os.environ), on_progress=say) as cluster,
        tempfile.TemporaryDirectory(prefix="penstock-bench-autoscaler-") as scratch,
    ):
        warm_up(cluster, 5)
        say("starting Spark")
        spark = session(query.with_retries("local[16]"), app="bench", config=query.SPARK_CONFIG)
        stage = Stage(spark, cluster, Path(scratch), shifts, seconds)
        stage.play("packing", None, say, warm_up_s=10.0)  # to get warm
        ours = outcomes["ours"] = stage.play("packing", None, say)
        lanes = max(1, round(ours.lanes))
        for policy in ("range", "cooperative-sticky"):
            outcomes[policy] = stage.play(policy, lanes, say)
        for policy in ("lag",) if quick else ("lag", "hpa"):
            outcomes[policy] = stage.play(policy, None, say)
        spark.stop()
    return _results(outcomes, quick)


def _results(outcomes: Mapping[str, Outcome], quick: bool) -> tuple[dict[str, Any], list[Row]]:
    ours = outcomes["ours"]
    kafka = min((outcomes["range"], outcomes["cooperative-sticky"]), key=lambda o: o.p99_ms)
    lag = outcomes["lag"]
    vs_kafka, vs_lag = kafka.p99_ms / ours.p99_ms, lag.p99_ms / ours.p99_ms
    keys: dict[str, Any] = {
        "p99_ratio_vs_kafka": vs_kafka,
        "p99_ratio_vs_lag_scaler": vs_lag,
        "cost_ratio": lag.lane_s / ours.lane_s,
        "cost_ratio_vs_kafka": kafka.lane_s / ours.lane_s,
        "outcomes": outcomes,
        "dt1_measure_s": Figure.of(ours.measure_s),
        "dt4_hand_over_s": Figure.of(ours.hand_over_s),
        "batch_s": ours.batch_s,
    }
    rows = [
        Row(
            f"{name}: p50, p99 latency; lanes; cost",
            f"{o.p50_ms:,.0f} ms, {o.p99_ms:,.0f} ms; {o.lanes:.1f}; {o.lane_s:,.0f} lane-s"
            + (f"; {o.left:,} not landed" if o.left else ""),
        )
        for name, o in outcomes.items()
    ]
    rows += [
        Row("p99_ratio_vs_kafka", f"{vs_kafka:.1f}", "≥ 10", vs_kafka >= 10),
        Row("p99_ratio_vs_lag_scaler", f"{vs_lag:.1f}"),
        Row("cost_ratio", f"{lag.lane_s / ours.lane_s:.2f}"),
        Row("Δt1 measure, s", Figure.of(ours.measure_s), "≤ 5"),
        Row("Δt4 hand over, s", Figure.of(ours.hand_over_s), "≤ 2 micro-batches"),
        Row("… a micro-batch, s", f"{ours.batch_s:.2f}"),
        Row("cycles in which a lane was saturated", ours.saturated_cycles),
    ]
    return keys, rows


# --- one policy ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    spark: SparkSession
    cluster: Cluster
    scratch: Path
    shifts: list[Shift]
    seconds: float

    def play(
        self, policy: str, lanes: int | None, say: Say, warm_up_s: float | None = None
    ) -> Outcome:
        name = f"{policy.replace('-', '_')}_{'warm' if warm_up_s else 'real'}"
        topic = f"stage-{name}"
        say(f"{policy}{f' with {lanes} lanes' if lanes else ''}")
        self.cluster.create_topic(TopicSpec(name=topic, partitions=PARTITIONS, replication=1))
        place = self.scratch / name
        wanted = Pipeline(
            name=name,
            bootstrap_servers=self.cluster.bootstrap_servers,
            streams=(Stream(topics=(topic,), table="events"),),
            lake=str(place),
            lanes=lanes or 4,
            lane_bytes=int(SINK_BYTES_PER_S),
            lane_seconds=1.0,
            lane_bytes_per_s=SINK_BYTES_PER_S,
            every_s=0.0,
            autoscaling=Autoscaling(
                policy=policy,
                lanes=lanes,
                lane_bytes_per_s=0.8 * SINK_BYTES_PER_S,
                scale_in_s=10.0,
                drain_s=10.0,
            ),
        )
        seen = Seen()
        seconds = warm_up_s or self.seconds
        with _load(self.cluster.client_config, topic, self.shifts, seconds) as began_s:
            with _scaled(self.spark, wanted, self.cluster.client_config, seen) as (running, pilot):
                _wait(running, began_s + seconds)
                seen.ended_s = time.monotonic()
                deadline = time.monotonic() + (0 if warm_up_s else DRAIN_S)
                while time.monotonic() < deadline and seen.is_behind:
                    _wait(running, time.monotonic() + 0.5)
            found = self._outcome(policy, wanted, topic, seen, pilot, began_s, seconds)
        shutil.rmtree(place)
        self.cluster.admin.delete_topic(topic)
        return found

    def _outcome(
        self,
        policy: str,
        wanted: Pipeline,
        topic: str,
        seen: Seen,
        pilot: Pilot,
        began_s: float,
        seconds: float,
    ) -> Outcome:
        ages = [*_ages_ms(seen.landed, Path(wanted.lake))]
        left = _left_ages_ms(self.cluster, topic, seen.positions)
        every = np.concatenate([*ages, left])
        cycles = [lane for one in seen.landed for lane in one.report.lanes]
        ends_ms = [one.at_ms for one in seen.landed]
        return Outcome(
            policy=policy,
            p50_ms=float(np.percentile(every, 50)),
            p99_ms=float(np.percentile(every, 99)),
            left=len(left),
            lane_s=seen.lane_seconds(began_s, began_s + seconds),
            lanes=seen.lane_seconds(began_s, began_s + seconds) / seconds,
            saturated_cycles=sum(lane.is_saturated for lane in cycles),
            measure_s=_measure_s(seen.measured, self.shifts, began_s) or [float("nan")],
            hand_over_s=_hand_overs(pilot) or [float("nan")],
            batch_s=float(np.median(np.diff(ends_ms))) / 1000,
        )


class Seen:
    """What was landed, planned and measured."""

    def __init__(self) -> None:
        self.landed: list[Landed] = []
        self.lanes: list[tuple[float, int]] = []
        self.measured: list[tuple[float, Measurement]] = []
        self.positions: dict[int, int] = {}
        self.ended_s = float("inf")

    def land(self, landed: Landed) -> None:
        self.landed.append(landed)
        self.lanes.append((time.monotonic(), len(landed.report.lanes)))
        for lane in landed.report.lanes:
            self.positions |= {r.partition: r.end for r in lane.ranges}

    @property
    def is_behind(self) -> bool:
        return bool(self.landed) and any(
            r.lag for lane in self.landed[-1].report.lanes for r in lane.ranges
        )

    def lane_seconds(self, begin_s: float, end_s: float) -> float:
        """Lanes × time, from one micro-batch to the next."""
        total, before_s = 0.0, begin_s
        for at_s, lanes in self.lanes:
            if begin_s < at_s <= end_s:
                total += lanes * (at_s - before_s)
                before_s = at_s
        return total


@contextmanager
def _scaled(
    spark: SparkSession, wanted: Pipeline, config: Mapping[str, Any], seen: Seen
) -> Iterator[tuple[query.Running, Pilot]]:
    prepared = query.prepare(wanted, config)
    job = prepared.job
    topics = Topics(wanted.name, config, most_hosts=1)
    topics.make()
    agent = Agent(job.memory, HostLink(topics, 0), Executors(spark), wanted.lane_seconds)
    agent.start()
    pilot = Pilot(wanted, config, topics, _ignore)
    on_measured = pilot.controller.on_measured

    def note(measurement: Measurement, now_s: float) -> Any:
        seen.measured.append((now_s, measurement))
        return on_measured(measurement, now_s)

    pilot.controller.on_measured = note  # type: ignore[method-assign]
    pilot.start()

    def tell(landed: Landed) -> None:
        seen.land(landed)
        agent.tell(landed)

    running = query.start(spark, prepared, tell=tell)
    try:
        yield running, pilot
    finally:
        running.stop()
        pilot.stop()
        agent.stop()


def _ignore(_: Tell) -> None: ...


def _wait(running: query.Running, until_s: float) -> None:
    while time.monotonic() < until_s:
        if running.wait(min(0.5, max(0.01, until_s - time.monotonic()))):
            raise PenstockError("the query ended by itself")


# --- the load -----------------------------------------------------------------------------------------


@contextmanager
def _load(
    config: Mapping[str, Any], topic: str, shifts: list[Shift], seconds: float
) -> Iterator[float]:
    """Gives the moment (monotonic, the same for all processes) when it begins."""
    began_s = time.monotonic() + 3.0
    process = multiprocessing.get_context("spawn").Process(
        target=_send, args=(dict(config), topic, shifts, began_s, seconds), daemon=True
    )
    process.start()
    try:
        yield began_s
    finally:
        process.kill()
        process.join()


def _send(
    config: dict[str, Any], topic: str, shifts: list[Shift], began_s: float, seconds: float
) -> None:
    producer = Producer({**config, "linger.ms": 5})
    values = [os.urandom(SIZE_BYTES) for _ in range(1000)]
    due = [0.0] * PARTITIONS
    number, last_s = 0, 0.0
    time.sleep(max(0.0, began_s - time.monotonic()))
    while (now_s := time.monotonic() - began_s) < seconds:
        rates = [shift for shift in shifts if shift.at_s <= now_s][-1].per_s
        for partition, rate in enumerate(rates):
            due[partition] += rate * (now_s - last_s)
            while due[partition] >= 1:
                producer.produce(topic, values[number % 1000], partition=partition)
                due[partition] -= 1
                number += 1
        last_s = now_s
        producer.poll(0)
        time.sleep(0.01)
    producer.flush(30)


# --- what came of it ------------------------------------------------------------------------------------


def _ages_ms(landed: list[Landed], lake: Path) -> Iterator[npt.NDArray[np.float64]]:
    for one in landed:
        for lane in one.report.lanes:
            for file in lane.files:
                times = pq.read_table(lake / file.table / file.path, columns=["kafka_timestamp"])
                sent_us = pc.cast(times.column(0), "int64").to_numpy()
                yield one.at_ms - sent_us / 1000


def _left_ages_ms(
    cluster: Cluster, topic: str, positions: Mapping[int, int]
) -> npt.NDArray[np.float64]:
    """Of what is in the topic and was not landed, now."""
    consumer = Consumer(
        {
            **cluster.client_config,
            "group.id": "left",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    now_ms = time.time() * 1000
    places = [TopicPartition(topic, p, positions.get(p, 0)) for p in range(PARTITIONS)]
    consumer.assign(places)
    found: list[float] = []
    at_end = 0
    while at_end < PARTITIONS:
        for message in consumer.consume(5000, 1.0):
            if (error := message.error()) is not None:
                at_end += error.code() == KafkaError._PARTITION_EOF
            else:
                found.append(now_ms - message.timestamp()[1])
    consumer.close()
    return np.array(found)


def _measure_s(
    measured: list[tuple[float, Measurement]], shifts: list[Shift], began_s: float
) -> list[float]:
    """From each change of a partition's rate until the monitor has it within a tenth for good."""
    found = []
    for before, after, ends_s in zip(
        shifts, shifts[1:], [*(s.at_s for s in shifts[2:]), float("inf")], strict=False
    ):
        within = [
            (at_s - began_s - after.at_s, told)
            for at_s, told in measured
            if after.at_s <= at_s - began_s < ends_s
        ]
        for partition in range(PARTITIONS):
            rate = after.per_s[partition]
            if abs(rate - before.per_s[partition]) < 50 or not within:
                continue
            wrong = [
                since_s
                for since_s, told in within
                for name, speed in told.partitions.items()
                if name.endswith(f"-{partition}") and abs(speed.records_per_s - rate) > 0.1 * rate
            ]
            later = [since_s for since_s, _ in within if since_s > max(wrong, default=0.0)]
            if later:
                found.append(later[0])
    return found


def _hand_overs(pilot: Pilot) -> list[float]:
    """From a plan to the acknowledgement that it holds."""
    found, began_s = [], None
    for at_s, phase in pilot.controller.transitions:
        if phase is Phase.MANAGE:
            began_s = at_s
        elif began_s is not None and phase is Phase.SYNCHRONISE:
            found.append(at_s - began_s)
            began_s = None
    return found


if __name__ == "__main__":
    main("autoscaler", measure)
