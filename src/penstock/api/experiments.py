"""Public API: experiments that measure what a cluster can do, as facts for planning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock import specs
from penstock.api.arguments import as_path
from penstock.domain.errors import BadInput
from penstock.domain.facts import ClusterFacts
from penstock.domain.grid import ExperimentGrid, complete
from penstock.domain.grid import quick as quick_grid
from penstock.domain.progress import Progress, silent
from penstock.domain.value import FieldError
from penstock.report import facts as facts_page
from penstock.runs.experiments import series as experiments
from penstock.runs.experiments.assemble import assemble
from penstock.runs.experiments.points import PointResult
from penstock.runs.experiments.series import FACTS, ExperimentSeries
from penstock.runs.resuming import Step
from penstock.runs.run_directory import REPORT
from penstock.specs.files import read_text, write_file

AnyPath = str | Path


@dataclass(frozen=True)
class ExperimentResult:
    """The result of an experiment."""

    series: ExperimentSeries
    facts: ClusterFacts
    results: tuple[PointResult, ...]

    @property
    def outcome(self) -> str:
        return facts_page.sentence(self.facts, self.series.kind)

    @property
    def failed(self) -> list[tuple[str, str]]:
        """The points that failed, each with its reason."""
        return experiments.failures(self.series, self.results)

    @property
    def facts_file(self) -> Path:
        return self.series.path / FACTS

    @property
    def report(self) -> Path:
        return self.series.path / REPORT

    def to_data(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "directory": self.series.path,
            "facts_file": self.facts_file,
            "report": self.report,
            "facts": self.facts,
            "failed": [{"point": point, "reason": reason} for point, reason in self.failed],
        }


def experiment(
    kind: str,
    grid: AnyPath | ExperimentGrid | None = None,
    *,
    quick: bool = False,
    out: AnyPath = "runs",
    resume: AnyPath | None = None,
    retry_failed: bool = False,
    on_progress: Progress = silent,
) -> ExperimentResult:
    """Measure what a cluster can do. `kind`: production, consumption, end-to-end, or that of a plug-in.

    Every point of the grid is measured on a cluster of its own. `quick`: few points, once, short.
    `resume`: measure what is left of the experiment in this directory, with its grid;
    `retry_failed`: its failed points too.
    """
    series = (
        begin(kind, grid, quick=quick, out=out)
        if resume is None
        else reopen(kind, resume, is_alone=grid is None and not quick)
    )
    return carry_on(series, retry_failed=retry_failed, on_progress=on_progress)


def begin(
    kind: str,
    grid: AnyPath | ExperimentGrid | None = None,
    *,
    quick: bool = False,
    out: AnyPath = "runs",
) -> ExperimentSeries:
    """Check the grid and make the directory of its points; nothing is started."""
    text, source = None, "grid"
    if isinstance(grid, str | Path):
        file, source = as_path("grid", grid), str(grid)
        grid, text = specs.load(file, ExperimentGrid), read_text(file)
    elif grid is not None and not isinstance(grid, ExperimentGrid):
        raise FieldError("grid", grid, "must be a file or an ExperimentGrid")
    try:
        full = complete(kind, grid or ExperimentGrid())
        return experiments.create(
            kind, quick_grid(full) if quick else full, as_path("out", out), text
        )
    except FieldError as error:
        # Two values that do not fit together, one of them a default of the experiment.
        raise BadInput(f"{source}: {error}") from None


def reopen(kind: str, directory: AnyPath, *, is_alone: bool = True) -> ExperimentSeries:
    """The experiment in a directory; `is_alone`: no other grid is given with it."""
    if not is_alone:
        raise BadInput(f"{directory}: already has a grid", "omit `grid` and `quick` to resume it")
    series = experiments.reopen(as_path("directory", directory))
    if series.kind != kind:
        raise BadInput(
            f"{directory}: is a {series.kind} experiment",
            f"resume it as that: penstock experiment {series.kind} --resume {directory}",
        )
    return series


def carry_on(
    series: ExperimentSeries,
    *,
    retry_failed: bool = False,
    on_progress: Progress = silent,
    on_step: Callable[[Step], None] = lambda _: None,
) -> ExperimentResult:
    """Measure the points that are left; then write facts and report."""
    results = experiments.carry_on(
        series, retry_failed=retry_failed, on_progress=on_progress, on_step=on_step
    )
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    facts = assemble(series.kind, series.grid, results, made_at)
    measured = ExperimentResult(series, facts, tuple(results))
    write_file(measured.facts_file, specs.dump_json(facts))
    write_file(measured.report, facts_page.render(facts, series.kind, series.path.name))
    return measured
