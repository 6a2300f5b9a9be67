"""Many small messages and a few large ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import Annotated

from penstock.domain.sizes.sizes import ID_BYTES, MOST_BYTES, Sizes
from penstock.domain.value import Bound, Doc


@dataclass(frozen=True, kw_only=True)
class LognormalSizes(Sizes):
    """exp(N(ln median, σ)), cut off at `max_bytes`."""

    kind = "lognormal"
    median_bytes: Annotated[int, Bound(ge=ID_BYTES, le=MOST_BYTES)]
    sigma: Annotated[float, Bound(gt=0, le=5), Doc("deviation of the logarithm; .5 is mild")]
    max_bytes: Annotated[int, Bound(ge=ID_BYTES, le=MOST_BYTES)] = 900_000

    def __post_init__(self) -> None:
        super().__post_init__()
        fix = f"must be at least median_bytes ({self.median_bytes})"
        self.require(self.max_bytes >= self.median_bytes, "max_bytes", fix)

    def draw(self, rng: Random) -> Iterator[int]:
        mu = math.log(self.median_bytes)
        while True:
            yield min(self.max_bytes, max(ID_BYTES, round(rng.lognormvariate(mu, self.sigma))))

    @property
    def mean_bytes(self) -> float:
        """Of the distribution cut off above; the cut below is neglected."""
        normal = NormalDist()
        z = math.log(self.max_bytes / self.median_bytes) / self.sigma
        below = self.median_bytes * math.exp(self.sigma**2 / 2) * normal.cdf(z - self.sigma)
        return below + self.max_bytes * (1 - normal.cdf(z))
