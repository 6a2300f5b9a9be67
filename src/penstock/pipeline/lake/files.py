"""Rows → a Parquet file in the directory of a table, with the statistics that Delta keeps of it."""

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

# What readers find files by: the audit by partition and offset, people by time.
RECORD_STATS = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000_US = 253_402_300_800_000_000
_REPEATING = ("kafka_topic", "kafka_partition", "topic", "table")


def write_rows(
    lake: Path,
    table: str,
    rows: pa.Table,
    name: str,
    compression: str,
    stats: Sequence[str] = RECORD_STATS,
) -> LandedFile:
    """Write it; no reader sees it until it is committed."""
    path = f"{name}-{uuid.uuid4().hex[:12]}.parquet"
    target = lake / table / path
    try:
        with pa.OSFile(str(target), "wb") as file:  # closed whatever happens
            pq.write_table(
                rows,
                file,
                compression=compression,
                # Text and bytes of records hardly repeat; to look for it costs more than it saves.
                use_dictionary=[name for name in _REPEATING if name in rows.column_names],
                write_statistics=list(stats),
            )
        size_bytes = target.stat().st_size
    except OSError as error:
        with suppress(OSError):  # which a read-only disk refuses too
            target.unlink(missing_ok=True)
        raise PenstockError(
            f"{target}: cannot be written: {error.strerror or error}",
            "make room or give the right to write; the pipeline goes on where it was",
        ) from None
    return LandedFile(
        table=table,
        path=path,
        rows=len(rows),
        size_bytes=size_bytes,
        written_ms=round(time.time() * 1000),
        stats=_stats(rows, stats),
    )


def _stats(rows: pa.Table, columns: Sequence[str]) -> str:
    found: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in columns:
        column = rows.column(name)
        found["nullCount"][name] = column.null_count
        is_time = pa.types.is_timestamp(column.type)
        ends = pc.min_max(column.cast(pa.int64()) if is_time else column).as_py()
        values = [ends["min"], ends["max"]]
        if is_time:
            values = [_time(us) for us in values]
        if None not in values:
            found["minValues"][name], found["maxValues"][name] = values
    return json.dumps({"numRecords": len(rows), **found})


def _time(us: int | None) -> str | None:
    """As Delta writes it; none for times that no calendar has, as of a producer's mistake."""
    if us is None or not 0 <= us < _YEAR_10000_US:
        return None
    text = (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
