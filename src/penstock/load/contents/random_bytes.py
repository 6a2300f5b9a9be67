"""Random bytes: encrypted or compressed already, so no codec makes them smaller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from penstock.domain.content import Content


@dataclass(frozen=True, kw_only=True)
class RandomContent(Content):
    """Random bytes, which compression does not make smaller."""

    kind = "random"

    def records(self, rng: Random) -> Iterator[bytes]:
        while True:
            yield rng.randbytes(1024)
