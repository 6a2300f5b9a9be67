"""A delay that is always the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Annotated

from penstock.domain.network.delay import Delay
from penstock.domain.value import Bound, Doc


@dataclass(frozen=True, kw_only=True)
class ConstantDelay(Delay):
    """Every packet takes `ms`."""

    kind = "constant"
    ms: Annotated[float, Bound(ge=0, le=60_000), Doc("one-way delay in milliseconds")]

    def sampler(self, rng: Random) -> Callable[[], float]:
        return lambda: self.ms

    @property
    def fixed_ms(self) -> float:
        return self.ms

    def cdf(self, delay_ms: float) -> float:
        return float(delay_ms >= self.ms)

    def netem(self) -> tuple[str, ...]:
        return ("delay", f"{self.ms}ms")
