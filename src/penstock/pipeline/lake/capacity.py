"""What one lane does when it has more than enough to do: the size of S2's bin, measured.

Only saturated cycles count. A lane that reached the end of its partitions waited for somebody, and
its speed says how fast they wrote, not how fast it reads.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.domain.lake.decoder import JsonDecoder
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.pipeline.lake import query
from penstock.pipeline.lake.landing import Landed
from penstock.progress import Progress, silent

PHASES = ("gather", "decode", "write", "commit", "rest")
# Consumers connect, and Python and Java get warm.
_WARM_UP = 3
_LOOK_S = 0.2


@dataclass(frozen=True)
class Case:
    """A backlog to measure on. The sizes are S2's (4.3.5)."""

    name: str
    # Of each topic; every topic has a table of its own.
    partitions: tuple[int, ...]
    partition_bytes: int


# The document gathers 5 MB at a time and a lane here six times that, so its second case, which
# would be three cycles, has four times the data.
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
class Cycle:
    """One saturated micro-batch of one lane. Times in seconds; `rest` is Spark's and waiting."""

    rows: int
    size_bytes: int
    cycle: float
    gather: float
    decode: float
    write: float
    commit: float

    @property
    def rest(self) -> float:
        return max(0.0, self.cycle - self.gather - self.decode - self.write - self.commit)

    @property
    def bytes_per_s(self) -> float:
        return self.size_bytes / self.cycle

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.cycle


@dataclass(frozen=True)
class Spread:
    """A distribution in five numbers."""

    p5: float
    p25: float
    p50: float
    p75: float
    p95: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) == 1:
            return cls(*[values[0]] * 5)
        cuts = statistics.quantiles(values, n=20, method="inclusive")
        return cls(cuts[0], cuts[4], cuts[9], cuts[14], cuts[18])


@dataclass(frozen=True)
class Capacity:
    """Of one lane, over its saturated cycles."""

    cycles: int
    # Left out: idle, or while everything got warm.
    idle: int
    bytes_per_s: Spread
    rows_per_s: Spread
    cycle_s: Spread
    # Medians.
    phase_s: dict[str, float]


def summarise(cycles: Sequence[Cycle], idle: int) -> Capacity | None:
    """None if no cycle was saturated: then nothing is known."""
    if not cycles:
        return None
    return Capacity(
        cycles=len(cycles),
        idle=idle,
        bytes_per_s=Spread.of([c.bytes_per_s for c in cycles]),
        rows_per_s=Spread.of([c.rows_per_s for c in cycles]),
        cycle_s=Spread.of([c.cycle for c in cycles]),
        phase_s={phase: statistics.median(getattr(c, phase) for c in cycles) for phase in PHASES},
    )


def saturated(landed: Iterable[tuple[float, Landed]]) -> tuple[list[Cycle], int]:
    """The cycles that count, per lane, and how many lanes' cycles do not.

    `landed` are micro-batches with the time at which each was. A cycle is from one to the next.
    """
    found: list[Cycle] = []
    idle = 0
    before: float | None = None
    for number, (at_s, one) in enumerate(landed):
        for lane in one.report.lanes:
            if not lane.is_saturated or before is None or number < _WARM_UP:
                idle += 1
                continue
            found.append(
                Cycle(
                    rows=lane.rows,
                    size_bytes=lane.size_bytes,
                    cycle=at_s - before,
                    gather=lane.gather_s,
                    decode=lane.decode_s,
                    write=lane.write_s,
                    commit=one.commit_s,
                )
            )
        before = at_s
    return found, idle


def case_pipeline(topics: Sequence[str], servers: str, lake: Path) -> Pipeline:
    """Every topic into a table of its own."""
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
    """The same work into tables that are thrown away: nothing of the user's changes."""
    return replace(
        pipeline,
        name="capacity",
        lake=str(lake),
        checkpoint=None,
        lanes=lanes,
        every_s=0.0,
        start="earliest",
        lost_offsets="go-on",
    )


def measure(
    spark: SparkSession, prepared: query.Prepared, most_cycles: int, say: Progress = silent
) -> Capacity | None:
    """Let it work off what the topics hold, or so many micro-batches."""
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
    return summarise(*saturated(seen))
