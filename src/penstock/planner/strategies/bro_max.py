"""BroMax: all brokers, and the most partitions on them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.planner.partitioning import Partitioning, PartitioningSolution
from penstock.planner.strategies.strategy import Strategy, possible


@dataclass(frozen=True, kw_only=True)
class BroMax(Strategy):
    """S4's BroMax: all brokers that there may be, and the most partitions on them. Partitions never
    fall with brokers, so it also has the most partitions of all solutions: it solves S4's problem."""

    kind = "bro-max"

    def choose(self, problem: Partitioning) -> PartitioningSolution:
        possible(problem)
        brokers = problem.most_brokers
        return problem.plan(brokers, problem.most_partitions(brokers))
