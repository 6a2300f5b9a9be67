"""One-way delay of a packet: the abstract word. The kinds are in `delay_*.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from penstock.domain.value import Value


@dataclass(frozen=True, kw_only=True)
class Delay(Value, ABC):
    """How long one packet takes, one way, beyond the wire itself. Samples are independent."""

    @abstractmethod
    def sampler(self, rng: Random) -> Callable[[], float]:
        """A function that draws one delay in milliseconds; it never returns less than 0."""

    @abstractmethod
    def cdf(self, delay_ms: float) -> float:
        """P(delay ≤ delay_ms): what a measurement is compared with."""

    @abstractmethod
    def netem(self) -> tuple[str, ...]:
        """The same delay as arguments of `tc qdisc … netem`; refuses what netem cannot do."""
