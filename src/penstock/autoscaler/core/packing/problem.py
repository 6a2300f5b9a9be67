"""The packing problem, and the cost of a packing. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.domain.lake.partition import Partition

Assignment = dict[Partition, int]
# Sums of speeds are compared with this much tolerance, as a share of a capacity.
ROUNDING = 1e-9
# A partition too fast for its lane moves to a lane whose capacity is higher by this factor.
CLEARLY = 1.2


@dataclass(frozen=True)
class Problem:
    """Partitions with their write speeds and present lanes, and the capacities of lanes.

    Lanes are numbered from 0. A partition that is faster than any lane has its own lane.
    """

    speeds: Mapping[Partition, float]
    capacity: float
    current: Mapping[Partition, int] = field(default_factory=dict)
    # Capacities of lanes that differ from the others.
    capacities: Mapping[int, float] = field(default_factory=dict)
    # Partitions already on a lane may stay up to this share above its capacity.
    headroom: float = 0.0

    def __post_init__(self) -> None:
        if not (self.capacity > 0 and all(c > 0 for c in self.capacities.values())):
            raise ValueError("a lane's capacity must be more than zero")
        if not all(math.isfinite(s) and s >= 0 for s in self.speeds.values()):
            raise ValueError("write speeds must be finite and not negative")

    def capacity_of(self, lane: int) -> float:
        return self.capacities.get(lane, self.capacity)

    def home(self, partition: Partition) -> int | None:
        """The lane that it is on now."""
        return self.current.get(partition)


Pack = Callable[[Problem], Assignment]


def lanes_of(assignment: Mapping[Partition, int]) -> int:
    """The number of lanes that it uses."""
    return len(set(assignment.values()))


def moved_load(problem: Problem, assignment: Mapping[Partition, int]) -> float:
    """Bytes/s of the partitions that change their lane; Rscore is this over the capacity."""
    return sum(
        problem.speeds[partition]
        for partition, lane in assignment.items()
        if problem.current.get(partition, lane) != lane
    )


def fewest_lanes(problem: Problem) -> int:
    """A lower bound of the number of lanes (Martello and Toth's L2; lanes of one size)."""
    capacity = max([problem.capacity, *problem.capacities.values()])
    return lower_bound(list(problem.speeds.values()), capacity)


def lower_bound(sizes: list[float], capacity: float) -> int:
    """For every threshold: items above capacity - threshold are alone, and those above half the
    capacity share a lane only with items of at least the threshold."""
    if not sizes:
        return 0
    room = capacity * (1 + ROUNDING)
    ordered = sorted((min(size, capacity) for size in sizes), reverse=True)
    half = capacity / 2
    large = [size for size in ordered if size > half]
    small = [size for size in ordered if size <= half]
    best = max(1, _ceil(sum(ordered) / capacity))
    alone, beside, beside_sum, small_sum = len(large), 0, 0.0, 0.0
    # From the largest threshold to 0: fewer are alone, and more of the small ones count.
    for threshold in [*small, 0.0]:
        while alone and large[alone - 1] + threshold <= room:
            alone -= 1
            beside += 1
            beside_sum += large[alone]
        if threshold:
            small_sum += threshold
        left = small_sum - (beside * capacity - beside_sum)
        best = max(best, alone + beside + max(0, _ceil(left / capacity)))
    return best


def _ceil(number: float) -> int:
    return math.ceil(number - ROUNDING)
