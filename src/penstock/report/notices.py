"""What must be known of runs before any of their figures is used. The terminal and the page say the
same; the page says it in boxes above everything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.report.disagreement import Disagreement
from penstock.report.drift import Drift
from penstock.report.markup import Markup, join, tag
from penstock.report.shown import Shown

# In the order in which they are shown, the worst first.
Kind = Literal["invalid", "disagreement", "drift", "cold", "unsteady", "warning", "note"]

_HEADINGS: Mapping[Kind, str] = {
    "disagreement": "Repeats disagree: do not use their mean",
    "drift": "The machine or the cluster changed during the campaign",
    "cold": "Cold cluster: the brokers were not warm yet",
    "unsteady": "Not steady: latency figures are left out",
    "warning": "Warnings",
    "note": "Notes",
}
_ALARMS: tuple[Kind, ...] = ("invalid", "disagreement", "drift")
_NOTES: Mapping[str, str] = {
    "not tested": "steadiness was not tested",
    "changed on purpose": "changed on purpose",
}


@dataclass(frozen=True)
class Notice:
    """One thing to know. `label` names the run that it is about; empty: several."""

    kind: Kind
    text: str
    label: str = ""


def notices(
    runs: Sequence[Shown],
    disagreeing: Sequence[Disagreement] = (),
    drift: Sequence[Drift] = (),
) -> tuple[Notice, ...]:
    """All there is to know, run by run; what is about several of them comes first."""
    return (
        *(Notice("disagreement", each.sentence) for each in disagreeing),
        *(Notice(_DRIFT_KINDS[each.state], each.sentence) for each in drift),
        *(notice for shown in runs for notice in _of_run(shown)),
    )


_DRIFT_KINDS: Mapping[str, Kind] = {"drift": "drift", "not judged": "warning", "no drift": "note"}


def _of_run(shown: Shown) -> Iterator[Notice]:
    for problem in shown.problems:
        yield Notice("invalid", problem, shown.label)
    if shown.run.coldness:
        yield Notice("cold", shown.run.coldness, shown.label)
    if shown.unsteadiness:
        yield Notice("unsteady", shown.unsteadiness, shown.label)
    for warning in (*shown.run.warnings, *shown.metrics.warnings):
        yield Notice("warning", warning, shown.label)
    found = shown.metrics.steadiness
    if found is not None and found.state in _NOTES:
        why = f": {found.sentence}" if found.sentence else ""
        yield Notice("note", _NOTES[found.state] + why, shown.label)


# --- on the page ---------------------------------------------------------------------------------


def boxes(found: Sequence[Notice], runs: int) -> Markup:
    """A box for each kind that there is."""
    parts = []
    for kind in ("invalid", *_HEADINGS):
        texts: dict[str, list[str]] = {}
        for notice in found:
            if notice.kind == kind:
                texts.setdefault(notice.text, []).extend([notice.label] if notice.label else [])
        if not texts:
            continue
        spoilt = len({label for labels in texts.values() for label in labels})
        heading = _HEADINGS.get(kind, f"Invalid: do not use the figures of {_which(spoilt, runs)}")
        content = tag("h2", heading), _list(texts, runs)
        if kind in _ALARMS:
            parts.append(tag("div", *content, class_="alarm", role="alert"))
        else:
            parts.append(tag("div", *content, class_="notice"))
    return join(parts)


def _which(spoilt: int, runs: int) -> str:
    return "this run" if runs == 1 else f"{spoilt} of {runs} runs"


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
