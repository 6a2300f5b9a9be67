"""Avro records: with the schema of a file, or in Confluent's wire format with a registry."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import fastavro
import pyarrow as pa

from penstock.domain.errors import BadInput
from penstock.domain.lake.decoder import KAFKA_PREFIX, AvroDecoder
from penstock.pipeline.lake.decoders.decoding import (
    Decoded,
    Decoding,
    Value,
    decode_each,
    decodes,
)

_TIMEOUT_S = 10
# Confluent's wire format: a zero, then the number of the schema in four bytes.
_HEAD_BYTES = 5

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
# As the text that they are, and not as Python's UUIDs, for which Arrow has no column.
fastavro.read.LOGICAL_READERS["string-uuid"] = lambda data, *_: data
# What fastavro makes of these has no type in Delta.
_WITHOUT_COLUMN = ("time-millis", "time-micros", "local-timestamp-millis", "local-timestamp-micros")
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "uuid": pa.string(),
}


@decodes(AvroDecoder)
class AvroDecoding(Decoding):
    def __init__(self, decoder: AvroDecoder) -> None:
        self._registry = decoder.registry
        self._writers: dict[int, Any] = {}
        self._reader = _parsed(decoder.schema or "")
        self._schema = _columns(self._reader)
        if own := [name for name in self._schema.names if name.startswith(KAFKA_PREFIX)]:
            raise BadInput(
                f"the Avro field {own[0]} begins with {KAFKA_PREFIX}, as the record's own columns do",
                "rename it, with an alias",
            )

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Sequence[Value]) -> Decoded:
        return decode_each(values, self._schema, self._decode)

    def _decode(self, value: bytes) -> dict[str, Any]:
        writer = self._reader
        source = io.BytesIO(value)
        if self._registry is not None:
            if len(value) < _HEAD_BYTES or value[0] != 0:
                raise ValueError("does not begin with the number of a schema")
            writer = self._writer(int.from_bytes(value[1:_HEAD_BYTES], "big"))
            source.seek(_HEAD_BYTES)
        row: Any = fastavro.schemaless_reader(source, writer, self._reader)
        if source.tell() != len(value):
            raise ValueError(f"has {len(value) - source.tell()} bytes after the record")
        return dict(row)

    def _writer(self, number: int) -> Any:
        if number not in self._writers:
            assert self._registry is not None
            try:
                text = _ask(self._registry, f"schemas/ids/{number}")
            except _Unknown as error:  # the record's fault; a registry that is away is not
                raise ValueError(error.message) from None
            self._writers[number] = _parsed(text)
        return self._writers[number]


class _Unknown(BadInput):
    """The registry answers that it has no such thing."""


def latest_schema(registry: str, subject: str) -> str:
    """The latest schema of a subject, as text."""
    return _ask(registry, f"subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")


def _ask(registry: str, path: str) -> str:
    address = f"{registry.rstrip('/')}/{path}"
    if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
        raise BadInput(f"decoder.registry: {registry} must begin with http:// or https://")
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
            return str(json.load(answer)["schema"])
    except (OSError, ValueError, KeyError) as error:
        is_unknown = (
            isinstance(error, urllib.error.HTTPError) and error.code == HTTPStatus.NOT_FOUND
        )
        raise (_Unknown if is_unknown else BadInput)(
            f"the schema registry does not give {path}: {error}", "check `registry` and `subject`"
        ) from None


def _parsed(text: str) -> Any:
    try:
        found = fastavro.parse_schema(json.loads(text))
    except Exception as error:  # of fastavro's many kinds
        raise BadInput(f"the Avro schema cannot be read: {error}") from None
    if not isinstance(found, dict) or found.get("type") != "record":
        raise BadInput("the Avro schema is no record", "its fields become the columns")
    return found


def _columns(schema: Any) -> pa.Schema:
    named: dict[str, Any] = {}
    return pa.schema([(f["name"], _arrow(f["type"], named)) for f in _fields(schema, named)])


def _fields(record: Any, named: dict[str, Any]) -> list[Any]:
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
