"""Our policy: the fewest lanes that keep up with the write speed, with few moves (S2, 4.4.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from penstock.autoscaler.core.packing import Algorithm, Assignment, Problem
from penstock.autoscaler.core.packing.balance import balance
from penstock.autoscaler.core.packing.keep import KeepPacking
from penstock.autoscaler.core.packing.problem import CLEARLY, lanes_of, moved_load
from penstock.autoscaler.core.policy import (
    Caution,
    Decider,
    Decision,
    Trigger,
    View,
    counted,
    rate_text,
)
from penstock.domain.autoscaling import Autoscaling, Policy
from penstock.domain.lake.partition import Partition
from penstock.domain.value import Doc

# Lanes are rebalanced if the fullest one has this share more than it would have afterwards.
_UNEVEN = 0.2


def _keep() -> Algorithm:
    return KeepPacking()


@dataclass(frozen=True, kw_only=True)
class PackingPolicy(Policy):
    """The fewest lanes that keep up with the write speed, moving few partitions."""

    kind = "packing"
    algorithm: Annotated[Algorithm, Doc("KEEP, or one to compare it with: BFD, MWF, …")] = field(
        default_factory=_keep
    )

    def decider(self, settings: Autoscaling) -> Decider:
        return _Packer(self.algorithm, settings)


class _Packer:
    """Makes a new plan if a partition has no lane, a lane is too full, or fewer lanes suffice."""

    def __init__(self, pack: Algorithm, settings: Autoscaling) -> None:
        self._pack, self._settings = pack, settings

    def decide(self, view: View) -> Decision | None:
        if not view.speeds:
            return None
        if (fixed := self._settings.lanes) is not None:
            return self._balanced(view, fixed)
        if waiting := sorted(view.speeds.keys() - view.current.keys()):
            what = str(waiting[0]) if len(waiting) == 1 else counted(len(waiting), "partition")
            return self._planned(view, Trigger.UNASSIGNED, f"{what} had no lane", self._need(view))
        if (lane := self._too_full(view)) is not None:
            needed, can = self._need_of(view, lane), view.capacity_of(lane)
            reason = f"lane {lane} has {rate_text(needed)} to read but can read {rate_text(can)}"
            return self._planned(view, Trigger.EXCEEDED, reason, self._need(view))
        if view.since_change_s >= self._settings.scale_in_s:
            return self._fewer(view)
        return None

    # --- what is needed ----------------------------------------------------------------------------

    def _need(self, view: View) -> dict[Partition, float]:
        """Write speed, plus the backlog spread over `drain_s`."""
        drain_s = self._settings.drain_s
        return {p: s + view.overdue_bytes.get(p, 0.0) / drain_s for p, s in view.speeds.items()}

    def _need_of(self, view: View, lane: int) -> float:
        need = self._need(view)
        return sum(need.get(p, 0.0) for p, held in view.current.items() if held == lane)

    def _too_full(self, view: View) -> int | None:
        """The fullest lane above the limit; not one with a single busy partition, unless the usual
        lane has clearly more capacity."""
        need = self._need(view)
        busy = {p: lane for p, lane in view.current.items() if need.get(p, 0.0) > 0}
        busy_partitions = Counter(busy.values())
        over = {
            lane: share
            for lane, share in _shares(view, need, busy).items()
            if share > self._settings.exceeded_at
            and (busy_partitions[lane] > 1 or view.capacity >= CLEARLY * view.capacity_of(lane))
        }
        return max(over, key=lambda lane: over[lane], default=None)

    def _problem(self, view: View, need: Mapping[Partition, float]) -> Problem:
        share = self._settings.plan_at
        return Problem(
            speeds=need,
            capacity=share * view.capacity,
            capacities={lane: share * can for lane, can in view.capacities.items()},
            current={p: lane for p, lane in view.current.items() if p in need},
            headroom=self._settings.headroom,
        )

    # --- what follows --------------------------------------------------------------------------------

    def _planned(
        self, view: View, trigger: Trigger, reason: str, need: Mapping[Partition, float]
    ) -> Decision | None:
        problem = self._problem(view, need)
        assignment = self._pack(problem)
        warnings = _too_fast(view, need)
        most = min(view.most_lanes, self._settings.most_lanes)
        if lanes_of(assignment) > most or max(assignment.values(), default=0) >= most:
            needed = lanes_of(assignment)
            assignment = self._settled(view, need, balance(problem, most))
            if needed > most:
                text = f"{needed} lanes are needed and {most} are available: lag will grow"
                warnings += (Caution("lanes", text),)
        return _decision(view, problem, assignment, trigger, reason, warnings)

    def _settled(
        self, view: View, need: Mapping[Partition, float], proposed: Assignment
    ) -> Assignment:
        """The present assignment, unless the proposed one is clearly better: otherwise lanes that
        are all too full would pass partitions around forever."""
        present = {p: lane for p, lane in view.current.items() if p in proposed}
        if present.keys() != proposed.keys() or max(present.values()) > max(proposed.values()):
            return proposed
        return proposed if self._is_more_even(view, need, present, proposed) else present

    def _is_more_even(
        self, view: View, need: Mapping[Partition, float], before: Assignment, after: Assignment
    ) -> bool:
        """By write speed; by backlog only every `drain_s`, since that changes quickly."""
        is_due = view.since_change_s >= self._settings.drain_s
        return any(
            _fullest(view, loads, before) > (1 + _UNEVEN) * _fullest(view, loads, after)
            for loads in ((view.speeds, need) if is_due else (view.speeds,))
        )

    def _fewer(self, view: View) -> Decision | None:
        """A plan with fewer lanes, if they suffice also at the highest recent speeds."""
        need = {p: max(s, view.peaks.get(p, 0.0)) for p, s in self._need(view).items()}
        now = len(set(view.current.values()))
        reason = f"stable for {view.since_change_s:.0f} s; fewer lanes are enough"
        decision = self._planned(view, Trigger.SCALE_IN, reason, need)
        if decision is None or lanes_of(dict(decision.assignment)) >= now:
            return None
        return decision

    def _balanced(self, view: View, lanes: int) -> Decision | None:
        """A fixed number of lanes; moves only if a lane has clearly more than its share."""
        need = self._need(view)
        problem = self._problem(view, need)
        assignment = balance(problem, min(lanes, view.most_lanes))
        if problem.speeds.keys() - problem.current.keys():
            reason = "a partition had no lane"
            return _decision(view, problem, assignment, Trigger.UNASSIGNED, reason)
        if max(view.current.values(), default=0) >= lanes:
            reason = f"the number of lanes is fixed at {lanes}"
            return _decision(view, problem, assignment, Trigger.SCALE_IN, reason)
        fullest = _fullest(view, need, view.current)
        is_due = view.since_change_s >= self._settings.scale_in_s
        is_asked = is_due or fullest > self._settings.exceeded_at
        if not (is_asked and self._is_more_even(view, need, dict(view.current), assignment)):
            return None
        reason = f"the fullest lane was at {100 * fullest:.0f} % of its capacity"
        return _decision(view, problem, assignment, Trigger.UNEVEN, reason)


def _shares(
    view: View, loads: Mapping[Partition, float], assignment: Mapping[Partition, int]
) -> dict[int, float]:
    """Lane → its load as a share of its capacity."""
    shares: dict[int, float] = {}
    for partition, lane in assignment.items():
        load = loads.get(partition, 0.0) / view.capacity_of(lane)
        shares[lane] = shares.get(lane, 0.0) + load
    return shares


def _fullest(
    view: View, loads: Mapping[Partition, float], assignment: Mapping[Partition, int]
) -> float:
    return max(_shares(view, loads, assignment).values(), default=0.0)


def _too_fast(view: View, need: Mapping[Partition, float]) -> tuple[Caution, ...]:
    """Partitions that no lane can keep up with."""
    most = max([view.capacity, *view.capacities.values()])
    text = "{} is written at {}, more than a lane can read ({}): add partitions to the topic"
    return tuple(
        Caution(str(p), text.format(p, rate_text(view.speeds[p]), rate_text(most)))
        for p in sorted(need)
        if view.speeds[p] > most
    )


def _decision(
    view: View,
    problem: Problem,
    assignment: Assignment,
    trigger: Trigger,
    reason: str,
    warnings: tuple[Caution, ...] = (),
) -> Decision | None:
    known = {p: lane for p, lane in view.current.items() if p in assignment}
    if assignment == known and not warnings:
        return None
    moves = sum(1 for p, lane in assignment.items() if known.get(p, lane) != lane)
    moved = moved_load(problem, assignment)
    before, after = len(set(view.current.values())), lanes_of(assignment)
    change = counted(after, "lane") + ("" if before == after else f" instead of {before}")
    verb = "moves" if moves == 1 else "move"
    sentence = f"{reason}: {change}, {counted(moves, 'partition')} {verb} ({rate_text(moved)})."
    return Decision(assignment, trigger, sentence, warnings)
