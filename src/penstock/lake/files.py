"""Writes rows to a Parquet file in the directory of a table, with statistics for Delta's log."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.domain.errors import PenstockError
from penstock.domain.lake.report import LandedFile

# Columns that readers find files by: the audit by partition and offset, people by time.
RECORD_STATS = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp")
# Suffix of a file that a vacuum is about to remove.
ASIDE = ".removing"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000_US = 253_402_300_800_000_000
# As Arrow has them by default.
_MOST_BATCH_ROWS, _PAGE_BYTES = 1024, 1 << 20
_REPEATING = ("kafka_topic", "kafka_partition", "topic", "table")


def write_rows(
    lake: Path,
    table: str,
    rows: pa.Table,
    name: str,
    compression: str,
    stats: Sequence[str] = RECORD_STATS,
) -> LandedFile:
    """Write a file; no reader sees it until it is committed."""
    path = f"{name}-{uuid.uuid4().hex[:12]}.parquet"
    target = lake / table / path
    try:
        with pa.OSFile(str(target), "wb") as file:  # closed whatever happens
            pq.write_table(
                rows,
                file,
                compression=compression,
                # Text and bytes of records hardly repeat, so dictionaries cost more than they save.
                use_dictionary=[name for name in _REPEATING if name in rows.column_names],
                write_statistics=list(stats),
                write_batch_size=_batch_rows(rows),
            )
        size_bytes = target.stat().st_size
    except OSError as error:
        with suppress(OSError):  # a read-only disk refuses this too
            target.unlink(missing_ok=True)
        raise PenstockError(
            f"{target}: cannot be written: {error.strerror or error}",
            "free disk space or grant write access; the next start continues from here",
        ) from None
    return LandedFile(
        table=table,
        path=path,
        rows=len(rows),
        size_bytes=size_bytes,
        written_ms=round(time.time() * 1000),
        stats=_stats(rows, stats),
    )


def _batch_rows(rows: pa.Table) -> int:
    """Rows per write batch: Arrow ends a page, which it holds twice, only after a batch, however
    large."""
    row_bytes: int = max(1, rows.nbytes // max(1, len(rows)))
    return max(1, min(_MOST_BATCH_ROWS, _PAGE_BYTES // row_bytes))


def _stats(rows: pa.Table, columns: Sequence[str]) -> str:
    stats: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in columns:
        column = rows.column(name)
        stats["nullCount"][name] = column.null_count
        is_time = pa.types.is_timestamp(column.type)
        ends = pc.min_max(column.cast(pa.int64()) if is_time else column).as_py()
        values = [_time(end) if is_time else end for end in (ends["min"], ends["max"])]
        if None not in values:
            stats["minValues"][name], stats["maxValues"][name] = values
    return json.dumps({"numRecords": len(rows), **stats})


def _time(us: int | None) -> str | None:
    """As Delta writes it; None for times out of range, as a faulty producer may set them."""
    if us is None or not 0 <= us < _YEAR_10000_US:
        return None
    text = (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
