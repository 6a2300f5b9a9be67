"""Lanes that follow the write speed, against what people have without us.

A pipeline on real Spark lands a topic of a real cluster. Every lane writes to a sink that takes no
more than so many bytes/s, so a lane is really saturable, whatever the machine has left; the cycles
in which it was are counted. The load is skewed and shifts suddenly: a quarter of the partitions is
hot, every minute others are, and the whole rises and falls. Each of two traces is carried out for
every policy in turn: ours; Kafka's range and cooperative-sticky assignment, with as many lanes as
ours had on average, rounded up; a threshold of lag; Kubernetes' rule. Ours has its default settings. All
begin with four lanes; the first seconds, in which everybody finds its first plan, are not counted.
All lanes are of one query, so a micro-batch lasts as long as its slowest lane takes, whoever plans.

Latency is from a record's time to the moment when it can be read in the table; what was not landed
a while after the load ended counts with the age that it had by then. Cost is lanes × seconds.
Then the load shifts every few seconds, for more decisions to be timed; then how long it takes until
a consumer or an executor is there. Last, the simulator, with figures of this very run: on the same
traces, to be compared with what was measured, and with 500 partitions.

In quick the load shifts after 10 s: too short for the lag of a lane that has too much to become what
it becomes in practice, so that ratio is shown and not judged.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark.sql import SparkSession

from harness import Figure, Row, main, warmed
from landed import ages_ms
from penstock import specs
from penstock.autoscaler.actions import Commanded, Decided, Event, HandedOver, Looked, Started
from penstock.autoscaler.channel import ControllerLink, Topics
from penstock.autoscaler.run import ProcessKeeper
from penstock.autoscaler.simulator import Rig, Shift, Simulated, simulate
from penstock.domain.autoscaling import Autoscaling
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import PenstockError
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.lake.plan import even_plan
from penstock.domain.warm_up import RequestKind
from penstock.pipeline.lake import query
from penstock.pipeline.lake.brokers import Brokers
from penstock.pipeline.lake.executors import ONE_LANE_EACH, Executors
from penstock.pipeline.lake.landing import Landed
from penstock.pipeline.lake.scaling import scaled
from penstock.pipeline.session import session
from penstock.testbed.cluster import Cluster
from penstock.testbed.parts import find_parts
from penstock.testbed.spark import SparkCluster
from penstock.testbed.waiting import wait_until
from shifting_load import shifting_load

PARTITIONS, SIZE_BYTES = 16, 1000
# As `shifting_load` sends them.
SHIFTING = RequestKind(
    message_bytes=SIZE_BYTES, messages_per_request=4, partitions=PARTITIONS, replication=1
)
SINK_BYTES_PER_S = 500_000.0
HOT_PER_S, COLD_PER_S = 250, 25
# Until somebody decides otherwise.
BEGIN_LANES = 4
# The whole rises and falls with these, one per shift.
LEVELS = (1.0, 0.6, 1.2, 0.8)
# Of the two traces.
SEEDS = (3, 4)
# Not counted: everybody finds its first plan, Kubernetes' rule after 30 s.
LEAD_S = 36.0
# The last records are on their way.
_LAST_S = 0.5
KAFKA = ("range", "cooperative-sticky")
SIMULATED_PARTITIONS = 500
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
    found = []
    for n in range(shifts):
        hot = set(rng.sample(range(partitions), partitions // 4))
        level = LEVELS[n % len(LEVELS)]
        rates = [level * (HOT_PER_S if p in hot else COLD_PER_S) for p in range(partitions)]
        found.append(Shift(lead_s + n * every_s if n else 0.0, tuple(rates)))
    return Trace(tuple(found), lead_s, lead_s + shifts * every_s, drain_s)


def settings(policy: str, **fields: Any) -> Autoscaling:
    return Autoscaling(policy=policy, lane_bytes_per_s=0.8 * SINK_BYTES_PER_S, **fields)


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    times = 2 if quick else 30
    shape = (2, 10.0, 12.0, 8.0) if quick else (4, 60.0, LEAD_S, 30.0)
    traces = [trace(seed, *shape) for seed in (SEEDS[:1] if quick else SEEDS)]
    plays: dict[str, list[Play]] = {}
    fixed: list[int] = []
    with (
        Cluster(ClusterSpec(brokers=3), parts=find_parts(os.environ), on_progress=say) as cluster,
        tempfile.TemporaryDirectory(prefix="penstock-bench-autoscaler-") as scratch,
    ):
        warmed(cluster, say, SHIFTING)
        say("starting Spark")
        spark = session(query.with_retries("local[16]"), app="bench", config=query.SPARK_CONFIG)
        stage = Stage(spark, cluster, Path(scratch))
        stage.play(trace(SEEDS[0], 1, 5.0, 12.0, 8.0), settings("packing"), say)  # to get warm
        for one in traces:
            ours = stage.play(one, settings("packing"), say)
            plays.setdefault("ours", []).append(ours)
            fixed.append(math.ceil(ours.lanes))
            for policy in KAFKA:
                theirs = stage.play(one, settings(policy, lanes=fixed[-1]), say)
                plays.setdefault(policy, []).append(theirs)
            plays.setdefault("lag", []).append(stage.play(one, settings("lag"), say))
        restless = []
        if not quick:
            plays["hpa"] = [stage.play(traces[0], settings("hpa"), say)]
            # Nothing to compare, only many decisions, scaling in among them.
            often = trace(SEEDS[0], 24, 6.0, 12.0, 8.0)
            restless = [stage.play(often, settings("packing", scale_in_s=4.0), say)]
        spark.stop()
        consumers = _consumer_starts(cluster, Path(scratch), times, say)
    executors = _executor_starts(times, say)
    say("simulating")
    rig = _calibrated([play for found in plays.values() for play in found])
    simulated = {
        name: [
            _simulated(name, one, rig, lanes)
            for one, lanes, _ in zip(traces, fixed, found, strict=False)
        ]
        for name, found in plays.items()
    }
    keys, rows = _results(plays, is_judged=not quick)
    for more_keys, more_rows in (
        _times([*plays["ours"], *restless], consumers, executors),
        _compared(plays, simulated, rig),
        _large(rig, trace(SEEDS[0], *shape, SIMULATED_PARTITIONS)),
    ):
        keys |= more_keys
        rows += more_rows
    return keys, rows


# --- one policy ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Play:
    """One policy on the trace."""

    p50_ms: float
    p99_ms: float
    left: int
    lane_s: float
    lanes: float
    cycles: int
    # Bytes/s of each cycle in which a lane was at its limit.
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
        say(f"{autoscaling.policy}{lanes}, {trace.seconds:.0f} s")
        self.cluster.create_topic(TopicSpec(name=topic, partitions=PARTITIONS, replication=1))
        place = self.scratch / topic
        wanted = Pipeline(
            name=topic.replace("-", "_"),
            bootstrap_servers=self.cluster.bootstrap_servers,
            streams=(Stream(topics=(topic,), table="events"),),
            lake=str(place),
            lanes=BEGIN_LANES,
            lane_bytes=int(SINK_BYTES_PER_S),
            lane_seconds=1.0,
            lane_bytes_per_s=SINK_BYTES_PER_S,
            every_s=0.0,
            autoscaling=autoscaling,
        )
        seen = Seen()
        config = self.cluster.client_config
        prepared = query.prepare(wanted, config)
        every = [Partition(topic, n) for n in range(PARTITIONS)]
        prepared.job.memory.write_plan(even_plan(BEGIN_LANES, every))
        begins_s = time.monotonic() + 4.0
        with (
            shifting_load(config, topic, trace.shifts, trace.seconds, SIZE_BYTES, begins_s),
            scaled("inside", self.spark, prepared, seen.tell) as tell_autoscaler,
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
        decided = [event for _, event in seen.events if isinstance(event, Decided)]
        return Play(
            p50_ms=float(np.percentile(every, 50)),
            p99_ms=float(np.percentile(every, 99)),
            left=len(left),
            lane_s=lane_s,
            lanes=lane_s / trace.counted_s,
            cycles=len(lanes),
            saturated=[
                1000 * lane.size_bytes / (one.at_ms - before.at_ms)
                for before, one in pairwise(seen.landed)
                for lane in one.report.lanes
                if lane.is_saturated
            ],
            decisions=len(decided),
            moves=sum(event.moves for event in decided),
            measure_s=_measure_s(seen.events, trace, begins_s),
            decide_s=[e.took_s for _, e in seen.events if isinstance(e, Commanded)],
            hand_over_s=[e.took_s for _, e in seen.events if isinstance(e, HandedOver)],
            hand_over_batches=[
                seen.batches(at_s - e.took_s, at_s)
                for at_s, e in seen.events
                if isinstance(e, HandedOver)
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
        self.events: list[tuple[float, Event]] = []
        self._lanes: list[tuple[float, int]] = []

    def tell(self, event: Event) -> None:
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
    found: list[float] = []
    at_end = 0
    while at_end < PARTITIONS:
        for message in consumer.consume(5000, 1.0):
            if (error := message.error()) is not None:
                at_end += error.code() == KafkaError._PARTITION_EOF
            else:
                found.append(ended_ms - message.timestamp()[1])
    consumer.close()
    return np.array(found)


def _measure_s(events: Sequence[tuple[float, Event]], trace: Trace, began_s: float) -> list[float]:
    """From each change of a partition's rate until the monitor has it within a tenth for good; if
    it never has, as long as that rate held."""
    found = []
    shifts = trace.shifts
    ends_s = [*(shift.at_s for shift in shifts[2:]), trace.seconds]
    for before, after, end_s in zip(shifts, shifts[1:], ends_s, strict=False):
        within = [
            (at_s - began_s - after.at_s, event.measurement.partitions)
            for at_s, event in events
            if isinstance(event, Looked) and after.at_s <= at_s - began_s < end_s
        ]
        for partition, (old, new) in enumerate(zip(before.per_s, after.per_s, strict=True)):
            if abs(new - old) < 50:
                continue
            wrong_s = [
                since_s
                for since_s, told in within
                for name, speed in told.items()
                if name.endswith(f"-{partition}") and abs(speed.records_per_s - new) > 0.1 * new
            ]
            last_s = max(wrong_s, default=0.0)
            right_s = (since_s for since_s, _ in within if since_s > last_s)
            found.append(next(right_s, end_s - after.at_s))
    return found


# --- how long a start takes -----------------------------------------------------------------------------


def _consumer_starts(cluster: Cluster, scratch: Path, times: int, say: Say) -> list[float]:
    """From the start of a plain consumer's process until it is heard of."""
    topic = "starts"
    cluster.create_topic(TopicSpec(name=topic, partitions=1, replication=1))
    wanted = Pipeline(
        name="starts",
        bootstrap_servers=cluster.bootstrap_servers,
        streams=(Stream(topics=(topic,), table="events"),),
        lake=str(scratch / "starts"),
    )
    file = scratch / "starts.yaml"
    file.write_text(specs.dump_yaml(wanted))
    topics = Topics(wanted.name, cluster.client_config, most_hosts=wanted.autoscaling.most_lanes)
    topics.make()
    link = ControllerLink(topics, is_dry=True)
    found: list[float] = []

    def tell(event: Event) -> None:
        found.extend([event.took_s] if isinstance(event, Started) else [])

    keeper = ProcessKeeper(file, tell)
    try:
        for n in range(times):
            say(f"starting a consumer, {n + 1} of {times}")
            keeper.start([0])
            while len(found) == n:
                for answer in link.answers(0.1):
                    keeper.heard(answer)
            keeper.retire(())
            for _ in link.answers(1.0):  # what it said last
                pass
    finally:
        keeper.close()
        link.close()
    return found


