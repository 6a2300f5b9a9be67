"""The decoder process: reads values from its lane, writes columns. `process` starts it."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.lake.isolated import wire
from penstock.lake.isolated.rows import Decoder, Rows
from penstock.lake.rejection import Rejection, RejectKind, described

_PR_SET_PDEATHSIG = 1
_READ_BYTES = 1 << 20


class Wire:
    """The original standard input and output, out of reach of a function that prints or reads."""

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        # Number of messages received; an answer has the number of its request.
        self._number = 0
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        os.close(nothing)

    def receive(self) -> tuple[dict[str, Any], pa.Table] | None:
        """None: the lane has closed it."""
        message = bytearray()
        while len(message) < wire.HEAD_BYTES or len(message) < wire.size_of(message):
            got = os.read(self._in, _READ_BYTES)
            if not got:
                return None
            message += got
        self._number += 1
        return wire.unpacked(message, self._number)

    def send(self, meta: dict[str, Any], table: pa.Table) -> None:
        for piece in wire.packed(self._number, meta, table):
            while piece:
                piece = piece[os.write(self._out, piece) :]


def main() -> None:
    owner, page = (int(text) for text in sys.argv[1:])
    _end_with(owner)
    # Ignored, since systemd sends them to every process, and the lane finishes its micro-batch
    # first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it may well crash
    try:
        _serve(Wire(), memoryview(mmap.mmap(page, mmap.PAGESIZE)).cast("q"))
    except MemoryError:
        os._exit(wire.OUT_OF_MEMORY_EXIT)


def _serve(lane: Wire, page: memoryview[int]) -> None:
    own = os.getpid()

    def at(place: int) -> None:
        if os.getpid() != own:  # a function forked, and returned in the new process as well
            os._exit(0)
        page[0] = place

    greeting = lane.receive()
    if greeting is None:
        return
    meta, _ = greeting
    decoders: list[Decoder] = []
    for recipe in meta["recipes"]:
        try:
            decoders.append(_decoder(*recipe, at=at))
        except BaseException as error:  # a module that is imported may do anything
            lane.send({"error": described(error), "recipe": len(decoders)}, pa.table({}))
            return
    used_bytes = _limit_memory(meta["memory_mb"])
    lane.send({}, pa.table({}))
    while (request := lane.receive()) is not None:
        meta, table = request
        decoder = decoders[meta["recipe"]]
        for number, kind, detail in meta["blamed"]:
            decoder.rows.blame(number, Rejection(RejectKind(kind), detail))
        for i, (number, text) in enumerate(meta["schemas"]):
            at(wire.LEARNING - i)
            decoder.rows.learn(number, text)
        values = table.column("value").to_pylist()
        decoded = decoder.decode(values, is_careful=meta["is_careful"])
        at(wire.IDLE)
        answer = {
            "rejected": [(i, str(why.kind), why.detail) for i, why in decoded.rejected.items()],
            "ignored": sorted(decoded.ignored),
            "grown_mb": (_data_bytes() - used_bytes) / 2**20,
        }
        lane.send(answer, decoded.columns)


def _decoder(
    path: str, arguments: dict[str, Any], text: str, *, at: Callable[[int], None]
) -> Decoder:
    module, _, name = path.partition(":")
    schema = wire.schema_of(text)
    rows: Rows = getattr(import_module(module), name)(schema, **arguments)
    made = Decoder(rows, schema, at)
    with _without_pandas():
        made.decode([None], is_careful=False)
    return made


@contextmanager
def _without_pandas() -> Iterator[None]:
    """Keep Arrow from importing pandas when it first makes an array; that takes longer than the
    rest of the start. A function that uses pandas has imported it already, and then it stays."""
    if "pandas" in sys.modules:
        yield
        return
    sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["pandas"]


def _end_with(owner: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:  # the owner ended before prctl took effect
        os._exit(1)


def _limit_memory(record_memory_mb: int) -> int:
    """Limit memory to what is in use now plus `record_memory_mb`; returns what is in use."""
    used_bytes = _data_bytes()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = used_bytes + record_memory_mb * 2**20
    soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, soft))
    return used_bytes


def _data_bytes() -> int:
    """The memory that the limit counts: private and writable."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main()
