"""How a pipeline is doing: speeds, lag and freshness, from what it has landed. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from penstock.domain.lake.partition import Partition
from penstock.pipeline.lake.landing import Landed

# Speeds are means over so long: shorter jumps with every micro-batch, longer hides a stall.
_WINDOW_S = 10.0


@dataclass(frozen=True)
class TableStatus:
    """One table."""

    rows: int
    rows_per_s: float
    # Age of the oldest and the newest record of the last micro-batch when it became readable.
    oldest_s: float | None
    newest_s: float | None


@dataclass(frozen=True)
class Status:
    """All of a pipeline since it was started."""

    batches: int
    recovered: int
    rows: int
    size_bytes: int
    rejected: int
    ignored: int
    gaps: int
    lost: int
    lag: int
    rows_per_s: float
    bytes_per_s: float
    tables: dict[str, TableStatus]
    last_troubles: tuple[str, ...]


@dataclass
class Watch:
    """Adds up what is landed."""

    rejects_table: str
    started_s: float
    _recent: deque[tuple[float, Landed]] = field(default_factory=deque)
    _lag: dict[Partition, int] = field(default_factory=dict)
    _rows: dict[str, int] = field(default_factory=dict)
    _last: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    _sums: dict[str, int] = field(default_factory=dict)
    _troubles: tuple[str, ...] = ()

    def add(self, landed: Landed, now_s: float) -> None:
        self._recent.append((now_s, landed))
        self._count("batches", 1)
        self._count("recovered", landed.is_recovered)
        for lane in landed.report.lanes:
            for r in lane.ranges:
                self._lag[r.name] = r.lag
                self._count("rows", sum(r.rows.values()))
                self._count("size_bytes", r.size_bytes)
                self._count("ignored", r.ignored)
                self._count("gaps", r.gaps)
                self._count("lost", r.start - r.lost_from)
                for table, rows in r.rows.items():
                    self._rows[table] = self._rows.get(table, 0) + rows
            for file in lane.files:
                self._last[file.table] = lane.ages_s(landed.at_ms) or (None, None)
        self._troubles = tuple(
            dict.fromkeys(t for lane in landed.report.lanes for t in lane.troubles)
        )

    def _count(self, name: str, by: int) -> None:
        self._sums[name] = self._sums.get(name, 0) + by

    def status(self, now_s: float) -> Status:
        while self._recent and now_s - self._recent[0][0] > _WINDOW_S:
            self._recent.popleft()
        span_s = max(0.001, min(_WINDOW_S, now_s - self.started_s))
        # A copy: another thread adds to it.
        reports = [landed.report for _, landed in tuple(self._recent)]
        recent: dict[str, int] = {}
        size = 0
        for lane in (lane for report in reports for lane in report.lanes):
            size += lane.size_bytes
            for r in lane.ranges:
                for table, rows in r.rows.items():
                    recent[table] = recent.get(table, 0) + rows
        tables = {
            table: TableStatus(
                rows=rows,
                rows_per_s=recent.get(table, 0) / span_s,
                oldest_s=self._last.get(table, (None, None))[0],
                newest_s=self._last.get(table, (None, None))[1],
            )
            for table, rows in sorted(self._rows.items())
        }
        get = self._sums.get
        return Status(
            batches=get("batches", 0),
            recovered=get("recovered", 0),
            rows=get("rows", 0),
            size_bytes=get("size_bytes", 0),
            rejected=self._rows.get(self.rejects_table, 0),
            ignored=get("ignored", 0),
            gaps=get("gaps", 0),
            lost=get("lost", 0),
            lag=sum(self._lag.values()),
            rows_per_s=sum(recent.values()) / span_s,
            bytes_per_s=size / span_s,
            tables=tables,
            last_troubles=self._troubles,
        )
