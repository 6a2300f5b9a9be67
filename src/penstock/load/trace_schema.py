"""Traces as Arrow has them: schemas made from the one description, `domain.trace`."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

from penstock.domain.trace import TRACES

# Of the files; a reader that finds another number knows that the columns mean something else.
TRACE_FORMAT = 2

_TYPES = {"int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(), "string": pa.string()}


@cache
def schema(trace: str) -> Any:
    """The `pyarrow.Schema` of a trace (`sent`, `received`, …), with what each column says."""
    return pa.schema(
        [
            pa.field(
                column.name,
                _TYPES[column.type],
                nullable=column.nullable,
                metadata={"doc": column.doc},
            )
            for column in TRACES[trace]
        ],
        metadata={"penstock.trace": trace, "penstock.trace.format": str(TRACE_FORMAT)},
    )


@cache
def journal_schema(trace: str) -> Any:
    """The same while it is being written: texts as numbers of a few different ones."""
    plain = schema(trace)
    fields = [
        f.with_type(pa.dictionary(pa.int8(), pa.string())) if f.type == pa.string() else f
        for f in plain
    ]
    return pa.schema(fields, metadata=plain.metadata)
