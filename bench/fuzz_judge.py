"""What must become of a record, by the rules of docs/lake.md and nothing of Penstock's own code.

JSON is read with Python's json, Avro by a reader of a few lines; both look at one record at a time.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

import fuzz_function
from fuzz_records import AVRO, DEADLY, JSON_COLUMNS, NODE, WRITERS

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
IGNORED = object()


class Wrong(Exception):
    """The record must be rejected."""


Row = Mapping[str, Any]


def judged(kind: str, value: bytes | None) -> Row | object:
    """The columns, or IGNORED. Raises `Wrong`. Times may be in microseconds, dates in days."""
    if kind == "raw":
        return {"value": value}
    if value is None:
        return dict.fromkeys(COLUMNS[kind])
    return _JUDGES[kind](value)


# --- JSON ---------------------------------------------------------------------------------------------

_BLANK = " \t\r\n"
# Texts, and what Arrow takes for numbers that are not finite.
_LENIENT = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:Infinity|Inf|NaN)', re.DOTALL)
_NESTED = re.compile(r"(\[{200,})(\]{200,})")
_NUMBER = re.compile(r"-?\d+(?:\.(\d+))?(?:[eE]([+-]?)(\d+))?")


class _Number(str):
    """As it is written."""


def _json(value: bytes) -> Row:
    value = value.strip(_BLANK.encode())
    if value.startswith(b"\xef\xbb\xbf"):
        value = value[3:].lstrip(_BLANK.encode())
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        raise Wrong("UTF-8") from None
    if not text.startswith("{"):
        raise Wrong("no object")
    text = _LENIENT.sub(lambda m: m[0] if m[0][0] == '"' else "NaN", text)
    # Python's parser is recursive.
    text = _NESTED.sub(lambda m: "[[0]]" if len(m[1]) == len(m[2]) else "[", text)
    try:
        pairs = json.loads(
            text,
            object_pairs_hook=_Pairs,
            parse_int=_checked_number,
            parse_float=_checked_number,
            parse_constant=_Number,
        )
    except (ValueError, RecursionError):
        raise Wrong("no JSON") from None
    _check_texts(pairs)
    return _struct(pairs, JSON_COLUMNS)


class _Pairs(list[Any]):
    """An object, with its keys as often as they are there."""


def _checked_number(text: str) -> _Number:
    """With an exponent beyond a double's it is refused wherever it stands."""
    found = _NUMBER.fullmatch(text)
    assert found is not None
    if found[3] and found[2] != "-" and int(found[3]) > 308 + len(found[1] or ""):
        raise ValueError("exponent")
    return _Number(text)


