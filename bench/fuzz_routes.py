"""Where the records of a fuzz go: every decoder with every rule of routing, and who judges them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from fuzz_judge import COLUMNS, FIRST_MS, IGNORED, LAST_MS, Wrong, judged
from fuzz_records import BAD_HEADERS, Made
from penstock.domain.lake.pipeline import TableBy


@dataclass(frozen=True)
class Route:
    """A topic, the kind of its records, and where they go."""

    topic: str
    kind: str
    table: str | None = None
    by: TableBy | None = None
    ignore: dict[str, tuple[Any, ...]] = field(default_factory=dict)


ROUTES = (
    Route("raw", "raw", table="raw"),
    Route(
        "raw-by-key",
        "raw",
        by=TableBy(column="kafka_key", tables={"a": "raw_a", "b": "raw_b"}, otherwise="raw_other"),
    ),
    Route("json", "json", table="json"),
    Route(
        "json-by-type",
        "json",
        by=TableBy(column="type", tables={"a": "json_a", "b": "json_b"}, otherwise="json_other"),
        ignore={"type": ("ping",)},
    ),
    Route(
        "json-or-not",
        "json",
        by=TableBy(column="type", tables={"a": "json_or_a", "ping": "json_or_ping"}),
        ignore={"ok": (True,)},
    ),
    Route("avro", "avro", table="avro", ignore={"kind": ("PING",)}),
    Route("avro-by-kind", "avro", by=TableBy(column="kind", tables={"A": "avro_a", "B": "avro_b"})),
    Route("registry", "registry", table="registry", ignore={"kind": ("PING", "C")}),
    Route(
        "registry-by-ok",
        "registry",
        by=TableBy(column="ok", tables={"true": "registry_true"}, otherwise="registry_other"),
    ),
    Route("function", "function", table="function"),
    Route(
        "function-by-name",
        "function",
        by=TableBy(column="name", tables={"a": "function_a"}, otherwise="function_other"),
    ),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REJECTS, IGNORED_PLACE = "fuzz_rejects", "ignored"


def judge(route: Route, made: Made) -> tuple[str, Any]:
    """The table that a record belongs to, and its row."""
    kind, time_ms = made.timestamp
    has_time = kind != TIMESTAMP_NOT_AVAILABLE and FIRST_MS <= time_ms <= LAST_MS
    is_bad = made.headers == BAD_HEADERS
    kafka = {
        "kafka_key": made.key,
        "kafka_headers": None
        if not made.headers or is_bad
        else [{"key": k, "value": v} for k, v in made.headers],
        "kafka_timestamp": time_ms * 1000 if has_time else None,
    }
    rejected = REJECTS, canonical({**kafka, "value": made.value}, ["value"])
    if is_bad:
        return rejected
    try:
        columns: Any = judged(route.kind, made.value)
    except Wrong:
        return rejected
    if columns is IGNORED:
        return IGNORED_PLACE, None
    row = {**columns, **kafka}
    if any(row[name] in values for name, values in route.ignore.items() if row[name] is not None):
        return IGNORED_PLACE, None
    table = route.table or _table_by(route, row)
    return (table, canonical(row, COLUMNS[route.kind])) if table else rejected


def _table_by(route: Route, row: dict[str, Any]) -> str | None:
    assert route.by is not None
    cell = row[route.by.column]
    if isinstance(cell, bool):
        cell = "true" if cell else "false"
    if isinstance(cell, bytes):
        cell = cell.decode(errors="backslashreplace")
    return route.by.tables.get(cell, route.by.otherwise) if cell is not None else route.by.otherwise


def canonical(row: dict[str, Any], columns: list[str]) -> tuple[Any, ...]:
    names = ("kafka_key", "kafka_headers", "kafka_timestamp", *columns)
    return tuple(_cell(row[name]) for name in names)


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _cell(value[name])) for name in sorted(value))
    if isinstance(value, list):
        return tuple(_cell(item) for item in value)
    if isinstance(value, float):
        return "NaN" if value != value else repr(value)
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    return value


def plain(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Rows with times in microseconds, dates in days and maps as dicts."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        elif pa.types.is_date(column.type):
            column = column.cast(pa.int32())
        cells = column.to_pylist()
        if pa.types.is_map(column.type):
            cells = [cell if cell is None else dict(cell) for cell in cells]
        columns[name] = cells
    for i in range(batch.num_rows):
        yield {name: cells[i] for name, cells in columns.items()}
