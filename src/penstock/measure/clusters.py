"""The clusters of a campaign: started, attached or the user's own; warmed up, with links set."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path

from penstock import client_properties, specs
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.network.condition import Link
from penstock.domain.run import Experiment
from penstock.domain.warm_up import WarmUp
from penstock.measure.warm_up import first_step_limits, kind_of, warm_up
from penstock.progress import Progress
from penstock.testbed.attached import attach, sole_user
from penstock.testbed.cluster import Cluster
from penstock.testbed.connection import ExistingCluster, KafkaCluster
from penstock.testbed.network.hosts import Network, as_links
from penstock.testbed.parts import Parts, find_parts


def prepare(cluster: KafkaCluster, experiment: Experiment, say: Progress) -> WarmUp | None:
    """Warm it up for requests of the experiment's kind, and set its links; see `warm_up`."""
    limits = first_step_limits(experiment.cluster_warm_up)
    warmed = warm_up(cluster, kind_of(experiment), limits, say)
    if isinstance(cluster, Cluster):
        set_network(cluster, experiment.cluster, seed=f"run.{experiment.seed}")
    return warmed


def set_network(cluster: Cluster, spec: ClusterSpec, seed: str) -> None:
    """Put the links of a cluster into the conditions of a spec, drawn from the seed."""
    if cluster.network is not None:
        cluster.network.replace(spec.network.links if spec.network else (), seed=seed)


def _restore(network: Network, links: tuple[Link, ...]) -> None:
    """The links as they were. What went wrong before must not be hidden by this."""
    with suppress(TestbedError):
        network.replace(links)


class Clusters:
    """One cluster for all cells that ask for the same, or a new one for each.

    With `testbed`, the one of that name, which somebody else started: it is used for all cells, and
    left running with the links that it had.
    """

    def __init__(self, parts: Parts | None, keep: bool, testbed: str | None, say: Progress) -> None:
        self._parts, self._keep, self._testbed, self._say = parts, keep, testbed, say
        self._cluster: Cluster | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Clusters:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def check(self, experiments: Sequence[Experiment]) -> None:
        """Refuse what the testbed that is to be used cannot be, before the first cell runs."""
        if self._testbed is None:
            return
        for experiment in experiments:
            if experiment.existing is not None:
                raise BadInput(
                    "the scenario uses a cluster of your own (`existing`)", "leave --testbed out"
                )
            _check_shape(self._testbed, self._attached().spec, experiment.cluster)
            for number, fault in enumerate(experiment.faults):
                if not fault.is_undone:
                    raise BadInput(
                        f"faults.{number} would leave testbed {self._testbed!r} damaged",
                        "give it a `for_s`, or leave --testbed out",
                    )

    @contextmanager
    def of(self, experiment: Experiment) -> Iterator[KafkaCluster]:
        """A healthy cluster of the experiment's shape; not yet warm, its links not yet set."""
        if experiment.existing is not None:
            yield _existing(experiment)
            return
        try:
            yield self._healthy() if self._testbed else self._started(experiment)
        except BaseException:
            self._drop()
            raise
        is_spoilt = not all(fault.is_undone for fault in experiment.faults)
        if self._testbed is None and (not self._keep or is_spoilt or not self._is_healthy()):
            self._drop()

    def _started(self, experiment: Experiment) -> Cluster:
        if self._cluster is not None and _shape(self._cluster.spec) != _shape(experiment.cluster):
            self._drop()
        if self._cluster is None:
            self._parts = self._parts or find_parts(os.environ, on_progress=self._say)
            cluster = Cluster(experiment.cluster, parts=self._parts, on_progress=self._say)
            self._cluster = self._stack.enter_context(cluster)
        return self._cluster

    def _attached(self) -> Cluster:
        assert self._testbed is not None
        if self._cluster is None:
            self._parts = self._parts or find_parts(os.environ, on_progress=self._say)
            cluster = attach(self._testbed, self._parts)
            self._stack.enter_context(sole_user(cluster.held))
            if (network := cluster.network) is not None:
                self._stack.callback(_restore, network, as_links(network.conditions))
            self._cluster = cluster
        return self._cluster

    def _healthy(self) -> Cluster:
        cluster = self._attached()
        if not self._is_healthy():
            raise TestbedError(
                f"testbed {self._testbed!r} has a broker that is down or a copy that lags",
                f"see: penstock testbed status {self._testbed}",
            )
        return cluster

    def _is_healthy(self) -> bool:
        cluster = self._cluster
        return (
            cluster is not None
            and all(cluster.process(b).is_running for b in cluster.broker_ids)
            and not cluster.admin.out_of_sync()
        )

    def _drop(self) -> None:
        self._stack.close()
        self._cluster = None


def _shape(spec: ClusterSpec) -> ClusterSpec:
    """What can not be changed while a cluster runs: all but the conditions of its links."""
    if spec.network is None:
        return spec
    return replace(spec, network=replace(spec.network, links=()))


def _check_shape(name: str, has: ClusterSpec, wants: ClusterSpec) -> None:
    one, other = _shape(has), _shape(wants)
    # Where it listens is of no concern to a scenario that does not say.
    if wants.port is None:
        one = replace(one, port=None)
    different = [f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name)]
    if different:
        details = "; ".join(
            f"{field} is {_shown(getattr(one, field))}, not {_shown(getattr(other, field))}"
            for field in different
        )
        raise BadInput(
            f"testbed {name!r} is not the cluster that the scenario asks for: {details}",
            "start one for this scenario: penstock testbed up SCENARIO --warm",
        )


def _shown(value: object) -> str:
    return json.dumps(specs.to_data(value))


def _existing(experiment: Experiment) -> ExistingCluster:
    assert experiment.existing is not None
    file = experiment.existing.client_properties
    given = client_properties.load(Path(file)) if file else None
    cluster = ExistingCluster(experiment.existing.bootstrap_servers, given)
    cluster.check_reachable()
    return cluster
