"""Rows from Avro: values are checked by the specification, then read with fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa

from penstock.lake.isolated.avro_check import checker
from penstock.lake.isolated.avro_defaults import convert_defaults
from penstock.lake.isolated.avro_logical import resolve
from penstock.lake.rejection import Rejected, Rejection, RejectKind, described

# Confluent's wire format: a zero, then the number of the schema in four bytes.
HEAD_BYTES = 5


@dataclass(frozen=True)
class _Writer:
    schema: Any
    check: Callable[[bytes, int], None]


class AvroRows:
    kind = RejectKind.NOT_AVRO

    def __init__(self, _schema: pa.Schema, reader: str, has_head: bool) -> None:
        """`has_head`: values begin with the number of their schema."""
        self._text = json.loads(reader)
        self._own = _writer(self._text)
        convert_defaults(self._own.schema)
        self._has_head = has_head
        self._writers: dict[int, _Writer | Rejection] = {}

    def learn(self, number: int, text: str) -> None:
        try:
            schema = json.loads(text)
            if schema == self._text:
                self._writers[number] = self._own
                return
            writer = self._writers[number] = _writer(schema)
            resolve(writer.schema, self._own.schema)
        except MemoryError:
            raise  # other data in this process may have caused it
        except Exception as error:  # of fastavro's many kinds
            detail = f"schema {number} cannot be used: {described(error)}"
            self.blame(number, Rejection(RejectKind.UNKNOWN_SCHEMA, detail))

    def blame(self, number: int, rejection: Rejection) -> None:
        self._writers[number] = rejection

    def row(self, value: bytes) -> dict[str, Any]:
        writer, start = self._own, 0
        if self._has_head:
            writer, start = self._writer_of(value), HEAD_BYTES
        try:
            writer.check(value, start)
        except ValueError as error:
            raise Rejected(RejectKind.NOT_AVRO, str(error)) from None
        source = io.BytesIO(value)
        source.seek(start)
        reader = None if writer is self._own else self._own.schema
        try:
            row: Any = fastavro.schemaless_reader(source, writer.schema, reader)
        except UnicodeDecodeError as error:
            raise Rejected(RejectKind.NOT_UTF8, described(error)) from None
        return dict(row)

    def _writer_of(self, value: bytes) -> _Writer:
        if len(value) < HEAD_BYTES or value[0] != 0:
            raise Rejected(RejectKind.NOT_AVRO, "does not begin with the number of a schema")
        writer = self._writers[int.from_bytes(value[1:HEAD_BYTES], "big")]
        if isinstance(writer, Rejection):
            raise Rejected(writer.kind, writer.detail)
        return writer


def _writer(schema: Any) -> _Writer:
    parsed: Any = fastavro.parse_schema(schema)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ValueError("it is not an Avro record")
    return _Writer(parsed, checker(parsed))