def _executor_starts(times: int, say: Say) -> list[float]:
    """From the request of one more executor of a standalone cluster until it can be used."""
    found = []
    config = {**query.SPARK_CONFIG, **ONE_LANE_EACH, "spark.executor.memory": "512m"}
    with SparkCluster(workers=1, cores=2, memory_mb=2048) as standalone:
        say("starting Spark on a standalone cluster")
        spark = session(standalone.master, app="bench", config=config)
        executors = Executors(spark)
        wait_until(lambda: executors.lanes == 2, timeout_s=60, what="both executors")
        for n in range(times):
            say(f"starting an executor, {n + 1} of {times}")
            executors.give_back(1)
            wait_until(lambda: executors.lanes == 1, timeout_s=60, what="one executor to go")
            began_s = time.monotonic()
            executors.ask_for(2)
            wait_until(lambda: executors.lanes == 2, timeout_s=60, what="an executor to come")
            found.append(time.monotonic() - began_s)
        spark.stop()
    return found


# --- the simulator ----------------------------------------------------------------------------------------


def _calibrated(plays: Sequence[Play]) -> Rig:
    """A line through what micro-batches took, by their lanes."""
    seen = [found for play in plays for found in play.fixed_s]
    by_lanes = {
        n: statistics.median(s for lanes, s in seen if lanes == n) for n in {n for n, _ in seen}
    }
    weights = [sum(1 for lanes, _ in seen if lanes == n) for n in by_lanes]
    per_lane_s, fixed_s = np.polyfit([*by_lanes], [*by_lanes.values()], 1, w=np.sqrt(weights))
    if per_lane_s < 0:  # noise: more lanes cannot cost less
        per_lane_s, fixed_s = 0.0, statistics.median(s for _, s in seen)
    return Rig(
        lane_bytes_per_s=SINK_BYTES_PER_S,
        lane_bytes=SINK_BYTES_PER_S,
        record_bytes=SIZE_BYTES,
        batch_s=float(fixed_s),
        batch_s_per_lane=float(per_lane_s),
        lanes=BEGIN_LANES,
    )


