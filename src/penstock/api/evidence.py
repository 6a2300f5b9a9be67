"""Public API: the result of runs, with metrics, verdicts, drift and disagreements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.findings import findings
from penstock.domain.metrics import Distribution, RunMetrics
from penstock.domain.progress import Progress
from penstock.domain.run import Run
from penstock.domain.shapes import Finding
from penstock.domain.verdict import judge
from penstock.load import journal
from penstock.report import outcome
from penstock.report.disagreement import Disagreement, disagreements
from penstock.report.drift import Drift, drifts
from penstock.report.reported_run import ReportedRun, cell_label, counted, sides, with_coldness
from penstock.runs.campaign import Campaign
from penstock.runs.hdr_log import HdrLog, Interval, write
from penstock.runs.run_directory import CELLS, HISTOGRAMS, RunDirectory
from penstock.runs.validity import checked
from penstock.stats.histogram import Histogram

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Evidence:
    """The result of a scenario, a campaign or an analysis."""

    runs: tuple[ReportedRun, ...]
    """Every run that was analysed, including a first cell that was run again."""
    directories: tuple[RunDirectory, ...]
    """The directories of all runs, including those that failed."""
    findings: tuple[Finding, ...] = ()
    """Whether the runs show the shapes that the campaigns expect."""
    reports: tuple[Path, ...] = ()
    """The pages that were written."""

    @cached_property
    def failed(self) -> tuple[tuple[str, str], ...]:
        """The cells that failed, each with its reason, without the repeated first cell, which is
        only for drift."""
        runs = [(cell_label(run := d.run()) or d.path.name, run) for d in self.directories]
        return tuple(
            (with_coldness(label, [run]), run.reason.partition("\n")[0])
            for label, run in runs
            if run.status == "failed" and not run.is_again
        )

    @cached_property
    def drift(self) -> tuple[Drift, ...]:
        """What drifted in the campaigns; for runs without metrics, why that is not known."""
        analysed = {reported.run.id for reported in self.runs}
        runs = [(_origin(directory), directory.run()) for directory in self.directories]
        return drifts(self.runs, [(origin, run) for origin, run in runs if run.id not in analysed])

    @cached_property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """Repeats that differ by more than their own intervals allow."""
        return tuple(disagreements(sides(self.runs)))

    @property
    def counted(self) -> list[ReportedRun]:
        """The runs, without repeated first cells."""
        return counted(self.runs)

    @cached_property
    def outcome(self) -> str:
        """The outcome in one sentence."""
        return outcome.of_runs(self.runs, self.findings, self.failed, self.drift)

    @property
    def is_met(self) -> bool:
        """Whether every objective is met, every run is valid and every expected shape is shown."""
        verdicts = [run.verdict for run in self.counted if run.verdict is not None]
        return (
            not self.failed
            and all(verdict.is_met for verdict in verdicts)
            # An invalid run counts as not met, even without an objective.
            and not any(reported.run.invalid for reported in self.counted)
            and all(finding.holds for finding in self.findings)
        )

    def check(self) -> Evidence:
        """Raise if no run was analysed."""
        if self.runs:
            return self
        if self.failed:
            cell, reason = self.failed[0]
            raise TestbedError(
                f"no run was completed; {cell}: {reason}",
                "the reason of each failure is in its run.json",
            )
        raise BadInput("these runs were interrupted before their load began", "run them again")

    def to_data(self) -> dict[str, Any]:
        """As `--json` prints it. Histograms and seconds stay in each run's metrics.json."""
        paths = {directory.run().id: directory.path for directory in self.directories}
        return {
            "outcome": self.outcome,
            "disagreements": self.disagreements,
            "drift": self.drift,
            "runs": [
                {
                    "label": reported.label,
                    "directory": paths.get(reported.run.id),
                    "cell": reported.run.cell,
                    "repeat": reported.run.repeat,
                    "invalid": reported.run.invalid,
                    "warnings": reported.run.warnings,
                    "coldness": reported.run.coldness,
                    "unsteadiness": reported.unsteadiness,
                    "cluster_state": reported.run.cluster_state,
                    "observer": reported.run.observer,
                    "metrics": _without_bulk(reported.metrics),
                    "verdict": reported.verdict,
                }
                for reported in self.counted
            ],
            "failed": [{"cell": cell, "reason": reason} for cell, reason in self.failed],
            "findings": self.findings,
            "reports": self.reports,
        }


