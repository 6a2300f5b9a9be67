"""Random bytes: encrypted or compressed already, so no codec makes them smaller."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from penstock.load.contents.content import Content


class RandomBytes(Content):
    kind = "random"

    def records(self, rng: Random) -> Iterator[bytes]:
        while True:
            yield rng.randbytes(1024)
