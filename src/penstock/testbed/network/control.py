"""The socket between the testbed and its packet handler: lines of JSON, in the lease's directory."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOCKET_NAME = "emulator.sock"
ANSWER_WITHIN_S = 10


@contextmanager
def socket_address(directory: Path) -> Iterator[str]:
    """The socket's address. By way of a descriptor, since an address holds only 107 bytes."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


def ask(directory: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Send one request and return the answer. Raises OSError if nobody is there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(ANSWER_WITHIN_S)
        with socket_address(directory) as address:
            channel.connect(address)
        channel.sendall(json.dumps(request).encode() + b"\n")
        with channel.makefile("rb") as lines:
            line = lines.readline()
    if not line:
        raise ConnectionError("the packet handler hung up")
    answer: dict[str, Any] = json.loads(line)
    return answer
