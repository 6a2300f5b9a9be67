"""Consistent snapshot of ledger and tables for the audit, taken without a lock.

A micro-batch is in the ledger before it is in a table, and the next one of its writer begins when
it is in all tables. So a running pipeline can be audited by three reads, in this order:

1. what each writer has noted as landed, and the ledger: all but the last micro-batch of a writer,
   and that one too if it was noted, must be in the tables;
2. the tables: their transactions say which micro-batches each has;
3. the ledger again: it contains everything that was in the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from penstock.domain.lake.pipeline import Pipeline
from penstock.lake.checkpoint import checkpoints
from penstock.lake.tables import active_files, landed_table


@dataclass(frozen=True)
class TableSnapshot:
    """One table at the version at which it was read."""

    name: str
    path: Path
    handle: DeltaTable

    @classmethod
    def take(cls, pipeline: Pipeline, name: str) -> TableSnapshot:
        path = landed_table(pipeline, name)
        return cls(name, Path(path), DeltaTable(path))

    @property
    def version(self) -> int:
        return self.handle.version()

    def last_batch(self, writer: str) -> int:
        """The last micro-batch of this writer that it has; -1 if there is none."""
        batch = self.handle.transaction_version(writer)
        return -1 if batch is None else batch

    def file_problems(self) -> Iterator[str]:
        """Files of this version that are missing or have another size."""
        broken = []
        for file, size_bytes in active_files(self.handle).items():
            path = self.path / unquote(file)
            if not path.is_file() or path.stat().st_size != size_bytes:
                broken.append(file)
        if broken:
            yield f"{self.name}: {len(broken)} files are missing or cut short ({broken[0]}, …)"


@dataclass(frozen=True)
class Snapshot:
    """Ledger and tables of a pipeline. `problems` are those of tables that cannot be read."""

    pipeline: Pipeline
    # Of each writer: the last micro-batch that it noted as landed, before anything else was read.
    noted: Mapping[str, int]
    first_ledger: TableSnapshot
    tables: Mapping[str, TableSnapshot]
    ledger: TableSnapshot
    problems: tuple[str, ...]

    def begun(self, writer: str) -> int:
        """The last micro-batch of this writer that was in the ledger before tables were read."""
        return self.first_ledger.last_batch(writer)

    def due(self, writer: str) -> int:
        """All micro-batches of this writer before this one must be in the tables."""
        return max(self.begun(writer), self.noted.get(writer, -1) + 1)

    def can_complete(self, writer: str, batch: int) -> bool:
        """Whether this writer's next start would land this micro-batch, if it is not landed yet."""
        # Read now and not with the rest: the writer may have been new then.
        known = checkpoints(self.pipeline)
        if not known:
            return True  # the checkpoint is elsewhere
        return writer in known and known[writer].can_complete(batch)


def unreadable(name: str, error: DeltaError) -> str:
    """The problem of a table whose log is broken, without the stack that delta-rs appends."""
    return f"{name}: cannot be read: {str(error).partition(chr(10))[0]}"


def take(pipeline: Pipeline, named: Callable[[TableSnapshot], Collection[str]]) -> Snapshot:
    """`named` reads the names of tables from the ledger: the pipeline file may have changed."""
    noted = {
        writer: checkpoint.newest_landed for writer, checkpoint in checkpoints(pipeline).items()
    }
    first = TableSnapshot.take(pipeline, pipeline.ledger_table)
    in_ledger = set(named(first))
    tables: dict[str, TableSnapshot] = {}
    problems = []
    for name in sorted({*in_ledger, *pipeline.tables, pipeline.rejects_table}):
        if not (Path(pipeline.lake) / name / "_delta_log").is_dir():
            if name in in_ledger:  # else nothing was landed there yet
                problems.append(f"{name}: the ledger has rows of it, but the table does not exist")
            continue
        try:
            tables[name] = TableSnapshot.take(pipeline, name)
        except DeltaError as error:
            problems.append(unreadable(name, error))
    ledger = TableSnapshot.take(pipeline, pipeline.ledger_table)
    for writer, batch in noted.items():
        if batch > first.last_batch(writer):
            problems.append(
                f"{ledger.name}: lacks micro-batch {batch} of writer {writer[:8]}, which was "
                "landed: the ledger was set back"
            )
    for table in (ledger, *tables.values()):
        problems += table.file_problems()
    return Snapshot(pipeline, noted, first, tables, ledger, tuple(problems))
