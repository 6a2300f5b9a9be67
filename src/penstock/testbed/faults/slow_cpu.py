"""The fault `slow-cpu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from penstock.domain.fault import BrokerFault, Struck
from penstock.domain.value import Bound, Doc
from penstock.testbed.broker_faults import running

if TYPE_CHECKING:
    from penstock.testbed.cluster import Cluster


@dataclass(frozen=True, kw_only=True)
class SlowCpu(BrokerFault):
    """Limits the CPU of the broker."""

    kind = "slow-cpu"
    cores: Annotated[float, Bound(ge=0.01, le=64), Doc("cores it may use, such as 0.1")]

    def strike(self, cluster: Cluster) -> Struck:
        from penstock.testbed.cpu_limit import limit_cpu

        process = running(cluster, self.broker)
        live = process.process
        assert live is not None  # `running` has seen it
        lift = limit_cpu(cluster.lease, process.node.host, live.pid, self.cores)
        return Struck(f"limited {process.node.name} to {self.cores:g} cores", lift)
