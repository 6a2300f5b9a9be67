"""What people scale consumers with: Kubernetes' rule, and a threshold of lag (KEDA's).

Both choose how many; who gets which partition is Kafka's cooperative-sticky assignment.
"""

from __future__ import annotations

import math
from collections import deque

from penstock.autoscaler.assignors import assign_sticky
from penstock.autoscaler.policies.registry import decides
from penstock.autoscaler.view import Decision, Trigger, View, rate_text
from penstock.domain.autoscaling import Autoscaling


class Scaler:
    """Every so often a number; `wanted` says which."""

    period_s = 15.0

    def __init__(self, settings: Autoscaling) -> None:
        self._settings = settings
        self._looked_s = float("-inf")
        # Of the last change; and for a change to fewer lanes, the first look counts as one, too.
        self._changed_s = {True: float("-inf"), False: float("-inf")}

    def decide(self, view: View) -> Decision | None:
        if not view.speeds:
            return None
        is_new = view.speeds.keys() != view.current.keys()
        if view.now_s - self._looked_s < self.period_s and not is_new:
            return None
        if math.isinf(self._looked_s):
            self._changed_s[False] = view.now_s
        self._looked_s = view.now_s
        now = len(set(view.current.values()))
        most = min(view.most_lanes, len(view.speeds))
        lanes, reason = self.wanted(view, now)
        lanes = max(1, min(most, lanes))
        is_up = lanes > now
        if now and lanes != now and view.now_s - self._changed_s[is_up] < self.pause_s(is_up):
            lanes = now
        if lanes == now and not is_new:
            return None
        if lanes != now:
            self._changed_s = dict.fromkeys(self._changed_s, view.now_s)
        found = assign_sticky(view.speeds.keys(), lanes, view.current)
        trigger = Trigger.UNASSIGNED if is_new else Trigger.RULE
        return Decision(found, trigger, f"{reason}: {lanes} lanes instead of {now}.")

    def wanted(self, view: View, now: int) -> tuple[int, str]:
        raise NotImplementedError

    def pause_s(self, is_up: bool) -> float:
        """After a change, until the next one in that direction."""
        return 0.0


@decides("hpa")
class Hpa(Scaler):
    """ceil(Σ metric / target) (S2, 2.1): every 30 s, up 3 min after a change, down 5 min after."""

    period_s = 30.0
    _UP_S, _DOWN_S = 180.0, 300.0

    def wanted(self, view: View, now: int) -> tuple[int, str]:
        # What consumers do is the metric: never more than they can, and all of that while they
        # have something to catch up with.
        behind = {lane for p, lane in view.current.items() if view.overdue_bytes.get(p)}
        done = sum(
            view.capacity_of(lane) if lane in behind else min(load, view.capacity_of(lane))
            for lane, load in view.loads.items()
        )
        target = self._settings.plan_at * view.capacity
        reason = f"{rate_text(done)} done, {rate_text(target)} per lane aimed at"
        return math.ceil(done / target), reason

    def pause_s(self, is_up: bool) -> float:
        return self._UP_S if is_up else self._DOWN_S


@decides("lag")
class Lag(Scaler):
    """ceil(lag / threshold) (KEDA's), down to the highest of the last 5 min (the HPA's window)."""

    _DOWN_S = 300.0
    # The lag that one lane is to have: what it reads in so many seconds.
    _THRESHOLD_S = 5.0

    def __init__(self, settings: Autoscaling) -> None:
        super().__init__(settings)
        self._asked: deque[tuple[float, int]] = deque()

    def wanted(self, view: View, now: int) -> tuple[int, str]:
        lag = sum(view.lag_bytes.values())
        threshold = self._THRESHOLD_S * view.capacity
        if not self._asked:  # as the HPA does: as many as there are, was asked for
            self._asked.append((view.now_s, now))
        self._asked.append((view.now_s, math.ceil(lag / threshold)))
        while self._asked[0][0] < view.now_s - self._DOWN_S:
            self._asked.popleft()
        lanes = max(asked for _, asked in self._asked)
        return lanes, f"{lag / 1e6:.1f} MB are waiting, {threshold / 1e6:.1f} MB per lane aimed at"