def count_outcomes(
    spark: SparkSession,
    directories: Sequence[RunDirectory],
    limits_ms: Sequence[float],
    on_progress: Progress,
) -> tuple[ReportedRun, ...]:
    """Count what became of the messages of runs; writes metrics, verdict and histograms into the directory of each."""
    from penstock.analysis.analyze import analyze  # takes a second, which nothing else waits for

    usable = [directory for directory in directories if _is_usable(directory, on_progress)]
    if not usable:
        return ()
    messages = "messages" if len(usable) == 1 else f"messages of {len(usable)} runs"
    on_progress(f"counting {messages}")
    all_metrics = analyze(spark, [directory.path for directory in usable], limits_ms)
    reported = []
    for directory, label in zip(usable, _labels(usable), strict=True):
        metrics = all_metrics[directory.path]
        run = checked(directory.run(), metrics)
        verdict = judge(run.spec.objective, metrics, run.invalid)
        directory.write_run(run)
        directory.write_metrics(metrics)
        directory.write_verdict(verdict)
        _write_histograms(directory, run, metrics)
        reported.append(ReportedRun(run, metrics, verdict, label, _origin(directory)))
    return tuple(reported)


def read_back(directories: Sequence[RunDirectory]) -> tuple[ReportedRun, ...]:
    """Read the results of an earlier analysis."""
    return tuple(
        ReportedRun(d.run(), d.metrics(), d.verdict(), label, _origin(d))
        for d, label in zip(directories, _labels(directories), strict=True)
    )


def findings_of(campaign: Campaign, runs: Sequence[ReportedRun]) -> tuple[Finding, ...]:
    """Whether the valid runs show the shapes that the campaign expects."""
    axes = {
        path: tuple(dict.fromkeys(cell.values[path] for cell in campaign.cells))
        for path in campaign.scenario.matrix
    }
    results = [
        (reported.run.cell, reported.metrics)
        for reported in runs
        if not reported.run.invalid and not reported.run.is_again
    ]
    return findings(campaign.scenario.expect, axes, results)


def _is_usable(directory: RunDirectory, on_progress: Progress) -> bool:
    """Whether the run can be analysed; the traces of a killed run are recovered first."""
    run = directory.run()
    for recovered in journal.recover(directory.path):
        on_progress(str(recovered))
    return run.status == "complete" or (run.status == "interrupted" and run.measured_from_ns > 0)


def _write_histograms(directory: RunDirectory, run: Run, metrics: RunMetrics) -> None:
    """Write standard HdrHistogram logs, which other tools can read."""
    folder = directory.path / HISTOGRAMS
    folder.mkdir(exist_ok=True)
    started = datetime.fromisoformat(run.started_at).timestamp()
    for name, distribution in _distributions(metrics).items():
        histogram = Histogram.of_distribution(distribution)
        interval = Interval(0.0, metrics.seconds_measured, histogram)
        write(folder / f"{name}.hlog", HdrLog(started, (interval,)))


def _distributions(metrics: RunMetrics) -> dict[str, Distribution]:
    times = {
        "latency": metrics.latency,
        "acknowledgement": metrics.acknowledgement,
        "corrected": metrics.corrected,
    }
    return {name: distribution for name, distribution in times.items() if distribution is not None}


def _labels(directories: Sequence[RunDirectory]) -> list[str]:
    """Short unique names of the runs: cells by their values, others by their directory."""
    runs = [directory.run() for directory in directories]
    has_repeats = any(run.repeat for run in runs)
    names = []
    for directory, run in zip(directories, runs, strict=True):
        name = cell_label(run) or directory.path.resolve().name
        repeat = f" #{run.repeat + 1}" if has_repeats else ""
        names.append(name + (", again" if run.is_again else repeat))
    distinct = [
        name if names.count(name) == 1 else f"{name} ({_place(directory.path)})"
        for name, directory in zip(names, directories, strict=True)
    ]
    return [with_coldness(name, [run]) for name, run in zip(distinct, runs, strict=True)]


def _origin(directory: RunDirectory) -> str:
    path = directory.path.resolve()
    return str(path.parent if path.parent.name == CELLS else path)


def _place(path: Path) -> str:
    path = path.resolve()
    parts = path.parts[-3:] if path.parent.name == CELLS else path.parts[-2:]
    return "/".join(parts)


def _without_bulk(metrics: RunMetrics) -> RunMetrics:
    def slim(distributions: Mapping[str, Distribution]) -> dict[str, Any]:
        return {name: replace(times, buckets=()) for name, times in distributions.items()}

    times, parts = slim(_distributions(metrics)), slim(metrics.parts)
    return replace(metrics, **times, parts=parts, seconds=())
