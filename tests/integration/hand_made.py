"""Traces made by hand: a run directory with exactly these messages. No cluster, no load.

Times are milliseconds from the start of the measured time; the brokers' wall clock reads the same
milliseconds, on another day.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.domain.arrivals import Arrivals
from penstock.domain.arrivals.constant import ConstantArrivals
from penstock.domain.cluster import TopicSpec
from penstock.domain.objective import Objective
from penstock.domain.run import ClockAnchor, Run, RunSpec
from penstock.domain.trace import message_id
from penstock.domain.workload import Workload
from penstock.load.trace_schema import schema
from penstock.runs.run_directory import RunDirectory

ZERO_NS = 5_000_000_000_000
WALL_NS = 1_700_000_000_000_000_000
MS = 1_000_000
# Delay of the report on an acknowledged message, unless given.
ANSWER_MS = 3.0


def ns(ms: float) -> int:
    return ZERO_NS + round(ms * MS)


@dataclass
class HandMade:
    """A run in the making: `send`, `receive`, `see`, then `write`."""

    directory: Path
    rows: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {"sent": [], "received": [], "seen": [], "requests": []}
    )
    # Messages of each producer, and the end of each partition, so far.
    _sent: Counter[int] = field(default_factory=Counter)
    _ends: Counter[int] = field(default_factory=Counter)

    def send(
        self,
        due_ms: float,
        *,
        producer: int = 1,
        sent_ms: float | None = -1.0,
        outcome: str = "acknowledged",
        reported_ms: float | None = None,
        tries: int | None = 1,
        size_bytes: int = 100,
    ) -> int:
        """A message; its number. It is sent when due, or at `sent_ms`, or never (None)."""
        number = message_id(producer, self._sent[producer])
        self._sent[producer] += 1
        sent = due_ms if sent_ms == -1.0 else sent_ms
        if reported_ms is None and outcome != "unknown" and sent is not None:
            reported_ms = sent + ANSWER_MS
        self.rows["sent"].append(
            {
                "producer": producer,
                "id": number,
                "size_bytes": size_bytes,
                "intended_ns": ns(due_ms),
                "sent_ns": None if sent is None else ns(sent),
                "reported_ns": None if reported_ms is None else ns(reported_ms),
                "outcome": outcome,
                "error": "_MSG_TIMED_OUT" if outcome == "failed" else None,
                "tries": tries,
            }
        )
        return number

    def receive(
        self,
        number: int,
        at_ms: float,
        *,
        partition: int = 0,
        offset: int | None = None,
        index: int = 0,
        appended_ms: float | None = None,
        consumer: int = 1,
        size_bytes: int = 100,
    ) -> int:
        """A record, given to the application; its offset, the next one unless it is said."""
        if offset is None:
            offset = self._ends[partition]
        self._ends[partition] = max(self._ends[partition], offset + 1)
        self.rows["received"].append(
            {
                "consumer": consumer,
                "id": number,
                "received_ns": ns(at_ms),
                "partition": partition,
                "offset": offset,
                "index": index,
                "appended_ms": None
                if appended_ms is None
                else (WALL_NS + round(appended_ms * MS)) // MS,
                "size_bytes": size_bytes,
            }
        )
        return offset

    def see(self, at_ms: float, *, partition: int = 0, offset: int) -> None:
        self.rows["seen"].append({"partition": partition, "offset": offset, "seen_ns": ns(at_ms)})

    def deliver(self, due_ms: float, latency_ms: float, **of_sent: Any) -> int:
        """A message that arrives, once."""
        number = self.send(due_ms, **of_sent)
        self.receive(number, due_ms + latency_ms, appended_ms=due_ms + latency_ms / 2)
        return number

    def write(
        self,
        *,
        seconds: float = 10.0,
        objective: Objective | None = None,
        timeliness_ms: float | None = None,
        loop: Literal["open", "closed"] = "open",
        arrivals: Arrivals | None = None,
        **of_run: Any,
    ) -> Path:
        """The run directory."""
        for trace, rows in self.rows.items():
            owner = {"sent": "producer", "received": "consumer"}.get(trace)
            for one in sorted({row[owner] for row in rows} if owner else {1} if rows else set()):
                own = [row for row in rows if owner is None or row[owner] == one]
                write_trace(self.directory / trace / f"{owner or trace}-{one}.parquet", trace, own)
        spec = RunSpec(
            name="by-hand",
            topic=TopicSpec(name="by-hand"),
            workload=Workload(arrivals=arrivals or ConstantArrivals(rate_per_s=1000.0), loop=loop),
            objective=objective,
            timeliness_ms=timeliness_ms,
        )
        run = Run(
            id=self.directory.name,
            spec=spec,
            started_at="2026-01-01T00:00:00Z",
            versions={},
            measured_from_ns=ZERO_NS,
            measured_to_ns=ns(seconds * 1000),
            anchors=anchors(seconds),
        )
        self.directory.mkdir(parents=True, exist_ok=True)
        RunDirectory(self.directory).write_run(replace(run, **of_run))
        return self.directory


def anchors(seconds: float, drift_ms: float = 0.0) -> tuple[ClockAnchor, ...]:
    """Before and after the load; the wall clock has moved by `drift_ms` meanwhile."""
    end_ms = (seconds + 60) * 1000
    return (
        ClockAnchor(monotonic_ns=ns(-60_000), wall_ns=WALL_NS - 60_000 * MS),
        ClockAnchor(monotonic_ns=ns(end_ms), wall_ns=WALL_NS + round((end_ms + drift_ms) * MS)),
    )


def write_trace(path: Path, trace: str, rows: list[dict[str, Any]]) -> None:
    """Rows as a file of a trace; a column that a row does not have is empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    trace_schema = schema(trace)
    table = pa.Table.from_pylist(
        [{name: row.get(name) for name in trace_schema.names} for row in rows], schema=trace_schema
    )
    pq.write_table(table, path)
