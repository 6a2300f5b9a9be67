"""Messages at equal intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Annotated

from penstock.domain.arrivals.arrivals import Arrivals
from penstock.domain.value import Bound, Doc


@dataclass(frozen=True, kw_only=True)
class ConstantArrivals(Arrivals):
    """One message every 1 / rate_per_s."""

    kind = "constant"
    rate_per_s: Annotated[float, Bound(gt=0), Doc("messages per second of one producer")]

    def times_s(self, rng: Random) -> Iterator[float]:
        # Producers of one rate start at different phases, or they would all send at once.
        phase = rng.random()
        return ((i + phase) / self.rate_per_s for i in count())

    @property
    def mean_per_s(self) -> float:
        return self.rate_per_s
