"""The state of a cluster and, of a testbed, the recent activity of its brokers, by two observations."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.domain.broker_view import BrokerRates, BrokerView, rates
from penstock.domain.value import FieldError, fitting
from penstock.kafka.connection import ExistingCluster
from penstock.testbed.cluster import Cluster
from penstock.testbed.observe import observe

_UNWELL = ("paused", "starting")
_UNSEEN = "timings and processes are available only on a testbed"


@dataclass(frozen=True)
class Health:
    """Whether all nodes run and all replicas are in sync, with the brokers' own metrics."""

    bootstrap_servers: str
    brokers: tuple[int, ...]  # of a testbed all; of another cluster those that are registered
    views: Mapping[int, BrokerView]
    rates: Mapping[int, BrokerRates | None]
    out_of_sync: list[str]
    down: list[str]  # nodes that do not run or do not answer, controllers included
    unseen: str = ""  # why there are no views and rates

    @property
    def is_good(self) -> bool:
        return not (self.down or self.out_of_sync)

    @property
    def outcome(self) -> str:
        if self.down:
            return f"Not running: {', '.join(self.down)}."
        # How many brokers there should be is known of a testbed only.
        answering = f"{len(self.brokers)} brokers answer; " if self.unseen else ""
        if self.out_of_sync:
            lagging = f"{len(self.out_of_sync)} partitions lag, such as {self.out_of_sync[0]}."
            return f"{answering}{lagging}"
        running = answering or f"All {len(self.brokers)} brokers run and "
        return f"{running}all replicas are in sync."

    def to_data(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "healthy": self.is_good,
            "bootstrap_servers": self.bootstrap_servers,
            "down": self.down,
            "out_of_sync": self.out_of_sync,
            "brokers": list(self.views.values() or self.brokers),
            "rates": [rate for rate in self.rates.values() if rate is not None],
        }


def health(cluster: Cluster | ExistingCluster, interval_s: float = 1.0) -> Health:
    """The state of a cluster. Brokers of a testbed are observed twice, `interval_s` apart, for rates.
    Of another cluster only what a client sees is known: brokers and replicas."""
    fitting("cluster", cluster, Cluster | ExistingCluster)
    if not (isinstance(interval_s, int | float) and 0 <= interval_s < math.inf):
        raise FieldError("interval_s", interval_s, "must be a number of seconds from 0")
    return (
        _of_testbed(cluster, interval_s) if isinstance(cluster, Cluster) else _of_existing(cluster)
    )


def _of_existing(cluster: ExistingCluster) -> Health:
    return Health(
        bootstrap_servers=cluster.bootstrap_servers,
        brokers=tuple(sorted(cluster.check_reachable())),
        views={},
        rates={},
        out_of_sync=cluster.admin.out_of_sync(),
        down=[],
        unseen=_UNSEEN,
    )


def _of_testbed(cluster: Cluster, interval_s: float) -> Health:
    _ = cluster.lease  # which raises if the cluster was not started
    before = observe(cluster)
    time.sleep(interval_s)  # nothing is awaited
    after = observe(cluster)
    down = [node.name for node in cluster.nodes if not cluster.process(node.id).is_running]
    down += [f"broker {b} ({v.state})" for b, v in after.items() if v.state in _UNWELL]
    return Health(
        bootstrap_servers=cluster.bootstrap_servers,
        brokers=cluster.broker_ids,
        views=after,
        rates={broker: rates(before[broker], after[broker]) for broker in after},
        out_of_sync=cluster.admin.out_of_sync(),
        down=down,
    )
