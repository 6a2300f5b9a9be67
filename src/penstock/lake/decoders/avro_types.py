"""Arrow columns for the fields of an Avro schema."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pyarrow as pa

from penstock.domain.errors import BadInput
from penstock.domain.lake.decoder import KAFKA_PREFIX
from penstock.lake.arrow_types import SCALARS
from penstock.lake.isolated.avro_defaults import convert_defaults

# Most have the same name as in pipeline files.
_PRIMITIVES = {
    **{name: SCALARS[name] for name in ("boolean", "int", "long", "float", "double", "string")},
    "bytes": pa.binary(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
# Delta has no type for what fastavro returns for these.
_WITHOUT_COLUMN = ("time-millis", "time-micros", "local-timestamp-millis", "local-timestamp-micros")
_MOST_DIGITS = 38
_LOGICAL = {
    "date": SCALARS["date"],
    "timestamp-millis": SCALARS["timestamp"],
    "timestamp-micros": SCALARS["timestamp"],
    "uuid": pa.string(),
}


def avro_columns(text: str) -> pa.Schema:
    """The columns of an Avro schema, given as text. Raises BadInput."""
    try:
        schema: Any = fastavro.parse_schema(json.loads(text))
    except Exception as error:  # of fastavro's many kinds
        raise BadInput(f"the Avro schema cannot be read: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise BadInput("the Avro schema is not a record", "its fields become the columns")
    named: dict[str, Any] = {}
    try:
        columns = pa.schema([(f["name"], _arrow(f["type"], named)) for f in _fields(schema, named)])
    except RecursionError:
        raise BadInput(
            f"the Avro type {schema['name']} contains itself, and a column cannot",
            "land it with `function`, or `raw`",
        ) from None
    if own := [name for name in columns.names if name.startswith(KAFKA_PREFIX)]:
        raise BadInput(
            f"the Avro field {own[0]} begins with {KAFKA_PREFIX}, as the record's own columns do",
            "rename it, with an alias",
        )
    try:
        convert_defaults(schema)
    except ValueError as error:
        raise BadInput(
            f"the Avro schema cannot be used: {error}", "correct the default in the schema"
        ) from None
    return columns


def _fields(record: Any, named: dict[str, Any]) -> list[Any]:
    if not record["fields"]:
        raise BadInput(f"the Avro record {record['name']} has no fields, so it has no column type")
    named[record["name"]] = record
    return list(record["fields"])


def _arrow(avro: Any, named: dict[str, Any]) -> pa.DataType:
    match avro:
        case str() if avro in _PRIMITIVES:
            return _PRIMITIVES[avro]
        case str() if avro in named:
            return _arrow(named[avro], named)
        case list():
            kinds = [kind for kind in avro if kind != "null"]
            if len(kinds) == 1:
                return _arrow(kinds[0], named)
        case {"logicalType": "decimal", "precision": int(precision)}:
            if precision > _MOST_DIGITS:
                raise BadInput(
                    f"the Avro type decimal of {precision} digits has no column type",
                    f"use {_MOST_DIGITS} at most",
                )
            return pa.decimal128(precision, avro.get("scale", 0))
        case {"logicalType": str(logical)} if logical in _LOGICAL:
            return _LOGICAL[logical]
        case {"logicalType": str(logical)} if logical in _WITHOUT_COLUMN:
            raise BadInput(f"the Avro type {logical} has no column type", "use a timestamp")
        case {"type": "array", "items": items}:
            return pa.list_(_arrow(items, named))
        case {"type": "map", "values": values}:
            return pa.map_(pa.string(), _arrow(values, named))
        case {"type": "record"}:
            return pa.struct([(f["name"], _arrow(f["type"], named)) for f in _fields(avro, named)])
        case {"type": "enum" | "fixed" as kind, "name": str(name)}:
            named[name] = avro
            return _PRIMITIVES[kind]
        case {"type": inner}:
            return _arrow(inner, named)
    raise BadInput(f"the Avro type {avro} has no column type", "use a union of null and one type")
