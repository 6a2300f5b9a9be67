"""Messages at independent, exponentially distributed distances."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Annotated

from penstock.domain.arrivals.arrivals import Arrivals
from penstock.domain.value import Bound, Doc


@dataclass(frozen=True, kw_only=True)
class PoissonArrivals(Arrivals):
    """Independent messages: exponential gaps."""

    kind = "poisson"
    rate_per_s: Annotated[float, Bound(gt=0), Doc("mean messages per second of one producer")]

    def times_s(self, rng: Random) -> Iterator[float]:
        now = 0.0
        while True:
            now += rng.expovariate(self.rate_per_s)
            yield now

    @property
    def mean_per_s(self) -> float:
        return self.rate_per_s
