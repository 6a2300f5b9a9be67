"""Arrow types for the column types of pipeline files."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.domain.lake.columns import ArrayOf, ColumnType, Scalar, parse_type

SCALARS = {
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    return pa.schema([(name, _arrow(parse_type(text))) for name, text in columns.items()])


def _arrow(column: ColumnType) -> pa.DataType:
    match column:
        case Scalar(name):
            return SCALARS[name]
        case ArrayOf(item):
            return pa.list_(_arrow(item))
    return pa.struct([(name, _arrow(inner)) for name, inner in column.fields])
