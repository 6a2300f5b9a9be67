"""What an adaptive policy knows, and what it decides. Pure.

A policy gets the present configuration and a function that predicts what another one would lead to
under the network as it is now. It has no clock and sees no network: the same situation always leads
to the same adjustment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from penstock.domain.kpi import gamma, timely_throughput
from penstock.domain.objective import KpiWeights
from penstock.domain.value import Bound, Doc, Value


@dataclass(frozen=True, kw_only=True)
class Configuration(Value):
    """What an adaptive producer can change while it runs (S0, 5.5 and 6.2)."""

    acks: Literal["0", "1", "all"] = "1"
    batch_messages: Annotated[int, Bound(ge=1), Doc("[B, B_S] batch.num.messages")] = 1
    linger_ms: Annotated[float, Bound(ge=0), Doc("[B_T] linger.ms")] = 0.0
    message_timeout_ms: Annotated[float, Bound(gt=0), Doc("[T_o] message.timeout.ms")] = 1_000.0
    polling_ms: Annotated[
        float, Bound(ge=0), Doc("[δ] between two polls of the source; 0: as fast as it can")
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class Outlook(Value):
    """What a configuration would lead to."""

    lost_share: Annotated[float, Bound(ge=0, le=1), Doc("[P_l, η_l]")] = 0.0
    duplicated_share: Annotated[float, Bound(ge=0, le=1), Doc("[P_d]")] = 0.0
    violation_share: Annotated[
        float, Bound(ge=0, le=1), Doc("[η_v] later than the objective's latency")
    ] = 0.0
    mean_latency_ms: Annotated[float, Bound(ge=0)] = 0.0
    throughput: Annotated[float, Bound(ge=0), Doc("[χ] messages/s or bytes/s, of all sent")] = 0.0
    bandwidth_share: Annotated[
        float | None, Bound(ge=0, le=1), Doc("[φ] none: the bandwidth is not known")
    ] = None
    rate_share: Annotated[float, Bound(ge=0, le=1), Doc("[μ] of the best rate")] = 1.0

    @property
    def timely_throughput(self) -> float:
        """χ' = (1 − η_v)(1 − η_l)·χ."""
        return timely_throughput(self.throughput, self.violation_share, self.lost_share)

    def gamma(self, weights: KpiWeights) -> float:
        """γ, the weighted KPI."""
        return gamma(
            weights,
            bandwidth_share=self.bandwidth_share,
            rate_share=self.rate_share,
            lost_share=self.lost_share,
            duplicated_share=self.duplicated_share,
        )


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The input of an adaptive policy."""

    now: Configuration
    # By the models, for the network as it is estimated to be.
    predict: Callable[[Configuration], Outlook]
    # ζ; none: no message is late.
    latency_ms: float | None = None
    # γ that the user wants.
    target_gamma: float = 1.0
    weights: KpiWeights = field(default_factory=KpiWeights)
    # Whether the source can be polled less often; otherwise messages are pushed.
    can_poll: bool = False


@dataclass(frozen=True, kw_only=True)
class Adjustment(Value):
    """What an adaptive producer changes to, and why, in a sentence with its numbers."""

    configuration: Configuration
    sentence: str
    is_enough: Annotated[bool, Doc("whether it is predicted to meet what is wanted")] = True
