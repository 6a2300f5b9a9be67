"""The bench of the autoscaler: one policy on one trace, on real Spark and a real cluster."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.sql import SparkSession

from landed import ages_ms
from penstock.autoscaler.core.actions import (
    AutoscalerEvent,
    GroupMeasured,
    LanesCommanded,
    LanesDecided,
    LanesHandedOver,
)
from penstock.autoscaler.core.simulator import Shift
from penstock.autoscaler.scaling import scaled
from penstock.domain import plugins
from penstock.domain.autoscaling import Autoscaling
from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import PenstockError
from penstock.domain.lake.cycle import Cycles
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.lake.plan import even_plan
from penstock.kafka.brokers import Brokers
from penstock.lake import query
from penstock.lake.executors import Executors
from penstock.lake.landing import Landed
from penstock.testbed.cluster import Cluster
from shifting_load import shifting_load

PARTITIONS, SIZE_BYTES = 16, 1000
SINK_BYTES_PER_S = 500_000.0
HOT_PER_S, COLD_PER_S = 250, 25
# Until somebody decides otherwise.
BEGIN_LANES = 4
# The whole rises and falls with these, one per shift.
LEVELS = (1.0, 0.6, 1.2, 0.8)
KAFKA = ("range", "cooperative-sticky")
# The last records are on their way.
_LAST_S = 0.5
Say = Callable[[str], None]


@dataclass(frozen=True)
class Trace:
    """What is written, and which part of it counts."""

    shifts: tuple[Shift, ...]
    lead_s: float
    seconds: float
    drain_s: float

    @property
    def counted_s(self) -> float:
        return self.seconds - self.lead_s


def trace(
    seed: int,
    shifts: int,
    every_s: float,
    lead_s: float,
    drain_s: float,
    partitions: int = PARTITIONS,
) -> Trace:
    rng = random.Random(seed)
    made = []
    for n in range(shifts):
        hot = set(rng.sample(range(partitions), partitions // 4))
        level = LEVELS[n % len(LEVELS)]
        rates = [level * (HOT_PER_S if p in hot else COLD_PER_S) for p in range(partitions)]
        made.append(Shift(lead_s + n * every_s if n else 0.0, tuple(rates)))
    return Trace(tuple(made), lead_s, lead_s + shifts * every_s, drain_s)


def settings(policy: str, **fields: Any) -> Autoscaling:
    kind = plugins.get("penstock.policies", policy)()
    return Autoscaling(policy=kind, lane_capacity_bytes_per_s=0.8 * SINK_BYTES_PER_S, **fields)


@dataclass(frozen=True)
class Play:
    """One policy on the trace."""

    p50_ms: float
    p99_ms: float
    left: int
    lane_s: float
    lanes: float
    cycles: int
    # Bytes/s of each saturated cycle.
    saturated: list[float]
    decisions: int
    moves: int
    measure_s: list[float]
    decide_s: list[float]
    hand_over_s: list[float]
    hand_over_batches: list[int]
    # Of each micro-batch its lanes, and what it took beside what its slowest lane's sink takes.
    fixed_s: list[tuple[int, float]]


@dataclass(frozen=True)
class Stage:
    spark: SparkSession
    cluster: Cluster
    scratch: Path

    def play(self, trace: Trace, autoscaling: Autoscaling, say: Say) -> Play:
        topic = f"stage-{time.time_ns()}"
        lanes = f" with {autoscaling.lanes} lanes" if autoscaling.lanes else ""
        say(f"{autoscaling.policy.kind}{lanes}, {trace.seconds:.0f} s")
        self.cluster.create_topic(TopicSpec(name=topic, partitions=PARTITIONS, replication=1))
        place = self.scratch / topic
        pipeline = Pipeline(
            name=topic.replace("-", "_"),
            bootstrap_servers=self.cluster.bootstrap_servers,
            streams=(Stream(topics=(topic,), table="events"),),
            lake=str(place),
            lanes=BEGIN_LANES,
            lane_bytes=int(SINK_BYTES_PER_S),
            lane_seconds=1.0,
            lane_limit_bytes_per_s=SINK_BYTES_PER_S,
            every_s=0.0,
            autoscaling=autoscaling,
        )
        seen = Seen()
        config = self.cluster.client_config
        prepared = query.prepare(pipeline, config)
        every = [Partition(topic, n) for n in range(PARTITIONS)]
        prepared.job.checkpoint.write_plan(even_plan(BEGIN_LANES, every))
        begins_s = time.monotonic() + 4.0
        with (
            shifting_load(config, topic, trace.shifts, trace.seconds, SIZE_BYTES, begins_s),
            scaled("inside", Executors(self.spark), prepared, seen.tell) as tell_autoscaler,
        ):

            def tell(landed: Landed) -> None:
                seen.land(landed)
                tell_autoscaler(landed)

            running = query.start(self.spark, prepared, tell=tell)
            try:
                _wait(running, begins_s + trace.seconds + _LAST_S)
                deadline_s = time.monotonic() + trace.drain_s
                ends = self._ends(topic)
                while time.monotonic() < deadline_s and not seen.has_reached(ends):
                    _wait(running, time.monotonic() + 0.5)
                ended_ms = time.time() * 1000
            finally:
                running.stop()
        try:
            return self._play(trace, topic, place, seen, begins_s, ended_ms)
        finally:
            shutil.rmtree(place)
            self.cluster.admin.delete_topic(topic)

    def _ends(self, topic: str) -> dict[int, int]:
        """Where partitions end, now that nothing comes any more."""
        asked = {Partition(topic, n) for n in range(PARTITIONS)}
        marks = Brokers(self.cluster.client_config).marks(asked)
        return {partition.number: mark.high for partition, mark in marks.items()}

    def _play(
        self,
        trace: Trace,
        topic: str,
        place: Path,
        seen: Seen,
        begins_s: float,
        ended_ms: float,
    ) -> Play:
        left = _left_ages_ms(self.cluster, topic, seen.positions, ended_ms)
        counts_s, ends_s = begins_s + trace.lead_s, begins_s + trace.seconds
        from_ms, to_ms = (1000 * (s - time.monotonic() + time.time()) for s in (counts_s, ends_s))
        every = np.concatenate([ages_ms(seen.landed, place, from_ms), left])
        lanes = [lane for one in seen.landed for lane in one.report.lanes]
        lane_s = seen.lane_seconds(counts_s, ends_s)
        decided = [event for _, event in seen.events if isinstance(event, LanesDecided)]
        cycles = Cycles()
        return Play(
            p50_ms=float(np.percentile(every, 50)),
            p99_ms=float(np.percentile(every, 99)),
            left=len(left),
            lane_s=lane_s,
            lanes=lane_s / trace.counted_s,
            cycles=len(lanes),
            saturated=[
                cycle.bytes_per_s
                for one in seen.landed
                for cycle in cycles.landed(one.report, one.at_ms / 1000, one.at_ms)
                if cycle.is_saturated
            ],
            decisions=len(decided),
            moves=sum(event.moves for event in decided),
            measure_s=_measure_s(seen.events, trace, begins_s),
            decide_s=[e.took_s for _, e in seen.events if isinstance(e, LanesCommanded)],
            hand_over_s=[e.took_s for _, e in seen.events if isinstance(e, LanesHandedOver)],
            hand_over_batches=[
                seen.batches(at_s - e.took_s, at_s)
                for at_s, e in seen.events
                if isinstance(e, LanesHandedOver)
            ],
            fixed_s=[
                (
                    len(one.report.lanes),
                    (one.at_ms - before.at_ms) / 1000
                    - max(lane.size_bytes for lane in one.report.lanes) / SINK_BYTES_PER_S,
                )
                for before, one in pairwise(seen.landed)
                if one.report.lanes and from_ms < before.at_ms and one.at_ms < to_ms
            ],
        )


class Seen:
    """What was landed, and what the autoscaler told."""

    def __init__(self) -> None:
        self.landed: list[Landed] = []
        self.positions: dict[int, int] = {}
        self.events: list[tuple[float, AutoscalerEvent]] = []
        self._lanes: list[tuple[float, int]] = []

    def tell(self, event: AutoscalerEvent) -> None:
        self.events.append((time.monotonic(), event))

    def land(self, landed: Landed) -> None:
        self.landed.append(landed)
        self._lanes.append((time.monotonic(), len(landed.report.lanes)))
        for lane in landed.report.lanes:
            self.positions |= {r.partition: r.end for r in lane.ranges}

    def has_reached(self, ends: Mapping[int, int]) -> bool:
        return all(self.positions.get(partition, 0) >= end for partition, end in ends.items())

    def batches(self, begin_s: float, end_s: float) -> int:
        """That ended meanwhile."""
        return sum(1 for at_s, _ in self._lanes if begin_s < at_s <= end_s)

    def lane_seconds(self, begin_s: float, end_s: float) -> float:
        """Lanes × time, from one micro-batch to the next."""
        total, before_s = 0.0, begin_s
        for at_s, lanes in self._lanes:
            if begin_s < at_s <= end_s:
                total += lanes * (at_s - before_s)
                before_s = at_s
        return total


def _wait(running: query.Running, until_s: float) -> None:
    while time.monotonic() < until_s:
        if running.wait(min(0.5, max(0.01, until_s - time.monotonic()))):
            raise PenstockError("the query ended by itself")


def _left_ages_ms(
    cluster: Cluster, topic: str, positions: Mapping[int, int], ended_ms: float
) -> npt.NDArray[np.float64]:
    """Of what is in the topic and was not landed, when it was over."""
    consumer = Consumer(
        {
            **cluster.client_config,
            "group.id": "left",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, p, positions.get(p, 0)) for p in range(PARTITIONS)])
    left_ms: list[float] = []
    at_end = 0
    while at_end < PARTITIONS:
        for message in consumer.consume(5000, 1.0):
            if (error := message.error()) is not None:
                at_end += error.code() == KafkaError._PARTITION_EOF
            else:
                left_ms.append(ended_ms - message.timestamp()[1])
    consumer.close()
    return np.array(left_ms)


def _measure_s(
    events: Sequence[tuple[float, AutoscalerEvent]], trace: Trace, began_s: float
) -> list[float]:
    """From each change of a partition's rate until the monitor has it within a tenth for good; if
    it never has, as long as that rate held."""
    measured_s = []
    shifts = trace.shifts
    ends_s = [*(shift.at_s for shift in shifts[2:]), trace.seconds]
    for before, after, end_s in zip(shifts, shifts[1:], ends_s, strict=False):
        within = [
            (at_s - began_s - after.at_s, event.measurement.partitions)
            for at_s, event in events
            if isinstance(event, GroupMeasured) and after.at_s <= at_s - began_s < end_s
        ]
        for partition, (old, new) in enumerate(zip(before.per_s, after.per_s, strict=True)):
            if abs(new - old) < 50:
                continue
            wrong_s = [
                since_s
                for since_s, speeds in within
                for name, speed in speeds.items()
                if name.endswith(f"-{partition}") and abs(speed.records_per_s - new) > 0.1 * new
            ]
            last_s = max(wrong_s, default=0.0)
            right_s = (since_s for since_s, _ in within if since_s > last_s)
            measured_s.append(next(right_s, end_s - after.at_s))
    return measured_s
