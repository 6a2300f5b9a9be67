"""Bandwidth: an HTB class per link on the router's interface towards the destination.

Pure rendering of `tc` commands, and two functions that run them. The netem backend hangs its own leaf into the same classes, so a
link with a rate *and* a delay is one class. Traffic that matches no class passes unhindered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.domain.network.condition import LinkCondition
from penstock.testbed.network.namespaces import ip_batch, run, run_all, tc_batch, tool
from penstock.testbed.network.topology import HOST_INTERFACE, Pair, Topology

# A queue of 75 ms of the rate lets one cubic flow fill the link at the round trips of a testbed
# and bounds the delay that the queue itself adds; 64 kB hold a burst at low rates.
QUEUE_S = 0.075
SHORTEST_QUEUE_BYTES = 64_000
# Tokens for 1 ms: fewer wakeups of the kernel's timer at high rates, invisible in a rate per 10 ms.
BURST_S = 0.001
SMALLEST_BURST_BYTES = 3_200
UNLIMITED_BIT = 100_000_000_000
MOST_SEGMENTS = 65_535  # the kernel's own default of gso_max_segs


@dataclass(frozen=True)
class LinkClass:
    """What a link needs in the kernel: a rate, and the queue (`tc qdisc` arguments) behind it."""

    rate_bit: int
    leaf: tuple[str, ...]


def rate_class(condition: LinkCondition) -> LinkClass | None:
    """The class of a link with a rate.

    A cut link has none even if it has a rate: its class goes, and with it whatever still queues.
    """
    if condition.rate_mbit is None or condition.cut:
        return None
    rate_bit = round(condition.rate_mbit * 1e6)
    limit = max(SHORTEST_QUEUE_BYTES, round(rate_bit / 8 * QUEUE_S))
    return LinkClass(rate_bit, ("bfifo", "limit", str(limit)))


def classes(
    conditions: Mapping[Pair, LinkCondition], class_of: Callable[[LinkCondition], LinkClass | None]
) -> dict[Pair, LinkClass]:
    shaped = ((pair, class_of(condition)) for pair, condition in conditions.items())
    return {pair: link_class for pair, link_class in shaped if link_class is not None}


def render(
    topology: Topology, before: Mapping[Pair, LinkClass], after: Mapping[Pair, LinkClass]
) -> list[str]:
    """`tc -batch` lines that lead from one set of classes to another; other classes stay alive."""
    lines: list[str] = []
    for dst in topology.hosts:
        old = {src: link_class for (src, d), link_class in before.items() if d == dst}
        new = {src: link_class for (src, d), link_class in after.items() if d == dst}
        if old and not new:
            lines.append(f"qdisc del dev {topology.router_interface(dst)} root")
            continue
        if new and not old:
            lines.append(f"qdisc add dev {topology.router_interface(dst)} root handle 1: htb")
        for src in sorted(old.keys() | new.keys(), key=topology.index):
            lines += _render_link(topology, src, dst, old.get(src), new.get(src))
    return lines


def render_segments(
    topology: Topology, before: Mapping[Pair, LinkClass], after: Mapping[Pair, LinkClass]
) -> dict[str, str]:
    """Host → `ip -batch` line, for hosts that begin or cease to send packets one by one.

    A sender hands 64 kB at a time to its interface and lets the other end cut it up; a queue in
    between would drop or delay all 64 kB as one packet.
    """
    old, new = ({src for src, _ in pairs} for pairs in (before, after))
    return {
        host: f"link set {HOST_INTERFACE} gso_max_segs {1 if host in new else MOST_SEGMENTS}\n"
        for host in sorted(old ^ new, key=topology.index)
    }


def apply(
    topology: Topology,
    before: Mapping[Pair, LinkCondition],
    after: Mapping[Pair, LinkCondition],
    class_of: Callable[[LinkCondition], LinkClass | None] = rate_class,
) -> None:
    """Make the kernel's classes those of the conditions `after`."""
    old, new = classes(before, class_of), classes(after, class_of)
    commands = [
        ip_batch(line, topology.namespace(host))
        for host, line in render_segments(topology, old, new).items()
    ]
    if lines := render(topology, old, new):
        commands.append(tc_batch(lines, topology.router))
    run_all(commands)


@dataclass(frozen=True)
class Queue:
    """The counts of a class's leaf since it was made."""

    kind: str
    passed: int
    dropped: int


def read_queues(topology: Topology) -> dict[Pair, Queue]:
    output = run([tool("tc"), "-n", topology.router, "-s", "-j", "qdisc", "show"])
    return parse_queues(topology, json.loads(output))


def parse_queues(topology: Topology, qdiscs: list[dict[str, Any]]) -> dict[Pair, Queue]:
    """The leaves of the links' classes, from what `tc -s -j qdisc show` says."""
    destinations = {topology.router_interface(host): host for host in topology.hosts}
    origins = {_class_id(topology, host): host for host in topology.hosts}
    return {
        (origins[qdisc["parent"]], destinations[qdisc["dev"]]): Queue(
            qdisc["kind"], qdisc["packets"], qdisc["drops"]
        )
        for qdisc in qdiscs
        if qdisc["dev"] in destinations and qdisc.get("parent") in origins
    }


def _class_id(topology: Topology, src: str) -> str:
    return f"1:{topology.index(src) + 1:x}"


def _render_link(
    topology: Topology, src: str, dst: str, old: LinkClass | None, new: LinkClass | None
) -> list[str]:
    if old == new:
        return []
    interface = topology.router_interface(dst)
    number = topology.index(src) + 1
    classid = _class_id(topology, src)
    link_filter = f"dev {interface} parent 1: protocol ip prio {number}"
    if new is None:
        return [f"filter del {link_filter}", f"class del dev {interface} classid {classid}"]
    # Above the class ids' own major number 1.
    leaf = f"dev {interface} parent {classid} handle {number + 0x1000:x}:"
    htb = f"dev {interface} parent 1: classid {classid} htb {_tokens(new.rate_bit)}"
    if old is None:
        return [
            f"class add {htb}",
            f"qdisc add {leaf} {' '.join(new.leaf)}",
            f"filter add {link_filter} u32 match ip src {topology.address(src)}/32 flowid {classid}",
        ]
    lines = []
    if old.rate_bit != new.rate_bit:
        lines.append(f"class change {htb}")
    if old.leaf == new.leaf:
        return lines
    if _words(old.leaf) == _words(new.leaf):
        return [*lines, f"qdisc change {leaf} {' '.join(new.leaf)}"]
    # A change keeps what it does not mention: netem would keep the old distribution or rate.
    # So another set of options is another qdisc, and the packets held in the old one are lost.
    return [*lines, f"qdisc del {leaf}", f"qdisc add {leaf} {' '.join(new.leaf)}"]


def _tokens(rate_bit: int) -> str:
    burst = max(SMALLEST_BURST_BYTES, round(rate_bit / 8 * BURST_S))
    # Classes never borrow from each other, so the quantum means nothing; without one the kernel
    # derives it from the rate and complains about the result.
    return f"rate {rate_bit}bit burst {burst} cburst {burst} quantum 1600"


def _words(leaf: tuple[str, ...]) -> list[str]:
    """The options without their numbers."""
    return [word for word in leaf if not word[0].isdigit()]
