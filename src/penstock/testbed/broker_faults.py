"""What faults of a broker share: which broker is meant, and that it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.errors import FaultDidNotTake
from penstock.domain.fault import LeaderOf, parse_broker

if TYPE_CHECKING:
    from penstock.testbed.cluster import Cluster
    from penstock.testbed.process import NodeProcess


def target(cluster: Cluster, broker: int | str) -> NodeProcess:
    """The broker that is meant, at this moment."""
    meant = parse_broker(broker)
    if isinstance(meant, LeaderOf):
        meant = cluster.admin.leader(meant.topic, meant.partition)
    elif meant is None:
        from penstock.testbed.observe import active_controller

        meant = active_controller(cluster)
    return cluster.process(meant)


def running(cluster: Cluster, broker: int | str, or_paused: bool = False) -> NodeProcess:
    """The broker that is meant; raises if it does not run."""
    process = target(cluster, broker)
    if not process.is_running or (process.is_paused and not or_paused):
        state = "paused" if process.is_paused else "down"
        raise FaultDidNotTake(
            f"{process.node.name} is {state} already, so the fault would change nothing",
            "reorder the faults so that the broker is running",
        )
    return process


def start_again(cluster: Cluster, process: NodeProcess) -> None:
    cluster.start_broker(process.node.id)
