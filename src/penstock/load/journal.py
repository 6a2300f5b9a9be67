"""Traces on their way to disk: a journal while the load runs, a Parquet file afterwards.

A journal is an Arrow IPC stream, so it can be read up to where it was cut off, by a kill or a full
disk. Parquet cannot (its directory is at the end), but everybody reads it. `recover` makes the one
into the other for a run that was killed.

    sent/producer-1.journal → sent/producer-1.parquet
"""

from __future__ import annotations

import errno
import fcntl
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.trace import TRACES
from penstock.load.trace_schema import journal_schema, schema
from penstock.specs.files import draft_of

JOURNAL, PARQUET = ".journal", ".parquet"
# Rows of a row group: what a reader takes at a time.
_ROW_GROUP = 1 << 17
# The mark at the end of a complete Arrow stream.
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
# Neither repeats nor is short: a dictionary of such a column would only be thrown away.
_ALL_DIFFERENT = frozenset(
    ("id", "intended_ns", "sent_ns", "reported_ns", "received_ns", "seen_ns", "offset", "at_ns")
)

Columns = dict[str, Any]


class Journal:
    """Record batches appended to one file. Used by one thread."""

    def __init__(self, path: Path, trace: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._schema = journal_schema(trace)
        self.path = path
        self.rows = 0
        with explained(path):
            self._file = _create(path)
            self._stream = pa.ipc.new_stream(self._file, self._schema)

    def append(self, columns: Columns) -> None:
        """Rows as columns, each an Arrow array; a column that is missing is empty."""
        count = len(next(iter(columns.values())))
        arrays = [
            columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in self._schema
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        with explained(self.path):
            self._stream.write_batch(batch)
            self._file.flush()
        self.rows += count

    def close(self) -> None:
        with explained(self.path):
            self._stream.close()
            self._file.close()


def _create(path: Path) -> BinaryIO:
    file = path.open("wb")
    # Recovery leaves a journal alone that is still being written.
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


class explained:
    """Turn a full disk or a file that cannot be written into a `PenstockError`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, _type: object, error: object, _trace: object) -> None:
        if not isinstance(error, OSError):
            return
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PenstockError(
                f"{self._path}: the disk is full; the trace so far is kept",
                "free disk space or choose another `out`, then run it again; "
                "`penstock analyze` reads what was written",
            ) from None
        raise PenstockError(f"{self._path}: cannot be written: {error.strerror or error}") from None


class Writer:
    """A thread that does the writing, off the hot path: it works off what it is given, in order.

    At most `backlog` pieces wait; then `give` blocks, so memory is bounded.
    """

    def __init__(self, backlog: int = 64, on_start: Callable[[], None] = lambda: None) -> None:
        self._work: queue.Queue[Callable[[], None] | None] = queue.Queue(backlog)
        self._problem: BaseException | None = None
        self._on_start = on_start
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def give(self, work: Callable[[], None]) -> None:
        """Queue a task. Raises the error of an earlier one."""
        self.check()
        self._work.put(work)

    def check(self) -> None:
        if self._problem is not None:
            raise self._problem

    def finish(self) -> None:
        """Wait until all is done."""
        self._work.put(None)
        self._thread.join()
        self.check()

    def _run(self) -> None:
        self._on_start()
        while (work := self._work.get()) is not None:
            if self._problem is None:
                try:
                    work()
                except BaseException as error:
                    # The next `give` raises it; work that is given meanwhile is dropped,
                    # since the load ends anyway.
                    self._problem = error


# --- from a journal to Parquet ---------------------------------------------------------------


def batches(path: Path) -> Iterator[Any]:
    """The complete record batches of a journal, however it ended."""
    # What a cut leaves behind is no Arrow: of any kind, so no narrower class will do.
    with (
        path.open("rb") as file,
        suppress(pa.ArrowException, OSError, EOFError),
        pa.ipc.open_stream(file) as stream,
    ):
        yield from stream


def is_written_to(path: Path) -> bool:
    """Whether a process holds the journal open."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def is_complete(path: Path) -> bool:
    """Whether the journal was closed in order."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - len(_END_OF_STREAM)))
        return file.read() == _END_OF_STREAM


def to_parquet(
    journal: Path, trace: str, fill: Callable[[Any], Any] = lambda batch: batch
) -> tuple[Path, int]:
    """Make a journal into a Parquet file, in bounded memory, and remove it; (file, its rows).

    `fill` may change each record batch.
    """
    # Not needed before: a quarter of the time that a worker takes to start.
    import pyarrow.parquet as pq

    target = journal.with_suffix(PARQUET)
    columns = schema(trace)
    repeating = [name for name in columns.names if name not in _ALL_DIFFERENT]
    rows = 0
    with explained(target):
        with (
            draft_of(target) as draft,
            pq.ParquetWriter(
                draft, columns, compression="zstd", use_dictionary=repeating
            ) as writer,
        ):
            for group in _groups(batches(journal)):
                table = pa.Table.from_batches([fill(batch) for batch in group]).cast(columns)
                writer.write_table(table, row_group_size=_ROW_GROUP)
                rows += table.num_rows
        journal.unlink()
    return target, rows


def _groups(batches: Iterable[Any]) -> Iterator[list[Any]]:
    """Batches together until they make a row group."""
    group: list[Any] = []
    rows = 0
    for batch in batches:
        if rows + batch.num_rows > _ROW_GROUP and group:
            yield group
            group, rows = [], 0
        group.append(batch)
        rows += batch.num_rows
    if group:
        yield group


@dataclass(frozen=True)
class Recovered:
    """A trace that a killed run left as a journal, now a Parquet file."""

    file: Path
    trace: str
    rows: int
    is_complete: bool

    def __str__(self) -> str:
        rows = {"sent": "messages", "requests": "requests"}.get(self.trace, "records")
        end = "" if self.is_complete else "; the end is missing"
        return f"{self.trace}/{self.file.name}: recovered {self.rows:,} {rows}{end}"


def recover(directory: Path) -> list[Recovered]:
    """Recover the traces of a killed run: every complete batch of its journals.

    To do it again changes nothing. The number of tries is lost, for it is found at the end.
    """
    recovered = []
    for trace in TRACES:
        for journal in sorted((directory / trace).glob(f"*{JOURNAL}")):
            if is_written_to(journal):
                raise BadInput(f"{journal}: is still being written", "wait until the run has ended")
            if journal.with_suffix(PARQUET).exists():
                # Killed between the two last steps: the Parquet file is whole.
                journal.unlink()
                continue
            complete = is_complete(journal)
            file, rows = to_parquet(journal, trace)
            recovered.append(Recovered(file, trace, rows, complete))
    for draft in directory.glob("*/*.draft"):
        draft.unlink()
    return recovered
