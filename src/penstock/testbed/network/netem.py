"""The netem backend: the kernel itself delays and loses packets, where it has the module.

Limits beside the NFQUEUE backend: the kernel draws its own random numbers, so a seed does not
repeat the fate of a packet; a Pareto delay has netem's own shape; kernels since 6.17
refuse `duplicate` beside other shaped links to the same host; the counts of a link start over when
its queue does, so what a cut dropped is forgotten when the link heals.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.domain.errors import TestbedError
from penstock.domain.network.condition import LinkCondition
from penstock.testbed.network import shaping
from penstock.testbed.network.emulator import Conditions, LinkStats
from penstock.testbed.network.shaping import UNLIMITED_BIT, LinkClass, rate_class
from penstock.testbed.network.topology import Pair, Topology

# Packets that a leaf may hold: 1 Gbit/s of full packets for a second.
LIMIT_PACKETS = 100_000


def netem_class(condition: LinkCondition) -> LinkClass | None:
    """The class of a link that is shaped in any way."""
    if not (condition.shapes_packets or condition.cut):
        return rate_class(condition)
    rate_bit = UNLIMITED_BIT if condition.rate_mbit is None else round(condition.rate_mbit * 1e6)
    return LinkClass(rate_bit, netem_leaf(condition))


def netem_leaf(condition: LinkCondition) -> tuple[str, ...]:
    """The arguments of `tc qdisc` for everything but the rate."""
    leaf = ["netem", "limit", str(LIMIT_PACKETS)]
    if condition.cut:
        return (*leaf, "loss", "random", "100%")
    if condition.delay is not None:
        leaf += condition.delay.netem()
    if condition.loss is not None:
        leaf += condition.loss.netem()
    if condition.duplicate:
        leaf += ["duplicate", f"{condition.duplicate:.6%}"]
    if condition.reorder:
        leaf += ["reorder", f"{condition.reorder:.6%}"]
    if condition.in_order:
        # netem sorts by due time whatever hangs below it (a pfifo child orders nothing since Linux
        # 3.x), except that with a rate no packet is due before the one in front of it.
        leaf += ["rate", f"{UNLIMITED_BIT}bit"]
    return tuple(leaf)


class NetemEmulator:
    """Conditions as qdiscs in the router. Stateless: the kernel keeps what there is to keep."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def start(self) -> None:
        """Nothing runs but the kernel."""

    def apply(self, before: Conditions, after: Conditions, streams: Mapping[Pair, str]) -> None:
        try:
            shaping.apply(self._topology, before, after, netem_class)
        except TestbedError as error:
            raise TestbedError(
                error.message, "if the kernel refuses this condition, use `backend: nfqueue`"
            ) from error

    def stats(self) -> dict[Pair, LinkStats]:
        return {
            pair: LinkStats(
                packets=queue.passed + queue.dropped,
                # netem counts what it loses and what does not fit as one.
                dropped=queue.dropped if queue.kind == "netem" else 0,
                overflowed=0 if queue.kind == "netem" else queue.dropped,
                duplicated=None,
                reordered=None,
                late=None,
                worst_late_ms=None,
            )
            for pair, queue in shaping.read_queues(self._topology).items()
        }
