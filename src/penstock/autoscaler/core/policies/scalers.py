"""Policies for comparison: the rule of Kubernetes (HPA), and a threshold of lag (KEDA).

Both choose the number of lanes; partitions are assigned by Kafka's cooperative-sticky assignor.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import Annotated

from penstock.autoscaler.core.assignors import assign_sticky
from penstock.autoscaler.core.policy import Decider, Decision, Trigger, View, rate_text
from penstock.domain.autoscaling import Autoscaling, Policy
from penstock.domain.value import Bound, Doc


@dataclass(frozen=True, kw_only=True)
class HpaPolicy(Policy):
    """Kubernetes' rule, ceil(Σ metric / target) (S2, 2.1)."""

    kind = "hpa"
    period_s: Annotated[float, Bound(gt=0), Doc("how often it looks")] = 30.0
    up_s: Annotated[float, Bound(ge=0), Doc("from a change until more lanes are added")] = 180.0
    down_s: Annotated[float, Bound(ge=0), Doc("from a change until lanes are removed")] = 300.0

    def decider(self, settings: Autoscaling) -> Decider:
        return _HpaScaler(self, settings)


@dataclass(frozen=True, kw_only=True)
class LagPolicy(Policy):
    """KEDA's rule, ceil(lag / threshold)."""

    kind = "lag"
    period_s: Annotated[float, Bound(gt=0), Doc("how often it looks")] = 15.0
    down_s: Annotated[
        float, Bound(ge=0), Doc("lanes are removed down to the most asked for in this time")
    ] = 300.0
    threshold_s: Annotated[
        float, Bound(gt=0), Doc("lag that one lane may have: what it reads in this time")
    ] = 5.0

    def decider(self, settings: Autoscaling) -> Decider:
        return _LagScaler(self)


class _Scaler(ABC):
    """Changes the number of lanes every `period_s`; `lane_count` says to how many."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._looked_s = float("-inf")
        # Time of the last change, to more and to fewer lanes. For fewer, the first look counts too.
        self._changed_s = {True: float("-inf"), False: float("-inf")}

    def decide(self, view: View) -> Decision | None:
        if not view.speeds:
            return None
        is_new = view.speeds.keys() != view.current.keys()
        if view.now_s - self._looked_s < self._period_s and not is_new:
            return None
        if math.isinf(self._looked_s):
            self._changed_s[False] = view.now_s
        self._looked_s = view.now_s
        now = len(set(view.current.values()))
        most = min(view.most_lanes, len(view.speeds))
        lanes, reason = self.lane_count(view, now)
        lanes = max(1, min(most, lanes))
        is_up = lanes > now
        if now and lanes != now and view.now_s - self._changed_s[is_up] < self.pause_s(is_up):
            lanes = now
        if lanes == now and not is_new:
            return None
        if lanes != now:
            self._changed_s = dict.fromkeys(self._changed_s, view.now_s)
        assignment = assign_sticky(view.speeds.keys(), lanes, view.current)
        trigger = Trigger.UNASSIGNED if is_new else Trigger.RULE
        return Decision(assignment, trigger, f"{reason}: {lanes} lanes instead of {now}.")

    @abstractmethod
    def lane_count(self, view: View, now: int) -> tuple[int, str]: ...

    def pause_s(self, is_up: bool) -> float:
        """Time after a change until the next one in that direction."""
        return 0.0


class _HpaScaler(_Scaler):
    def __init__(self, policy: HpaPolicy, settings: Autoscaling) -> None:
        super().__init__(policy.period_s)
        self._policy, self._plan_at = policy, settings.plan_at

    def lane_count(self, view: View, now: int) -> tuple[int, str]:
        # The metric is what consumers read: at most their capacity, and all of it while they have a
        # backlog.
        behind = {lane for p, lane in view.current.items() if view.overdue_bytes.get(p)}
        done = sum(
            view.capacity_of(lane) if lane in behind else min(load, view.capacity_of(lane))
            for lane, load in view.loads.items()
        )
        target = self._plan_at * view.capacity
        reason = f"{rate_text(done)} done, {rate_text(target)} per lane aimed at"
        return math.ceil(done / target), reason

    def pause_s(self, is_up: bool) -> float:
        return self._policy.up_s if is_up else self._policy.down_s


class _LagScaler(_Scaler):
    """Scales in to the highest of the last `down_s` only, which is the HPA's window."""

    def __init__(self, policy: LagPolicy) -> None:
        super().__init__(policy.period_s)
        self._policy = policy
        self._asked: deque[tuple[float, int]] = deque()

    def lane_count(self, view: View, now: int) -> tuple[int, str]:
        lag = sum(view.lag_bytes.values())
        threshold = self._policy.threshold_s * view.capacity
        if not self._asked:  # like the HPA: the present number is the first request
            self._asked.append((view.now_s, now))
        self._asked.append((view.now_s, math.ceil(lag / threshold)))
        while self._asked[0][0] < view.now_s - self._policy.down_s:
            self._asked.popleft()
        lanes = max(asked for _, asked in self._asked)
        return lanes, f"{lag / 1e6:.1f} MB are waiting, {threshold / 1e6:.1f} MB per lane aimed at"
