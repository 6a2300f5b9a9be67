"""Measures the capacity of a lane: bytes/s that it lands while more is waiting (S2's bin size).

Only saturated cycles count (`Cycles` has the rule). A lane that reached the end of its partitions
waited for producers, so its speed shows how fast they wrote, not how fast it reads.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from penstock.domain.lake.cycle import Cycles, LaneCycle
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.lake.report import BatchReport, LaneReport
from penstock.domain.progress import Progress, silent
from penstock.kafka.log_sizes import LogSizes
from penstock.lake import query
from penstock.lake.decoders.json import JsonDecoder
from penstock.lake.landing import Landed

PHASES = ("gather", "decode", "write", "commit", "rest")
# Cycles that are left out: consumers connect, and Python and Java warm up.
_WARM_UP = 3
_LOOK_S = 0.2


@dataclass(frozen=True)
class Case:
    """A backlog to measure on. The sizes are S2's (4.3.5)."""

    name: str
    # Number of partitions of each topic; every topic has its own table.
    partitions: tuple[int, ...]
    partition_bytes: int


# The document gathers 5 MB at a time and a lane here six times as much. Its second case would be
# only three cycles, so it has four times the data here.
CASES = (
    Case("32 partitions × 20 MB, 1 table", (32,), 20_000_000),
    Case("116 partitions × 3.4 MB, 1 table", (116,), 3_440_000),
    Case("144 partitions × 4 MB, 5 tables", (29, 29, 29, 29, 28), 4_000_000),
)
TELEMETRY = JsonDecoder(
    columns={
        "vin": "string", "ts": "long", "speed_kmh": "double", "rpm": "double", "lat": "double",
        "lon": "double", "fuel_pct": "double", "odometer_km": "double", "engine_temp_c": "double",
        "tire_kpa": "array<double>", "gear": "int", "abs": "boolean", "door_open": "boolean",
    }
)  # fmt: skip


@dataclass(frozen=True)
class SaturatedCycle:
    """A saturated cycle, with what its lane reported."""

    cycle: LaneCycle
    report: LaneReport
    commit_s: float

    @property
    def rows_per_s(self) -> float:
        return self.report.rows / self.cycle.took_s

    @property
    def phase_s(self) -> dict[str, float]:
        """The time of each of `PHASES`; `rest` is Spark and waiting."""
        known_s = (self.report.gather_s, self.report.decode_s, self.report.write_s, self.commit_s)
        rest_s = max(0.0, self.cycle.took_s - sum(known_s))
        return dict(zip(PHASES, (*known_s, rest_s), strict=True))


@dataclass(frozen=True)
class Quantiles:
    """A distribution in five numbers."""

    p5: float
    p25: float
    p50: float
    p75: float
    p95: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Quantiles:
        return cls(*np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95)).tolist())


@dataclass(frozen=True)
class Capacity:
    """The capacity of one lane, over its saturated cycles."""

    cycles: int
    # Cycles left out: not saturated, or during the warm-up.
    idle: int
    # Of keys and values.
    bytes_per_s: Quantiles
    rows_per_s: Quantiles
    cycle_s: Quantiles
    # Medians.
    phase_s: dict[str, float]
    # Stored bytes per byte of keys and values; none: the brokers do not report log sizes.
    stored_share: float | None = None

    @property
    def stored_bytes_per_s(self) -> float | None:
        """The median in the unit of write speeds: `autoscaling.lane_capacity_bytes_per_s`."""
        return None if self.stored_share is None else self.bytes_per_s.p50 * self.stored_share


def summarise(
    cycles: Sequence[SaturatedCycle], idle: int, stored_share: float | None = None
) -> Capacity | None:
    """None if no cycle was saturated: then the capacity is not known."""
    if not cycles:
        return None
    return Capacity(
        cycles=len(cycles),
        idle=idle,
        bytes_per_s=Quantiles.of([c.cycle.bytes_per_s for c in cycles]),
        rows_per_s=Quantiles.of([c.rows_per_s for c in cycles]),
        cycle_s=Quantiles.of([c.cycle.took_s for c in cycles]),
        phase_s={phase: statistics.median(c.phase_s[phase] for c in cycles) for phase in PHASES},
        stored_share=stored_share,
    )


def saturated(landed: Iterable[tuple[float, Landed]]) -> tuple[list[SaturatedCycle], int]:
    """The saturated cycles of all lanes after the warm-up, and the number of other cycles.

    `landed` are micro-batches, each with the time at which it was landed.
    """
    saturated_cycles: list[SaturatedCycle] = []
    idle = 0
    cycles = Cycles()
    for number, (at_s, batch) in enumerate(landed):
        of_lanes = cycles.landed(batch.report, at_s, batch.at_ms)
        for cycle, report in zip(of_lanes, batch.report.lanes, strict=True):
            if cycle.is_saturated and number >= _WARM_UP:
                saturated_cycles.append(SaturatedCycle(cycle, report, batch.commit_s))
            else:
                idle += 1
    return saturated_cycles, idle


def stored_share(
    reports: Iterable[BatchReport], log_bytes: Mapping[Partition, int]
) -> float | None:
    """Stored bytes per byte of keys and values, over all landed records of logs of known size."""
    ranges = [r for report in reports for lane in report.lanes for r in lane.ranges]
    starts: dict[Partition, int] = {}
    ends: dict[Partition, int] = {}
    for r in ranges:
        starts[r.name] = min(r.start, starts.get(r.name, r.start))
        ends[r.name] = max(r.known_end, ends.get(r.name, r.known_end))
    per_offset = {
        p: size / (ends[p] - starts[p])
        for p, size in log_bytes.items()
        if p in starts and ends[p] > starts[p]
    }
    stored = sum((r.end - r.start) * per_offset[r.name] for r in ranges if r.name in per_offset)
    decoded = sum(r.size_bytes for r in ranges if r.name in per_offset)
    return stored / decoded if decoded else None


def case_pipeline(topics: Sequence[str], servers: str, lake: Path) -> Pipeline:
    """A pipeline that lands every topic in its own table."""
    return Pipeline(
        name="capacity",
        bootstrap_servers=servers,
        streams=tuple(
            Stream(topics=(topic,), decoder=TELEMETRY, table=f"table-{number}")
            for number, topic in enumerate(topics, 1)
        ),
        lake=str(lake),
    )


def trial(pipeline: Pipeline, lake: Path, lanes: int) -> Pipeline:
    """The same pipeline with temporary tables, so that the user's tables do not change."""
    return replace(
        pipeline,
        name="capacity",
        lake=str(lake),
        checkpoint=None,
        lanes=lanes,
        every_s=0.0,
        start="earliest",
        lost_offsets="continue",
    )


def measure(
    spark: SparkSession, prepared: query.Prepared, most_cycles: int, say: Progress = silent
) -> Capacity | None:
    """Land what the topics hold, or `most_cycles` micro-batches."""
    seen: list[tuple[float, Landed]] = []
    running = query.start(
        spark,
        prepared,
        only_what_is_there=True,
        tell=lambda landed: seen.append((time.monotonic(), landed)),
    )
    while not running.wait(_LOOK_S):
        say(f"{len(seen)} cycles")
        if len(seen) >= most_cycles + _WARM_UP:
            running.stop()
            break
    reports = [landed.report for _, landed in seen]
    partitions = {r.name for report in reports for lane in report.lanes for r in lane.ranges}
    with closing(LogSizes(prepared.job.config)) as sizes:
        share = stored_share(reports, sizes.of(partitions))
    return summarise(*saturated(seen), share)
