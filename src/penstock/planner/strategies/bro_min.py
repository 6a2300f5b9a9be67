"""BroMin: the fewest brokers, and the most partitions on them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.planner.partitioning import Partitioning, PartitioningSolution
from penstock.planner.strategies.strategy import Strategy, possible


@dataclass(frozen=True, kw_only=True)
class BroMin(Strategy):
    """S4's BroMin: the fewest brokers with a solution, and the most partitions on them."""

    kind = "bro-min"

    def choose(self, problem: Partitioning) -> PartitioningSolution:
        possible(problem)
        brokers = problem.fewest_brokers
        assert brokers is not None
        return problem.plan(brokers, problem.most_partitions(brokers))
