"""One-way delay of a packet: the abstract class. The kinds are in `delay_*.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from penstock.domain.value import Value


@dataclass(frozen=True, kw_only=True)
class Delay(Value, ABC):
    """Added one-way delay of a packet. Samples are independent."""

    plugin_group = "penstock.delays"

    @abstractmethod
    def sampler(self, rng: Random) -> Callable[[], float]:
        """A function that draws one delay in milliseconds; it never returns less than 0."""

    @property
    def fixed_ms(self) -> float | None:
        """The delay of every packet, if it never varies: such packets need no draw and no queue."""
        return None

    @abstractmethod
    def cdf(self, delay_ms: float) -> float:
        """P(delay ≤ delay_ms): what a measurement is compared with."""

    @abstractmethod
    def netem(self) -> tuple[str, ...]:
        """The same delay as arguments of `tc qdisc … netem`; refuses what netem cannot do."""
