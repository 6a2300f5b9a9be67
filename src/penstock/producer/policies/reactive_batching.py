"""Reactive batching (S0, 6.2): the batch size with the highest timely throughput."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from penstock.domain.value import Bound, Doc
from penstock.producer.policies.adaptive_policy import AdaptivePolicy
from penstock.producer.policies.batch_search import by_batch
from penstock.producer.situation import Adjustment, Situation


@dataclass(frozen=True, kw_only=True)
class ReactiveBatching(AdaptivePolicy):
    """S0's reactive batching: B_S that maximises χ' = (1 − η_v)(1 − η_l)·χ; B_T stays and caps the
    tail."""

    kind = "reactive-batching"
    most_batch: Annotated[int, Bound(ge=1), Doc("largest B_S that is looked at")] = 20

    def decide(self, situation: Situation) -> Adjustment:
        found = by_batch(situation, self.most_batch)
        # The smaller of two that are equal: it has the lower latency.
        best = max(found, key=lambda batch: (found[batch][1].timely_throughput, -batch))
        configuration, outlook = found[best]
        return Adjustment(
            configuration=configuration,
            sentence=(
                f"batch.num.messages {best} has the highest timely throughput: "
                f"{outlook.timely_throughput:.4g} of {outlook.throughput:.4g}, with "
                f"{outlook.violation_share:.1%} late and {outlook.lost_share:.1%} lost"
            ),
        )
