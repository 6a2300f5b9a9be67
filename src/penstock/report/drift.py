"""Drift of a campaign: its first cell, run again at the end, against its first run.

Drift is a difference that exceeds the noise and a ratio of more than 1.1, either way. It does not
say what drifted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.domain.run import Run
from penstock.report import formatting
from penstock.report.figures import LOST_SHARE, MEAN_LATENCY, P50_LATENCY, THROUGHPUT, Figure
from penstock.report.reported_run import ReportedRun, cell_name
from penstock.stats import batch_means

_LOOKED_AT = (MEAN_LATENCY, P50_LATENCY, THROUGHPUT, LOST_SHARE)
# As a ratio. A smaller change hardly changes a decision.
_MATTERS = 1.1


@dataclass(frozen=True)
class DriftedFigure:
    """One figure of the first cell: at the beginning, and again at the end."""

    figure: str
    title: str
    unit: str
    first: float
    again: float
    ratio: float | None  # None: it was 0 at the beginning
    has_drifted: bool


@dataclass(frozen=True)
class Drift:
    """Drift of one campaign: its first cell at the beginning and at the end."""

    cell: str
    state: Literal["drift", "no drift", "not judged"]
    sentence: str
    changes: tuple[
        DriftedFigure, ...
    ] = ()  # of the figures that both runs have, with their intervals


def drifts(
    runs: Sequence[ReportedRun], unanalysed: Sequence[tuple[str, Run]] = ()
) -> tuple[Drift, ...]:
    """One for each campaign whose first cell was run again. `unanalysed` are the runs that failed,
    each with its origin: drift cannot be judged where one of the two is among them."""
    candidates = [
        *(_Candidate(reported.origin, reported.run, reported) for reported in runs),
        *(_Candidate(origin, run) for origin, run in unanalysed),
    ]
    return tuple(
        _drift(next((c for c in candidates if c.is_first_of(again)), None), again)
        for again in candidates
        if again.run.is_again
    )


@dataclass(frozen=True)
class _Candidate:
    """A run of a campaign; without what is shown of it, it has no figures."""

    origin: str
    run: Run
    reported: ReportedRun | None = None

    def is_first_of(self, again: _Candidate) -> bool:
        return (
            not self.run.is_again
            and self.run.repeat == 0
            and self.origin == again.origin
            and dict(self.run.cell) == dict(again.run.cell)
        )

    @property
    def obstacle(self) -> str:
        """Why it cannot be compared; empty if it can."""
        if self.reported is None:
            if self.run.status == "interrupted":
                return "was interrupted"
            reason = self.run.reason.partition("\n")[0]
            return f"failed: {reason}" if reason else "failed"
        if self.reported.problems:
            return f"is invalid: {self.reported.problems[0]}"
        if self.run.coldness:
            return f"was cold: {self.run.coldness}"
        reason = self.reported.unsteadiness
        return f"was not steady: {reason}" if reason else ""


def _drift(first: _Candidate | None, again: _Candidate) -> Drift:
    cell = cell_name(again.run)
    if first is None:
        return _not_judged(cell, f"the first run of {cell} is not among these")
    if first.obstacle:
        return _not_judged(cell, f"the first run of {cell} {first.obstacle}")
    if first.run.started_at > again.run.started_at:
        return _not_judged(cell, f"the first run of {cell} was repeated after the one at the end")
    if again.obstacle:
        return _not_judged(cell, f"the run of {cell} at the end {again.obstacle}")
    assert first.reported is not None and again.reported is not None
    pair = first.reported, again.reported
    changes = tuple(c for figure in _LOOKED_AT if (c := _change(figure, *pair)) is not None)
    if not changes:
        return _not_judged(cell, f"the runs of {cell} were too short for intervals")
    texts = [
        f"{c.title} {formatting.quantity(c.again, c.unit)} instead of "
        f"{formatting.quantity(c.first, c.unit)}"
        for c in changes
        if c.has_drifted
    ]
    if not texts:
        sentence = f"The first cell ({cell}), run again at the end, agrees with its first run."
        return Drift(cell, "no drift", sentence, changes)
    sentence = (
        f"Drift: the first cell ({cell}), run again at the end, had {formatting.listed(texts)}: "
        "differences between cells may come from the machine or the cluster, not from the settings."
    )
    return Drift(cell, "drift", sentence, changes)


def _not_judged(cell: str, reason: str) -> Drift:
    return Drift(cell, "not judged", f"Drift was not tested: {reason}.")


def _change(figure: Figure, first: ReportedRun, again: ReportedRun) -> DriftedFigure | None:
    old, new = figure.of(first.metrics), figure.of(again.metrics)
    if old is None or new is None:
        return None
    difference = batch_means.compare(old, new)
    if difference.low is None:
        return None
    ratio = new.value / old.value if old.value else None
    has_drifted = difference.exceeds_noise and _matters(old.value, new.value)
    return DriftedFigure(
        figure.name, figure.title, figure.unit, old.value, new.value, ratio, has_drifted
    )


def _matters(old: float, new: float) -> bool:
    less, more = sorted((old, new))
    return (more / less if less > 0 else math.inf) > _MATTERS
