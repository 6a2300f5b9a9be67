"""The document's modified any fit, which begins from the present lanes (S2, 4.4.6, Algorithm 4).

Lanes are taken in *descending* order, which the text does not say but its figures show.
"""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.autoscaler.core.packing.any_fit import (
    Bins,
    assign,
    best_fit,
    largest_first,
    worst_fit,
)
from penstock.autoscaler.core.packing.problem import Assignment, Problem
from penstock.domain.autoscaling import Algorithm
from penstock.domain.lake.partition import Partition


class ModifiedAnyFit(Algorithm):
    """Its subclasses differ in `fit`, and in what makes a lane heavy."""

    fit: ClassVar[Any]  # a `Fit`
    # By its largest partition; otherwise by the sum of all.
    is_heavy_by_largest: ClassVar[bool] = False

    def __call__(self, problem: Problem) -> Assignment:
        speeds = problem.speeds
        weight = max if self.is_heavy_by_largest else sum
        present: dict[int, list[Partition]] = {}
        unassigned: list[Partition] = []
        for partition in sorted(speeds):
            lane = problem.home(partition)
            held = unassigned if lane is None else present.setdefault(lane, [])
            held.append(partition)
        heaviest_first = sorted(
            present, key=lambda lane: (-weight([speeds[p] for p in present[lane]]), lane)
        )
        bins = Bins(problem)
        for lane in heaviest_first:
            left = largest_first(problem, present[lane])
            # The small ones go to open lanes while they fit there …
            while left and (other := self.fit(bins, speeds[left[-1]])) is not None:
                bins.put(left.pop(), other)
            if not left:
                continue
            # … and if one does not, the lane is opened too, and takes what it can, the largest first.
            bins.open(lane)
            kept = 0
            for partition in left:
                # A partition faster than a lane is alone on it.
                if kept and speeds[partition] > bins.room[lane] + bins.rounding:
                    break
                bins.put(partition, lane)
                kept += 1
            unassigned += left[kept:]
        for partition in largest_first(problem, unassigned):
            assign(bins, partition, self.fit)
        return bins.assignment


class ModifiedWorstFit(ModifiedAnyFit):
    """Modified worst fit (S2): lanes by load, what stays is kept."""

    kind = "MWF"
    fit = staticmethod(worst_fit)


class ModifiedBestFit(ModifiedAnyFit):
    """Modified best fit (S2): lanes by load, what stays is kept."""

    kind = "MBF"
    fit = staticmethod(best_fit)


class ModifiedWorstFitPartition(ModifiedWorstFit):
    """Modified worst fit (S2), lanes by their fastest partition."""

    kind = "MWFP"
    is_heavy_by_largest = True


class ModifiedBestFitPartition(ModifiedBestFit):
    """Modified best fit (S2), lanes by their fastest partition."""

    kind = "MBFP"
    is_heavy_by_largest = True
