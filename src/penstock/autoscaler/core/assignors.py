"""Kafka's assignors, for comparison: they count partitions and ignore their load. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import groupby

from penstock.domain.lake.partition import Partition

Partitions = Collection[Partition]
Lanes = Mapping[Partition, int]


def assign_range(partitions: Partitions, lanes: int, _: Lanes) -> dict[Partition, int]:
    """RangeAssignor: contiguous partitions of every topic; the first lanes have one more."""
    assignment: dict[Partition, int] = {}
    for _topic, group in groupby(sorted(partitions), key=lambda p: p.topic):
        members = list(group)
        per_lane, more = divmod(len(members), lanes)
        begin = 0
        for lane in range(lanes):
            end = begin + per_lane + (lane < more)
            assignment |= dict.fromkeys(members[begin:end], lane)
            begin = end
    return assignment


def assign_sticky(partitions: Partitions, lanes: int, current: Lanes) -> dict[Partition, int]:
    """CooperativeStickyAssignor: equal numbers of partitions, with as few moves as possible."""
    held: dict[int, list[Partition]] = {lane: [] for lane in range(lanes)}
    homeless: list[Partition] = []
    for partition in sorted(partitions):
        lane = current.get(partition)
        held.get(-1 if lane is None else lane, homeless).append(partition)
    per_lane, more = divmod(len(partitions), lanes)
    # If the number does not divide, the lanes with most partitions keep one more.
    for place, lane in enumerate(sorted(held, key=lambda lane: (-len(held[lane]), lane))):
        most = per_lane + (place < more)
        homeless += held[lane][most:]
        held[lane] = held[lane][:most]
    for partition in sorted(homeless):
        min(held.values(), key=len).append(partition)
    return {partition: lane for lane, members in held.items() for partition in members}
