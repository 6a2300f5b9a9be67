"""Loss in bursts: a two-state Markov chain (Gilbert 1960, Elliott 1963)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Annotated

from penstock.domain.network.loss import Loss
from penstock.domain.value import Bound, Doc


@dataclass(frozen=True, kw_only=True)
class GilbertElliottLoss(Loss):
    """Good and bad states; one step of the chain per packet.

    The number of packets spent in one stay in the bad state is geometric with mean
    1 / bad_to_good; the long-run share of packets met in the bad state is
    good_to_bad / (good_to_bad + bad_to_good).
    """

    kind = "gilbert-elliott"
    good_to_bad: Annotated[float, Bound(gt=0, le=1), Doc("probability per packet to turn bad")]
    bad_to_good: Annotated[float, Bound(gt=0, le=1), Doc("probability per packet to turn good")]
    loss_in_bad: Annotated[float, Bound(ge=0, le=1), Doc("share lost while bad")] = 1.0
    loss_in_good: Annotated[float, Bound(ge=0, le=1), Doc("share lost while good")] = 0.0

    def sampler(self, rng: Random) -> Callable[[], bool]:
        random, bad = rng.random, False

        def lost() -> bool:
            nonlocal bad
            if random() < (self.bad_to_good if bad else self.good_to_bad):
                bad = not bad
            return random() < (self.loss_in_bad if bad else self.loss_in_good)

        return lost

    @property
    def mean(self) -> float:
        bad = self.good_to_bad / (self.good_to_bad + self.bad_to_good)
        return bad * self.loss_in_bad + (1 - bad) * self.loss_in_good

    def netem(self) -> tuple[str, ...]:
        return (
            "loss",
            "gemodel",
            f"{self.good_to_bad:.6%}",
            f"{self.bad_to_good:.6%}",
            f"{self.loss_in_bad:.6%}",
            f"{self.loss_in_good:.6%}",
        )
