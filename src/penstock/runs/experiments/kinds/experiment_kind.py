"""A kind of experiment: the abstract class. The kinds are the other modules of this package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from penstock.domain import plugins
from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import TestbedError
from penstock.domain.facts import ClusterFacts, Over, PointConditions
from penstock.domain.grid import EXPERIMENTS, ExperimentGrid
from penstock.domain.metrics import Estimate
from penstock.domain.progress import Progress, silent
from penstock.domain.run import Run, RunSpec
from penstock.domain.workload import Workload
from penstock.runs.execute import execute
from penstock.runs.experiments.point_figures import PointFigures
from penstock.runs.experiments.points import PointResult
from penstock.runs.run_directory import RunDirectory
from penstock.stats.batch_means import of_repeats
from penstock.testbed.cluster import Cluster

# Axes that every experiment has, and partition counts that suit those at saturation.
SHARED_AXES = ("partitions", "message_bytes", "replication", "brokers")
PARTITIONS = (1, 12, 48, 96, 192)

# An estimate and its unit → text.
FigureFormat = Callable[[Estimate, str], str]


class FactFigure(NamedTuple):
    """A figure of a point: what it is called and in what unit it is."""

    name: str
    title: str
    unit: str


@dataclass(frozen=True)
class PointResults:
    """The results of one experiment, by what they were measured at."""

    kind: str
    grid: ExperimentGrid
    points: Sequence[PointResult]

    def of(self, where: PointConditions) -> list[PointResult]:
        return [r for r in self.points if r.conditions == where and r.status == "complete"]

    def figure(self, where: PointConditions, name: str) -> Estimate | None:
        repeats = [r.figures[name] for r in self.of(where) if name in r.figures]
        return of_repeats(repeats) if repeats else None


@dataclass(frozen=True)
class PointJob:
    """A point that is to be measured: on this cluster, with files in this directory."""

    cluster: Cluster
    where: PointConditions
    grid: ExperimentGrid
    directory: Path
    seed: int
    say: Progress = silent

    def topic(self, name: str) -> TopicSpec:
        """A topic as the point has it."""
        where = self.where
        return TopicSpec(name=name, partitions=where.partitions, replication=where.replication)

    def run(self, load: RunSpec) -> tuple[Run, Path]:
        """Execute a load on this cluster, with its whole run directory."""
        spec = replace(load, cluster=self.cluster.spec, seed=self.seed)
        path = self.directory / spec.name
        path.mkdir()
        run = execute(spec, self.cluster, RunDirectory(path), on_progress=self.say)
        if run.status != "complete":
            raise TestbedError(f"the {spec.name} load failed: {run.reason}")
        return run, path


def load_of(
    name: str, workload: Workload, where: PointConditions, grid: ExperimentGrid, **more: Any
) -> RunSpec:
    """The run of a load at a point, on a topic of that name."""
    return RunSpec(
        name=name,
        cluster=replace(grid.cluster, brokers=where.brokers),
        topic=TopicSpec(name=name, partitions=where.partitions, replication=where.replication),
        workload=workload,
        settings=grid.settings,
        warm_up_s=grid.warm_up_s,
        cluster_warm_up=grid.cluster_warm_up,
        schedule_lag_ms=grid.schedule_lag_ms,
        **more,
    )


class ExperimentKind(ABC):
    """What is measured at each point of a grid, and which facts follow.

    The docstring of a kind is the help of its command.
    """

    kind: ClassVar[str]
    # Axes of the grid that it varies, and its values for those that a file leaves out.
    axes: ClassVar[tuple[str, ...]]
    grid: ClassVar[ExperimentGrid]
    # What is sent to the brokers, and so what they are warmed up with.
    sends_single: ClassVar[bool] = False
    sends_batches: ClassVar[bool] = False
    # Loads of a point, and what it takes beside them: the cluster's start and end, topics,
    # processes; measured.
    loads: ClassVar[int] = 1
    beyond_s: ClassVar[float] = 40.0
    # Figures that become lines, and over what; figures and distribution that the report shows.
    fitted: ClassVar[tuple[tuple[str, Over], ...]] = ()
    reported_figures: ClassVar[tuple[FactFigure, ...]]
    distribution: ClassVar[str] = "latency"
    # What models call the latency of that distribution: produce or end_to_end.
    latency: ClassVar[str] = ""
    caveats: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def measure(self, job: PointJob) -> PointFigures:
        """One point, on a fresh, warm cluster, which is thrown away afterwards."""

    def latency_load(self, where: PointConditions, grid: ExperimentGrid) -> RunSpec | None:
        """The load whose latency a point has as its distribution; None: points have none."""
        return None

    def facts(self, results: PointResults) -> dict[str, object]:
        """Fields of `ClusterFacts` that single figures give."""
        return {}

    @abstractmethod
    def outcome(self, facts: ClusterFacts, text: FigureFormat) -> list[str]:
        """The outcome in clauses, each with its numbers."""


def experiment(name: str) -> ExperimentKind:
    kind: ExperimentKind = plugins.get(EXPERIMENTS, name)()
    return kind