def _simulated(name: str, trace: Trace, rig: Rig, lanes: int | None, **fields: Any) -> Simulated:
    wanted = settings(
        "packing" if name == "ours" else name, lanes=lanes if name in KAFKA else None, **fields
    )
    return simulate(wanted, trace.shifts, trace.seconds, rig, trace.drain_s, trace.lead_s)


def _compared(
    plays: Mapping[str, Sequence[Play]], simulated: Mapping[str, Sequence[Simulated]], rig: Rig
) -> tuple[dict[str, Any], list[Row]]:
    """Trace by trace."""
    keys: dict[str, Any] = {"simulator_rig": rig, "simulated": {}}
    rows = []
    for name, found in simulated.items():
        pairs = list(zip(found, plays[name], strict=True))
        keys["simulated"][name] = [
            {
                "p50_ms": 1000 * made.p50_s,
                "p99_ms": 1000 * made.p99_s,
                "lane_s": made.lane_s,
                "p99_over_real": 1000 * made.p99_s / real.p99_ms,
                "lane_s_over_real": made.lane_s / real.lane_s,
            }
            for made, real in pairs
        ]
        rows += [
            Row(
                f"simulated, {name}: p50, p99; cost (measured)",
                f"{1000 * made.p50_s:,.0f} ms ({real.p50_ms:,.0f}), "
                f"{1000 * made.p99_s:,.0f} ms ({real.p99_ms:,.0f}); "
                f"{made.lane_s:,.0f} lane-s ({real.lane_s:,.0f})",
            )
            for made, real in pairs
        ]
    return keys, rows


