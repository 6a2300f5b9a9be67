"""Lands a micro-batch: writes its report, then commits to the ledger, then to the tables.

The order of the steps makes it exactly once, even if a process is paused at any step for any time
and resumes after a successor has continued:

1. The report. Before it is written, nothing of the micro-batch is visible, and it may be read
   again. It is refused if this or a newer one exists.
2. The ledger, in one commit: the micro-batch's rows, its number, and the new position of each of
   its partitions (transactions of Delta). The commit requires that each partition is landed up to
   where the micro-batch begins; if another process has moved one of them since the ledger was
   read, Delta refuses it. So this commit decides: a record that is in the ledger is landed by this
   micro-batch and no other, and a late process is refused before it has touched a table. Moves of
   rejects read no partition; they are numbered, and the number is required in the same way.
3. The tables. All commits follow from the report, and each has the micro-batch's number: a commit
   that exists is not repeated, and a table that has a newer one is left alone.

After a crash, the next start continues from the report. Since the ledger comes first, tables hold
nothing that the ledger does not know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import BatchReport, LandedFile, LandedRange, LaneReport
from penstock.lake.checkpoint import REPLACED, Checkpoint
from penstock.lake.files import ASIDE, write_rows
from penstock.lake.tables import LEDGER_COLUMNS, MOVES, OpenTable, Tables, position_of

# Columns of the ledger that a range of the report has under the same name.
_SAME = (
    *("is_move", "topic", "partition", "lost_from", "truncated_from", "leader_epoch", "epoch_end"),
    *("ignored", "gaps"),
)
_LEDGER_STATS = ("batch", "topic", "partition", "start_offset")


class Overtaken(PenstockError):
    """Another writer has landed offsets of this micro-batch: the ledger will never take it."""


@dataclass(frozen=True)
class Landed:
    """One micro-batch, landed."""

    report: BatchReport
    commit_s: float
    at_ms: int
    # It was read before a restart; only its commits were finished now.
    is_recovered: bool


@dataclass
class Landing:
    """Lands micro-batches, one after the other."""

    lake: Path
    checkpoint: Checkpoint
    tables: Tables
    ledger_table: str
    tell: Callable[[Landed], None] = field(default=lambda _: None)

    def land(self, batch: int, lanes: Callable[[], Sequence[LaneReport]]) -> Landed:
        """Land a micro-batch. `lanes` runs its lanes; it is not called if a report exists."""
        report = self.checkpoint.report(batch)
        if report is not None:
            return self._commit(report, is_recovered=True)
        return self.land_report(BatchReport(batch=batch, lanes=tuple(lanes())))

    def land_report(self, report: BatchReport) -> Landed:
        """Land a micro-batch whose lanes have just run."""
        self._check(report)
        # What the ledger would refuse is refused before there is a report of it.
        self._look_at_ledger(report, may_be_there=False)
        self.checkpoint.write_report(report)
        return self._commit(report, is_recovered=False)

    def _commit(self, report: BatchReport, *, is_recovered: bool) -> Landed:
        """Commit everything that follows from a written report."""
        batch = report.batch
        started = time.monotonic()
        if report.has_ledger_rows:
            if is_recovered:
                self._check_newest(batch)
            if not is_recovered or not self._look_at_ledger(report, may_be_there=True):
                self._write_ledger(report)
            for table, files in report.files.items():
                if self._is_due(table, batch):
                    self._add(table, files, batch)
            for table, places in _removed(report).items():
                if self._is_due(table, batch):
                    self.tables[table].remove(places, {self.tables.writer: batch, **_move(report)})
            self.checkpoint.note_landed(batch)
        commit_s, at_ms = time.monotonic() - started, round(time.time() * 1000)
        landed = Landed(report, commit_s, at_ms, is_recovered)
        self.tell(landed)
        return landed

    def finish_last(self) -> None:
        """Finish the last micro-batch of an earlier process, if it was left half landed.

        For writers that begin where the ledger ends. One that the ledger will never accept is
        skipped: none of it is in a table, and another writer has landed its records.
        """
        batch = self.checkpoint.newest_report
        if batch >= 0:
            with suppress(Overtaken):  # its number is used all the same
                self.land(batch, lambda: [])

    # --- before the report ---------------------------------------------------------------------

    def _check(self, report: BatchReport) -> None:
        if odd := [lane.batch for lane in report.lanes if lane.batch != report.batch]:
            raise _mistake(f"lanes ran order {odd[0]} in micro-batch {report.batch}")
        names = [r.name for lane in report.lanes for r in lane.ranges]
        if len(names) != len(set(names)):
            twice = sorted({str(name) for name in names if names.count(name) > 1})
            raise _mistake(f"two lanes read {', '.join(twice)}")
        if report.files and not report.has_ledger_rows:
            raise _mistake(f"micro-batch {report.batch} has files but no offsets")
        for path in self._gone(report.files):
            raise PenstockError(
                f"{path}: was removed before the report of its micro-batch was written (by a "
                "vacuum, while this process was paused?)",
                "start the pipeline again: it reads the micro-batch again",
            )

    def _check_newest(self, batch: int) -> None:
        """Refuse a report that came too late, after a successor has continued."""
        if (newest := self.checkpoint.newest_report) > batch:
            raise PenstockError(
                f"{self.checkpoint.path}: another process has landed micro-batch {newest}, but this "
                f"one is at {batch}",
                REPLACED,
            )

    # --- the ledger ----------------------------------------------------------------------------

    def _look_at_ledger(self, report: BatchReport, *, may_be_there: bool) -> bool:
        """Whether it has the micro-batch. If not, raise unless it can be committed."""
        if not report.has_ledger_rows:
            return False
        ledger = self.tables[self.ledger_table]
        ledger.refresh()
        done = self.tables.landed(self.ledger_table)
        if may_be_there and done == report.batch:
            return True
        if done >= report.batch:
            raise PenstockError(
                f"{ledger.path}: has micro-batch {done} of this pipeline, but this process is at "
                f"{report.batch}: it was replaced, or its checkpoint is older than the tables",
                "run only one process per checkpoint; if the checkpoint is older, restore the one "
                "that belongs to the tables",
            )
        for r in _read_ranges(report):
            _check_position(ledger, r, report.batch)
        if report.move is not None and (ledger.transaction(MOVES) or 0) != report.move - 1:
            raise Overtaken(
                f"{ledger.path}: another process has landed rejects since this one read them",
                "start it again: it tries the remaining rejects",
            )
        return False

    def _write_ledger(self, report: BatchReport) -> None:
        # Checked again, now that the report is written. A vacuum first moves files away and then
        # looks for reports that name them, so one of the two sees the other, however long either
        # is paused.
        for path in self._gone(report.files):
            raise PenstockError(
                f"{path}: is missing; it was written for micro-batch {report.batch}, which is in no "
                "table yet",
                f"restore it; or, while no process uses the checkpoint {self.checkpoint.path}, "
                f"remove reports/{report.batch}.json from it: the records are then read again",
            )
        rows = ledger_rows(report, self.tables.writer, round(time.time() * 1e6))
        name = f"part-{report.batch:08d}"
        file = write_rows(self.lake, self.ledger_table, rows, name, "zstd", _LEDGER_STATS)
        positions = {position_of(r.name): r.end for r in _read_ranges(report)}
        ledger = self.tables[self.ledger_table]
        ledger.add([file], {self.tables.writer: report.batch, **positions, **_move(report)})

    # --- the tables ----------------------------------------------------------------------------

    def _is_due(self, table: str, batch: int) -> bool:
        """Whether the table lacks the micro-batch. Raises if it has a later one."""
        target = self.tables[table]
        target.refresh()
        done = self.tables.landed(table)
        if done > batch:
            raise PenstockError(
                f"{target.path}: another process has landed micro-batch {done}, but this one is at "
                f"{batch}",
                REPLACED,
            )
        return done < batch

    def _add(self, table: str, files: Sequence[LandedFile], batch: int) -> None:
        for path in self._gone({table: files}):
            raise PenstockError(
                f"{path}: is missing; it was written for micro-batch {batch}, which is in the ledger",
                "restore it; its records are nowhere else in the lake",
            )
        self.tables[table].add(files, {self.tables.writer: batch})

    def _gone(self, files: Mapping[str, Sequence[LandedFile]]) -> Iterator[Path]:
        """Those that are missing or incomplete, of the files of each table."""
        for path, file in ((self.lake / name / f.path, f) for name in files for f in files[name]):
            with suppress(FileNotFoundError):
                if not path.exists():  # moved aside by a vacuum that was killed
                    path.with_name(path.name + ASIDE).rename(path)
                if path.stat().st_size == file.size_bytes:
                    continue
            yield path


def resumed(
    pipeline: Pipeline, checkpoint: Checkpoint, schemas: Mapping[str, pa.Schema]
) -> Landing:
    """A landing, after what an earlier process with this checkpoint left half landed is finished.
    For writers that begin where the ledger ends; call it when no other process uses the
    checkpoint."""
    lake = Path(pipeline.lake)
    tables = Tables(lake, checkpoint.open(pipeline).id)
    tables.prepare(pipeline, schemas)
    landing = Landing(lake, checkpoint, tables, pipeline.ledger_table)
    landing.finish_last()
    return landing


def _mistake(what: str) -> PenstockError:
    return PenstockError(f"{what}; internal error; please report it")


def _check_position(ledger: OpenTable, r: LandedRange, batch: int) -> None:
    """Raise unless the ledger ends where the range begins, or does not have the partition."""
    at = ledger.transaction(position_of(r.name))
    if at is None or at == r.lost_from:
        return
    what = f"{ledger.path}: {r.name} is landed up to {at}, but micro-batch {batch} begins at "
    if at > r.lost_from:
        raise Overtaken(
            f"{what}{r.lost_from}: another process has landed these records",
            "stop one of the two; run a pipeline only with the checkpoint that its ledger was "
            "written with",
        )
    raise PenstockError(
        f"{what}{r.lost_from}: the records between are in no table",
        "restore ledger, tables and checkpoint from the same time",
    )


def _read_ranges(report: BatchReport) -> Iterator[LandedRange]:
    """The ranges that change the positions of their partitions."""
    ranges = (r for lane in report.lanes for r in lane.ranges)
    return (r for r in ranges if r.is_in_ledger and not r.is_move)


def _move(report: BatchReport) -> dict[str, int]:
    return {} if report.move is None else {MOVES: report.move}


def _removed(report: BatchReport) -> dict[str, pa.Table]:
    """Table → topic, partition and offset of the rows to remove from it."""
    places: dict[str, list[pa.Table]] = {}
    for rows in report.removed:
        count = len(rows.offsets)
        columns = {
            "kafka_topic": pa.array([rows.topic] * count, pa.string()),
            "kafka_partition": pa.array([rows.partition] * count, pa.int32()),
            "kafka_offset": pa.array(rows.offsets, pa.int64()),
        }
        places.setdefault(rows.table, []).append(pa.table(columns))
    return {table: pa.concat_tables(parts) for table, parts in places.items()}


def ledger_rows(report: BatchReport, writer: str, now_us: int) -> pa.Table:
    """One row per partition that was read or lost offsets."""
    rows = [
        {
            "writer": writer,
            "batch": report.batch,
            "lane": lane.lane,
            **{name: getattr(r, name) for name in _SAME},
            "start_offset": r.start,
            "end_offset": r.end,
            "rows": sum(r.rows.values()),
            "bytes": r.size_bytes,
            "tables": [
                {"table": table, "rows": count, "offset_sum": Decimal(r.offset_sums[table])}
                for table, count in r.rows.items()
            ],
            "landed_at": now_us,
        }
        for lane in report.lanes
        for r in lane.ranges
        if r.is_in_ledger
    ]
    return pa.Table.from_pylist(rows, LEDGER_COLUMNS)
