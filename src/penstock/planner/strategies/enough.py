"""Enough: the fewest partitions that do, on the fewest brokers."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.planner.partitioning import Partitioning, PartitioningSolution
from penstock.planner.strategies.strategy import Strategy, possible


@dataclass(frozen=True, kw_only=True)
class EnoughStrategy(Strategy):
    """The fewest brokers with a solution, and no more partitions than throughput and consumers need:
    partitions can be added later, and never removed."""

    kind = "enough"

    def choose(self, problem: Partitioning) -> PartitioningSolution:
        possible(problem)
        brokers = problem.fewest_brokers
        assert brokers is not None
        # A multiple of the brokers, if there is room: otherwise one of them leads more than others.
        fewest = problem.fewest_partitions
        even = -(-fewest // brokers) * brokers
        return problem.plan(brokers, even if even <= problem.most_partitions(brokers) else fewest)
