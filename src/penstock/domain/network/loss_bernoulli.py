"""Loss without memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Annotated

from penstock.domain.network.loss import Loss
from penstock.domain.value import Bound, Doc


@dataclass(frozen=True, kw_only=True)
class BernoulliLoss(Loss):
    """Each packet is lost with probability `share`, independently of other packets."""

    kind = "bernoulli"
    share: Annotated[float, Bound(ge=0, le=1), Doc("share of packets lost, 0 to 1")]

    def sampler(self, rng: Random) -> Callable[[], bool]:
        share, random = self.share, rng.random
        return lambda: random() < share

    @property
    def mean(self) -> float:
        return self.share

    def netem(self) -> tuple[str, ...]:
        return ("loss", "random", f"{self.share:.6%}")
