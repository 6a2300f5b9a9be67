"""MS-CNFL: the rules of thumb of two vendors, drawn at random: the baseline of S4."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Annotated

from penstock.domain.value import Doc
from penstock.planner.partitioning import Partitioning, PartitioningSolution
from penstock.planner.strategies.strategy import Strategy

# Replicas on a broker at most, and partitions per broker.
_MOST_REPLICAS, _MOST_PER_BROKER = 1_000, 100


@dataclass(frozen=True, kw_only=True)
class MsCnfl(Strategy):
    """S4's baseline: P = min(U[1, 1000·B/r], U[1, 100·B]), b = U[1, B]. It looks at no constraint: see
    `broken` of what it chooses."""

    kind = "ms-cnfl"
    seed: Annotated[int, Doc("of its draws")] = 1

    def choose(self, problem: Partitioning) -> PartitioningSolution:
        rng = Random(f"{self.seed}.ms-cnfl")
        most = problem.most_brokers
        by_replicas = rng.randint(1, max(1, _MOST_REPLICAS * most // problem.replication))
        by_brokers = rng.randint(1, _MOST_PER_BROKER * most)
        return problem.plan(rng.randint(1, most), min(by_replicas, by_brokers))
