"""Status of a pipeline: rates, lag and freshness, from landed micro-batches. Pure."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from penstock.domain.lake.partition import Partition
from penstock.lake.landing import Landed

# Rates are means over this time: less jumps with every micro-batch, more hides a stall.
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
class PipelineStatus:
    """Totals of a pipeline since it was started."""

    batches: int
    recovered: int
    rows: int
    size_bytes: int
    rejected: int
    # Kind of reason → records, the most frequent first.
    rejects: dict[str, int]
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
    """Sums up landed micro-batches."""

    rejects_table: str
    started_s: float
    _recent: deque[tuple[float, Landed]] = field(default_factory=deque)
    _lag: dict[Partition, int] = field(default_factory=dict)
    _rows: Counter[str] = field(default_factory=Counter)
    _last: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    # The sums of the fields of `PipelineStatus` that are plain sums.
    _sums: Counter[str] = field(default_factory=Counter)
    _rejects: Counter[str] = field(default_factory=Counter)
    _troubles: tuple[str, ...] = ()

    def add(self, landed: Landed, now_s: float) -> None:
        self._recent.append((now_s, landed))
        self._sums.update(batches=1, recovered=landed.is_recovered)
        for lane in landed.report.lanes:
            for r in lane.ranges:
                self._lag[r.name] = r.lag
                self._sums.update(size_bytes=r.size_bytes, ignored=r.ignored, gaps=r.gaps)
                self._sums.update(rows=sum(r.rows.values()), lost=r.start - r.lost_from)
                self._rows.update(r.rows)
            self._rejects.update(lane.rejects)
            for file in lane.files:
                self._last[file.table] = lane.ages_s(landed.at_ms) or (None, None)
        self._troubles = tuple(
            dict.fromkeys(t for lane in landed.report.lanes for t in lane.troubles)
        )

    def status(self, now_s: float) -> PipelineStatus:
        while self._recent and now_s - self._recent[0][0] > _WINDOW_S:
            self._recent.popleft()
        span_s = max(0.001, min(_WINDOW_S, now_s - self.started_s))
        # A copy: another thread adds to it.
        reports = [landed.report for _, landed in tuple(self._recent)]
        lanes = [lane for report in reports for lane in report.lanes]
        recent: Counter[str] = Counter()
        for r in (r for lane in lanes for r in lane.ranges):
            recent.update(r.rows)
        tables = {
            table: TableStatus(rows, recent[table] / span_s, *self._last.get(table, (None, None)))
            for table, rows in sorted(self._rows.items())
        }
        sums = self._sums
        return PipelineStatus(
            batches=sums["batches"],
            recovered=sums["recovered"],
            rows=sums["rows"],
            size_bytes=sums["size_bytes"],
            rejected=self._rows[self.rejects_table],
            # A copy here too.
            rejects=dict(Counter(dict(self._rejects)).most_common()),
            ignored=sums["ignored"],
            gaps=sums["gaps"],
            lost=sums["lost"],
            lag=sum(self._lag.values()),
            rows_per_s=recent.total() / span_s,
            bytes_per_s=sum(lane.size_bytes for lane in lanes) / span_s,
            tables=tables,
            last_troubles=self._troubles,
        )
