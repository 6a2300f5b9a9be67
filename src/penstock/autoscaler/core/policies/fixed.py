"""Policies for comparison: a fixed number of lanes with Kafka's assignment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from penstock.autoscaler.core.assignors import Lanes, Partitions, assign_range, assign_sticky
from penstock.autoscaler.core.policy import Decider, Decision, Trigger, View
from penstock.domain.autoscaling import Autoscaling, Policy
from penstock.domain.errors import BadInput
from penstock.domain.lake.partition import Partition

Assign = Callable[[Partitions, int, Lanes], dict[Partition, int]]


class _Fixed(Policy):
    """A fixed number of lanes with one of Kafka's assignors."""

    assign: ClassVar[Any]  # an `Assign`

    def decider(self, settings: Autoscaling) -> Decider:
        if settings.lanes is None:
            raise BadInput(
                f"autoscaling.lanes: is missing; the policy {self.kind} needs a fixed number",
                "set it to the number of lanes",
            )
        return _Assignor(self.assign, settings.lanes)


class _Assignor:
    """Assigns at the beginning, and again only when partitions are added or removed."""

    def __init__(self, assign: Assign, lanes: int) -> None:
        self._assign, self._lanes = assign, lanes
        # The assignment of an earlier policy is not kept.
        self._has_begun = False

    def decide(self, view: View) -> Decision | None:
        is_same = view.speeds.keys() == view.current.keys()
        if not view.speeds or (is_same and self._has_begun):
            return None
        lanes = min(self._lanes, view.most_lanes)
        before = view.current if self._has_begun else {}
        self._has_begun = True
        assignment = self._assign(view.speeds.keys(), lanes, before)
        reason = f"{len(assignment)} partitions on {lanes} lanes."
        return Decision(assignment, Trigger.UNASSIGNED, reason)


class RangePolicy(_Fixed):
    """Kafka's range assignor."""

    kind = "range"
    assign = staticmethod(assign_range)


class CooperativeStickyPolicy(_Fixed):
    """Kafka's cooperative-sticky assignor."""

    kind = "cooperative-sticky"
    assign = staticmethod(assign_sticky)
