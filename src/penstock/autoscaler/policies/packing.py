"""Ours: the fewest lanes that keep up with what is written, and the fewest moves (S2, 4.4.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from penstock.autoscaler.packing import Assignment, Problem, algorithm
from penstock.autoscaler.packing.balance import balance
from penstock.autoscaler.packing.problem import CLEARLY, lanes_of, moved_load
from penstock.autoscaler.policies.registry import decides
from penstock.autoscaler.view import Caution, Decision, Trigger, View, counted, rate_text
from penstock.domain.autoscaling import Autoscaling
from penstock.domain.lake.partition import Partition

# Lanes are balanced again if the fullest one has so much more than it could have.
_UNEVEN = 0.2


@decides("packing")
class Packing:
    """A new plan if a partition has no lane, if a lane has too much, or after a while for fewer."""

    def __init__(self, settings: Autoscaling) -> None:
        self._settings = settings
        self._pack = algorithm(settings.algorithm)

    def decide(self, view: View) -> Decision | None:
        if not view.speeds:
            return None
        fixed = self._settings.lanes
        if fixed is not None:
            return self._balanced(view, fixed)
        waiting = sorted(view.speeds.keys() - view.current.keys())
        if waiting:
            what = str(waiting[0]) if len(waiting) == 1 else counted(len(waiting), "partition")
            return self._planned(view, Trigger.UNASSIGNED, f"{what} had no lane", self._need(view))
        if (lane := self._too_full(view)) is not None:
            needed, can = self._need_of(view, lane), view.capacity_of(lane)
            reason = f"lane {lane} has {rate_text(needed)} to read and can do {rate_text(can)}"
            return self._planned(view, Trigger.EXCEEDED, reason, self._need(view))
        if view.since_change_s >= self._settings.scale_in_s:
            return self._fewer(view)
        return None

    # --- what is needed ----------------------------------------------------------------------------

    def _need(self, view: View) -> dict[Partition, float]:
        """What is written, and what is waiting within the time it may take."""
        drain_s = self._settings.drain_s
        return {p: s + view.overdue_bytes.get(p, 0.0) / drain_s for p, s in view.speeds.items()}

    def _need_of(self, view: View, lane: int) -> float:
        need = self._need(view)
        return sum(need.get(p, 0.0) for p, held in view.current.items() if held == lane)

    def _too_full(self, view: View) -> int | None:
        """The fullest lane above the limit; not one that a single partition fills, alone, unless
        others can usually do clearly more."""
        need = self._need(view)
        shares: dict[int, float] = {}
        busy: dict[int, int] = {}
        for partition, lane in view.current.items():
            if need.get(partition, 0.0) > 0:
                shares[lane] = shares.get(lane, 0.0) + need[partition] / view.capacity_of(lane)
                busy[lane] = busy.get(lane, 0) + 1
        over = {
            lane: share
            for lane, share in shares.items()
            if share > self._settings.exceeded_at
            and (busy[lane] > 1 or view.capacity >= CLEARLY * view.capacity_of(lane))
        }
        return max(over, key=lambda lane: over[lane], default=None)

    def _problem(self, view: View, need: Mapping[Partition, float]) -> Problem:
        share, worth = self._settings.plan_at, self._settings.lane_worth
        return Problem(
            speeds=need,
            capacity=share * view.capacity,
            capacities={lane: share * can for lane, can in view.capacities.items()},
            current={p: lane for p, lane in view.current.items() if p in need},
            lane_worth=math.inf if worth is None else worth,
            headroom=self._settings.headroom,
        )

    # --- what follows --------------------------------------------------------------------------------

    def _planned(
        self, view: View, trigger: Trigger, reason: str, need: Mapping[Partition, float]
    ) -> Decision | None:
        problem = self._problem(view, need)
        found = self._pack(problem)
        warnings = _too_fast(view, need)
        most = min(view.most_lanes, self._settings.most_lanes)
        if lanes_of(found) > most or max(found.values(), default=0) >= most:
            wanted = lanes_of(found)
            found = self._settled(view, need, balance(problem, most))
            if wanted > most:
                text = f"{wanted} lanes are needed and {most} can be had: lag will grow"
                warnings += (Caution("lanes", text),)
        return _decision(view, problem, found, trigger, reason, warnings)

    def _settled(
        self, view: View, need: Mapping[Partition, float], found: Assignment
    ) -> Assignment:
        """The present one, unless this is clearly better: lanes that are all too full would
        otherwise pass partitions on and on."""
        present = {p: lane for p, lane in view.current.items() if p in found}
        is_whole = present.keys() == found.keys() and max(present.values()) <= max(found.values())
        is_better = self._is_more_even(view, need, present, found)
        return present if is_whole and not is_better else found

    def _is_more_even(
        self, view: View, need: Mapping[Partition, float], before: Assignment, after: Assignment
    ) -> bool:
        """By what is written; by what is waiting only now and then, for that is soon another."""
        is_due = view.since_change_s >= self._settings.drain_s
        return any(
            _fullest(view, loads, before) > (1 + _UNEVEN) * _fullest(view, loads, after)
            for loads in ((view.speeds, need) if is_due else (view.speeds,))
        )

    def _fewer(self, view: View) -> Decision | None:
        """Only if it saves a lane, also at the highest speeds of late."""
        need = {p: max(s, view.peaks.get(p, 0.0)) for p, s in self._need(view).items()}
        now = len(set(view.current.values()))
        reason = f"nothing changed for {view.since_change_s:.0f} s, and fewer lanes do"
        found = self._planned(view, Trigger.SCALE_IN, reason, need)
        if found is None or lanes_of(dict(found.assignment)) >= now:
            return None
        return found

    def _balanced(self, view: View, lanes: int) -> Decision | None:
        """As many as were asked for; moved only if some lane has clearly more than its share."""
        need = self._need(view)
        problem = self._problem(view, need)
        found = balance(problem, min(lanes, view.most_lanes))
        if problem.speeds.keys() - problem.current.keys():
            reason = "a partition had no lane"
            return _decision(view, problem, found, Trigger.UNASSIGNED, reason)
        if max(view.current.values(), default=0) >= lanes:
            reason = f"only {lanes} lanes are wanted"
            return _decision(view, problem, found, Trigger.SCALE_IN, reason)
        fullest = _fullest(view, need, view.current)
        is_due = view.since_change_s >= self._settings.scale_in_s
        if not (is_due or fullest > self._settings.exceeded_at):
            return None
        if not self._is_more_even(view, need, dict(view.current), found):
            return None
        reason = f"the fullest lane had {100 * fullest:.0f} % of what it can do"
        return _decision(view, problem, found, Trigger.UNEVEN, reason)


def _fullest(
    view: View, loads: Mapping[Partition, float], assignment: Mapping[Partition, int]
) -> float:
    shares: dict[int, float] = {}
    for partition, lane in assignment.items():
        load = loads.get(partition, 0.0) / view.capacity_of(lane)
        shares[lane] = shares.get(lane, 0.0) + load
    return max(shares.values(), default=0.0)


def _too_fast(view: View, need: Mapping[Partition, float]) -> tuple[Caution, ...]:
    """Partitions that no lane can keep up with."""
    most = max([view.capacity, *view.capacities.values()])
    return tuple(
        Caution(
            str(partition),
            f"{partition} is written at {rate_text(view.speeds[partition])}, which is more than a "
            f"lane can do ({rate_text(most)}): give the topic more partitions",
        )
        for partition in sorted(need)
        if view.speeds[partition] > most
    )


def _decision(
    view: View,
    problem: Problem,
    found: Assignment,
    trigger: Trigger,
    reason: str,
    warnings: tuple[Caution, ...] = (),
) -> Decision | None:
    known = {p: lane for p, lane in view.current.items() if p in found}
    if found == known and not warnings:
        return None
    moves = sum(1 for p, lane in found.items() if known.get(p, lane) != lane)
    moved = moved_load(problem, found)
    before, after = len(set(view.current.values())), lanes_of(found)
    change = counted(after, "lane") + ("" if before == after else f" instead of {before}")
    verb = "moves" if moves == 1 else "move"
    sentence = f"{reason}: {change}, {counted(moves, 'partition')} {verb} ({rate_text(moved)})."
    return Decision(found, trigger, sentence, warnings)
