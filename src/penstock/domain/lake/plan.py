"""Which partitions on which lane. A plan is a value; who makes it is another matter. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Annotated

from penstock.domain.lake.partition import Partition
from penstock.domain.lake.report import LaneReport
from penstock.domain.value import Doc, FieldError, Value


@dataclass(frozen=True, kw_only=True)
class Plan(Value):
    """The lanes and what each owns. Holds for whole micro-batches."""

    version: Annotated[int, Doc("counts up with every change")] = 0
    lanes: Annotated[tuple[tuple[str, ...], ...], Doc("per lane its partitions: orders-0, …")]

    def __post_init__(self) -> None:
        super().__post_init__()
        seen: dict[str, int] = {}
        for i, lane in enumerate(self.lanes):
            for name in lane:
                try:
                    Partition.parse(name)
                except ValueError as error:
                    raise FieldError(f"lanes.{i}", name, str(error)) from None
                if name in seen:
                    fix = f"is on lane {seen[name]} too; a partition is read by one lane only"
                    raise FieldError(f"lanes.{i}", name, fix)
                seen[name] = i


def fitted(plan: Plan, partitions: Collection[Partition]) -> list[list[Partition]]:
    """The lanes of a plan with these partitions and no others.

    What the plan does not know yet (a new partition) goes to the lane with the fewest.
    """
    wanted = set(partitions)
    lanes = [
        [p for p in (Partition.parse(name) for name in lane) if p in wanted] for lane in plan.lanes
    ] or [[]]
    rest = wanted.difference(*lanes)
    for partition in sorted(rest):
        min(lanes, key=len).append(partition)
    return lanes


def even_plan(lanes: int, partitions: Sequence[Partition]) -> Plan:
    """The default: partitions in turn, so that those of one topic are spread."""
    ordered = sorted(partitions)
    return Plan(lanes=tuple(tuple(str(p) for p in ordered[i::lanes]) for i in range(lanes)))


def in_turn(lanes: Sequence[LaneReport]) -> dict[int, int]:
    """Lane → its place in the order in which tasks begin, after these of the last micro-batch.

    Spark gives the next task to the worker that has been idle longest. In this order it is most
    likely the one that has the lane's consumer, and what that has fetched already.
    """
    own: dict[str, list[LaneReport]] = {}
    for lane in sorted(lanes, key=lambda lane: lane.ended_ms):
        own.setdefault(lane.worker, []).append(lane)
    longest_idle = sorted(own.values(), key=lambda done: done[-1].ended_ms)
    waves = zip_longest(*longest_idle)
    return {lane.lane: i for i, lane in enumerate(filter(None, chain.from_iterable(waves)))}
