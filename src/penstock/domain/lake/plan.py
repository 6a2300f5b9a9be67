"""Plans: which lane reads which partitions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Annotated

from penstock.domain.lake.partition import Partition, check_name
from penstock.domain.lake.report import LaneReport
from penstock.domain.value import Doc, FieldError, Value


@dataclass(frozen=True, kw_only=True)
class Plan(Value):
    """The partitions of each lane. It changes only between micro-batches."""

    version: Annotated[int, Doc("counts up with every change")] = 0
    lanes: Annotated[tuple[tuple[str, ...], ...], Doc("per lane its partitions: orders-0, …")]

    def __post_init__(self) -> None:
        super().__post_init__()
        seen: dict[str, int] = {}
        for i, lane in enumerate(self.lanes):
            for name in lane:
                check_name(f"lanes.{i}", name)
                if name in seen:
                    fix = f"is on lane {seen[name]} too; a partition is read by one lane only"
                    raise FieldError(f"lanes.{i}", name, fix)
                seen[name] = i


def fitted(plan: Plan, partitions: Collection[Partition]) -> list[list[Partition]]:
    """The lanes of a plan, restricted to these partitions.

    A partition that the plan does not contain (a new one) goes to the lane with the fewest.
    """
    present = set(partitions)
    lanes = [
        [p for p in (Partition.parse(name) for name in lane) if p in present] for lane in plan.lanes
    ] or [[]]
    rest = present.difference(*lanes)
    for partition in sorted(rest):
        min(lanes, key=len).append(partition)
    return lanes


def even_plan(lanes: int, partitions: Sequence[Partition]) -> Plan:
    """The default: round robin, so that the partitions of one topic are spread."""
    ordered = sorted(partitions)
    return Plan(lanes=tuple(tuple(str(p) for p in ordered[i::lanes]) for i in range(lanes)))


def in_turn(lanes: Sequence[LaneReport]) -> dict[int, int]:
    """Lane → when its task should start, given the lane reports of the last micro-batch.

    Spark gives the next task to the worker that has been idle longest. In this order, that is most
    likely the worker that has the lane's consumer and what it has prefetched.
    """
    own: dict[str, list[LaneReport]] = {}
    for lane in sorted(lanes, key=lambda lane: lane.ended_ms):
        own.setdefault(lane.worker, []).append(lane)
    longest_idle = sorted(own.values(), key=lambda done: done[-1].ended_ms)
    waves = zip_longest(*longest_idle)
    return {lane.lane: i for i, lane in enumerate(filter(None, chain.from_iterable(waves)))}
