"""Calm and busy spells in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Annotated

from penstock.domain.arrivals.arrivals import Arrivals
from penstock.domain.value import Bound, Doc


@dataclass(frozen=True, kw_only=True)
class BurstArrivals(Arrivals):
    """A two-state Markov-modulated Poisson process (MMPP): calm and busy."""

    kind = "bursts"
    calm_per_s: Annotated[float, Bound(ge=0), Doc("messages per second while calm")]
    busy_per_s: Annotated[float, Bound(gt=0), Doc("messages per second while busy")]
    calm_s: Annotated[float, Bound(gt=0), Doc("mean length of a calm spell")]
    busy_s: Annotated[float, Bound(gt=0), Doc("mean length of a busy spell")]

    def times_s(self, rng: Random) -> Iterator[float]:
        # The first spell is drawn as a stranger would find the process, so the mean rate holds
        # from the start.
        is_busy = rng.random() < self.busy_s / (self.calm_s + self.busy_s)
        begins = 0.0
        while True:
            ends = begins + rng.expovariate(1 / (self.busy_s if is_busy else self.calm_s))
            rate = self.busy_per_s if is_busy else self.calm_per_s
            # Exponential gaps have no memory, so each spell may start counting from zero.
            now = begins + rng.expovariate(rate) if rate else ends
            while now < ends:
                yield now
                now += rng.expovariate(rate)
            begins, is_busy = ends, not is_busy

    @property
    def mean_per_s(self) -> float:
        busy_share = self.busy_s / (self.calm_s + self.busy_s)
        return busy_share * self.busy_per_s + (1 - busy_share) * self.calm_per_s
