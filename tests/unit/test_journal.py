"""Journals: whole ones become Parquet, cut ones as far as they go, a full disk is said."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.trace import TRACES
from penstock.load import journal as journals
from penstock.load.journal import Journal, Writer, recover, to_parquet
from penstock.load.trace_schema import journal_schema, schema

BATCHES, ROWS = 4, 100


def _columns(batch: int) -> dict[str, Any]:
    ids = range(batch * ROWS, (batch + 1) * ROWS)
    outcome = pa.array(["acknowledged"] * (ROWS - 1) + ["failed"])
    # A different text in every batch: the dictionary of the column changes on the way.
    error = pa.array([None] * (ROWS - 1) + [f"_ERROR_{batch}"])
    text = pa.dictionary(pa.int8(), pa.string())
    return {
        "id": pa.array(ids, pa.int64()),
        "size_bytes": pa.array([100] * ROWS, pa.int32()),
        "intended_ns": pa.array(ids, pa.int64()),
        "sent_ns": pa.array(ids, pa.int64()),
        "outcome": outcome.dictionary_encode().cast(text),
        "error": error.dictionary_encode().cast(text),
    }


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The journal of a producer, closed in order."""
    path = tmp_path / "sent" / "producer-1.journal"
    journal = Journal(path, "sent")
    for batch in range(BATCHES):
        journal.append(_columns(batch))
    assert journal.rows == BATCHES * ROWS
    journal.close()
    return path


def test_a_journal_becomes_parquet(written: Path) -> None:
    file, rows = to_parquet(written, "sent")
    assert file == written.with_suffix(".parquet")
    assert rows == BATCHES * ROWS
    assert not written.exists()
    table = pq.read_table(file)
    assert table.schema.equals(schema("sent"), check_metadata=True)
    assert table.schema.metadata[b"penstock.trace.format"] == b"2"
    assert table.column("id").to_pylist() == list(range(rows))
    errors = table.column("error").drop_null().to_pylist()
    assert errors == [f"_ERROR_{batch}" for batch in range(BATCHES)]
    assert table.column("reported_ns").null_count == rows
    assert not list(file.parent.glob("*.draft"))


def test_rows_may_be_filled_in_on_the_way(written: Path) -> None:
    def fill(batch: Any) -> Any:
        place = batch.schema.get_field_index("tries")
        tries = pa.array([1] * batch.num_rows, pa.int16())
        return batch.set_column(place, batch.schema.field(place), tries)

    file, rows = to_parquet(written, "sent", fill)
    assert pq.read_table(file).column("tries").to_pylist() == [1] * rows


def test_small_batches_make_large_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "sent" / "producer-1.journal"
    journal = Journal(path, "sent")
    for batch in range(50):
        journal.append(_columns(batch))
    journal.close()
    file, _ = to_parquet(path, "sent")
    assert pq.ParquetFile(file).num_row_groups == 1


def test_a_cut_journal_is_recovered_up_to_the_cut(written: Path, tmp_path: Path) -> None:
    """Cut at every kind of place: in the schema, in a header, in a body, between batches."""
    whole = written.read_bytes()
    parquet = written.with_suffix(".parquet")
    rows_before = 0
    row_counts = set()
    for cut in [*range(0, len(whole), 97), *range(len(whole) - 12, len(whole) + 1)]:
        parquet.unlink(missing_ok=True)
        written.write_bytes(whole[:cut])
        (recovered,) = recover(tmp_path)
        assert recovered.file == parquet
        assert recovered.is_complete == (cut == len(whole))
        table = pq.read_table(parquet)
        assert table.schema.equals(schema("sent"))
        assert table.num_rows == recovered.rows
        assert table.column("id").to_pylist() == list(range(recovered.rows))
        assert recovered.rows % ROWS == 0
        assert recovered.rows >= rows_before  # a later cut never loses more
        rows_before = recovered.rows
        row_counts.add(recovered.rows)
        assert ("the end is missing" in str(recovered)) != recovered.is_complete
    assert row_counts == {n * ROWS for n in range(BATCHES + 1)}


def test_recovering_again_changes_nothing(written: Path, tmp_path: Path) -> None:
    assert len(recover(tmp_path)) == 1
    assert recover(tmp_path) == []
    assert pq.read_table(written.with_suffix(".parquet")).num_rows == BATCHES * ROWS


