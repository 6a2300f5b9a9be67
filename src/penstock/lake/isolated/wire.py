"""Messages between a lane and its decoder process: JSON and an Arrow table each.

A message is its length, the length of its JSON, its number, the JSON, and the table as an Arrow IPC
stream. An answer has the number of its request; one with another number is not used, since it may
come from a process that a function has forked. The decoder process also shares a page of memory
with the lane, where it writes which record it is working on: the only way to know that of a process
that died or hangs.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_HEAD = struct.Struct("<QQQ")
HEAD_BYTES = _HEAD.size
# Arrow reads numbers in place, so they should be aligned to their size.
_ALIGNMENT = 16

# Values on the shared page other than the index of a record.
IDLE = -1
BUILDING = -2
# The n-th schema of the message is parsed: this minus n.
LEARNING = -10

# The exit code of a decoder process that has no memory left to say so.
OUT_OF_MEMORY_EXIT = 77


def packed(number: int, meta: Mapping[str, Any], table: pa.Table) -> list[memoryview]:
    """A message as pieces to be written one after the other."""
    text = json.dumps(meta).encode()
    text += b" " * (-(HEAD_BYTES + len(text)) % _ALIGNMENT)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    body = sink.getvalue()
    head = _HEAD.pack(len(text) + body.size, len(text), number)
    return [memoryview(head + text), memoryview(body)]


def size_of(head: bytes | bytearray) -> int:
    """The size of a whole message, by its beginning."""
    size: int = _HEAD.unpack_from(head)[0]
    return HEAD_BYTES + size


def unpacked(message: bytes | bytearray, number: int) -> tuple[dict[str, Any], pa.Table]:
    """Raises ValueError if it does not have that number."""
    _, text_bytes, received = _HEAD.unpack_from(message)
    if received != number:
        raise ValueError(f"it has the number {received} instead of {number}")
    if len(message) != size_of(message):
        raise ValueError(f"{len(message)} bytes instead of {size_of(message)}")
    whole = memoryview(message)
    meta: dict[str, Any] = json.loads(bytes(whole[HEAD_BYTES : HEAD_BYTES + text_bytes]))
    with pa.ipc.open_stream(pa.py_buffer(whole[HEAD_BYTES + text_bytes :])) as stream:
        return meta, stream.read_all()


def schema_text(schema: pa.Schema) -> str:
    """A schema as text, for the JSON of a message."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
