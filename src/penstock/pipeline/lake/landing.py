"""The end of a micro-batch: its report is written down, then tables and ledger follow it.

The order of the steps is what makes it exactly once. Before the report is written, nothing of the
micro-batch can be seen, and it may be read again. After it, everything follows from the report:
whoever comes back after a crash makes the commits that are missing, and Delta's transaction
numbers tell which. The ledger comes last: what it says is in the tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from penstock.domain.errors import PenstockError
from penstock.domain.lake.report import BatchReport, LaneReport
from penstock.pipeline.lake.files import write_rows
from penstock.pipeline.lake.memory import Memory
from penstock.pipeline.lake.tables import Tables

_SUM = pa.decimal128(38, 0)
LEDGER_COLUMNS = pa.schema(
    [
        ("batch", pa.int64()),
        ("lane", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        # [start_offset, end_offset) was read.
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        # Records from here to start_offset were deleted before they were read.
        ("lost_from", pa.int64()),
        ("rows", pa.int64()),
        ("ignored", pa.int64()),
        ("gaps", pa.int64()),
        ("bytes", pa.int64()),
        (
            "tables",
            pa.list_(
                pa.struct(
                    [
                        ("table", pa.string()),
                        ("version", pa.int64()),
                        ("rows", pa.int64()),
                        ("offset_sum", _SUM),
                    ]
                )
            ),
        ),
        ("landed_at", pa.timestamp("us", tz="UTC")),
    ]
)
_LEDGER_STATS = ("batch", "topic", "partition", "start_offset")


@dataclass(frozen=True)
class Landed:
    """One micro-batch, landed."""

    report: BatchReport
    versions: dict[str, int]
    commit_s: float
    at_ms: int
    # It was read in an earlier life, and only its commits were finished now.
    is_recovered: bool


@dataclass
class Landing:
    """Lands one micro-batch after the other."""

    lake: Path
    memory: Memory
    tables: Tables
    ledger_table: str
    tell: Callable[[Landed], None] = field(default=lambda _: None)

    def land(self, batch: int, lanes: Callable[[], Sequence[LaneReport]]) -> Landed:
        """`lanes` carries the micro-batch out; it is not called if that was done before."""
        report = self.memory.report(batch)
        is_recovered = report is not None
        if report is None:
            report = BatchReport(batch=batch, lanes=tuple(lanes()))
            self._check(report)
            self.memory.write_report(report)
        started = time.monotonic()
        versions = {
            table: self.tables.land(table, files, batch, may_be_there=is_recovered)
            for table, files in report.files.items()
        }
        self._write_ledger(report, versions, is_recovered)
        landed = Landed(
            report=report,
            versions=versions,
            commit_s=time.monotonic() - started,
            at_ms=round(time.time() * 1000),
            is_recovered=is_recovered,
        )
        self.tell(landed)
        return landed

    @staticmethod
    def _check(report: BatchReport) -> None:
        if odd := [lane.batch for lane in report.lanes if lane.batch != report.batch]:
            raise PenstockError(
                f"lanes carried out order {odd[0]} in micro-batch {report.batch}; this must not be"
            )
        names = [r.name for lane in report.lanes for r in lane.ranges]
        if len(names) != len(set(names)):
            twice = sorted({str(name) for name in names if names.count(name) > 1})
            raise PenstockError(f"two lanes read {', '.join(twice)}; this must not be")

    def _write_ledger(
        self, report: BatchReport, versions: dict[str, int], is_recovered: bool
    ) -> None:
        if not report.has_ledger_rows:
            return
        rows = ledger_rows(report, versions, round(time.time() * 1e6))
        name = f"part-{report.batch:08d}"
        file = write_rows(self.lake, self.ledger_table, rows, name, "zstd", _LEDGER_STATS)
        self.tables.land(self.ledger_table, [file], report.batch, may_be_there=is_recovered)


def ledger_rows(report: BatchReport, versions: dict[str, int], now_us: int) -> pa.Table:
    """One row per partition that was read, or lost something."""
    rows = [
        {
            "batch": report.batch,
            "lane": lane.lane,
            "topic": r.topic,
            "partition": r.partition,
            "start_offset": r.start,
            "end_offset": r.end,
            "lost_from": r.lost_from,
            "rows": sum(r.rows.values()),
            "ignored": r.ignored,
            "gaps": r.gaps,
            "bytes": r.size_bytes,
            "tables": [
                {
                    "table": table,
                    "version": versions[table],
                    "rows": count,
                    "offset_sum": Decimal(r.offset_sums[table]),
                }
                for table, count in r.rows.items()
            ],
            "landed_at": now_us,
        }
        for lane in report.lanes
        for r in lane.ranges
        if r.is_in_ledger
    ]
    return pa.Table.from_pylist(rows, LEDGER_COLUMNS)
