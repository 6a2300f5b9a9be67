"""Warnings that come before any figure of the runs. Terminal and page show the same; the page
shows them in boxes at the top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.report.disagreement import Disagreement
from penstock.report.drift import Drift
from penstock.report.markup import Markup, join, tag
from penstock.report.reported_run import ReportedRun

# In the order in which they are shown, the worst first.
Kind = Literal["invalid", "disagreement", "drift", "cold", "unsteady", "warning", "note"]

_HEADINGS: Mapping[Kind, str] = {
    "disagreement": "Repeats disagree: do not use their mean",
    "drift": "The machine or the cluster changed during the campaign",
    "cold": "Cold cluster: the brokers were not warm yet",
    "unsteady": "Not steady: latency figures are omitted",
    "warning": "Warnings",
    "note": "Notes",
}
_ALARMS: tuple[Kind, ...] = ("invalid", "disagreement", "drift")
_NOTES: Mapping[str, str] = {
    "not tested": "steadiness was not tested",
    "changed on purpose": "",  # its sentence stands alone
}


@dataclass(frozen=True)
class Notice:
    """One thing to know. `label` names the run that it is about; empty: several."""

    kind: Kind
    text: str
    label: str = ""


def notices(
    runs: Sequence[ReportedRun],
    disagreeing: Sequence[Disagreement] = (),
    drift: Sequence[Drift] = (),
) -> tuple[Notice, ...]:
    """All warnings; those about several runs first, then run by run."""
    return (
        *(Notice("disagreement", finding.sentence) for finding in disagreeing),
        *(Notice(_DRIFT_KINDS[finding.state], finding.sentence) for finding in drift),
        *(notice for reported in runs for notice in _of_run(reported)),
    )


_DRIFT_KINDS: Mapping[str, Kind] = {"drift": "drift", "not judged": "warning", "no drift": "note"}


def _of_run(reported: ReportedRun) -> Iterator[Notice]:
    for problem in reported.problems:
        yield Notice("invalid", problem, reported.label)
    if reported.run.coldness:
        yield Notice("cold", reported.run.coldness, reported.label)
    if reported.unsteadiness:
        yield Notice("unsteady", reported.unsteadiness, reported.label)
    for warning in (*reported.run.warnings, *reported.metrics.warnings):
        yield Notice("warning", warning, reported.label)
    steadiness = reported.metrics.steadiness
    if steadiness is not None and steadiness.state in _NOTES:
        text = ": ".join(filter(None, (_NOTES[steadiness.state], steadiness.sentence)))
        yield Notice("note", text, reported.label)


# --- on the page ---------------------------------------------------------------------------------


def boxes(notices: Sequence[Notice], runs: int) -> Markup:
    """A box for each kind that there is."""
    parts = []
    for kind in ("invalid", *_HEADINGS):
        texts: dict[str, list[str]] = {}
        for notice in notices:
            if notice.kind == kind:
                texts.setdefault(notice.text, []).extend([notice.label] if notice.label else [])
        if not texts:
            continue
        spoilt = len({label for labels in texts.values() for label in labels})
        which = "this run" if runs == 1 else f"{spoilt} of {runs} runs"
        heading = _HEADINGS.get(kind, f"Invalid: do not use the figures of {which}")
        box = {"class_": "alarm", "role": "alert"} if kind in _ALARMS else {"class_": "notice"}
        parts.append(tag("div", tag("h2", heading), _list(texts, runs), **box))
    return join(parts)


def _list(texts: Mapping[str, Sequence[str]], runs: int) -> Markup:
    """Each text once, with the runs that it is about."""
    items = []
    for text, labels in texts.items():
        if runs == 1 or not labels:
            about = ""
        elif len(labels) == runs:
            about = " (all runs)"
        else:
            more = f" and {len(labels) - 6} more" if len(labels) > 6 else ""
            about = f" ({', '.join(labels[:6])}{more})"
        items.append(tag("li", text, tag("span", about, class_="caption")))
    return tag("ul", *items)
