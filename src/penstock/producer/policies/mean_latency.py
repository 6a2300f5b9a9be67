"""The mean-latency rule that S0 compares with (6.3.1): batch as much as the mean latency allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from penstock.domain.value import Bound, Doc
from penstock.producer.policies.adaptive_policy import AdaptivePolicy
from penstock.producer.policies.batch_search import by_batch
from penstock.producer.situation import Adjustment, Situation


@dataclass(frozen=True, kw_only=True)
class MeanLatencyBatching(AdaptivePolicy):
    """The largest batch whose *mean* latency is within the limit, whatever its tail does."""

    kind = "mean-latency"
    most_batch: Annotated[int, Bound(ge=1), Doc("largest B_S that is looked at")] = 20

    def decide(self, situation: Situation) -> Adjustment:
        found = by_batch(situation, self.most_batch)
        limit = situation.latency_ms
        within = [
            batch
            for batch, (_, outlook) in found.items()
            if limit is None or outlook.mean_latency_ms <= limit
        ]
        best = max(within, default=1)
        configuration, outlook = found[best]
        allowed = "" if limit is None else f", {limit:g} ms allowed"
        return Adjustment(
            configuration=configuration,
            sentence=(
                f"batch.num.messages {best} is the largest with a mean latency within the limit: "
                f"{outlook.mean_latency_ms:.4g} ms{allowed}"
                if within
                else f"no batch has a mean latency within {limit:g} ms: batches of one"
            ),
            is_enough=bool(within),
        )
