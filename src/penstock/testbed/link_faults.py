"""What faults of links share: the change, the check that packets meet it, and the way back."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from penstock.domain.errors import FaultDidNotTake
from penstock.domain.network.condition import PERFECT, Link, LinkCondition
from penstock.kafka.waiting import wait_until

if TYPE_CHECKING:
    from penstock.testbed.cluster import Cluster
    from penstock.testbed.network.hosts import Network
    from penstock.testbed.network.topology import Pair


def change_links(cluster: Cluster, links: tuple[Link, ...]) -> Callable[[], None]:
    """Give links a condition, check that it is in force; the result takes it back."""
    from penstock.testbed.network.hosts import as_links

    network = cluster.emulated
    changed = network.names.conditions(links)
    before = {pair: network.conditions.get(pair, PERFECT) for pair in changed}
    if all(before[pair] == condition for pair, condition in changed.items()):
        raise FaultDidNotTake("these links have that condition already")
    network.set(links)
    _check_in_force(network, changed)

    return lambda: network.set(as_links(before))


def _check_in_force(network: Network, changed: Mapping[Pair, LinkCondition]) -> None:
    """Send packets along every link and see that they met the condition.

    A rate alone is not tried, since that takes seconds: the kernel has accepted its queue.
    """
    cut = [pair for pair, condition in changed.items() if condition.cut]
    shaped = [pair for pair, c in changed.items() if c.shapes_packets and not c.cut]
    seen = network.stats()
    passed = _passing(network, cut, shaped)
    if passed:
        src, dst = passed[0]
        raise FaultDidNotTake(f"the link {src} → {dst} was cut, yet a packet passed")

    def all_seen() -> bool:
        now = network.stats()
        return all(pair in now and now[pair] != seen.get(pair) for pair in shaped)

    wait_until(all_seen, timeout_s=2, what="the emulator to see packets", error=FaultDidNotTake)


def _passing(network: Network, watched: list[Pair], others: list[Pair]) -> list[Pair]:
    """Send to all; those of `watched` where something arrived within a tenth of a second."""
    receivers: dict[Pair, socket.socket] = {}
    with ExitStack() as stack:
        for src, dst in (*watched, *others):
            # A socket stays in the namespace it was made in.
            with network.inside(dst):
                receiver = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            with network.inside(src):
                sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            receiver.bind((network.address(dst), 0))
            receivers[src, dst] = receiver
            with suppress(OSError):
                for _ in range(3):
                    sender.sendto(b"penstock", receiver.getsockname())
        ready, _, _ = select.select([receivers[pair] for pair in watched], [], [], 0.1)
        return [pair for pair in watched if receivers[pair] in ready]