def test_what_a_kill_in_the_last_steps_left_is_tidied(written: Path, tmp_path: Path) -> None:
    whole = written.read_bytes()
    recover(tmp_path)
    written.write_bytes(whole)  # killed before the journal was removed
    (written.parent / "producer-2.draft").write_bytes(b"PAR1")  # killed while writing Parquet
    assert recover(tmp_path) == []
    assert [path.name for path in written.parent.iterdir()] == ["producer-1.parquet"]


def test_a_journal_that_is_still_written_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "sent" / "producer-1.journal"
    journal = Journal(path, "sent")
    journal.append(_columns(0))
    with pytest.raises(BadInput, match="still being written"):
        recover(tmp_path)
    journal.close()
    assert recover(tmp_path)[0].rows == ROWS


@pytest.mark.parametrize("trace", sorted(TRACES))
def test_an_empty_trace_is_a_file_without_rows(trace: str, tmp_path: Path) -> None:
    path = tmp_path / trace / "one-1.journal"
    Journal(path, trace).close()
    file, rows = to_parquet(path, trace)
    assert rows == 0
    assert pq.read_table(file).schema.equals(schema(trace))


@pytest.mark.parametrize("trace", sorted(TRACES))
def test_schemas_are_those_of_the_domain(trace: str) -> None:
    for arrow_field, column in zip(schema(trace), TRACES[trace], strict=True):
        assert (arrow_field.name, str(arrow_field.type), arrow_field.nullable) == (
            column.name,
            column.type,
            column.nullable,
        )
        assert arrow_field.metadata[b"doc"].decode() == column.doc
    assert journal_schema(trace).names == schema(trace).names


class _SmallDisk:
    """A file on a disk that has room for so many bytes."""

    def __init__(self, path: Path, room: int) -> None:
        self._file = path.open("wb", buffering=0)
        self._left = room
        self.closed = False

    def write(self, data: Any) -> int:
        data = bytes(data)
        if len(data) > self._left:
            self._file.write(data[: self._left])  # as a real one does
            self._left = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._left -= len(data)
        return self._file.write(data)

    def flush(self) -> None: ...

    def close(self) -> None:
        self._file.close()
        self.closed = True


def test_a_full_disk_is_reported_and_the_trace_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "_create", lambda path: _SmallDisk(path, room=20_000))
    journal = Journal(tmp_path / "sent" / "producer-1.journal", "sent")
    writer = Writer()
    with pytest.raises(PenstockError, match="the disk is full") as error:
        for batch in range(100):
            writer.give(partial(journal.append, _columns(batch)))
        writer.finish()
    assert "free disk space" in error.value.fix
    (recovered,) = recover(tmp_path)
    assert recovered.rows >= ROWS
    assert not recovered.is_complete


def test_a_full_disk_while_parquet_is_written_keeps_the_journal(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", full)
        with pytest.raises(PenstockError, match="the disk is full"):
            to_parquet(written, "sent")
    assert written.exists()
    assert not written.with_suffix(".parquet").exists()
    assert recover(written.parent.parent)[0].rows == BATCHES * ROWS


@pytest.mark.root
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)])
    if mounted.returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        journal = Journal(disk / "sent" / "producer-1.journal", "sent")
        with pytest.raises(PenstockError, match="the disk is full"):
            for batch in range(1000):
                journal.append(_columns(batch))
        (tmp_path / "sent").mkdir()
        kept = tmp_path / "sent" / "producer-1.journal"
        kept.write_bytes((disk / "sent" / "producer-1.journal").read_bytes())
        assert recover(tmp_path)[0].rows >= ROWS
        del journal
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_the_writer_does_its_work_in_order_and_bounds_its_backlog() -> None:
    writer = Writer(backlog=2)
    done: list[int] = []
    gate = threading.Event()

    def first() -> None:
        gate.wait(10)
        done.append(0)

    writer.give(first)
    for number in (1, 2):
        writer.give(partial(done.append, number))
    # Two wait: a third has to, until the first is done.
    blocked = threading.Thread(target=lambda: writer.give(lambda: done.append(3)))
    blocked.start()
    blocked.join(0.2)
    assert blocked.is_alive()
    gate.set()
    blocked.join(10)
    writer.finish()
    assert done == [0, 1, 2, 3]


def test_the_writer_raises_what_went_wrong() -> None:
    writer = Writer()
    writer.give(partial(divmod, 1, 0))
    with pytest.raises(ZeroDivisionError):
        writer.finish()
    with pytest.raises(ZeroDivisionError):
        writer.give(lambda: None)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "sent" / "producer-1.journal").mkdir(parents=True)
    with pytest.raises(PenstockError, match="cannot be written"):
        journals.Journal(tmp_path / "sent" / "producer-1.journal", "sent")
