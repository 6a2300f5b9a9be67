"""A delay spread evenly between two bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Annotated

from penstock.domain.network.delay import Delay
from penstock.domain.value import Bound, Doc


@dataclass(frozen=True, kw_only=True)
class UniformDelay(Delay):
    """U[low_ms, high_ms]."""

    kind = "uniform"
    low_ms: Annotated[float, Bound(ge=0, le=60_000), Doc("shortest one-way delay")]
    high_ms: Annotated[float, Bound(ge=0, le=60_000), Doc("longest one-way delay")]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            self.high_ms > self.low_ms, "high_ms", f"must be more than low_ms ({self.low_ms:g})"
        )

    def sampler(self, rng: Random) -> Callable[[], float]:
        low, width, random = self.low_ms, self.high_ms - self.low_ms, rng.random
        return lambda: low + width * random()

    def cdf(self, delay_ms: float) -> float:
        return min(1.0, max(0.0, (delay_ms - self.low_ms) / (self.high_ms - self.low_ms)))

    def netem(self) -> tuple[str, ...]:
        middle, half = (self.low_ms + self.high_ms) / 2, (self.high_ms - self.low_ms) / 2
        # Without a `distribution` netem draws uniformly from middle ± half.
        return ("delay", f"{middle}ms", f"{half}ms")
