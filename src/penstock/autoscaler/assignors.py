"""Kafka's own assignors, which count partitions and do not weigh them: to compare with. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import groupby

from penstock.domain.lake.partition import Partition

Assign = Callable[[Collection[Partition], int, Mapping[Partition, int]], dict[Partition, int]]


def assign_range(
    partitions: Collection[Partition], lanes: int, _: Mapping[Partition, int]
) -> dict[Partition, int]:
    """RangeAssignor: of every topic, neighbours together; the first lanes have one more."""
    found: dict[Partition, int] = {}
    for _topic, group in groupby(sorted(partitions), key=lambda p: p.topic):
        members = list(group)
        each, more = divmod(len(members), lanes)
        begin = 0
        for lane in range(lanes):
            end = begin + each + (lane < more)
            found |= dict.fromkeys(members[begin:end], lane)
            begin = end
    return found


def assign_sticky(
    partitions: Collection[Partition], lanes: int, current: Mapping[Partition, int]
) -> dict[Partition, int]:
    """CooperativeStickyAssignor: as many for each as possible, and otherwise as it was."""
    held: dict[int, list[Partition]] = {lane: [] for lane in range(lanes)}
    homeless: list[Partition] = []
    for partition in sorted(partitions):
        lane = current.get(partition)
        held.get(-1 if lane is None else lane, homeless).append(partition)
    each, more = divmod(len(partitions), lanes)
    # Those that have most keep the one more that some must have.
    for place, lane in enumerate(sorted(held, key=lambda lane: (-len(held[lane]), lane))):
        most = each + (place < more)
        homeless += held[lane][most:]
        held[lane] = held[lane][:most]
    for partition in sorted(homeless):
        min(held.values(), key=len).append(partition)
    return {partition: lane for lane, members in held.items() for partition in members}
