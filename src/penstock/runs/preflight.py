"""Checks before a campaign starts: whether each run can be executed, without a cluster.

A mistake in the last cell of a campaign must show at once, not after an hour.
"""

from __future__ import annotations

from penstock.domain.errors import BadInput
from penstock.domain.fault import Fault
from penstock.domain.hosts import host_names
from penstock.domain.network.condition import HostNames, Link
from penstock.domain.run import RunSpec
from penstock.domain.value import FieldError
from penstock.load.load import SIGNALS
from penstock.load.plan import plan_of
from penstock.testbed.fault_injector import CLUSTER_SIGNALS


def check(spec: RunSpec) -> None:
    """Raise `BadInput` for what Kafka's client, the cluster or its network would refuse."""
    plan_of(spec).check()
    if spec.existing is not None:
        return
    hosts = host_names(spec.cluster)
    has_network = spec.cluster.place == "namespaces"
    for i, fault in enumerate(spec.faults):
        where = f"faults.{i}"
        if fault.needs_network and not has_network:
            raise _no_network(where)
        try:
            fault.check_hosts(hosts)
            fault.check(spec)
        except FieldError as error:
            raise BadInput(f"{where}.{error}") from None
        _check_moment(where, fault, spec)
    for i, step in enumerate(spec.network_profile.steps if spec.network_profile else ()):
        if not has_network:
            raise _no_network("network_profile")
        _check_links(f"network_profile.steps.{i}", hosts, step.links)
    if spec.cluster.network is not None:
        _check_links("cluster.network.links", hosts, spec.cluster.network.links)


def _check_moment(where: str, fault: Fault, spec: RunSpec) -> None:
    if fault.when is not None and fault.when.signal not in (*SIGNALS, *CLUSTER_SIGNALS):
        raise BadInput(
            f"{where}.when.signal: {fault.when.signal!r} is unknown",
            f"use one of {', '.join((*SIGNALS, *CLUSTER_SIGNALS))}",
        )
    length_s = spec.workload.duration_s
    if fault.at_s is not None and fault.at_s >= length_s:
        raise BadInput(f"{where}.at_s: {fault.at_s:g} is after the end of the run ({length_s:g} s)")


def _check_links(where: str, hosts: HostNames, links: tuple[Link, ...]) -> None:
    try:
        hosts.conditions(links)
    except FieldError as error:
        raise BadInput(f"{where}: {error}") from None


def _no_network(where: str) -> BadInput:
    return BadInput(
        f"{where}: loopback has no network to change", "set `cluster.place: namespaces`"
    )
