"""Checks that bytes are exactly one Avro record, by Avro's specification. Pure.

Fastavro is lenient: it drops the bits of a number beyond 64 (so that a text with a length of 2⁶⁴ + 3
has three bytes), counts a negative index of a union or an enum from the end, reads over the end of
what it skips, makes a list of 2⁶⁰ items if they take no bytes, reads an int of 64 bits, and crashes
if values are nested too deep.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

# Takes the bytes and where a value begins; returns where it ends. Raises ValueError, or IndexError
# if the bytes end too early.
Check = Callable[[bytes, int], int]
_MOST_NUMBER_BYTES = 10
_FIXED_BYTES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
# Limit of items that take no bytes (null, or records of nothing else).
_MOST_EMPTY = 100_000
# Limit of calls in each other, three at most for each value inside another. Fastavro, which reads
# after this check, has no limit of its own and overflows a stack of 8 MB after three times as many.
_MOST_CALLS = 10_000
_SURE_DEPTH = 3000
_INT_END = 1 << 31


def checker(schema: Any) -> Callable[[bytes, int], None]:
    """A function that checks the bytes of a value from an index to their end, by this schema."""
    check = _check(schema, {})

    def check_whole(data: bytes, start: int) -> None:
        try:
            try:
                end = check(data, start)
            except RecursionError:
                end = _deep(check, data, start)
        except IndexError:
            end = len(data) + 1
        if end > len(data):
            raise ValueError("the bytes end before the record does")
        if end < len(data):
            raise ValueError(f"{len(data) - end} bytes follow after the record")

    return check_whole


def _deep(check: Check, data: bytes, start: int) -> int:
    """The same for values that are nested deeper than Python allows by default."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(usual + _MOST_CALLS)
    try:
        return check(data, start)
    except RecursionError:
        raise ValueError(f"has values nested in each other more than {_SURE_DEPTH} deep") from None
    finally:
        sys.setrecursionlimit(usual)


def long_at(data: bytes, at: int) -> tuple[int, int]:
    """A number in Avro's variable-length zig-zag code, and where it ends."""
    byte = data[at]
    if byte < 0x80:  # most are small
        return (byte >> 1) ^ -(byte & 1), at + 1
    number = byte & 0x7F
    for length in range(1, _MOST_NUMBER_BYTES):
        byte = data[at + length]
        number |= (byte & 0x7F) << (7 * length)
        if byte < 0x80:
            if number >> 64:
                break
            return (number >> 1) ^ -(number & 1), at + length + 1
    raise ValueError("has a number of more than 64 bits")


def _check(schema: Any, named: dict[str, Check]) -> Check:
    if isinstance(schema, list):
        return _union([_check(kind, named) for kind in schema])
    if isinstance(schema, str):
        if schema in _FIXED_BYTES:
            return _skip(_FIXED_BYTES[schema])
        if schema == "int":
            return _int
        if schema == "long":
            return _number
        if schema in ("bytes", "string"):
            return _sized
        # Looked up when it is needed: the type may contain itself.
        return lambda data, at: named[schema](data, at)
    kind = schema["type"]
    if kind == "array":
        return _blocks(_check(schema["items"], named))
    if kind == "map":
        item = _check(schema["values"], named)
        return _blocks(lambda data, at: item(data, _sized(data, at)))
    if kind not in ("record", "error", "enum", "fixed"):
        return _check(kind, named)
    if kind == "enum":
        made = _enum(len(schema["symbols"]))
    elif kind == "fixed":
        made = _skip(schema["size"])
    else:
        made = _record([_check(field["type"], named) for field in schema["fields"]])
    named[schema["name"]] = made
    return made


def _skip(size: int) -> Check:
    return lambda data, at: at + size


def _int(data: bytes, at: int) -> int:
    if data[at] < 0x80:  # most are small
        return at + 1
    number, at = long_at(data, at)
    if not -_INT_END <= number < _INT_END:
        raise ValueError(f"has the number {number} as an int, which has 32 bits")
    return at


def _number(data: bytes, at: int) -> int:
    return long_at(data, at)[1]


def _sized(data: bytes, at: int) -> int:
    size, at = long_at(data, at)
    if not 0 <= size <= len(data) - at:
        raise ValueError(f"has a text of {size} bytes, and {max(0, len(data) - at)} are left")
    return at + size


def _enum(symbols: int) -> Check:
    def check(data: bytes, at: int) -> int:
        index, at = long_at(data, at)
        if not 0 <= index < symbols:
            raise ValueError(f"has the index {index} of an enum with {symbols} symbols")
        return at

    return check


def _union(kinds: list[Check]) -> Check:
    def check(data: bytes, at: int) -> int:
        index, at = long_at(data, at)
        if not 0 <= index < len(kinds):
            raise ValueError(f"has the index {index} of a union of {len(kinds)} types")
        return kinds[index](data, at)

    return check


def _record(fields: list[Check]) -> Check:
    def check(data: bytes, at: int) -> int:
        for field in fields:
            at = field(data, at)
        return at

    return check


def _blocks(item: Check) -> Check:
    """Check of an array or a map: each block has its count, negative if its size follows."""

    def check(data: bytes, at: int) -> int:
        while True:
            count, at = long_at(data, at)
            if count == 0:
                return at
            size = None
            if count < 0:
                count = -count
                size, at = long_at(data, at)
            end = _items(item, count, data, at)
            if size is not None and end != at + size:
                raise ValueError(f"has a block of {end - at} bytes whose size field is {size}")
            at = end

    return check


def _items(item: Check, count: int, data: bytes, at: int) -> int:
    end = item(data, at)
    if end == at:
        if count > _MOST_EMPTY:
            raise ValueError(f"has {count} items that take no bytes")
        return at
    if count > len(data) - at:
        raise ValueError(f"has {count} items, and {max(0, len(data) - at)} bytes are left")
    for _ in range(count - 1):
        end = item(data, end)
    return end
