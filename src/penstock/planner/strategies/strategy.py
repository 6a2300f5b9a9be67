"""A strategy: the abstract class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from penstock.domain.value import Value
from penstock.planner.partitioning import Partitioning, PartitioningSolution


@dataclass(frozen=True, kw_only=True)
class Strategy(Value, ABC):
    """Chooses brokers and partitions for a topic."""

    plugin_group = "penstock.strategies"

    @abstractmethod
    def choose(self, problem: Partitioning) -> PartitioningSolution:
        """Brokers and partitions; raises `BadInput` with what would help if there is no solution."""


def possible(problem: Partitioning) -> None:
    """Raise what would help if a problem has no solution."""
    if (impossible := problem.impossible()) is not None:
        impossible.check()
