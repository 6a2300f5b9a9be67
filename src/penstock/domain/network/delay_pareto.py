"""A delay with a heavy tail, as S0 draws its network states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Annotated

from penstock.domain.network.delay import Delay
from penstock.domain.value import Bound, Doc, FieldError


@dataclass(frozen=True, kw_only=True)
class ParetoDelay(Delay):
    """Pareto(scale_ms, shape) cut at max_ms: P(delay > x) = (scale_ms / x)^shape below the cut.

    The cut (30 s by default) keeps a single draw of a shape near 1 from parking a packet for
    hours; what lies beyond it arrives at the cut.
    """

    kind = "pareto"
    scale_ms: Annotated[float, Bound(gt=0, le=60_000), Doc("shortest one-way delay")]
    shape: Annotated[float, Bound(gt=0, le=100), Doc("tail index: smaller is heavier")]
    max_ms: Annotated[float, Bound(gt=0, le=60_000), Doc("longest one-way delay")] = 30_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            self.max_ms > self.scale_ms, "max_ms", f"must be more than scale_ms ({self.scale_ms:g})"
        )

    def sampler(self, rng: Random) -> Callable[[], float]:
        scale, longest, exponent, random = self.scale_ms, self.max_ms, -1 / self.shape, rng.random
        # 1 - random() lies in (0, 1], so the power is finite.
        return lambda: min(longest, scale * (1.0 - random()) ** exponent)

    def cdf(self, delay_ms: float) -> float:
        if delay_ms >= self.max_ms:
            return 1.0
        return 1 - (self.scale_ms / delay_ms) ** self.shape if delay_ms > self.scale_ms else 0.0

    def netem(self) -> tuple[str, ...]:
        # netem's own Pareto table has one fixed shape and no cut: something else than was asked.
        raise FieldError(
            "delay.kind", "pareto", "is not supported by netem; use `backend: nfqueue`"
        )
