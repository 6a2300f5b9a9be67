"""Latency by percentile: a rising line per run. A chart as data, like those of `charts`."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.domain.metrics import Distribution
from penstock.report.charts import (
    MOST_LINES,
    MOST_POINTS,
    PALETTE,
    Chart,
    Json,
    error_bars,
    line,
    log_ticks,
    points,
    rounded,
)
from penstock.report.figures import figures
from penstock.report.numbers import NOT_STEADY
from penstock.report.shown import Shown, Side

# Less cannot be drawn on a logarithmic axis, and no message is that fast.
_LEAST_MS = 1e-4


def latency_by_percentile(sides: Sequence[Side]) -> Chart | None:
    """A line per run: x is 1 / (1 − q), so that each further nine has the same room."""
    traces: list[Json] = []
    limit = points(sides)
    for place, side in enumerate(sides):
        drawn = [s for s in _steady_first(side) if s.metrics.latency is not None]
        for i, shown in enumerate(drawn):
            assert shown.metrics.latency is not None
            x, y = by_percentile(shown.metrics.latency, limit)
            if x:
                name = _steady_name(side.label if len(sides) > 1 else "received", shown)
                label = _steady_name(shown.label, shown)
                traces.append(_percentile_trace(name, place, label, x, y, i == 0))
        if any(not shown.unsteadiness for shown in drawn):
            traces.append(_percentile_marks(side, place))
    if len(sides) <= 2:
        traces += _acknowledgements(sides)
    if not traces:
        return None
    most = max((x for trace in traces for x in trace["x"]), default=10.0)
    nines = [10.0**k for k in range(1, 10) if 10.0 ** (k - 1) < most]
    layout = {
        "height": 430,
        "xaxis": {
            "type": "log",
            "title": {"text": "share of messages that took at most this long"},
            "tickvals": [1, 2, *nines],
            "ticktext": ["0 %", "50 %", *(f"{100 - 100 / nine:.10g} %" for nine in nines)],
        },
        "yaxis": {"type": "log", "title": {"text": "latency, ms"}, **log_ticks(traces)},
        "shapes": [],
        "annotations": [],
        "hovermode": "closest",
    }
    _mark_objective(sides, layout)
    return Chart(
        "latency",
        "Latency by percentile: one rising line per run, both axes logarithmic. "
        "The table below has the same percentiles.",
        {"data": traces, "layout": layout},
        is_choice=True,
    )


def by_percentile(
    distribution: Distribution, limit: int = MOST_POINTS
) -> tuple[list[float | None], list[float | None]]:
    """(1 / (1 − q), ms) for the buckets, at most `limit` of them.

    A value of rank k among n stands at q = (k − ½) / n, so that the longest has a place too.
    """
    if not distribution.buckets:
        return [], []
    edges_ns, counts = np.array(sorted(distribution.buckets), dtype=np.float64).T
    total = counts.sum()
    if total <= 0:
        return [], []
    x = total / (total - np.cumsum(counts) + 0.5)
    y = edges_ns / 1e6
    # The extremes are known exactly, and not only by their bucket.
    y[0], y[-1] = distribution.min_ms, distribution.max_ms
    if len(x) > limit:
        # At equal distances on the axis as it is drawn.
        wanted = np.geomspace(x[0], x[-1], limit)
        kept = np.unique(np.searchsorted(x, wanted).clip(0, len(x) - 1))
        x, y = x[kept], y[kept]
    return rounded(x), rounded(np.maximum(y, _LEAST_MS))


def _percentile_trace(
    name: str, place: int, label: str, x: list[Any], y: list[Any], is_first: bool
) -> Json:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": html.escape(name),
        "legendgroup": f"side-{place}",
        "showlegend": is_first,
        "line": line(place, is_first),
        "opacity": 1 if is_first else 0.6,
        "x": x,
        "y": y,
        "customdata": [float(f"{100 - 100 / v:.8g}") for v in x],
        "text": html.escape(label),
        "hovertemplate": "%{text}<br>%{customdata:.6~g} % within %{y:.3~s} ms<extra></extra>",
        "meta": {"side": place},
    }


def _steady_first(side: Side) -> list[Shown]:
    """The legend names the first run of a side, which should be one that speaks for its setting."""
    return sorted(side.used, key=lambda shown: bool(shown.unsteadiness))


def _steady_name(name: str, shown: Shown) -> str:
    return f"{name} ({NOT_STEADY})" if shown.unsteadiness else name


def _percentile_marks(side: Side, place: int) -> Json:
    """The percentiles that the tables have, with their intervals."""
    found = [f for f in figures([s.metrics for s in side.used]) if f.name.startswith("latency.p")]
    marks = [
        (1 / (1 - float(f.name[9:-3]) / 100), e)
        for f in found
        if float(f.name[9:-3]) < 100 and (e := side.estimate(f)) is not None
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": html.escape(side.label),
        "legendgroup": f"side-{place}",
        "showlegend": False,
        "hoverinfo": "skip",
        "marker": {"color": PALETTE[place % MOST_LINES], "size": 6},
        "x": rounded([x for x, _ in marks]),
        "y": rounded([max(e.value, _LEAST_MS) for _, e in marks]),
        "error_y": {**error_bars([e for _, e in marks]), "color": PALETTE[place % MOST_LINES]},
        "meta": {"side": place},
    }


def _acknowledgements(sides: Sequence[Side]) -> list[Json]:
    traces = []
    for place, side in enumerate(sides):
        shown = _steady_first(side)[0]
        if shown.metrics.acknowledgement is None:
            continue
        x, y = by_percentile(shown.metrics.acknowledgement, points(sides))
        if x:
            label = _steady_name(f"{side.label}, acknowledged", shown)
            name = label if len(sides) > 1 else _steady_name("acknowledged", shown)
            traces.append(
                {
                    **_percentile_trace(name, place, label, x, y, True),
                    "legendgroup": f"acknowledged-{place}",
                    "line": line(place, width=1.5, dash="dot"),
                }
            )
    return traces


def _mark_objective(sides: Sequence[Side], layout: Json) -> None:
    limits = {
        objective.latency_ms
        for side in sides
        for shown in side.runs
        if (objective := shown.run.experiment.objective) is not None and objective.latency_ms
    }
    for limit in sorted(limit for limit in limits if limit is not None):
        layout["shapes"].append(
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": limit,
                "y1": limit,
                "line": {"color": "#888", "width": 1.5, "dash": "dash"},
                "name": "objective",
            }
        )
        layout["annotations"].append(
            {
                "xref": "paper",
                "x": 0.01,
                "xanchor": "left",
                "y": float(np.log10(limit)),
                "yanchor": "bottom",
                "text": f"objective {limit:g} ms",
                "showarrow": False,
                "name": "objective",
            }
        )