def _check_texts(value: Any) -> None:
    """No lone surrogate anywhere."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, (list, tuple)):
            stack += one
        elif isinstance(one, str) and re.search("[\ud800-\udfff]", one):
            raise Wrong("surrogate")


def _struct(pairs: Any, columns: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(pairs, _Pairs):
        raise Wrong("no object")
    row: dict[str, Any] = {}
    for name, value in pairs:
        if name in columns:
            if name in row:
                raise Wrong("twice")
            row[name] = None if value is None else _cell(value, columns[name])
    return {name: row.get(name) for name in columns}


def _cell(value: Any, kind: str) -> Any:
    if kind.startswith("array"):
        if not isinstance(value, list) or isinstance(value, _Pairs):
            raise Wrong("array")
        return [None if item is None else _cell(item, kind[6:-1]) for item in value]
    if kind.startswith("struct"):
        return _struct(value, dict(part.split(":") for part in kind[7:-1].split(",")))
    is_number = isinstance(value, _Number)
    if kind in ("long", "int", "date"):
        if not is_number or not re.fullmatch(r"-?\d+", value):
            raise Wrong("integer")
        return _within(int(value), kind)
    if kind in ("double", "float"):
        if not is_number:
            raise Wrong("number")
        with np.errstate(over="ignore"):
            number = float(value) if kind == "double" else float(np.float32(value))
        if not np.isfinite(number):
            raise Wrong("not finite")
        return number
    if kind == "boolean":
        if not isinstance(value, bool):
            raise Wrong("boolean")
        return value
    if is_number or not isinstance(value, str):
        raise Wrong("text")
    if kind == "timestamp":
        return _time_us(value)
    return value.encode() if kind == "binary" else value


_ENDS = {"long": (-(2**63), 2**63 - 1), "int": (-(2**31), 2**31 - 1), "date": (-719_162, 2_932_896)}


def _within(number: int, kind: str) -> int:
    first, last = _ENDS[kind]
    if not first <= number <= last:
        raise Wrong("range")
    return number


_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(Z|[+-]\d\d:?\d\d)?)?"
)


def _time_us(text: str) -> int:
    found = _TIME.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        day = int(np.datetime64(found[1], "D").astype(np.int64))
    except ValueError:
        raise Wrong("time") from None
    hour, minute, second = (int(found[i] or 0) for i in (2, 3, 4))
    zone = found[6] or "Z"
    offset = 0 if zone == "Z" else int(f"{zone[0]}1") * (int(zone[1:3]) * 60 + int(zone[-2:]))
    seconds = ((day * 24 + hour) * 60 + minute - offset) * 60 + second
    us = seconds * 1_000_000 + int((found[5] or "").ljust(6, "0"))
    if hour > 23 or minute > 59 or second > 59 or not FIRST_MS <= us // 1000 <= LAST_MS:
        raise Wrong("time")
    return us


# --- Avro ---------------------------------------------------------------------------------------------


class _Reader:
    """Reads as Avro's specification says, and refuses everything else."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        # By the fields that are wanted: others are looked at, but not what they say.
        self._is_wanted = True

    def whole(self, schema: Any, wanted: Any) -> dict[str, Any]:
        kinds = {field["name"]: field["type"] for field in wanted["fields"]}
        row = {}
        for field in schema["fields"]:
            name, kind = field["name"], field["type"]
            self._is_wanted = name in kinds
            if self._is_wanted:
                kind = _resolved(kind, kinds[name])
            row[name] = self.read(kind)
            if kinds.get(name) == "double":
                row[name] = float(row[name])
        if self._at != len(self._data):
            raise Wrong("trailing")
        return row

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise Wrong("size")
        self._at += size
        return self._data[self._at - size : self._at]

    def long(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            shift += 7
            if number >> 64 or (shift == 70 and byte >= 0x80):
                raise Wrong("64 bits")
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)

    def read(self, schema: Any) -> Any:
        match schema:
            case "null":
                return None
            case "boolean":
                return self.take(1) != b"\0"
            case "int":
                return _within(self.long(), "int")
            case "long":
                return self.long()
            case "float":
                return struct.unpack("<f", self.take(4))[0]
            case "double":
                return struct.unpack("<d", self.take(8))[0]
            case "bytes":
                return self.take(self.long())
            case "string":
                return self._text()
            case "Kind":
                return self.read(AVRO["fields"][6]["type"])
            case list():
                return self.read(schema[self._index(len(schema))])
            case {"logicalType": "decimal"}:
                size = schema["size"] if schema["type"] == "fixed" else self.long()
                number = int.from_bytes(self.take(size), "big", signed=True)
                return _decimal(number, schema) if self._is_wanted else number
            case {"logicalType": "date"}:
                days = _within(self.long(), "int")
                return _within(days, "date") if self._is_wanted else days
            case {"logicalType": "timestamp-millis"}:
                time_ms = self.long()
                if self._is_wanted and not FIRST_MS <= time_ms <= LAST_MS:
                    raise Wrong("time")
                return time_ms * 1000
            case {"name": "Node"}:
                return self._nodes()
            case {"type": "enum"}:
                return schema["symbols"][self._index(len(schema["symbols"]))]
            case {"type": "fixed"}:
                return self.take(schema["size"])
            case {"type": "array"}:
                return self._blocks(lambda: self.read(schema["items"]))
            case {"type": "map"}:
                return dict(self._blocks(lambda: (self._text(), self.read(schema["values"]))))
        return {field["name"]: self.read(field["type"]) for field in schema["fields"]}

    def _nodes(self) -> int:
        """How many are in each other. A loop: Python's recursion has a limit of its own."""
        for depth in range(_MOST_NODES):
            self.read(NODE["fields"][0]["type"])
            if self._index(2) == 0:
                return depth
        raise Wrong("depth")

    def _text(self) -> str:
        data = self.take(self.long())
        try:
            return data.decode("utf-8" if self._is_wanted else "latin-1")
        except UnicodeDecodeError:
            raise Wrong("UTF-8") from None

    def _index(self, count: int) -> int:
        index = self.long()
        if not 0 <= index < count:
            raise Wrong("index")
        return index

    def _blocks(self, item: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        while (count := self.long()) != 0:
            end = None
            if count < 0:
                end = self.long()
                end += self._at
            for i in range(abs(count)):
                before = self._at
                found.append(item())
                if i == 0 and self._at == before:  # items that take no bytes
                    if abs(count) > 100_000:
                        raise Wrong("empty items")
                    break
            if end is not None and end != self._at:
                raise Wrong("block")
        return found


# A depth of 3,000: each node is a union and a record.
_MOST_NODES = 1500
# What the defaults of the reader's schema mean.
_DEFAULTS = {
    "name": "unknown",
    "at": 1_600_000_000_000_000,
    "price": Decimal("12.34"),
    "blob": b"\xff\x01",
    "blobs": [b"\xff", b""],
    "day": 18_518,
    "cost": Decimal("-1.00"),
    "last": {"t": 1_600_000_000_000_000, "b": b"\xff"},
}


def _resolved(writer: Any, reader: Any) -> Any:
    """How to read a value of the writer: which logical type it has, and where it must fit."""
    if isinstance(writer, list):
        wanted = [kind for kind in reader if kind != "null"]
        return [kind if kind == "null" else _resolved(kind, wanted[0]) for kind in writer]
    if not isinstance(reader, dict) or "logicalType" not in reader:
        return _without_logical(writer)
    if not isinstance(writer, dict) or "logicalType" not in writer:
        return reader
    return {**writer, "reader": reader}


def _without_logical(schema: Any) -> Any:
    if not isinstance(schema, dict) or "logicalType" not in schema:
        return schema
    if schema["type"] == "fixed":
        return {"type": "fixed", "size": schema["size"]}
    return schema["type"]


def _decimal(number: int, schema: Any) -> Decimal:
    """Exactly, in integers: without a digit too many, or lost, in the reader's column."""
    column = schema.get("reader", schema)
    places = column["scale"] - schema["scale"]
    if places < 0 and number % 10**-places:
        raise Wrong("places")
    number = number * 10**places if places >= 0 else number // 10**-places
    if abs(number) >= 10 ** column["precision"]:
        raise Wrong("digits")
    return Decimal(number).scaleb(-column["scale"])


def _avro(value: bytes) -> Row:
    return _Reader(value).whole(AVRO, AVRO)


def _registry(value: bytes) -> Row:
    number = int.from_bytes(value[1:5], "big")
    if len(value) < 5 or value[0] != 0 or number not in WRITERS:
        raise Wrong("schema")
    return {**_DEFAULTS, **_Reader(value[5:]).whole(WRITERS[number], AVRO)}


# --- a function ---------------------------------------------------------------------------------------

_ACTS: dict[bytes, Any] = {
    b"!none": IGNORED,
    b"!empty": {},
    b"!extra": {"id": 1},
    b"!struct other key": {"id": 1, "s": {"a": None}},
    b"!infinite": {"share": float("inf")},
    b"!tuple": {"l": [1, 2]},
    b"!bytes name": {"name": "text"},
    b"!print": {"id": 1},
    b"!int double": {"x": 5.0},
    b"!int time": {"t": 1_600_000_000_000_000},
    b"!naive time": {"t": 1_600_000_000_000_000},
    b"!int date": {"d": 18_518},
}


def _function(value: bytes) -> Row | object:
    if value in fuzz_function.ACTS:
        if value in DEADLY or value not in _ACTS:
            raise Wrong("act")
        found = _ACTS[value]
        return found if found is IGNORED else {n: found.get(n) for n in fuzz_function.COLUMNS}
    number, _, name = value.partition(b" ")
    try:
        row = fuzz_function.good(_within(int(number), "long"), name.decode())
    except ValueError:
        raise Wrong("value") from None
    return {column: row[column] for column in fuzz_function.COLUMNS}


COLUMNS: dict[str, list[str]] = {
    "raw": ["value"],
    "json": list(JSON_COLUMNS),
    "avro": [field["name"] for field in AVRO["fields"]],
    "registry": [field["name"] for field in AVRO["fields"]],
    "function": list(fuzz_function.COLUMNS),
}
_JUDGES: dict[str, Callable[[bytes], Row | object]] = {
    "json": _json,
    "avro": _avro,
    "registry": _registry,
    "function": _function,
}
