"""Sizes distributed uniformly between two bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Annotated

from penstock.domain.sizes.sizes import ID_BYTES, MOST_BYTES, Sizes
from penstock.domain.value import Bound


@dataclass(frozen=True, kw_only=True)
class UniformSizes(Sizes):
    """U[min_bytes, max_bytes]."""

    kind = "uniform"
    min_bytes: Annotated[int, Bound(ge=ID_BYTES, le=MOST_BYTES)]
    max_bytes: Annotated[int, Bound(ge=ID_BYTES, le=MOST_BYTES)]

    def __post_init__(self) -> None:
        super().__post_init__()
        fix = f"must be at least min_bytes ({self.min_bytes})"
        self.require(self.max_bytes >= self.min_bytes, "max_bytes", fix)

    def draw(self, rng: Random) -> Iterator[int]:
        width = self.max_bytes - self.min_bytes + 1
        while True:
            yield self.min_bytes + int(rng.random() * width)

    @property
    def mean_bytes(self) -> float:
        return (self.min_bytes + self.max_bytes) / 2
