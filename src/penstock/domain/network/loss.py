"""Loss of packets: the abstract class. The kinds are in `loss_*.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from penstock.domain.value import Value


@dataclass(frozen=True, kw_only=True)
class Loss(Value, ABC):
    """Which packets are lost. Per packet on the wire (MTU-sized), not per TCP segment of 64 kB."""

    plugin_group = "penstock.losses"

    @abstractmethod
    def sampler(self, rng: Random) -> Callable[[], bool]:
        """A function that says for the next packet whether it is lost. It may keep state."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """The long-run share of packets lost."""

    @abstractmethod
    def netem(self) -> tuple[str, ...]:
        """The same loss as arguments of `tc qdisc … netem`."""
