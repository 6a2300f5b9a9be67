"""Checks before a campaign starts: whether each run can be executed, without a cluster.

A mistake in the last cell of a campaign must show at once, not after an hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.domain.errors import BadInput
from penstock.domain.fault import Fault
from penstock.domain.hosts import host_names
from penstock.domain.run import RunSpec
from penstock.domain.value import FieldError
from penstock.load.load import SIGNALS
from penstock.load.plan import plan_of
from penstock.testbed.fault_injector import CLUSTER_SIGNALS


def check(spec: RunSpec) -> None:
    """Raise `BadInput` for what Kafka's client, the cluster or its network would refuse."""
    plan_of(spec).check()
    if spec.objective is not None:
        with _naming("objective."):
            spec.objective.check()
    if spec.existing is not None:
        return
    hosts = host_names(spec.cluster)
    has_network = spec.cluster.place == "namespaces"
    for i, fault in enumerate(spec.faults):
        where = f"faults.{i}"
        if fault.needs_network and not has_network:
            raise _no_network(where)
        with _naming(f"{where}."):
            fault.check_hosts(hosts)
            fault.check(spec)
        _check_moment(where, fault, spec)
    if spec.network_profile is not None:
        if not has_network:
            raise _no_network("network_profile")
        with _naming("network_profile."):
            spec.network_profile.check_hosts(hosts)
    if spec.cluster.network is not None:
        with _naming("cluster.network.links: "):
            hosts.conditions(spec.cluster.network.links)


def _check_moment(where: str, fault: Fault, spec: RunSpec) -> None:
    if fault.when is not None and fault.when.signal not in (*SIGNALS, *CLUSTER_SIGNALS):
        raise BadInput(
            f"{where}.when.signal: {fault.when.signal!r} is unknown",
            f"use one of {', '.join((*SIGNALS, *CLUSTER_SIGNALS))}",
        )
    length_s = spec.workload.duration_s
    if fault.at_s is not None and fault.at_s >= length_s:
        raise BadInput(f"{where}.at_s: {fault.at_s:g} is after the end of the run ({length_s:g} s)")


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """A field that another part of the spec makes wrong is reported with its place."""
    try:
        yield
    except FieldError as error:
        raise BadInput(f"{where}{error}") from None


def _no_network(where: str) -> BadInput:
    return BadInput(
        f"{where}: loopback has no network to change", "set `cluster.place: namespaces`"
    )
