"""Runs as a report shows them: each with its label; repeats of one cell as one side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.domain.metrics import Estimate, RunMetrics
from penstock.domain.run import Run
from penstock.domain.verdict import Verdict
from penstock.measure import batch_means
from penstock.measure.matrix import short
from penstock.report import numbers
from penstock.report.figures import Figure


@dataclass(frozen=True)
class Shown:
    """A run and all that was found out about it. Its label is unique among those shown."""

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

    def text(self, figure: Figure) -> str:
        """24 ms [23, 25], or that it was not steady."""
        if self.withholds(figure):
            return numbers.NOT_STEADY
        return numbers.estimate(self.estimate(figure), figure.unit)


@dataclass(frozen=True)
class Side:
    """The repeats of one cell, or a single run: what is compared with other sides."""

    label: str
    runs: tuple[Shown, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """A side can be used while one of its runs can."""
        if any(not shown.problems for shown in self.runs):
            return ()
        return tuple(dict.fromkeys(p for shown in self.runs for p in shown.problems))

    @property
    def used(self) -> tuple[Shown, ...]:
        """The runs that its figures come from: those without problems, or all if there are none."""
        return tuple(s for s in self.runs if not s.problems) or self.runs

    @property
    def steady(self) -> tuple[Shown, ...]:
        """Of the runs that are used, those whose times may be given."""
        return tuple(shown for shown in self.used if not shown.unsteadiness)

    @property
    def unsteadiness(self) -> str:
        """Why it has no times; empty while one of its runs has."""
        return "" if self.steady else self.used[0].unsteadiness

    def withholds(self, figure: Figure) -> bool:
        """Whether there is no estimate because none of its runs was steady."""
        withheld = any(shown.withholds(figure) for shown in self.used)
        return withheld and not self.estimates(figure)

    def text(self, figure: Figure) -> str:
        """As `Shown.text`, over the repeats."""
        if self.withholds(figure):
            return numbers.NOT_STEADY
        return numbers.estimate(self.estimate(figure), figure.unit)

    def estimates(self, figure: Figure) -> list[Estimate]:
        """Of each run that has the figure and was steady enough for it."""
        return [e for shown in self.used if (e := shown.estimate(figure)) is not None]

    def estimate(self, figure: Figure) -> Estimate | None:
        """Over the repeats if there are several, otherwise from within the run."""
        found = self.estimates(figure)
        if len(found) < 2:
            return found[0] if found else None
        over = batch_means.of_repeats(found)
        if over.low is None or any(e.value < 0 for e in found):
            return over
        # What never was less than nothing cannot be.
        return replace(over, low=max(0.0, over.low))


def counted(runs: Sequence[Shown]) -> list[Shown]:
    """Without the first cells that were run again at the end: those are for drift only. All of them
    if there is nothing else."""
    return [shown for shown in runs if not shown.run.is_again] or list(runs)


def sides(runs: Sequence[Shown]) -> tuple[Side, ...]:
    """Runs of one campaign that differ in nothing but their seed are repeats. Those of another
    campaign are not: somebody ran the scenario twice to compare the two."""
    found: list[list[Shown]] = []
    for shown in counted(runs):
        for side in found:
            if side[0].origin == shown.origin and _is_same_cell(side[0].run, shown.run):
                side.append(shown)
                break
        else:
            found.append([shown])
    labels: set[str] = set()
    made: list[Side] = []
    for side in found:
        label = side[0].label
        if len(side) > 1:
            label = with_coldness(cell_name(side[0].run), [shown.run for shown in side])
        if label in labels:
            label = f"{label} ({side[0].label})"
        labels.add(label)
        made.append(Side(label, tuple(side)))
    return tuple(made)


def cell_label(run: Run) -> str:
    """acks=all, size_bytes=100: what is special to its cell; nothing if there is no matrix."""
    return ", ".join(f"{short(axis)}={value}" for axis, value in run.cell.items())


def cell_name(run: Run) -> str:
    return cell_label(run) or run.experiment.name


def with_coldness(label: str, runs: Sequence[Run]) -> str:
    """acks=all (cold): the label, with how many of the runs began on a cold cluster."""
    cold = sum(bool(run.coldness) for run in runs)
    if not cold:
        return label
    return f"{label} (cold)" if cold == len(runs) else f"{label} ({cold} of {len(runs)} cold)"


def _is_same_cell(one: Run, other: Run) -> bool:
    return dict(one.cell) == dict(other.cell) and replace(one.experiment, seed=0) == replace(
        other.experiment, seed=0
    )
