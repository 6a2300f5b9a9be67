"""Charts of one or several runs, as plain data that Plotly draws. The page gives them its colours.

Every trace, shape and annotation of a side is marked with the side's number (`meta`, `name`), so
that the page can draw a choice of many. Text is escaped here, for Plotly reads tags in labels.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.domain.metrics import Estimate
from penstock.report.figures import count_of, figures, part_names
from penstock.report.reported_run import Side

# Okabe and Ito's colours that all eyes tell apart; without black and yellow, which vanish on one of
# the two backgrounds. The seventh and eighth are told apart by their lightness.
PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C", "#7A5195",
)  # fmt: skip
MOST_LINES = len(PALETTE)
DASHES = ("solid", "solid", "solid", "solid", "solid", "solid", "dash", "dot")
MOST_POINTS = 2_000
# For all runs together: a page of sixty runs must still open at once.
_POINTS_IN_ALL = 60_000
_LABEL = 48

Json = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """A chart and its text alternative."""

    id: str
    description: str
    figure: Json
    title: str = ""  # where the charts of a section need one each
    # Whether the page draws only the sides that were chosen, if there are more than colours.
    is_choice: bool = False


def points(sides: Sequence[Side], per_run: int = 1) -> int:
    """How many points one trace may have."""
    traces = max(1, per_run * sum(len(side.runs) for side in sides))
    return max(60, min(MOST_POINTS, _POINTS_IN_ALL // traces))


def line(place: int, is_first: bool = True, **more: Any) -> Json:
    """The line of a side; its repeats are thinner, to show that they belong together."""
    return {
        "color": PALETTE[place % MOST_LINES],
        "dash": DASHES[place % MOST_LINES],
        "width": 2 if is_first else 1,
        **more,
    }


def rounded(values: Sequence[float | None] | Any) -> list[float | None]:
    """Five digits: more cannot be seen and would double the size of the page."""
    return [None if v is None or not np.isfinite(v) else float(f"{v:.5g}") for v in values]


def log_ticks(traces: Sequence[Json], wide: float = 1e3) -> Json:
    """Plain numbers, never 10⁻¹: 1, 2, 5, 10, …, and from a ratio of `wide` on only decades."""
    drawn = [y for trace in traces for y in trace["y"] if y]
    if not drawn:
        return {}
    steps = (1,) if max(drawn) / min(drawn) > wide else (1, 2, 5)
    values = [s * 10.0**k for k in range(-4, 8) for s in steps]
    values = [v for v in values if min(drawn) / 3 < v < max(drawn) * 3]
    return {"tickvals": values, "ticktext": [f"{v:,.10g}" for v in values]}


def error_bars(estimates: Sequence[Estimate]) -> Json:
    """The 95 % intervals; nothing where there is none."""
    return {
        "type": "data",
        "symmetric": False,
        "array": rounded([0 if e.high is None else max(0, e.high - e.value) for e in estimates]),
        "arrayminus": rounded([0 if e.low is None else max(0, e.value - e.low) for e in estimates]),
        "thickness": 1.2,
        "width": 3,
    }


def annotation(x: float, y: float, text: str, **more: Any) -> Json:
    """A text that stands on a point of the chart."""
    return {"x": x, "y": y, "yanchor": "bottom", "text": text, "showarrow": False, **more}


# --- message states ------------------------------------------------------------------------------

# (title, colour, pattern): the pattern is for readers who cannot tell the colours apart.
_STATES = (
    ("delivered once", "#009E73", ""),
    ("duplicated", "#E69F00", "x"),
    ("lost", "#D55E00", ""),
    ("acknowledged yet lost", "#7A1F5C", "/"),
)


def message_states(sides: Sequence[Side]) -> Chart | None:
    """A bar per side: every message in exactly one state; beside it only what went wrong."""
    shares = [_state_shares(side) for side in sides]
    if not any(sum(run_shares) for run_shares in shares):
        return None
    has_wrong = any(sum(run_shares[1:]) for run_shares in shares)
    labels = _bar_labels(sides)
    traces: list[Json] = []
    for i, (title, colour, pattern) in enumerate(_STATES):
        values = [run_shares[i] for run_shares in shares]
        if i and not any(values):
            continue
        bar = _bar(title, colour, labels, rounded([100 * v for v in values]), pattern)
        traces.append({**bar, "xaxis": "x"})
        if i:
            traces.append({**bar, "xaxis": "x2", "showlegend": False})
    x_axis = {
        "title": {"text": "% of messages sent"},
        "range": [0, 100],
        "domain": [0, 0.56] if has_wrong else [0, 1],
    }
    layout = {**_bars_layout(labels, x_axis), "showlegend": True}
    if has_wrong:
        layout["xaxis2"] = {
            "title": {"text": "only what went wrong, %"},
            "domain": [0.64, 1],
            "anchor": "y",
            "rangemode": "tozero",
        }
    return Chart(
        "states",
        "Message states: a stacked bar per run with the shares delivered once, duplicated, lost, "
        "and acknowledged yet lost. The table below has the counts.",
        {"data": traces, "layout": layout},
    )


def _state_shares(side: Side) -> tuple[float, ...]:
    def total(name: str) -> int:
        return sum(count_of(reported.metrics.counts, name) for reported in side.used)

    sent = total("sent")
    if not sent:
        return (0.0,) * len(_STATES)
    broken = total("acknowledged_yet_lost")
    states = (total("delivered"), total("duplicated"), total("lost") - broken, broken)
    return tuple(state / sent for state in states)


# --- parts of latency ----------------------------------------------------------------------------

_PART_COLOURS = {
    "waiting": "#E69F00",
    "produce": "#0072B2",
    "commit": "#CC79A7",
    "fetch": "#56B4E9",
    "commit+fetch": "#009E73",
}


def latency_parts(sides: Sequence[Side]) -> Chart | None:
    """Where the time went, on average: means add up to the latency, percentiles would not."""
    # A run that was not steady has no means to show.
    sides = [side for side in sides if side.steady]
    metrics = [reported.metrics for side in sides for reported in side.used]
    present = [name for name in part_names(metrics) if name in _PART_COLOURS]
    if not present:
        return None
    by_name = {f.name: f for f in figures(metrics)}
    labels = _bar_labels(sides)
    traces = []
    for name in present:
        estimates = [side.estimate(by_name[f"parts.{name}.mean_ms"]) for side in sides]
        values = rounded([None if e is None else e.value for e in estimates])
        traces.append(_bar(name, _PART_COLOURS[name], labels, values, "", "ms"))
    x_axis = {"title": {"text": "mean, ms"}, "rangemode": "tozero"}
    return Chart(
        "parts",
        f"Parts of the mean latency: a stacked bar per run of {', '.join(present)}. "
        "The table below has the figures.",
        {"data": traces, "layout": _bars_layout(labels, x_axis)},
    )


def _bar(
    title: str, colour: str, labels: list[str], values: list[Any], pattern: str, unit: str = "%"
) -> Json:
    return {
        "type": "bar",
        "orientation": "h",
        "name": title,
        "legendgroup": title,
        "y": labels,
        "x": values,
        "marker": {
            "color": colour,
            "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": "#fff", "size": 6},
        },
        "hovertemplate": f"%{{y}}<br>{title} %{{x:.4~g}} {unit}<extra></extra>",
    }


def _bar_labels(sides: Sequence[Side]) -> list[str]:
    """What the ticks of the bars say; a longer label would leave no room for the bars."""
    texts = [s.label if len(s.label) <= _LABEL else s.label[: _LABEL - 1] + "…" for s in sides]
    # Bars of one label would be drawn on top of each other.
    return [
        html.escape(text if texts.count(text) == 1 else f"{text[: _LABEL - 4]}… {i + 1}")
        for i, text in enumerate(texts)
    ]


def _bars_layout(labels: Sequence[str], x_axis: Json) -> Json:
    bars = len(labels)
    return {
        "barmode": "stack",
        "height": 130 + max(46 * min(bars, 2), 22 * bars),
        "xaxis": x_axis,
        "yaxis": {"autorange": "reversed"},
        "meta": {"label": max(map(len, labels))},
        "hovermode": "closest",
    }
