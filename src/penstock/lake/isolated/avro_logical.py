"""Logical types of Avro: exact decimals, and whose logical type counts if the schemas differ.

Fastavro rounds a decimal to the precision that its writer declared, and knows only the writer's
logical types: a reader's plain `long` would get a datetime, and a reader's timestamp a bare number.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import fastavro

# Takes a value as Avro has it (a number, bytes), the writer's schema and the reader's.
Convert = Callable[[Any, Any, Any], Any]
_CONVERTERS: dict[str, Convert] = fastavro.read.LOGICAL_READERS
# Rounds nothing.
_EXACT = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_PROMOTIONS = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "bytes": ("bytes", "string"),
    "string": ("string", "bytes"),
    "fixed": ("fixed",),
}
# The logical type of what `resolve` has marked, and where it puts the writer's own converter.
_BY_READER = "penstock-by-reader"
_OWN = "penstock-own"


def converter(schema: Any) -> Convert | None:
    """The function that applies the schema's logical type; None: it has none that is known."""
    if not isinstance(schema, dict) or "logicalType" not in schema:
        return None
    logical = schema["logicalType"]
    if logical == "decimal" and not schema.get("precision"):
        return None  # not valid, so it is to be ignored
    return _CONVERTERS.get(f"{schema['type']}-{logical}")


def resolve(writer: Any, reader: Any) -> None:
    """Mark the values of a writer's parsed schema that fastavro would not read as the reader wants.

    These are the ones for which one of the two schemas has a logical type and the other has none.
    Once per schema: values that are not marked are read as fast as before.
    """
    _Resolution(writer["__named_schemas"], reader["__named_schemas"]).look(
        {"type": writer}, "type", reader
    )


class _Resolution:
    """A walk over two schemas, over all pairs of types that a value may have."""

    def __init__(self, writer_types: dict[str, Any], reader_types: dict[str, Any]) -> None:
        self._writer_types, self._reader_types = writer_types, reader_types
        self._seen: set[tuple[int, int]] = set()

    def look(self, holder: Any, key: Any, reader: Any) -> None:
        """`holder[key]` is the writer's type."""
        writer = holder[key]
        if isinstance(writer, list):
            for i in range(len(writer)):
                self.look(writer, i, reader)
            return
        if isinstance(reader, list):
            for one in reader:
                self.look(holder, key, one)
            return
        if isinstance(writer, str):
            writer = self._writer_types.get(writer, writer)
        if isinstance(reader, str):
            reader = self._reader_types.get(reader, reader)
        writer_kind, reader_kind = _name(writer), _name(reader)
        if writer_kind in ("record", "error"):
            if reader_kind in ("record", "error"):
                self._look_at_fields(writer, reader)
        elif writer_kind == "array" and reader_kind == "array":
            self.look(writer, "items", reader["items"])
        elif writer_kind == "map" and reader_kind == "map":
            self.look(writer, "values", reader["values"])
        elif reader_kind in _PROMOTIONS.get(writer_kind, ()):
            own = converter(writer)
            if (own is None) != (converter(reader) is None) and not _is_marked(writer):
                if isinstance(writer, str):
                    writer = holder[key] = {"type": writer}
                writer.update({"logicalType": _BY_READER, _OWN: own})

    def _look_at_fields(self, writer: Any, reader: Any) -> None:
        # A type of the writer may contain itself.
        pair = id(writer["fields"]), id(reader["fields"])
        if pair in self._seen:
            return
        self._seen.add(pair)
        fields = {
            **{alias: f["type"] for f in reader["fields"] for alias in f.get("aliases", ())},
            **{f["name"]: f["type"] for f in reader["fields"]},
        }
        for field in writer["fields"]:
            if field["name"] in fields:
                self.look(field, "type", fields[field["name"]])


def _name(schema: Any) -> str:
    name: str = schema["type"] if isinstance(schema, dict) else schema
    return name


def _is_marked(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("logicalType") == _BY_READER


def _by_reader(data: Any, writer: Any, reader: Any) -> Any:
    """A value that `resolve` has marked. Here the reader's type is known for each value: a record
    of the writer may be several of the reader's."""
    own, by_reader = writer[_OWN], converter(reader)
    if own is not None and (by_reader is not None or reader is None):
        return own(data, writer, reader)
    target = _name(reader)
    if target in ("float", "double"):
        data = float(data)
    elif target == "bytes" and isinstance(data, str):
        data = data.encode()
    elif target == "string" and isinstance(data, bytes):
        data = data.decode()
    return data if by_reader is None else by_reader(data, reader, reader)


def _decimal(data: bytes, schema: Any, _reader: Any = None) -> Any:
    if not schema.get("precision"):
        return data
    number = decimal.Decimal(int.from_bytes(data, "big", signed=True))
    return number.scaleb(-schema.get("scale", 0), _EXACT)


_CONVERTERS["bytes-decimal"] = _CONVERTERS["fixed-decimal"] = _decimal
# UUIDs stay text: Arrow has no column for Python's UUIDs.
_CONVERTERS.pop("string-uuid", None)
for _kind in _PROMOTIONS:
    _CONVERTERS[f"{_kind}-{_BY_READER}"] = _by_reader
