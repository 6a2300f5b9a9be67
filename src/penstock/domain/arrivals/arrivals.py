"""When messages are due: the abstract class. The kinds are the other modules of this package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from penstock.domain.value import Value


@dataclass(frozen=True, kw_only=True)
class Arrivals(Value, ABC):
    """When messages are due. The schedule is fixed in advance: load is open loop."""

    plugin_group = "penstock.arrivals"

    @abstractmethod
    def times_s(self, rng: Random) -> Iterator[float]:
        """When each message of one producer is due, in seconds from the start, never falling."""

    @property
    @abstractmethod
    def mean_per_s(self) -> float:
        """Messages per second of one producer, in the long run; 0 if they end some time."""
