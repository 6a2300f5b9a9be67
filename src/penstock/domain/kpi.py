"""S0's figures of merit: the weighted KPI γ (eq. 5.2) and timely throughput (eq. 6.9).

The formulas are the same for what a run measured and for what a model predicts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from penstock.domain.objective import KpiWeights, Objective
from penstock.domain.run import RunSpec
from penstock.domain.value import Doc, Value


@dataclass(frozen=True, kw_only=True)
class Kpi(Value):
    """γ and the terms that are in no other figure of the run."""

    gamma: Annotated[float, Doc("γ, from 0 to 1")]
    weights: KpiWeights = field(default_factory=KpiWeights)
    bandwidth_share: Annotated[
        float | None,
        Doc("φ; None: the bandwidth is unknown, so the other three terms share its weight"),
    ]
    bandwidth_mb_per_s: Annotated[float | None, Doc("the bandwidth that φ is a share of")]
    rate_share: Annotated[float, Doc("μ: acknowledged messages/s over the best rate, at most 1")]
    best_per_s: Annotated[float, Doc("the best rate: the objective's, or else the rate offered")]


def bandwidth_mb_per_s(spec: RunSpec) -> float | None:
    """What the producers of a run may use together: the objective's figure, or else the quota."""
    if spec.objective is not None and spec.objective.bandwidth_mb_per_s is not None:
        return spec.objective.bandwidth_mb_per_s
    quota = spec.cluster.quotas.producer_mb_per_s
    return None if quota is None else quota * spec.cluster.brokers


def gamma(
    weights: KpiWeights,
    *,
    bandwidth_share: float | None,
    rate_share: float,
    lost_share: float,
    duplicated_share: float,
) -> float:
    """γ = ω1·φ + ω2·μ + ω3·(1 − P_l) + ω4·(1 − P_d).

    If φ is unknown (None), the other terms share its weight in proportion; if they have no weight,
    γ is 0.
    """
    terms = [
        (weights.throughput, rate_share),
        (weights.no_loss, 1 - lost_share),
        (weights.no_duplication, 1 - duplicated_share),
    ]
    if bandwidth_share is not None:
        terms.append((weights.bandwidth, bandwidth_share))
    total = sum(weight for weight, _ in terms)
    return sum(weight * value for weight, value in terms) / total if total else 0.0


def kpi_of(
    spec: RunSpec,
    *,
    used_mb_per_s: float,
    acknowledged_per_s: float,
    lost_share: float,
    duplicated_share: float,
) -> Kpi:
    """γ of a run with these figures, by the weights and the scale of its objective."""
    objective, bandwidth = spec.objective or Objective(), bandwidth_mb_per_s(spec)
    best_per_s = objective.best_per_s or spec.workload.messages_per_s
    used = None if bandwidth is None else min(1.0, used_mb_per_s / bandwidth)
    # Arrivals that end some time have a rate of 0 in the long run, which any rate reaches.
    rate = min(1.0, acknowledged_per_s / best_per_s) if best_per_s else 1.0
    return Kpi(
        gamma=gamma(
            objective.weights,
            bandwidth_share=used,
            rate_share=rate,
            lost_share=lost_share,
            duplicated_share=duplicated_share,
        ),
        weights=objective.weights,
        bandwidth_share=used,
        bandwidth_mb_per_s=bandwidth,
        rate_share=rate,
        best_per_s=best_per_s,
    )


def timely_throughput(throughput: float, violation_share: float, lost_share: float) -> float:
    """χ' = (1 − η_v)(1 − η_l)·χ, in the unit of χ, the rate at which messages are sent."""
    return (1 - violation_share) * (1 - lost_share) * throughput
