"""Sizes of messages: the abstract class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from penstock.domain.value import Value

# The first bytes of every value are the number of the message, by which it is found again.
ID_BYTES = 8
MOST_BYTES = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Sizes(Value, ABC):
    """A distribution of independent sizes of the value, in bytes."""

    plugin_group = "penstock.sizes"

    @abstractmethod
    def draw(self, rng: Random) -> Iterator[int]:
        """One size after the other, never below `ID_BYTES`."""

    @property
    @abstractmethod
    def mean_bytes(self) -> float: ...
