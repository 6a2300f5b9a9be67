"""Public API: testbeds that outlive the process which started them, by name."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from penstock import specs
from penstock.api.arguments import as_path
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.progress import Progress, silent
from penstock.domain.scenario import Scenario
from penstock.domain.value import FieldError
from penstock.domain.warm_up import RequestKind, WarmUp, WarmUpLimits
from penstock.load import scenario_file
from penstock.runs.matrix import cells
from penstock.runs.warm_up import kind_of, warm_up
from penstock.specs.files import read_text
from penstock.specs.text import parse_text
from penstock.testbed import attached
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import find_toolchain

DEFAULT_NAME = "testbed"


@dataclass(frozen=True)
class StartedTestbed:
    """A testbed that is ready, and what it took."""

    cluster: Cluster
    took_s: float
    warm_ups: Mapping[RequestKind, WarmUp]


def start_testbed(
    spec: str | Path | ClusterSpec | Scenario | None = None,
    *,
    name: str = DEFAULT_NAME,
    warm: bool = False,
    warm_limit_s: float | None = None,
    stays: bool = True,
    on_progress: Progress = silent,
) -> StartedTestbed:
    """Start a cluster that stays when this process ends, until `remove_testbed`.

    `spec` is a cluster or a scenario, as a file or a value; of a scenario the cluster is started, for
    `run(scenario, testbed=name)`. `warm`: warm the brokers up, with the requests of the scenario
    if there is one, for at most `warm_limit_s` per kind of requests (default: the scenario's limit).
    `stays=False`: it ends with this process, or with `cluster.stop()`.
    """
    cluster_spec, kinds = asked_for(spec)
    return start(
        cluster_spec,
        kinds,
        name=name,
        warm=warm,
        warm_limit_s=warm_limit_s,
        stays=stays,
        on_progress=on_progress,
    )


def start(
    spec: ClusterSpec,
    kinds: Mapping[RequestKind, WarmUpLimits],
    *,
    name: str,
    warm: bool,
    warm_limit_s: float | None,
    stays: bool,
    on_progress: Progress,
) -> StartedTestbed:
    """The same with what `asked_for` returned; without `kinds`, the usual requests warm it up."""
    if warm_limit_s is not None and not warm:
        raise BadInput("warm_limit_s: needs warm=True", "ask for a warm-up, or omit the limit")
    usual = RequestKind(replication=min(RequestKind.replication, spec.brokers))
    to_warm = dict(kinds or {usual: WarmUpLimits()}) if warm else {}
    if warm_limit_s is not None:
        to_warm = {k: replace(limits, limit_s=warm_limit_s) for k, limits in to_warm.items()}
    for limits in to_warm.values():
        if limits.rate_per_s is not None:
            raise BadInput(
                f"cluster_warm_up.rate_per_s: the scenario limits its warm-up to "
                f"{limits.rate_per_s:,g} messages/s, and brokers warmed up at a limited rate are "
                "not kept as warm",
                "remove rate_per_s, or start the testbed without a warm-up: each run does its own",
            )
    toolchain = find_toolchain(os.environ, on_progress=on_progress)
    cluster = Cluster(spec, toolchain=toolchain, name=name, on_progress=on_progress)
    began_s = time.monotonic()
    cluster.start()
    took_s = time.monotonic() - began_s
    warm_ups: dict[RequestKind, WarmUp] = {}
    with ExitStack() as on_failure:
        on_failure.callback(cluster.stop)
        for kind, limits in to_warm.items():
            done = warm_up(cluster, kind, limits, on_progress)
            if done is not None:  # otherwise another kind covers it
                warm_ups[kind] = done
        if stays:
            cluster.detach()
        on_failure.pop_all()
    return StartedTestbed(cluster, took_s, warm_ups)


def asked_for(
    spec: str | Path | ClusterSpec | Scenario | None,
) -> tuple[ClusterSpec, dict[RequestKind, WarmUpLimits]]:
    """The cluster that `spec` describes; of a scenario also what to warm it up for, and how far."""
    label = "scenario"
    if isinstance(spec, str | Path):
        label, spec = str(spec), _read(as_path("spec", spec))
    if isinstance(spec, Scenario):
        if spec.existing is not None:
            raise BadInput(
                f"{label}: uses an existing cluster, so there is none to start",
                "run it: penstock run",
            )
        run_specs = [cell.spec for cell in cells(scenario_file.completed(spec), label)]
        return spec.cluster, {kind_of(one): one.cluster_warm_up for one in run_specs}
    if spec is None:
        return ClusterSpec(), {}
    if not isinstance(spec, ClusterSpec):
        raise FieldError("spec", spec, "must be a file, a ClusterSpec or a Scenario")
    return spec, {}


def _read(file: Path) -> ClusterSpec | Scenario:
    data = parse_text(read_text(file), str(file), "cluster").data
    if isinstance(data, Mapping) and "workload" in data:
        return scenario_file.load(file)
    return specs.load(file, ClusterSpec)


def attach_testbed(name: str = DEFAULT_NAME) -> Cluster:
    """The cluster of a testbed that stays, to look at it or to run commands on its hosts."""
    return attached.attach(name, find_toolchain(os.environ))


@contextmanager
def use_testbed(name: str = DEFAULT_NAME) -> Iterator[Cluster]:
    """The same for exclusive use: meanwhile other commands can neither measure on it nor remove it."""
    cluster = attach_testbed(name)
    with attached.sole_user(cluster.lease):
        yield cluster


def testbeds() -> list[str]:
    """The names of this user's testbeds that stay until they are removed."""
    return [testbed.name for testbed in attached.detached()]


def remove_testbed(name: str = DEFAULT_NAME) -> None:
    """Remove a testbed with its processes, networks and files."""
    attached.remove(attached.find_removable(name))


def remove_testbeds() -> list[str]:
    """Remove every testbed of this user that stays; returns their names."""
    removed: list[str] = []
    failures: list[TestbedError] = []
    for testbed in attached.detached():
        name = testbed.name  # which is in its directory
        try:
            attached.remove(testbed)
            removed.append(name)
        except TestbedError as error:  # a process that does not end; the others can go
            if testbed.directory.exists():  # otherwise another command removed it
                failures.append(error)
    if failures:
        raise failures[0]
    return removed