def _large(rig: Rig, trace: Trace) -> tuple[dict[str, Any], list[Row]]:
    """As many partitions as no machine here has lanes for, on a cluster with a core for every lane:
    a micro-batch takes as long there as one of a few lanes does here."""
    rig = replace(
        rig,
        batch_s=rig.batch_s + BEGIN_LANES * rig.batch_s_per_lane,
        batch_s_per_lane=0.0,
        lanes=SIMULATED_PARTITIONS // 4,
    )
    keys: dict[str, Any] = {}
    rows = []
    lanes: int | None = None
    for name in ("ours", *KAFKA, "lag", "hpa"):
        found = _simulated(name, trace, rig, lanes, most_lanes=SIMULATED_PARTITIONS)
        if name == "ours":
            lanes = math.ceil(found.lane_s / trace.counted_s)
        keys[name] = {
            "p50_ms": 1000 * found.p50_s,
            "p99_ms": 1000 * found.p99_s,
            "lane_s": found.lane_s,
            "decisions": len(found.decisions),
            "moves": sum(decided.moves for decided in found.decisions),
        }
        rows.append(
            Row(
                f"simulated, {SIMULATED_PARTITIONS} partitions, {name}: p50, p99; lanes; cost",
                f"{1000 * found.p50_s:,.0f} ms, {1000 * found.p99_s:,.0f} ms; "
                f"{found.lane_s / trace.counted_s:.1f}; {found.lane_s:,.0f} lane-s",
            )
        )
    return {f"simulated_{SIMULATED_PARTITIONS}": keys}, rows


# --- what came of it ------------------------------------------------------------------------------------


