"""Random bytes: encrypted or compressed already, so no codec makes them smaller."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random


def records(rng: Random) -> Iterator[bytes]:
    while True:
        yield rng.randbytes(1024)
