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
    annotation,
    error_bars,
    line,
    log_ticks,
    points,
    rounded,
)
from penstock.report.figures import figures
from penstock.report.formatting import NOT_STEADY
from penstock.report.reported_run import ReportedRun, Side

# Less cannot be drawn on a logarithmic axis, and no message is that fast.
_LEAST_MS = 1e-4


def latency_by_percentile(sides: Sequence[Side]) -> Chart | None:
    """A line per run: x is 1 / (1 − q), so that each further nine has the same room."""
    traces: list[Json] = []
    limit = points(sides)
    for place, side in enumerate(sides):
        drawn = [(s, times) for s in _steady_first(side) if (times := s.metrics.latency)]
        for i, (reported, times) in enumerate(drawn):
            x, y = by_percentile(times, limit)
            if x:
                name = _steady_name(side.label if len(sides) > 1 else "received", reported)
                label = _steady_name(reported.label, reported)
                traces.append(_percentile_trace(name, place, label, x, y, i == 0))
        if any(not reported.unsteadiness for reported, _ in drawn):
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
        places = np.geomspace(x[0], x[-1], limit)
        kept = np.unique(np.searchsorted(x, places).clip(0, len(x) - 1))
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


def _steady_first(side: Side) -> list[ReportedRun]:
    """The legend names the first run of a side, which should be one that speaks for its setting."""
    return sorted(side.used, key=lambda reported: bool(reported.unsteadiness))


def _steady_name(name: str, reported: ReportedRun) -> str:
    return f"{name} ({NOT_STEADY})" if reported.unsteadiness else name


def _percentile_marks(side: Side, place: int) -> Json:
    """The percentiles that the tables have, with their intervals."""
    marks = [
        (1 / (1 - f.percent / 100), e)
        for f in figures([run.metrics for run in side.used])
        if f.name.startswith("latency.") and f.percent is not None and f.percent < 100
        if (e := side.estimate(f)) is not None
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
        reported = _steady_first(side)[0]
        times = reported.metrics.acknowledgement
        x, y = by_percentile(times, points(sides)) if times is not None else ([], [])
        if x:
            label = _steady_name(f"{side.label}, acknowledged", reported)
            name = label if len(sides) > 1 else _steady_name("acknowledged", reported)
            own: Json = {"legendgroup": f"acknowledged-{place}"}
            own["line"] = line(place, width=1.5, dash="dot")
            traces.append(_percentile_trace(name, place, label, x, y, True) | own)
    return traces


def _mark_objective(sides: Sequence[Side], layout: Json) -> None:
    objectives = [reported.run.spec.objective for side in sides for reported in side.runs]
    for limit in sorted({o.latency_ms for o in objectives if o is not None and o.latency_ms}):
        objective = {"xref": "paper", "name": "objective"}
        dashed = {"color": "#888", "width": 1.5, "dash": "dash"}
        level = {"type": "line", "x0": 0, "x1": 1, "y0": limit, "y1": limit, "line": dashed}
        layout["shapes"].append(level | objective)
        text = f"objective {limit:g} ms"
        layout["annotations"].append(
            annotation(0.01, float(np.log10(limit)), text, xanchor="left", **objective)
        )
