"""Balances the load over a fixed number of lanes with few moves: without scaling, or if the cluster
has no more lanes."""

from __future__ import annotations

from penstock.autoscaler.core.packing.problem import Assignment, Problem
from penstock.domain.lake.partition import Partition

# Lanes that differ by less than this share of their mean are even.
_EVEN = 0.05


def balance(problem: Problem, lanes: int) -> Assignment:
    """Loads are compared as shares of each lane's capacity."""
    assignment: Assignment = {}
    loads = dict.fromkeys(range(lanes), 0.0)

    def put(partition: Partition, lane: int) -> None:
        loads[lane] += problem.speeds[partition] / problem.capacity_of(lane)
        assignment[partition] = lane

    for partition in sorted(problem.speeds):
        home = problem.home(partition)
        if home is not None and home < lanes:
            put(partition, home)
    homeless = problem.speeds.keys() - assignment.keys()
    for partition in sorted(homeless, key=lambda p: (-problem.speeds[p], p)):
        put(partition, min(loads, key=lambda lane: (loads[lane], lane)))
    _even_out(problem, assignment, loads)
    return assignment


def _even_out(problem: Problem, assignment: Assignment, loads: dict[int, float]) -> None:
    """Move from the fullest lane to the emptiest, as long as that evens them out."""
    mean = sum(loads.values()) / len(loads)
    for _ in range(len(assignment)):
        fullest = max(loads, key=loads.__getitem__)
        emptiest = min(loads, key=loads.__getitem__)
        gap = loads[fullest] - loads[emptiest]
        if gap <= _EVEN * mean:
            return
        out, into = problem.capacity_of(fullest), problem.capacity_of(emptiest)
        # How far apart the two would be if each of these moved.
        apart = {
            partition: abs(gap - speed / out - speed / into)
            for partition, lane in assignment.items()
            if lane == fullest and (speed := problem.speeds[partition]) > 0
        }
        best = min(apart, key=lambda p: (apart[p], p), default=None)
        if best is None or apart[best] >= gap:
            return
        loads[fullest] -= problem.speeds[best] / out
        loads[emptiest] += problem.speeds[best] / into
        assignment[best] = emptiest
