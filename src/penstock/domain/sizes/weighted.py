"""A few sizes, each with its weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Annotated

from penstock.domain.sizes.sizes import ID_BYTES, MOST_BYTES, Sizes
from penstock.domain.value import Bound, Doc, FieldError, Value


@dataclass(frozen=True, kw_only=True)
class WeightedSize(Value):
    """One of the sizes."""

    bytes: Annotated[int, Bound(ge=ID_BYTES, le=MOST_BYTES)]
    weight: Annotated[float, Bound(gt=0), Doc("relative to the other weights")] = 1.0


@dataclass(frozen=True, kw_only=True)
class WeightedSizes(Sizes):
    """Sizes drawn by weight, as a recorded mix of message kinds gives them."""

    kind = "weighted"
    sizes: tuple[WeightedSize, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sizes:
            raise FieldError("sizes", [], "must have at least one size")

    def draw(self, rng: Random) -> Iterator[int]:
        sizes = [size.bytes for size in self.sizes]
        weights = [size.weight for size in self.sizes]
        while True:
            yield from rng.choices(sizes, weights, k=1000)

    @property
    def mean_bytes(self) -> float:
        total = sum(size.weight for size in self.sizes)
        return sum(size.bytes * size.weight for size in self.sizes) / total
