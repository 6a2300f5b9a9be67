"""What people have without us: Kafka's assignment for a number of consumers that somebody chose."""

from __future__ import annotations

from functools import partial

from penstock.autoscaler.assignors import Assign, assign_range, assign_sticky
from penstock.autoscaler.policies.registry import decides
from penstock.autoscaler.view import Decision, Trigger, View
from penstock.domain.autoscaling import Autoscaling
from penstock.domain.errors import BadInput


class Fixed:
    """Assigns when it begins, and again only when partitions come or go."""

    def __init__(self, settings: Autoscaling, assign: Assign) -> None:
        if settings.lanes is None:
            raise BadInput(
                f"autoscaling.lanes: the policy {settings.policy} does not choose how many",
                "say how many",
            )
        self._lanes, self._assign = settings.lanes, assign
        # What others assigned before it is nothing to keep to.
        self._has_begun = False

    def decide(self, view: View) -> Decision | None:
        is_same = view.speeds.keys() == view.current.keys()
        if not view.speeds or (is_same and self._has_begun):
            return None
        lanes = min(self._lanes, view.most_lanes)
        before = view.current if self._has_begun else {}
        self._has_begun = True
        found = self._assign(view.speeds.keys(), lanes, before)
        reason = f"{len(found)} partitions on {lanes} lanes."
        return Decision(found, Trigger.UNASSIGNED, reason)


decides("range")(partial(Fixed, assign=assign_range))
decides("cooperative-sticky")(partial(Fixed, assign=assign_sticky))
