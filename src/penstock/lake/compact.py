"""Compacts and vacuums the tables of a pipeline: joins small files, deletes unneeded ones.

It commits through delta-rs, like the pipeline: both create a version of a table only if it does not
exist yet. (Delta's Java log store may overwrite a version on a local file system.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline
from penstock.lake.checkpoint import checkpoints
from penstock.lake.files import ASIDE
from penstock.lake.tables import OWNER, active_files, landed_table, owner_of, writers_in

_COMPRESSIONS: dict[str, Literal["ZSTD", "SNAPPY", "UNCOMPRESSED"]] = {
    "zstd": "ZSTD",
    "snappy": "SNAPPY",
    "none": "UNCOMPRESSED",
}


@dataclass(frozen=True)
class Compacted:
    """One table, before and after."""

    table: str
    files_before: int
    files_after: int
    size_bytes: int
    # Why the vacuum kept files that no commit names; empty if it removed them.
    strays_kept: str = ""


def compact(
    pipeline: Pipeline,
    file_bytes: int,
    vacuum_hours: int | None = None,
    gone_writers: Collection[str] = (),
) -> Iterator[Compacted]:
    """Compact every table. Readers and the pipeline may continue meanwhile; no row changes.

    `gone_writers`: writers whose checkpoints are gone permanently; files that only they could land are
    removed.
    """
    for name in (*pipeline.tables, pipeline.rejects_table, pipeline.ledger_table):
        path = Path(landed_table(pipeline, name))
        try:
            table = DeltaTable(str(path))
            before = len(active_files(table))
            table.optimize.compact(
                target_size=file_bytes,
                writer_properties=WriterProperties(compression=_COMPRESSIONS[pipeline.compression]),
            )
            kept = ""
            if vacuum_hours is not None:
                kept = _vacuum(pipeline, name, path, vacuum_hours, gone_writers)
            after = active_files(DeltaTable(str(path)))
        except CommitFailedError as error:
            raise PenstockError(
                f"{path}: another process changed the same files: {error}",
                "run one compaction at a time; nothing was changed",
            ) from None
        except (DeltaError, OSError) as error:
            raise PenstockError(
                f"{path}: cannot be compacted: {error}", "no row was changed; try again"
            ) from None
        yield Compacted(name, before, len(after), sum(after.values()), kept)


def _vacuum(
    pipeline: Pipeline, name: str, path: Path, hours: int, gone_writers: Collection[str]
) -> str:
    """Remove files that no version of these hours needs; returns why strays were kept, if any.

    delta-rs alone would also remove files of a micro-batch that is not landed yet, if its pipeline
    was killed or paused for that long. The report names these files, but it may be written while
    this runs. So files are moved aside first and then looked up in the reports. The pipeline checks
    its files after it wrote the report, so one of the two sees the other.
    """
    for aside in path.rglob(f"*{ASIDE}"):  # left by a vacuum that was killed
        _move(aside, aside.with_name(aside.name.removesuffix(ASIDE)))
    # Strays are files that no commit names. No report names the ledger's: they are few and small.
    is_ledger = name == pipeline.ledger_table
    kept = "" if is_ledger else _why_strays_stay(pipeline, path, gone_writers)
    unneeded = DeltaTable(str(path)).vacuum(
        hours,
        dry_run=True,
        # Delta's default is a week, for slow writers; a lane takes minutes at most.
        enforce_retention_duration=False,
        # Also files that were never committed, for example by a killed worker.
        full=not is_ledger and not kept,
    )
    asides = {file: path / f"{file}{ASIDE}" for file in unneeded}
    for file, aside in asides.items():
        _move(path / file, aside)
    needed = _needed(pipeline, name, path)
    for file, aside in asides.items():
        if file in needed:
            _move(aside, path / file)
        else:
            aside.unlink(missing_ok=True)
    return kept


def _why_strays_stay(pipeline: Pipeline, path: Path, gone_writers: Collection[str]) -> str:
    """Why unreferenced files must stay; empty if they may be deleted. Such a file may belong to a
    micro-batch in the ledger whose records are nowhere else. Its report names it, so all reports
    must be visible here."""
    ledger = DeltaTable(landed_table(pipeline, pipeline.ledger_table))
    owner = DeltaTable(str(path)).metadata().configuration.get(OWNER)
    if owner != owner_of(pipeline, ledger):
        return f"{path} is not marked as this pipeline's; start the pipeline first"
    # After the ledger was read: a report is written before the ledger has its micro-batch.
    known = checkpoints(pipeline)
    for writer in writers_in(ledger) - {*gone_writers}:
        begun = ledger.transaction_version(writer)
        if writer not in known or known[writer].newest_report < (begun or 0):
            return (
                f"the checkpoint of writer {writer} is not in {pipeline.checkpoint_path}; run the "
                "vacuum where it is; if it was deleted, add --gone-writer with that id"
            )
    # A writer that has landed nothing yet is not in the ledger.
    if known or gone_writers:
        return ""
    return f"there is no checkpoint in {pipeline.checkpoint_path}; run the vacuum where it is"


def _needed(pipeline: Pipeline, name: str, path: Path) -> set[str]:
    """Files that the table has, or will get when a reported micro-batch is landed."""
    reports = {writer: checkpoint.reports() for writer, checkpoint in checkpoints(pipeline).items()}
    # In this order: a report that is removed in between was landed.
    table = DeltaTable(str(path))
    needed = set(active_files(table))
    for writer, of_writer in reports.items():
        done = table.transaction_version(writer)
        for report in of_writer:
            if done is None or report.batch > done:
                needed |= {file.path for file in report.files.get(name, ())}
    return needed


def _move(source: Path, target: Path) -> None:
    with suppress(FileNotFoundError):  # another vacuum was quicker
        source.rename(target)
