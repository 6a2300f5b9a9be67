"""A delay that varies around a mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from statistics import NormalDist
from typing import Annotated

from penstock.domain.network.delay import Delay
from penstock.domain.value import Bound, Doc


@dataclass(frozen=True, kw_only=True)
class NormalDelay(Delay):
    """N(mean_ms, stddev_ms²), clipped at 0."""

    kind = "normal"
    mean_ms: Annotated[float, Bound(ge=0, le=60_000), Doc("mean one-way delay")]
    stddev_ms: Annotated[float, Bound(gt=0, le=60_000), Doc("standard deviation")]

    def sampler(self, rng: Random) -> Callable[[], float]:
        mean, stddev, gauss = self.mean_ms, self.stddev_ms, rng.gauss
        return lambda: max(0.0, gauss(mean, stddev))

    def cdf(self, delay_ms: float) -> float:
        return NormalDist(self.mean_ms, self.stddev_ms).cdf(delay_ms) if delay_ms >= 0 else 0.0

    def netem(self) -> tuple[str, ...]:
        return ("delay", f"{self.mean_ms}ms", f"{self.stddev_ms}ms", "distribution", "normal")
