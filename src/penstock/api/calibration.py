"""Public API: calibrate a model: short runs on a cluster, then the fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.api.arguments import as_path
from penstock.api.evidence import count_outcomes
from penstock.api.models import DEFAULT_MODEL, Fit, fit_observations, new_model
from penstock.api.observations import MOST_BROKERS, observation, of_place, sending, used_cores
from penstock.api.testbeds import attach_testbed
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.progress import Progress, silent
from penstock.domain.run import Existing
from penstock.domain.scenario import Scenario
from penstock.domain.value import Bound, fitting
from penstock.kafka.connection import ExistingCluster, KafkaCluster
from penstock.models.calibration import LEAST_RUNS
from penstock.models.design import (
    CATCHING_UP,
    DEFAULT_CAP_PER_S,
    LEAST_CAP_PER_S,
    SECONDS,
    Place,
    capacity_per_s,
    first_run,
    further_runs,
    saturating_runs,
)
from penstock.models.fitted import check_alike
from penstock.models.observation import MeasuredReading
from penstock.runs import campaign as campaigns
from penstock.runs.clusters import Clusters, existing_cluster
from penstock.runs.experiments.catching_up import CatchUp, catch_up
from penstock.runs.matrix import cells
from penstock.runs.run_directory import RunDirectory

AnyPath = str | Path
T = TypeVar("T")

_COPIES = 3
_LOOK_EVERY_S = 5.0


@dataclass(frozen=True)
class Calibrated:
    """The fit, and the runs that it rests on."""

    fit: Fit
    directories: tuple[Path, ...]


def calibrate(
    *,
    cluster: ClusterSpec | None = None,
    testbed: str | None = None,
    existing: Existing | None = None,
    model: AnyPath = DEFAULT_MODEL,
    add: bool = False,
    most_runs: int | None = None,
    repeats: int = 1,
    rate_cap_per_s: float | None = None,
    saturate: bool = False,
    throughput: bool = False,
    out: AnyPath = "runs",
    master: str = "local[*]",
    on_progress: Progress = silent,
) -> Calibrated:
    """Measure the short runs of the design (`penstock.models.design`), and fit a model to them.

    By default on a new cluster on this machine (`cluster`), which is removed afterwards; or on a
    `testbed` that stays, or on an `existing` cluster. There, no run sends more than `rate_cap_per_s`
    (200 messages/s) unless `saturate` is given, and calibration ends when partitions become
    under-replicated. `add`: to the runs of the model in the file. `most_runs`: fewer than the design.
    `repeats`: repeat all runs this many times, to average out what varies between runs.
    `throughput`: also measure the highest rate of a producer, by runs that offer more, and that of a
    consumer that is behind.
    """
    _check(cluster, testbed, existing, most_runs, rate_cap_per_s, saturate)
    fitting("repeats", repeats, int, Bound(ge=1))
    if throughput and existing is not None and not saturate:
        raise BadInput("`throughput` loads an existing cluster fully", "allow it with `saturate`")
    file = as_path("model", model)
    if not file.absolute().parent.is_dir():
        raise BadInput(f"model: {file.parent} is not a directory", "make it, or name another file")
    previous = new_model(file, add)
    own = existing_cluster(existing) if existing is not None else None
    place = _place(cluster, testbed, existing, own)
    if existing is not None and not saturate:
        place = place.capped(DEFAULT_CAP_PER_S if rate_cap_per_s is None else rate_cap_per_s)

    from penstock.analysis.background import BackgroundSpark

    directories: list[RunDirectory] = []
    # It takes ten seconds to start: while the cluster starts, and never under load.
    spark = BackgroundSpark(master)
    try:
        watch = _Watch(own, on_progress)
        with Clusters(None, "when-needed", testbed, on_progress) as clusters:

            def measure(scenario: Scenario, number: str) -> RunDirectory:
                watch(f"calibration run {number}: {scenario.name}")
                campaign = campaigns.create(scenario, scenario.name, as_path("out", out))
                campaigns.carry_on(
                    campaign, clusters=clusters, before_load=spark.get, on_progress=watch
                )
                watch.check()
                directories.extend(campaign.directories)
                return directories[-1]

            cores, used = used_cores(first := measure(first_run(place), "1"))
            if previous is not None:
                check_alike([*previous.observations, of_place(first)])
            full_per_s = capacity_per_s(0 if own is not None else cores, used)
            # The first again: brokers get faster for minutes, so what was measured first is not
            # comparable with the rest.
            ordinary = [*further_runs(place, full_per_s, most_runs), first_run(place)] * repeats
            full = saturating_runs(place) if throughput else []
            for number, scenario in enumerate((*ordinary, *full), 2):
                measure(scenario, f"{number} of {len(ordinary) + len(full) + 1}")
            readings: list[MeasuredReading] = []
            unread: list[str] = []
            if throughput:
                with clusters.of(cells(first_run(place), "calibration")[0].spec) as reached:
                    into = as_path("out", out) / "calibrate-reading"
                    for catching in catching_up(place):
                        try:
                            readings.append(read_behind(reached, catching, into, watch))
                        except TestbedError as error:
                            unread.append(f"{catching.name}: {error.message}")
                        watch.check()
        count_outcomes(spark.get(), directories, (), on_progress)
    finally:
        spark.stop()
    seen, skipped = _usable(directories[1 : 1 + len(ordinary)], observation)
    sendings, unsaturated = _usable(directories[1 + len(ordinary) :], sending)
    if len(seen) < LEAST_RUNS:
        raise TestbedError(
            f"{len(skipped)} of {len(ordinary)} calibration runs cannot be used: {skipped[0]}",
            "calibrate again on an idle machine",
        )
    fit = fit_observations(
        seen,
        file,
        sendings=sendings,
        readings=readings,
        previous=previous,
        skipped=(*skipped, *unsaturated, *unread),
        on_progress=on_progress,
    )
    return Calibrated(fit, tuple(directory.path for directory in directories))


def read_behind(
    cluster: KafkaCluster, what: CatchUp, out: Path, on_progress: Progress = silent
) -> MeasuredReading:
    """Measure the speed of one consumer that is behind."""
    on_progress(f"calibration: {what.name}")
    done = catch_up(cluster, what, out / what.name, on_progress)
    return MeasuredReading(
        run=what.name,
        message_bytes=what.message_bytes,
        partitions=what.partitions,
        messages_per_s=done.messages_per_s,
        fetch_messages=done.fetch_messages,
    )


def catching_up(place: Place) -> list[CatchUp]:
    """The readings of the design."""
    return [
        CatchUp(
            size,
            batch,
            partitions,
            place.replication,
            {} if most_bytes is None else {"max.partition.fetch.bytes": most_bytes},
        )
        for size, batch, partitions, most_bytes in CATCHING_UP
    ]


def _usable(
    directories: Sequence[RunDirectory], read: Callable[[RunDirectory], T]
) -> tuple[list[T], list[str]]:
    """What can be used of runs, and why others cannot."""
    found, skipped = [], []
    for directory in directories:
        try:
            found.append(read(directory))
        except BadInput as error:
            skipped.append(error.message)
    return found, skipped


def _check(
    cluster: ClusterSpec | None,
    testbed: str | None,
    existing: Existing | None,
    most_runs: int | None,
    rate_cap_per_s: float | None,
    saturate: bool,
) -> None:
    fitting("cluster", cluster, ClusterSpec | None)
    fitting("testbed", testbed, str | None)
    fitting("existing", existing, Existing | None)
    fitting("most_runs", most_runs, int | None)
    fitting("rate_cap_per_s", rate_cap_per_s, float | None)
    if sum(place is not None for place in (cluster, testbed, existing)) > 1:
        raise BadInput("give one of cluster, testbed and existing")
    if existing is None and (saturate or rate_cap_per_s is not None):
        raise BadInput(
            "a rate cap and `saturate` are for existing clusters", "leave them out for a testbed"
        )
    if saturate and rate_cap_per_s is not None:
        raise BadInput("`saturate` means that there is no rate cap", "give one of the two")
    if rate_cap_per_s is not None and not rate_cap_per_s >= LEAST_CAP_PER_S:
        raise BadInput(
            f"a rate cap of {rate_cap_per_s:g} messages/s is too low: a run of {SECONDS:g} s would "
            "have too few messages for percentiles",
            f"allow {LEAST_CAP_PER_S:g} messages/s or more",
        )
    # One of them only says how much the others may load.
    if most_runs is not None and most_runs < LEAST_RUNS + 1:
        raise BadInput(f"{most_runs} runs are too few", f"use at least {LEAST_RUNS + 1}")


def _place(
    cluster: ClusterSpec | None,
    testbed: str | None,
    existing: Existing | None,
    own: ExistingCluster | None,
) -> Place:
    if existing is not None and own is not None:
        brokers = len(own.check_reachable())
        if brokers > MOST_BROKERS:
            raise BadInput(
                f"the cluster has {brokers} brokers; a model knows up to {MOST_BROKERS}",
                "calibrate a smaller cluster of the same machines",
            )
        return Place(ClusterSpec(), existing, min(_COPIES, brokers))
    spec = attach_testbed(testbed).spec if testbed is not None else cluster or ClusterSpec()
    return Place(spec, replication=min(_COPIES, spec.brokers))


class _Watch:
    """Progress of a calibration, with a look at the replicas of somebody else's cluster every few
    seconds: it must not suffer from being measured."""

    def __init__(self, own: ExistingCluster | None, on_progress: Progress) -> None:
        self._own, self._on_progress = own, on_progress
        self._looked_s = -_LOOK_EVERY_S
        self._problem = ""

    def __call__(self, text: str) -> None:
        self._on_progress(text)
        if time.monotonic() - self._looked_s >= _LOOK_EVERY_S:
            self.check()

    def check(self) -> None:
        """Raises if partitions are under-replicated, or were: that ended the run."""
        self._looked_s = time.monotonic()
        if self._own is not None and (behind := self._own.admin.out_of_sync(timeout_s=10)):
            self._problem = f"{len(behind)} partitions are under-replicated: {behind[0]}"
        if self._problem:
            raise TestbedError(
                f"calibration ended: {self._problem}",
                "calibrate when the cluster is healthy, with a lower rate cap",
            )
