"""Runs as a report shows them: each with its label; repeats of one cell as one side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.domain.metrics import Estimate, RunMetrics
from penstock.domain.run import Run
from penstock.domain.verdict import Verdict
from penstock.report import formatting
from penstock.report.figures import Figure
from penstock.runs.matrix import short
from penstock.stats import batch_means


@dataclass(frozen=True)
class ReportedRun:
    """A run with its metrics and verdict. Its label is unique among those shown."""

    run: Run
    metrics: RunMetrics
    verdict: Verdict | None
    label: str
    origin: str = ""  # the campaign that it belongs to, or the run itself

    @property
    def problems(self) -> tuple[str, ...]:
        """Why its figures must not be used; empty if they may be."""
        if self.run.status == "failed":
            reason = f": {self.run.reason}" if self.run.reason else ""
            return (f"the run failed{reason}", *self.run.invalid)
        return self.run.invalid

    @property
    def unsteadiness(self) -> str:
        """Why its times are not those of its setting; empty if they may be."""
        return self.metrics.unsteadiness

    def withholds(self, figure: Figure) -> bool:
        """Whether the figure is left out because the run was not steady."""
        return bool(
            figure.is_time_like and self.unsteadiness and figure.of(self.metrics) is not None
        )

    def estimate(self, figure: Figure) -> Estimate | None:
        return None if self.withholds(figure) else figure.of(self.metrics)


@dataclass(frozen=True)
class Side:
    """The repeats of one cell, or a single run: what is compared with other sides."""

    label: str
    runs: tuple[ReportedRun, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """A side can be used while one of its runs can."""
        if any(not reported.problems for reported in self.runs):
            return ()
        return tuple(dict.fromkeys(p for reported in self.runs for p in reported.problems))

    @property
    def used(self) -> tuple[ReportedRun, ...]:
        """The runs that its figures come from: those without problems, or all if there are none."""
        return tuple(s for s in self.runs if not s.problems) or self.runs

    @property
    def steady(self) -> tuple[ReportedRun, ...]:
        """Of the runs that are used, those whose times may be given."""
        return tuple(reported for reported in self.used if not reported.unsteadiness)

    @property
    def unsteadiness(self) -> str:
        """Why it has no times; empty while one of its runs has."""
        return "" if self.steady else self.used[0].unsteadiness

    def withholds(self, figure: Figure) -> bool:
        """Whether there is no estimate because none of its runs was steady."""
        withheld = any(reported.withholds(figure) for reported in self.used)
        return withheld and not self.estimates(figure)

    def text(self, figure: Figure) -> str:
        """24 ms [23, 25], or that it was not steady."""
        if self.withholds(figure):
            return formatting.NOT_STEADY
        return formatting.estimate(self.estimate(figure), figure.unit)

    def estimates(self, figure: Figure) -> list[Estimate]:
        """Of each run that has the figure and was steady enough for it."""
        return [e for reported in self.used if (e := reported.estimate(figure)) is not None]

    def estimate(self, figure: Figure) -> Estimate | None:
        """Over the repeats if there are several, otherwise from within the run."""
        estimates = self.estimates(figure)
        if len(estimates) < 2:
            return estimates[0] if estimates else None
        over = batch_means.of_repeats(estimates)
        if over.low is None or any(e.value < 0 for e in estimates):
            return over
        # What never was less than nothing cannot be.
        return replace(over, low=max(0.0, over.low))


def counted(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """Without the first cells that were run again at the end: those are for drift only. All of them
    if there is nothing else."""
    return [reported for reported in runs if not reported.run.is_again] or list(runs)


def sides(runs: Sequence[ReportedRun]) -> tuple[Side, ...]:
    """Runs of one campaign that differ in nothing but their seed are repeats. Those of another
    campaign are not: the user ran the scenario twice to compare the two."""
    groups: list[list[ReportedRun]] = []
    for reported in counted(runs):
        for side in groups:
            if side[0].origin == reported.origin and _is_same_cell(side[0].run, reported.run):
                side.append(reported)
                break
        else:
            groups.append([reported])
    made: dict[str, Side] = {}
    for side in groups:
        label = side[0].label
        if len(side) > 1:
            label = with_coldness(cell_name(side[0].run), [reported.run for reported in side])
        if label in made:
            label = f"{label} ({side[0].label})"
        made[label] = Side(label, tuple(side))
    return tuple(made.values())


def cell_label(run: Run) -> str:
    """acks=all, size_bytes=100: what is special to its cell; nothing if there is no matrix."""
    return ", ".join(f"{short(axis)}={value}" for axis, value in run.cell.items())


def cell_name(run: Run) -> str:
    return cell_label(run) or run.spec.name


def with_coldness(label: str, runs: Sequence[Run]) -> str:
    """acks=all (cold): the label, with how many of the runs began on a cold cluster."""
    cold = sum(bool(run.coldness) for run in runs)
    if not cold:
        return label
    return f"{label} (cold)" if cold == len(runs) else f"{label} ({cold} of {len(runs)} cold)"


def _is_same_cell(first: Run, second: Run) -> bool:
    specs = [replace(run.spec, seed=0) for run in (first, second)]
    return dict(first.cell) == dict(second.cell) and specs[0] == specs[1]