def _results(
    plays: Mapping[str, Sequence[Play]], is_judged: bool
) -> tuple[dict[str, Any], list[Row]]:
    ours = plays["ours"]
    better = min(KAFKA, key=lambda name: statistics.median(p.p99_ms for p in plays[name]))

    def ratio(name: str, of: Callable[[Play], float]) -> Figure:
        pairs = zip(plays[name], ours, strict=True)
        return Figure.of([of(theirs) / of(own) for theirs, own in pairs])

    vs_kafka = ratio(better, lambda play: play.p99_ms)
    vs_lag = ratio("lag", lambda play: play.p99_ms)
    cost = ratio("lag", lambda play: play.lane_s)
    cost_kafka = ratio(better, lambda play: play.lane_s)
    keys: dict[str, Any] = {
        "p99_ratio_vs_kafka": vs_kafka.median,
        "p99_ratio_vs_kafka_spread": vs_kafka,
        "p99_ratio_vs_lag_scaler": vs_lag.median,
        "p99_ratio_vs_lag_scaler_spread": vs_lag,
        "cost_ratio": cost.median,
        "cost_ratio_spread": cost,
        "cost_ratio_vs_kafka": cost_kafka.median,
        "plays": {
            name: [
                {k: v for k, v in asdict(play).items() if not isinstance(v, list)} for play in found
            ]
            for name, found in plays.items()
        },
    }
    rows = []
    for name, found in plays.items():
        p50, p99 = (Figure.of([getattr(p, f) for p in found]) for f in ("p50_ms", "p99_ms"))
        lanes, lane_s = (Figure.of([getattr(p, f) for p in found]) for f in ("lanes", "lane_s"))
        left = sum(play.left for play in found)
        rows.append(
            Row(
                f"{name}: p50, p99; lanes; cost",
                f"{p50.median:,.0f} ms, {p99.median:,.0f} ms "
                f"[{p99.lowest:,.0f}, {p99.highest:,.0f}]; "
                f"{lanes.median:.1f}; {lane_s.median:,.0f} lane-s"
                + (f"; {left:,} not landed" if left else ""),
            )
        )
    saturated = [speed for found in plays.values() for play in found for speed in play.saturated]
    cycles = sum(play.cycles for found in plays.values() for play in found)
    if not saturated:
        raise PenstockError("no lane was ever at its limit")
    low, middle, high = (float(np.percentile(saturated, p)) / 1000 for p in (5, 50, 95))
    keys |= {"saturated_cycles": len(saturated), "cycles": cycles, "saturated_kb_per_s": middle}
    rows += [
        Row(
            f"p99_ratio_vs_kafka ({better})",
            vs_kafka,
            "≥ 10",
            vs_kafka.median >= 10 if is_judged else None,
        ),
        Row("p99_ratio_vs_lag_scaler", vs_lag),
        Row("cost_ratio (lag scaler / ours)", cost),
        Row("cost_ratio_vs_kafka", cost_kafka),
        Row("cycles in which a lane was saturated", f"{len(saturated):,} of {cycles:,}"),
        Row(
            "… and what it did, kB/s, p50 [p5, p95]",
            f"{middle:.0f} [{low:.0f}, {high:.0f}]; its sink takes {SINK_BYTES_PER_S / 1000:.0f}",
        ),
    ]
    return keys, rows


def _times(
    ours: Sequence[Play], consumers: Sequence[float], executors: Sequence[float]
) -> tuple[dict[str, Any], list[Row]]:
    keys: dict[str, Any] = {}
    rows = []
    for key, text, values, limit, aim in (
        ("dt1_measure_s", "Δt1 measure, s", [s for p in ours for s in p.measure_s], 5.0, "≤ 5"),
        ("dt2_decide_s", "Δt2 decide, s", [s for p in ours for s in p.decide_s], 0.1, "< 0.1"),
        ("dt3_start_consumer_s", "Δt3 start, a consumer, s", consumers, 10.0, "≤ 10"),
        ("dt3_start_executor_s", "Δt3 start, an executor, s", executors, 10.0, "≤ 10"),
        ("dt4_hand_over_s", "Δt4 hand over, s", [s for p in ours for s in p.hand_over_s], None, ""),
        (
            "dt4_hand_over_batches",
            "Δt4 hand over, micro-batches",
            [float(n) for p in ours for n in p.hand_over_batches],
            2.0,
            "≤ 2",
        ),
    ):
        if not values:
            raise PenstockError(f"{text}: nothing was observed")
        quantiles = {f"p{p}": float(np.percentile(values, p)) for p in (5, 25, 50, 75, 95, 99)}
        keys |= {key: Figure.of(values), f"{key}_quantiles": quantiles}
        met = None if limit is None else quantiles["p50"] <= limit
        shown = ", ".join(f"{quantiles[p]:.3g}" for p in ("p50", "p95", "p99"))
        rows.append(Row(f"{text}: p50, p95, p99 of {len(values)}", shown, aim, met))
    return keys, rows


if __name__ == "__main__":
    main("autoscaler", measure)
