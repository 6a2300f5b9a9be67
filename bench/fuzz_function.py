"""A user's decoder that does what its records tell it. Decoder processes import it."""

from __future__ import annotations

import os
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

COLUMNS = {
    "id": "long",
    "share": "float",
    "name": "string",
    "s": "struct<a:long>",
    "l": "array<long>",
    "x": "double",
    "t": "timestamp",
    "d": "date",
}
_TIME = datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)


def decode(value: bytes) -> Any:
    """`ID NAME` is a good record; `!WORD` does something else."""
    if not value.startswith(b"!"):
        number, _, name = value.partition(b" ")
        return good(int(number), name.decode())
    return ACTS[value]()


def good(number: int, name: str) -> dict[str, Any]:
    return {
        "id": number,
        "share": 0.5,
        "name": name,
        "s": {"a": number},
        "l": [number, None],
        "x": 0.25,
        "t": _TIME,
        "d": date(2020, 9, 13),
        "not a column": object(),
    }


def _raise(error: BaseException) -> Any:
    raise error


def _loop() -> Any:
    while True:
        pass


ACTS: dict[bytes, Any] = {
    b"!none": lambda: None,
    b"!empty": dict,
    b"!extra": lambda: {"id": 1, "other": object()},
    b"!list": lambda: [1],
    b"!text": lambda: "id",
    b"!bytes key": lambda: {b"id": 1},
    b"!int key": lambda: {"id": 1, 5: 1},
    b"!struct list": lambda: {"id": 1, "s": [1]},
    b"!struct items": lambda: {"id": 1, "s": [("a", 1)]},
    b"!struct bytes key": lambda: {"id": 1, "s": {b"a": 1}},
    b"!struct other key": lambda: {"id": 1, "s": {"b": 1}},
    b"!float": lambda: {"id": 1.5},
    b"!bool": lambda: {"id": True},
    b"!large": lambda: {"id": 2**63},
    b"!large float": lambda: {"share": 1e39},
    b"!infinite": lambda: {"share": float("inf")},
    b"!text list": lambda: {"l": "12"},
    b"!tuple": lambda: {"l": (1, 2)},
    b"!float list": lambda: {"l": [1.5]},
    b"!bool double": lambda: {"x": True},
    b"!bool share": lambda: {"share": True},
    b"!int double": lambda: {"x": 5},
    b"!large double": lambda: {"x": 2**53 + 1},
    b"!float time": lambda: {"t": 1_600_000_000.75},
    b"!whole float time": lambda: {"t": 1.6e15},
    b"!decimal time": lambda: {"t": Decimal("1.5")},
    b"!date time": lambda: {"t": date(2020, 9, 13)},
    b"!text time": lambda: {"t": "2020-09-13"},
    b"!int time": lambda: {"t": 1_600_000_000_000_000},
    b"!naive time": lambda: {"t": _TIME.replace(tzinfo=None)},
    b"!float date": lambda: {"d": 18518.9},
    b"!decimal date": lambda: {"d": Decimal("1.5")},
    b"!bool date": lambda: {"d": True},
    b"!datetime date": lambda: {"d": _TIME},
    b"!int date": lambda: {"d": 18_518},
    b"!late date": lambda: {"d": 2_932_897},
    b"!lone surrogate": lambda: {"name": "\ud800"},
    b"!bytes name": lambda: {"name": b"text"},
    b"!bad bytes name": lambda: {"name": b"\xff"},
    b"!surrogate error": lambda: _raise(ValueError("\ud800\n\x00")),
    b"!exit error": lambda: _raise(SystemExit(3)),
    b"!interrupt": lambda: _raise(KeyboardInterrupt()),
    b"!memory error": lambda: _raise(MemoryError()),
    b"!recursion": lambda: _recurse(),
    b"!print": lambda: print("\0\0\0\0\0\0\0\0", end="") or {"id": 1},
    b"!exit": lambda: os._exit(3),
    b"!abort": os.abort,
    b"!loop": _loop,
    b"!sleep": lambda: time.sleep(3600),
    b"!memory": lambda: [bytearray(1 << 24) for _ in range(1 << 20)],
}


def _recurse() -> Any:
    return _recurse()
