"""An experiment as a series of points, each on a fresh cluster; gone on with where it stopped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import psutil
from confluent_kafka import KafkaException

from penstock import specs
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.facts import FACTS_FORMAT, Conditions
from penstock.domain.grid import KINDS, ExperimentGrid, Kind, complete
from penstock.domain.warm_up import RequestKind
from penstock.files import sole_owner, write_file
from penstock.measure.carry_out import machine, versions
from penstock.measure.experiments import consumption, end_to_end, production
from penstock.measure.experiments.measured import Measured
from penstock.measure.experiments.points import Point, PointResult, points
from penstock.measure.run_directory import make_directory, set_aside
from penstock.measure.warm_up import warm_up
from penstock.progress import Progress, silent
from penstock.testbed import preparation
from penstock.testbed.cluster import Cluster
from penstock.testbed.parts import Parts, find_parts

EXPERIMENT, SPEC, POINTS, POINT, FACTS = (
    "experiment.json",
    "experiment.yaml",
    "points",
    "point.json",
    "facts.json",
)
# What a point takes beside its loads: the cluster's start and end, topics, processes; measured.
_BEYOND_S = {"production": 55.0, "consumption": 45.0, "end-to-end": 35.0}
# What warming takes on two cores, for each kind of requests.
_WARM_UP_S = 40.0
_BATCH_BYTES = 16_000

# How long the machine is looked at before a point, when nothing of ours runs.
_LOOK_S = 0.5


class Measure(Protocol):
    """One point measured on a fresh, warm cluster, which is thrown away afterwards."""

    def __call__(
        self,
        cluster: Cluster,
        where: Conditions,
        grid: ExperimentGrid,
        directory: Path,
        seed: int,
        say: Progress,
    ) -> Measured: ...


_MEASURE: dict[Kind, Measure] = {
    "production": production.measure,
    "consumption": consumption.measure,
    "end-to-end": end_to_end.measure,
}


@dataclass(frozen=True)
class Series:
    """An experiment, its points and the directory that they go to."""

    kind: Kind
    grid: ExperimentGrid
    points: tuple[Point, ...]
    path: Path

    def directory(self, point: Point) -> Path:
        return self.path / POINTS / point.folder


@dataclass(frozen=True)
class Step:
    """How far a series is, for a bar with the time left."""

    done: int
    total: int
    point: Point
    seconds_left: float


def create(kind: Kind, grid: ExperimentGrid, parent: Path, text: str | None = None) -> Series:
    """A new directory for an experiment; `text` is the file as the user wrote it."""
    full = complete(kind, grid)
    planned = points(kind, full)
    path = make_directory(parent, kind)
    (path / POINTS).mkdir()
    write_file(path / SPEC, text if text is not None else specs.dump_yaml(grid))
    about = {"format": FACTS_FORMAT, "experiment": kind, "grid": full}
    write_file(path / EXPERIMENT, specs.dump_json(about))
    return Series(kind, full, planned, path)


def reopen(path: Path) -> Series:
    """The experiment in a directory, to go on with it."""
    try:
        data = json.loads((path / EXPERIMENT).read_text())
    except FileNotFoundError:
        raise BadInput(f"{path}: is no experiment", f"it has no {EXPERIMENT}") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path / EXPERIMENT}: cannot be read: {error}") from None
    if data.get("format") != FACTS_FORMAT or data.get("experiment") not in KINDS:
        raise BadInput(
            f"{path}: is an experiment of format {data.get('format')}; this is {FACTS_FORMAT}",
            "go on with the Penstock that began it",
        )
    kind: Kind = data["experiment"]
    grid = specs.parse(data["grid"], ExperimentGrid, source=str(path / EXPERIMENT))
    return Series(kind, grid, points(kind, grid), path)


def results(series: Series) -> list[PointResult]:
    """The points that have ended, in order."""
    found = []
    for point in series.points:
        path = series.directory(point) / POINT
        with suppress(FileNotFoundError):
            found.append(specs.parse(path.read_text(), PointResult, source=str(path)))
    return found


def to_do(series: Series, retry_failed: bool = False) -> list[Point]:
    """The points that have not ended yet."""
    done = {
        (result.conditions, result.repeat)
        for result in results(series)
        if result.status == "complete" or not retry_failed
    }
    return [p for p in series.points if (p.conditions, p.repeat) not in done]


def carry_on(
    series: Series,
    *,
    parts: Parts | None = None,
    retry_failed: bool = False,
    on_progress: Progress = silent,
    on_step: Callable[[Step], None] = lambda _: None,
) -> list[PointResult]:
    """Measure what is left to do; all results, those from before included."""
    with sole_owner(series.path):
        left = to_do(series, retry_failed)
        if left:  # what this machine cannot bear must not show after an hour
            largest = max(left, key=lambda point: point.conditions.brokers)
            preparation.check(_spec(series, largest))
        found = parts or find_parts(os.environ, on_progress=on_progress)
        began = time.monotonic()
        for done, point in enumerate(left):
            seconds_left = _seconds_left(series, len(left) - done, done, began)
            on_step(Step(done, len(left), point, seconds_left))
            directory = series.directory(point)
            set_aside(directory)
            directory.mkdir(parents=True)
            result = _measure(series, point, directory, found, on_progress)
            write_file(directory / POINT, specs.dump_json(result))
        return results(series)


def _measure(
    series: Series, point: Point, directory: Path, parts: Parts, say: Progress
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
        with Cluster(_spec(series, point), parts=parts, on_progress=say) as cluster:
            result = replace(result, versions=versions(cluster), handles_limit=_limit(cluster))
            warmed = [
                warm_up(cluster, kind, series.grid.cluster_warm_up, say)
                for kind in _kinds(series, point.conditions)
            ]
            seed = series.grid.seed + point.repeat
            found = _MEASURE[series.kind](
                cluster, point.conditions, series.grid, directory, seed, say
            )
        result = replace(
            result,
            figures=found.figures,
            distributions=found.distributions,
            warnings=(*(w.sentence for w in warmed if w and w.sentence), *found.warnings),
        )
    except (TestbedError, KafkaException) as error:
        # The outcome of this point; the next one has a cluster of its own.
        result = replace(result, status="failed", reason=_said(error))
    return replace(result, took_s=time.monotonic() - began)


def _kinds(series: Series, where: Conditions) -> Iterator[RequestKind]:
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
    if series.kind != "consumption":
        yield single
    if series.kind != "end-to-end":
        yield replace(single, messages_per_request=max(1, _BATCH_BYTES // where.message_bytes))


def _said(error: TestbedError | KafkaException) -> str:
    return str(error) if isinstance(error, TestbedError) else f"Kafka: {error.args[0].str()}"


def _spec(series: Series, point: Point) -> ClusterSpec:
    return replace(series.grid.cluster, brokers=point.conditions.brokers)


def _limit(cluster: Cluster) -> int | None:
    """How many handles the system lets a broker open."""
    process = cluster.process(cluster.broker_ids[0]).process
    with suppress(psutil.Error, OSError):
        if process is not None:
            soft, _hard = process.rlimit(psutil.RLIMIT_NOFILE)
            return None if soft == psutil.RLIM_INFINITY else int(soft)
    return None


def _seconds_left(series: Series, left: int, done: int, began: float) -> float:
    """From what the points so far took; before the first, from what each is made of."""
    if done:
        return (time.monotonic() - began) / done * left
    grid = series.grid
    load_s = grid.warm_up_s + grid.seconds
    loads = 2 if series.kind == "production" else 1
    kinds = 2 if series.kind == "production" else 1
    warm_up_s = kinds * min(_WARM_UP_S, grid.cluster_warm_up.limit_s)
    return left * (_BEYOND_S[series.kind] + warm_up_s + loads * load_s)


def failures(series: Series, found: Sequence[PointResult]) -> list[tuple[str, str]]:
    """What failed, and why."""
    labels = {(point.conditions, point.repeat): point.label for point in series.points}
    return [(labels[r.conditions, r.repeat], r.reason) for r in found if r.status == "failed"]
