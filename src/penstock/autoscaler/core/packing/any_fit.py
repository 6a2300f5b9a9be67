"""Textbook algorithms: next, first, best and worst fit, each also decreasing (S2, 4.4.5)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, ClassVar

from penstock.autoscaler.core.packing.problem import ROUNDING, Assignment, Problem
from penstock.domain.autoscaling import Algorithm
from penstock.domain.lake.partition import Partition


class Bins:
    """A partial packing: the open lanes, and how much room each has."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.assignment: Assignment = {}
        self.rounding = ROUNDING * problem.capacity
        # In the order in which they were opened.
        self.room: dict[int, float] = {}
        # The same, from the fullest to the emptiest.
        self.by_room: list[tuple[float, int]] = []

    def put(self, partition: Partition, lane: int) -> None:
        room = self.room[lane]
        left = room - self.problem.speeds[partition]
        del self.by_room[bisect_left(self.by_room, (room, lane))]
        insort(self.by_room, (left, lane))
        self.room[lane] = left
        self.assignment[partition] = lane

    def open(self, lane: int) -> None:
        self.room[lane] = self.problem.capacity_of(lane)
        insort(self.by_room, (self.room[lane], lane))

    def open_for(self, partition: Partition) -> int:
        """The lane that the partition is on now, unless it is open; else the lowest free one."""
        lane = self.problem.home(partition)
        if lane is None or lane in self.room:
            lane = next(lane for lane in count() if lane not in self.room)
        self.open(lane)
        return lane


Fit = Callable[[Bins, float], int | None]


def next_fit(bins: Bins, size: float) -> int | None:
    lane = next(reversed(bins.room), None)
    return lane if lane is not None and size <= bins.room[lane] + bins.rounding else None


def first_fit(bins: Bins, size: float) -> int | None:
    enough = size - bins.rounding
    return next((lane for lane, room in bins.room.items() if room >= enough), None)


def best_fit(bins: Bins, size: float) -> int | None:
    place = bisect_left(bins.by_room, (size - bins.rounding, -1))
    return bins.by_room[place][1] if place < len(bins.by_room) else None


def worst_fit(bins: Bins, size: float) -> int | None:
    if not bins.by_room:
        return None
    room, lane = bins.by_room[-1]
    return lane if size <= room + bins.rounding else None


def assign(bins: Bins, partition: Partition, fit: Fit) -> None:
    """Put it where it fits, otherwise on a lane that is opened for it."""
    lane = fit(bins, bins.problem.speeds[partition])
    bins.put(partition, bins.open_for(partition) if lane is None else lane)


def largest_first(problem: Problem, partitions: Iterable[Partition]) -> list[Partition]:
    """Equal ones in the order of their names, so that the result is deterministic."""
    return sorted(partitions, key=lambda p: (-problem.speeds[p], p))


class AnyFit(Algorithm):
    """Each partition in turn goes where it fits; its subclasses differ in `fit` and in the order."""

    fit: ClassVar[Any]  # a `Fit`
    is_decreasing: ClassVar[bool] = False

    def __call__(self, problem: Problem) -> Assignment:
        speeds = problem.speeds
        bins = Bins(problem)
        for partition in largest_first(problem, speeds) if self.is_decreasing else sorted(speeds):
            assign(bins, partition, self.fit)
        return bins.assignment


class NextFit(AnyFit):
    """Next fit: only the lane that was opened last."""

    kind = "NF"
    fit = staticmethod(next_fit)


class NextFitDecreasing(NextFit):
    """Next fit, the fastest partitions first."""

    kind = "NFD"
    is_decreasing = True


class FirstFit(AnyFit):
    """First fit: the first lane with room."""

    kind = "FF"
    fit = staticmethod(first_fit)


class FirstFitDecreasing(FirstFit):
    """First fit, the fastest partitions first."""

    kind = "FFD"
    is_decreasing = True


class BestFit(AnyFit):
    """Best fit: the fullest lane with room."""

    kind = "BF"
    fit = staticmethod(best_fit)


class BestFitDecreasing(BestFit):
    """Best fit, the fastest partitions first."""

    kind = "BFD"
    is_decreasing = True


class WorstFit(AnyFit):
    """Worst fit: the emptiest lane."""

    kind = "WF"
    fit = staticmethod(worst_fit)


class WorstFitDecreasing(WorstFit):
    """Worst fit, the fastest partitions first."""

    kind = "WFD"
    is_decreasing = True
