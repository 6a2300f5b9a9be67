"""The textbook's: next, first, best and worst fit, and each with the largest first (S2, 4.4.5)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count

from penstock.autoscaler.packing.problem import ROUNDING, Assignment, Problem
from penstock.autoscaler.packing.registry import packs
from penstock.domain.lake.partition import Partition


class Bins:
    """A packing in the making: the lanes that exist already, and how much room each has."""

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
        home = self.problem.home(partition)
        lane = home if home is not None and home not in self.room else self._lowest_free()
        self.open(lane)
        return lane

    def _lowest_free(self) -> int:
        return next(lane for lane in count() if lane not in self.room)


Fit = Callable[[Bins, float], int | None]


def next_fit(bins: Bins, size: float) -> int | None:
    lane = next(reversed(bins.room), None)
    return lane if lane is not None and size <= bins.room[lane] + bins.rounding else None


def first_fit(bins: Bins, size: float) -> int | None:
    enough = size - bins.rounding
    for lane, room in bins.room.items():
        if room >= enough:
            return lane
    return None


def best_fit(bins: Bins, size: float) -> int | None:
    place = bisect_left(bins.by_room, (size - bins.rounding, -1))
    return bins.by_room[place][1] if place < len(bins.by_room) else None


def worst_fit(bins: Bins, size: float) -> int | None:
    if not bins.by_room:
        return None
    room, lane = bins.by_room[-1]
    return lane if size <= room + bins.rounding else None


def assign(bins: Bins, partition: Partition, fit: Fit) -> None:
    """Where it fits, else on a lane that is opened for it."""
    lane = fit(bins, bins.problem.speeds[partition])
    bins.put(partition, bins.open_for(partition) if lane is None else lane)


def largest_first(problem: Problem, partitions: Iterable[Partition]) -> list[Partition]:
    """Equal ones in the order of their names, so that the result depends on nothing else."""
    return sorted(partitions, key=lambda p: (-problem.speeds[p], p))


def _pack(problem: Problem, *, fit: Fit, is_decreasing: bool) -> Assignment:
    speeds = problem.speeds
    bins = Bins(problem)
    for partition in largest_first(problem, speeds) if is_decreasing else sorted(speeds):
        assign(bins, partition, fit)
    return bins.assignment


for _name, _fit in (("NF", next_fit), ("FF", first_fit), ("BF", best_fit), ("WF", worst_fit)):
    packs(_name)(partial(_pack, fit=_fit, is_decreasing=False))
    packs(f"{_name}D")(partial(_pack, fit=_fit, is_decreasing=True))
