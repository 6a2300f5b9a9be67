"""The clusters of a campaign: started, attached or the user's own; warmed up, with links set."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, replace
from typing import Literal

from penstock import specs
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.network.condition import Link
from penstock.domain.progress import Progress
from penstock.domain.run import Existing, RunSpec
from penstock.domain.warm_up import WarmUp
from penstock.kafka.connection import ExistingCluster, KafkaCluster
from penstock.runs.warm_up import first_step_limits, kind_of, warm_up
from penstock.testbed.attached import attach, sole_user
from penstock.testbed.cluster import Cluster
from penstock.testbed.network.hosts import Network, as_links
from penstock.testbed.toolchain import Toolchain, find_toolchain


def prepare(cluster: KafkaCluster, spec: RunSpec, say: Progress) -> WarmUp | None:
    """Warm it up for requests of the run's kind, and set its links; see `warm_up`."""
    limits = first_step_limits(spec.cluster_warm_up)
    warmed = warm_up(cluster, kind_of(spec), limits, say)
    if isinstance(cluster, Cluster):
        set_network(cluster, spec.cluster, seed=f"run.{spec.seed}")
    return warmed


def set_network(cluster: Cluster, spec: ClusterSpec, seed: str) -> None:
    """Put the links of a cluster into the conditions of a spec, drawn from the seed."""
    if cluster.network is not None:
        cluster.network.replace(spec.network.links if spec.network else (), seed=seed)


def _restore(network: Network, links: tuple[Link, ...]) -> None:
    """Restore the links, without hiding an earlier error."""
    with suppress(TestbedError):
        network.replace(links)


class Clusters:
    """One cluster for all cells with the same spec, or a new one for each.

    With `testbed`, the one of that name, which somebody else started: it is used for all cells, and
    left running with the links that it had.
    """

    def __init__(
        self,
        toolchain: Toolchain | None,
        fresh: Literal["when-needed", "per-cell"],
        testbed: str | None,
        say: Progress,
    ) -> None:
        self._toolchain, self._testbed, self._say = toolchain, testbed, say
        self._is_per_cell = fresh == "per-cell"
        self._cluster: Cluster | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Clusters:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def check(self, run_specs: Sequence[RunSpec]) -> None:
        """Refuse cells that cannot run on the given testbed, before the first one runs."""
        if self._testbed is None:
            return
        if self._is_per_cell:
            raise BadInput(
                "`testbed` cannot be used: every cell needs its own cluster (`fresh_cluster: per-cell`)",
                "remove `testbed`, or use `fresh_cluster: when-needed`",
            )
        for spec in run_specs:
            if spec.existing is not None:
                raise BadInput(
                    "`testbed` cannot be used: the scenario uses an existing cluster",
                    "remove `testbed`",
                )
            _check_shape(self._testbed, self._attached().spec, spec.cluster)
            for number, fault in enumerate(spec.faults):
                if not fault.is_undone:
                    raise BadInput(
                        f"faults.{number} would leave testbed {self._testbed!r} damaged",
                        "give it a `for_s`, or remove `testbed`",
                    )

    @contextmanager
    def of(self, spec: RunSpec) -> Iterator[KafkaCluster]:
        """A healthy cluster of the run's shape; not yet warm, its links not yet set."""
        if spec.existing is not None:
            yield existing_cluster(spec.existing)
            return
        try:
            yield self._healthy() if self._testbed else self._started(spec)
        except BaseException:
            self._drop()
            raise
        is_spoilt = not all(fault.is_undone for fault in spec.faults)
        if self._testbed is None and (self._is_per_cell or is_spoilt or not self._is_healthy()):
            self._drop()

    def _started(self, spec: RunSpec) -> Cluster:
        if self._cluster is not None and _shape(self._cluster.spec) != _shape(spec.cluster):
            self._drop()
        if self._cluster is None:
            self._toolchain = self._toolchain or find_toolchain(os.environ, on_progress=self._say)
            cluster = Cluster(spec.cluster, toolchain=self._toolchain, on_progress=self._say)
            self._cluster = self._stack.enter_context(cluster)
        return self._cluster

    def _attached(self) -> Cluster:
        assert self._testbed is not None
        if self._cluster is None:
            self._toolchain = self._toolchain or find_toolchain(os.environ, on_progress=self._say)
            cluster = attach(self._testbed, self._toolchain)
            self._stack.enter_context(sole_user(cluster.lease))
            if (network := cluster.network) is not None:
                self._stack.callback(_restore, network, as_links(network.conditions))
            self._cluster = cluster
        return self._cluster

    def _healthy(self) -> Cluster:
        cluster = self._attached()
        if not self._is_healthy():
            raise TestbedError(
                f"testbed {self._testbed!r} has a broker that is down or a replica that lags",
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
    """What cannot be changed while a cluster runs: all but the conditions of its links."""
    if spec.network is None:
        return spec
    return replace(spec, network=replace(spec.network, links=()))


def _check_shape(name: str, has: ClusterSpec, wants: ClusterSpec) -> None:
    running, asked = _shape(has), _shape(wants)
    # A scenario without a port accepts any.
    if wants.port is None:
        running = replace(running, port=None)
    different = [
        f.name for f in fields(running) if getattr(running, f.name) != getattr(asked, f.name)
    ]
    if different:
        details = "; ".join(
            f"{field} is {_as_json(getattr(running, field))}, not {_as_json(getattr(asked, field))}"
            for field in different
        )
        raise BadInput(
            f"testbed {name!r} does not match the cluster of the scenario: {details}",
            "start one for this scenario: penstock testbed up SCENARIO --warm",
        )


def _as_json(value: object) -> str:
    return json.dumps(specs.to_data(value))


def existing_cluster(existing: Existing) -> ExistingCluster:
    """A cluster that is not a testbed; raises if no broker answers."""
    cluster = ExistingCluster(existing.bootstrap_servers, existing.client_properties)
    cluster.check_reachable()
    return cluster
