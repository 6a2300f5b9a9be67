"""An experiment as a series of points, each on a fresh cluster; resumed where it stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psutil
from confluent_kafka import KafkaException

from penstock import specs
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import TestbedError
from penstock.domain.facts import FACTS_FORMAT, PointConditions
from penstock.domain.grid import ExperimentGrid, complete
from penstock.domain.progress import Progress, silent
from penstock.domain.warm_up import RequestKind
from penstock.runs.execute import machine, versions
from penstock.runs.experiments.kinds import PointJob, experiment
from penstock.runs.experiments.points import PointRepeat, PointResult, points
from penstock.runs.resuming import Step, in_steps, read_about
from penstock.runs.run_directory import make_directory, set_aside
from penstock.runs.warm_up import warm_up
from penstock.specs.files import sole_owner, write_file
from penstock.testbed import provisioning
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import Toolchain, find_toolchain

EXPERIMENT, SPEC, POINTS, POINT, FACTS = (
    "experiment.json",
    "experiment.yaml",
    "points",
    "point.json",
    "facts.json",
)
# What warming takes on two cores, for each kind of requests.
_WARM_UP_S = 40.0
_BATCH_BYTES = 16_000

# How long the machine is looked at before a point, when nothing of ours runs.
_LOOK_S = 0.5


@dataclass(frozen=True)
class ExperimentSeries:
    """An experiment, its points and the directory that they go to."""

    kind: str
    grid: ExperimentGrid
    points: tuple[PointRepeat, ...]
    path: Path

    def directory(self, point: PointRepeat) -> Path:
        return self.path / POINTS / point.folder


def create(
    kind: str, grid: ExperimentGrid, parent: Path, text: str | None = None
) -> ExperimentSeries:
    """A new directory for an experiment; `text` is the file as the user wrote it."""
    full = complete(kind, grid)
    planned = points(kind, full)
    path = make_directory(parent, kind)
    (path / POINTS).mkdir()
    write_file(path / SPEC, text if text is not None else specs.dump_yaml(grid))
    about = {"format": FACTS_FORMAT, "experiment": kind, "grid": full}
    write_file(path / EXPERIMENT, specs.dump_json(about))
    return ExperimentSeries(kind, full, planned, path)


def reopen(path: Path) -> ExperimentSeries:
    """The experiment in a directory, to resume it."""
    data = read_about(path, EXPERIMENT, "an experiment", FACTS_FORMAT)
    kind = str(data.get("experiment"))
    grid = specs.parse(data["grid"], ExperimentGrid, source=str(path / EXPERIMENT))
    return ExperimentSeries(kind, grid, points(kind, grid), path)


def results(series: ExperimentSeries) -> list[PointResult]:
    """The points that have ended, in order."""
    measured = []
    for point in series.points:
        path = series.directory(point) / POINT
        with suppress(FileNotFoundError):
            measured.append(specs.parse(path.read_text(), PointResult, source=str(path)))
    return measured


def to_do(series: ExperimentSeries, retry_failed: bool = False) -> list[PointRepeat]:
    """The points that have not ended yet."""
    done = {
        (result.conditions, result.repeat)
        for result in results(series)
        if result.status == "complete" or not retry_failed
    }
    return [p for p in series.points if (p.conditions, p.repeat) not in done]


def carry_on(
    series: ExperimentSeries,
    *,
    toolchain: Toolchain | None = None,
    retry_failed: bool = False,
    on_progress: Progress = silent,
    on_step: Callable[[Step], None] = lambda _: None,
) -> list[PointResult]:
    """Measure what is left to do; all results, those from before included."""
    with sole_owner(series.path):
        left = to_do(series, retry_failed)
        if left:  # find out now, not after an hour, what this machine cannot run
            largest = max(left, key=lambda point: point.conditions.brokers)
            provisioning.check(_spec(series, largest))
        toolchain = toolchain or find_toolchain(os.environ, on_progress=on_progress)
        for point in in_steps(left, partial(_planned_s, series), on_step):
            directory = series.directory(point)
            set_aside(directory)
            directory.mkdir(parents=True)
            result = _measure(series, point, directory, toolchain, on_progress)
            write_file(directory / POINT, specs.dump_json(result))
        return results(series)


def _measure(
    series: ExperimentSeries,
    point: PointRepeat,
    directory: Path,
    toolchain: Toolchain,
    say: Progress,
) -> PointResult:
    began = time.monotonic()
    result = PointResult(
        experiment=series.kind,
        conditions=point.conditions,
        repeat=point.repeat,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions(None),
        machine={**machine(), "busy_share": psutil.cpu_percent(_LOOK_S) / 100},
    )
    try:
        with Cluster(_spec(series, point), toolchain=toolchain, on_progress=say) as cluster:
            result = replace(result, versions=versions(cluster), handles_limit=_limit(cluster))
            warmed = [
                warm_up(cluster, kind, series.grid.cluster_warm_up, say)
                for kind in _kinds(series, point.conditions)
            ]
            seed = series.grid.seed + point.repeat
            job = PointJob(cluster, point.conditions, series.grid, directory, seed, say)
            measured = experiment(series.kind).measure(job)
        result = replace(
            result,
            figures=measured.figures,
            distributions=measured.distributions,
            warnings=(*(w.sentence for w in warmed if w and w.sentence), *measured.warnings),
        )
    except (TestbedError, KafkaException) as error:
        # The outcome of this point; the next one has a cluster of its own.
        result = replace(result, status="failed", reason=_said(error))
    return replace(result, took_s=time.monotonic() - began)


def _kinds(series: ExperimentSeries, where: PointConditions) -> Iterator[RequestKind]:
    """What is sent to the brokers: messages one by one while latency is measured, batches of them
    at saturation or to fill what consumers will read."""
    settings = series.grid.settings
    single = RequestKind(
        acks=settings.acks or "all",
        message_bytes=where.message_bytes,
        partitions=where.partitions,
        replication=where.replication,
        compression=settings.compression_type or "none",
        is_idempotent=bool(settings.enable_idempotence),
    )
    if experiment(series.kind).sends_single:
        yield single
    if experiment(series.kind).sends_batches:
        yield replace(single, messages_per_request=max(1, _BATCH_BYTES // where.message_bytes))


def _said(error: TestbedError | KafkaException) -> str:
    return str(error) if isinstance(error, TestbedError) else f"Kafka: {error.args[0].str()}"


def _spec(series: ExperimentSeries, point: PointRepeat) -> ClusterSpec:
    return replace(series.grid.cluster, brokers=point.conditions.brokers)


def _limit(cluster: Cluster) -> int | None:
    """How many handles the system lets a broker open."""
    process = cluster.process(cluster.broker_ids[0]).process
    with suppress(psutil.Error, OSError):
        if process is not None:
            soft, _hard = process.rlimit(psutil.RLIMIT_NOFILE)
            return None if soft == psutil.RLIM_INFINITY else int(soft)
    return None


def _planned_s(series: ExperimentSeries, left: Sequence[PointRepeat]) -> float:
    """By what each point is made of."""
    grid = series.grid
    load_s = grid.warm_up_s + grid.seconds
    kind = experiment(series.kind)
    warm_up_s = (kind.sends_single + kind.sends_batches) * min(
        _WARM_UP_S, grid.cluster_warm_up.limit_s
    )
    return len(left) * (kind.beyond_s + warm_up_s + kind.loads * load_s)


def failures(series: ExperimentSeries, measured: Sequence[PointResult]) -> list[tuple[str, str]]:
    """What failed, and why."""
    labels = {(point.conditions, point.repeat): point.label for point in series.points}
    return [(labels[r.conditions, r.repeat], r.reason) for r in measured if r.status == "failed"]
