"""Hand-over from the present plan to the target: what each host may be given by now. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from penstock.autoscaler.core.host import Host
from penstock.domain.lake.partition import Partition

# Lane → partitions.
Part = dict[int, tuple[str, ...]]


def parts_of(
    target: Mapping[Partition, int], host_of: Callable[[int], int], hosts: Collection[int]
) -> dict[int, Part]:
    """Host → its part of the target plan; empty for hosts that the plan does not use."""
    parts: dict[int, dict[int, list[str]]] = {number: {} for number in hosts}
    for partition in sorted(target):
        lane = target[partition]
        parts.setdefault(host_of(lane), {}).setdefault(lane, []).append(str(partition))
    return {
        number: {lane: tuple(held) for lane, held in lanes.items()}
        for number, lanes in parts.items()
    }


def handed_over_now(
    number: int,
    part: Part,
    hosts: Mapping[int, Host],
    *,
    awaited: Collection[int],
    to: Mapping[str, int],
) -> Part:
    """The share of its part that a host can get now: nothing that another one may still hold.

    It also keeps what will go `to` a host that is still `awaited`, so that it is read until then.
    """
    host = hosts[number]
    elsewhere = {p for n, other in hosts.items() if n != number for p in other.may_hold}
    # A host that does not run gets nothing new: it may never start.
    may_take = None if host.is_alive else host.may_hold
    now: Part = {}
    for lane, held in part.items():
        free = (p for p in held if p not in elsewhere and (may_take is None or p in may_take))
        if taken := tuple(free):
            now[lane] = taken
    for lane, held in host.present.items():
        if staying := tuple(p for p in held if to.get(p) in awaited):
            now[lane] = (*now.get(lane, ()), *staying)
    return now
