"""Whether an experiment can be carried out, as far as can be told without a cluster.

A mistake in the last cell of a campaign must not show after an hour.
"""

from __future__ import annotations

from penstock.domain.errors import BadInput
from penstock.domain.fault import (
    BrokerFault,
    CutLink,
    Fault,
    LeaderOf,
    PauseClient,
    SlowLink,
    parse_broker,
)
from penstock.domain.network.condition import HostNames, Link, LinkCondition
from penstock.domain.run import Experiment
from penstock.domain.value import FieldError
from penstock.measure.load import SIGNALS
from penstock.measure.load_plan import plan_of
from penstock.testbed import nodes
from penstock.testbed.faults import CLUSTER_SIGNALS


def check(experiment: Experiment) -> None:
    """Raise `BadInput` for what Kafka's client, the cluster or its network would refuse."""
    plan_of(experiment).check()
    if experiment.existing is not None:
        return
    hosts = nodes.host_names(experiment.cluster)
    has_network = experiment.cluster.place == "namespaces"
    for i, fault in enumerate(experiment.faults):
        where = f"faults.{i}"
        if isinstance(fault, (CutLink, SlowLink)) and not has_network:
            raise _no_network(where)
        if isinstance(fault, CutLink):
            _check_links(where, hosts, (_any_link(fault.src, fault.dst),))
        _check_fault(where, fault, experiment)
    for i, step in enumerate(experiment.trace.steps if experiment.trace else ()):
        if not has_network:
            raise _no_network("trace")
        _check_links(f"trace.steps.{i}", hosts, step.links)
    if experiment.cluster.network is not None:
        _check_links("cluster.network.links", hosts, experiment.cluster.network.links)


def _check_fault(where: str, fault: Fault, experiment: Experiment) -> None:
    if fault.when is not None and fault.when.signal not in (*SIGNALS, *CLUSTER_SIGNALS):
        raise BadInput(
            f"{where}.when.signal: {fault.when.signal!r} is unknown",
            f"use one of {', '.join((*SIGNALS, *CLUSTER_SIGNALS))}",
        )
    length_s = experiment.workload.duration_s
    if fault.at_s is not None and fault.at_s >= length_s:
        raise BadInput(f"{where}.at_s: {fault.at_s:g} is after the end of the run ({length_s:g} s)")
    if isinstance(fault, PauseClient):
        clients = [f"producer-{n + 1}" for n in range(experiment.workload.producers)]
        clients += [f"consumer-{n + 1}" for n in range(experiment.consumers.count)]
        if fault.client not in clients:
            known = ", ".join(clients)
            raise BadInput(f"{where}.client: {fault.client!r} is none of this run's ({known})")
    if isinstance(fault, BrokerFault):
        _check_broker(where, parse_broker(fault.broker), experiment)


def _check_broker(where: str, meant: int | LeaderOf | None, experiment: Experiment) -> None:
    brokers, topic = experiment.cluster.brokers, experiment.topic
    if isinstance(meant, int) and not 1 <= meant <= brokers:
        raise BadInput(f"{where}.broker: there is no broker {meant}", f"they are 1 to {brokers}")
    if isinstance(meant, LeaderOf) and (
        meant.topic != topic.name or meant.partition >= topic.partitions
    ):
        raise BadInput(
            f"{where}.broker: there is no partition {meant.topic}-{meant.partition}",
            f"the run has {topic.name}-0 to {topic.name}-{topic.partitions - 1}",
        )


def _check_links(where: str, hosts: HostNames, links: tuple[Link, ...]) -> None:
    try:
        hosts.conditions(links)
    except FieldError as error:
        raise BadInput(f"{where}: {error}") from None


def _any_link(src: str, dst: str) -> Link:
    return Link(src=src, dst=dst, condition=LinkCondition(cut=True))


def _no_network(where: str) -> BadInput:
    return BadInput(
        f"{where}: there is no network to change on loopback", "set `cluster.place: namespaces`"
    )
