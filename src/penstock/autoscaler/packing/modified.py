"""The document's own: any fit that begins from the present lanes (S2, 4.4.6, Algorithm 4).

Its lanes are taken in *descending* order, which the text does not say and its figures show.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.autoscaler.packing.any_fit import (
    Bins,
    Fit,
    assign,
    best_fit,
    largest_first,
    worst_fit,
)
from penstock.autoscaler.packing.problem import Assignment, Problem
from penstock.autoscaler.packing.registry import packs
from penstock.domain.lake.partition import Partition


def _pack(problem: Problem, *, fit: Fit, weight: Callable[[list[float]], float]) -> Assignment:
    speeds = problem.speeds
    present: dict[int, list[Partition]] = {}
    unassigned = []
    for partition in sorted(speeds):
        lane = problem.home(partition)
        if lane is None:
            unassigned.append(partition)
        else:
            present.setdefault(lane, []).append(partition)
    heaviest_first = sorted(
        present, key=lambda lane: (-weight([speeds[p] for p in present[lane]]), lane)
    )
    bins = Bins(problem)
    for lane in heaviest_first:
        left = largest_first(problem, present[lane])
        # The small ones may find room on lanes that exist already …
        while left and (other := fit(bins, speeds[left[-1]])) is not None:
            bins.put(left.pop(), other)
        if not left:
            continue
        # … and if one does not, the lane exists too, and takes what it can from the largest on.
        bins.open(lane)
        kept = 0
        for partition in left:
            # What is faster than a lane is alone on it.
            if kept and speeds[partition] > bins.room[lane] + bins.rounding:
                break
            bins.put(partition, lane)
            kept += 1
        unassigned += left[kept:]
    for partition in largest_first(problem, unassigned):
        assign(bins, partition, fit)
    return bins.assignment


for _name, _fit, _weight in (
    ("MWF", worst_fit, sum),
    ("MBF", best_fit, sum),
    ("MWFP", worst_fit, max),
    ("MBFP", best_fit, max),
):
    packs(_name)(partial(_pack, fit=_fit, weight=_weight))
