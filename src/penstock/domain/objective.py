"""The objective of a stream: limits on loss, duplication, latency and throughput."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

from penstock.domain.value import Bound, Doc, Value

_LATE_SHARE = 0.01


@dataclass(frozen=True, kw_only=True)
class KpiWeights(Value):
    """The weights of S0's KPI (eq. 5.2): γ = ω1·φ + ω2·μ + ω3·(1 − P_l) + ω4·(1 − P_d)."""

    bandwidth: Annotated[float, Bound(ge=0, le=1), Doc("ω1: share of the bandwidth used")] = 0.3
    throughput: Annotated[float, Bound(ge=0, le=1), Doc("ω2: share of the best rate")] = 0.3
    no_loss: Annotated[float, Bound(ge=0, le=1), Doc("ω3")] = 0.3
    no_duplication: Annotated[float, Bound(ge=0, le=1), Doc("ω4")] = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        total = self.bandwidth + self.throughput + self.no_loss + self.no_duplication
        fix = f"makes the four weights sum to {total:g}; they must sum to 1"
        self.require(math.isclose(total, 1, abs_tol=1e-9), "no_duplication", fix)


@dataclass(frozen=True, kw_only=True)
class Objective(Value):
    """Limits a run must meet. Omitted limits are not checked."""

    latency_ms: Annotated[
        float | None, Bound(gt=0), Doc("ζ: a message later than this is a violation")
    ] = None
    violation_share: Annotated[
        float | None,
        Bound(ge=0, le=1),
        Doc(f"η_v: share of messages that may be later than latency_ms; default {_LATE_SHARE:g}"),
    ] = None
    lost_share: Annotated[float | None, Bound(ge=0, le=1), Doc("P_l allowed")] = None
    duplicated_share: Annotated[float | None, Bound(ge=0, le=1), Doc("P_d allowed")] = None
    throughput_mb_per_s: Annotated[
        float | None, Bound(gt=0), Doc("at least this goodput, in 10⁶ bytes/s")
    ] = None
    weights: KpiWeights = field(default_factory=KpiWeights)
    bandwidth_mb_per_s: Annotated[
        float | None, Bound(gt=0), Doc("of the producers' network together, for φ of the KPI")
    ] = None
    best_per_s: Annotated[
        float | None, Bound(gt=0), Doc("best attainable messages/s, for μ of the KPI")
    ] = None

    def check(self) -> None:
        """Of a run: cells of a matrix may add what the scenario lacks."""
        self.require(
            self.violation_share is None or self.latency_ms is not None,
            "violation_share",
            "is the share later than latency_ms, which is missing; add latency_ms",
        )

    @property
    def late_share_limit(self) -> float:
        return _LATE_SHARE if self.violation_share is None else self.violation_share
