"""Decoders as users write them, good and bad. A decoder process imports this module."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import pyarrow as pa

from penstock.domain.errors import BadInput
from penstock.lake.isolated import wire
from penstock.lake.rejection import Rejected, Rejection, RejectKind

COLUMNS = {"id": "long", "share": "float", "s": "struct<a:long>", "l": "array<long>"}


def halve(value: bytes) -> dict[str, Any] | None:
    number = int(value)
    return None if number == 0 else {"half": number // 2, "odd": bool(number % 2)}


def grow(value: bytes) -> dict[str, Any] | None:
    """A number becomes so many bytes; no number at all ends the process."""
    if value == b"exit":
        os._exit(3)
    return None if value == b"none" else {"grown": b"x" * int(value)}


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text for you")


def _raise(error: BaseException) -> Any:
    raise error


def _fill_memory() -> Any:
    return [bytearray(1 << 24) for _ in range(1 << 20)]


_DOES: dict[bytes, Any] = {
    b"list": lambda: [1, 2],
    b"text": lambda: "id",
    b"bytes key": lambda: {b"id": 1},
    b"int key": lambda: {1: 1},
    b"tuple key": lambda: {("id",): 1},
    b"none key": lambda: {None: 1},
    b"other key": lambda: {"other": 1, "id": 1},
    b"struct list": lambda: {"s": [1]},
    b"struct items": lambda: {"s": [("a", 1)]},
    b"struct bytes key": lambda: {"s": {b"a": 1}},
    b"float": lambda: {"id": 1.5},
    b"whole float": lambda: {"id": 1.0},
    b"bool": lambda: {"id": True},
    b"large": lambda: {"id": 2**63},
    b"large float": lambda: {"share": 1e39},
    b"text for list": lambda: {"l": "12"},
    b"float in list": lambda: {"l": [1, 2.5]},
    b"surrogate": lambda: _raise(ValueError("bad \ud800 text\x00\x1b[31m\nnext line")),
    b"unspeakable": lambda: _raise(Unspeakable()),
    b"long text": lambda: _raise(ValueError("x" * 10_000_000)),
    b"penstock": lambda: _raise(BadInput("this is not the pipeline's fault", "none")),
    b"recursion": lambda: _recurse(),
    b"sys.exit": lambda: sys.exit(3),
    b"interrupt": lambda: _raise(KeyboardInterrupt()),
    b"print": lambda: print("a line for standard output") or {"id": 5},
    b"input": lambda: {"id": len(sys.stdin.read())},
    b"exit": lambda: os._exit(3),
    b"crash": lambda: ctypes.string_at(0),
    b"sleep": lambda: time.sleep(3600),
    b"loop": lambda: _loop(),
    b"memory": _fill_memory,
}


def _loop() -> Any:
    while True:
        pass


def _recurse() -> Any:
    return _recurse()


def act(value: bytes) -> Any:
    """What the value says; a number is a good record."""
    return {"id": int(value), "s": {"a": int(value)}} if value.isdigit() else _DOES[value]()


def pid(value: bytes) -> dict[str, Any]:
    return {"id": os.getpid()}


def slow_once(value: bytes) -> dict[str, Any]:
    """Kills its process if the file of that name is there, which is then removed."""
    if value.startswith(b"/") and os.path.exists(value):  # noqa: PTH110
        os.unlink(value)  # noqa: PTH108
        os._exit(9)
    return {"id": 1}


def stop_itself(value: bytes) -> dict[str, Any]:
    """Stopped for a second, in which a process that it starts lets it go on."""
    if value == b"stop":
        me = os.getpid()
        subprocess.Popen(["/bin/sh", "-c", f"sleep 1; kill -CONT {me}"])
        os.kill(me, signal.SIGSTOP)
    return {"id": 1}


_kept: list[bytearray] = []


def hoard(value: bytes) -> dict[str, Any]:
    """Never gives its memory back."""
    _kept.append(bytearray(1 << 20))
    return {"id": len(_kept)}


def take_mb(value: bytes) -> dict[str, Any]:
    """Needs so much for a moment (b"100"), keeps it as its row (b"100 row") or for good (b"100
    kept"), or hides what went wrong (b"100 hidden")."""
    number, _, what = value.partition(b" ")
    try:
        taken = bytearray(int(number) << 20)
    except MemoryError:
        if what == b"hidden":
            raise ValueError("something went wrong") from None
        raise
    if what == b"kept":
        _kept.append(taken)
    return {"id": len(taken) >> 20, "bin": bytes(taken) if what == b"row" else b""}


def fork(value: bytes) -> dict[str, Any]:
    """Returns in both processes if the value says so; the new one is the later of the two."""
    if value == b"fork" and os.fork() == 0:
        time.sleep(0.2)
    return {"id": len(value)}


def answer_itself(value: bytes) -> dict[str, Any]:
    """Writes an answer that is like those of its process, but for the number of its request."""
    if value == b"answer":
        meta = {"rejected": [], "ignored": [], "grown_mb": 0}
        message = b"".join(wire.packed(1, meta, pa.table({"id": [-1]})))
        for number in range(3, 20):
            with suppress(OSError):
                if "pipe:" in os.readlink(f"/proc/self/fd/{number}"):  # noqa: PTH115
                    os.write(number, message)
    return {"id": 1}


class FragileRows:
    """Rows by the text of their schema; some texts end the process."""

    kind = RejectKind.NOT_AVRO

    def __init__(self, schema: Any) -> None:
        self._texts: dict[int, str | Rejection] = {}

    def learn(self, number: int, text: str) -> None:
        if text == "die":
            os._exit(5)
        self._texts[number] = text

    def blame(self, number: int, rejection: Rejection) -> None:
        self._texts[number] = rejection

    def row(self, value: bytes) -> dict[str, Any]:
        entry = self._texts[int(value)]
        if isinstance(entry, Rejection):
            raise Rejected(entry.kind, entry.detail)
        return {"id": len(entry)}
