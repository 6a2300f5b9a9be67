"""Charts of cluster facts, as plain data that Plotly draws: over partitions, other axes, and CDFs."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

from penstock.domain.facts import ClusterFacts, FactPoint, FittedLine, PointConditions
from penstock.report.charts import MOST_LINES, PALETTE, Chart, Json, error_bars, line, rounded
from penstock.report.formatting import UNITS
from penstock.runs.experiments.kinds.experiment_kind import FactFigure
from penstock.runs.experiments.points import base, sweep

_POINTS = 300


def over_partitions(
    facts: ClusterFacts, kind: str, figures: Sequence[FactFigure]
) -> tuple[Chart, ...]:
    """One chart per figure: the points that differ in nothing but partitions, and their line."""
    swept = _at(facts, kind, sweep(kind, facts.grids[kind]))
    charts = []
    for name, title, unit in figures:
        drawn = [(p.conditions.partitions, e) for p in swept if (e := p.figures.get(name))]
        if len(drawn) < 2:
            continue
        traces: list[Json] = [
            {
                "type": "scatter",
                "mode": "markers",
                "name": "measured",
                "x": [x for x, _ in drawn],
                "y": rounded([e.value for _, e in drawn]),
                "error_y": {**error_bars([e for _, e in drawn]), "color": PALETTE[0]},
                "marker": {"size": 7, "color": PALETTE[0]},
                "hovertemplate": f"%{{x}} partitions: %{{y:,.4~g}} {UNITS[unit]}<extra></extra>",
            }
        ]
        traces += [_fitted(fit, swept) for fit in facts.lines if fit.figure == name][:1]
        layout: Json = {
            "height": 270,
            "showlegend": False,
            "hovermode": "closest",
            "xaxis": {"title": {"text": "partitions"}},
            "yaxis": {"title": {"text": UNITS[unit]}, "rangemode": "tozero"},
        }
        charts.append(_chart(name, title, "partitions", traces, layout))
    return tuple(charts)


def _chart(name: str, title: str, over: str, traces: list[Json], layout: Json) -> Chart:
    axes = {"partitions": "partitions", "others": "the other axes"}[over]
    description = f"{title} over {axes}. The tables have the same figures."
    return Chart(f"{over}-{name}", description, {"data": traces, "layout": layout}, title)


def _fitted(fitted: FittedLine, swept: Sequence[FactPoint]) -> Json:
    """The line over partitions, whatever it was fitted over: both grow together in a sweep."""
    last = swept[-1].conditions
    per_partition = {
        "partitions": 1.0,
        "replicas_per_broker": last.replicas_per_broker / last.partitions,
        # Leaders are spread evenly.
        "led_partitions": 1 / last.brokers,
    }[fitted.over]
    ends = [swept[0].conditions.partitions, last.partitions]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "fitted",
        "x": ends,
        "y": rounded([fitted.at(x * per_partition) for x in ends]),
        "line": line(1, dash="dash", width=1.5),
        "hoverinfo": "skip",
    }


def over_others(facts: ClusterFacts, kind: str, figures: Sequence[FactFigure]) -> tuple[Chart, ...]:
    """One chart per figure: the base, and the points that differ from it in other axes."""
    compared = _others(facts, kind)
    charts = []
    for place, (name, title, unit) in enumerate(figures):
        drawn = [(label, e) for label, p in compared if (e := p.figures.get(name))]
        if len(drawn) < 2:
            continue
        traces: list[Json] = [
            {
                "type": "bar",
                "orientation": "h",
                "name": title,
                "y": [html.escape(label) for label, _ in drawn],
                "x": rounded([e.value for _, e in drawn]),
                "error_x": error_bars([e for _, e in drawn]),
                "marker": {"color": PALETTE[place % MOST_LINES]},
                "hovertemplate": f"%{{y}}: %{{x:,.4~g}} {UNITS[unit]}<extra></extra>",
            }
        ]
        layout: Json = {
            "height": 90 + 26 * len(drawn),
            "showlegend": False,
            "xaxis": {"title": {"text": UNITS[unit]}, "rangemode": "tozero"},
            "yaxis": {"autorange": "reversed"},
            "meta": {"label": max(len(label) for label, _ in drawn)},
            "hovermode": "closest",
        }
        charts.append(_chart(name, title, "others", traces, layout))
    return tuple(charts)


def cumulative(facts: ClusterFacts, kind: str, name: str) -> tuple[Chart, ...]:
    """The share of messages that took at most so long: a chart of the sweep, one of the rest."""
    swept = _at(facts, kind, sweep(kind, facts.grids[kind]))
    over = [(f"{p.conditions.partitions} partitions", p) for p in swept]
    charts = (
        _cumulative(over, f"cdf-{name}", name),
        _cumulative(_others(facts, kind), f"cdf-others-{name}", name),
    )
    return tuple(chart for chart in charts if chart is not None)


def _cumulative(points: Sequence[tuple[str, FactPoint]], chart: str, name: str) -> Chart | None:
    drawn = [(label, p.distributions[name]) for label, p in points if name in p.distributions]
    if not drawn:
        return None
    traces: list[Json] = []
    for place, (label, times) in enumerate(drawn[:MOST_LINES]):
        edges, counts = np.array(sorted(times.buckets), dtype=np.float64).T
        shares = np.cumsum(counts) / counts.sum()
        kept = np.unique(np.linspace(0, len(edges) - 1, min(_POINTS, len(edges))).astype(int))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": html.escape(label),
                "x": rounded(edges[kept] / 1e6),
                "y": rounded(100 * shares[kept]),
                "line": line(place, shape="hv"),
                "hovertemplate": "%{y:.3~g} % within %{x:.3~g} ms<extra>%{fullData.name}</extra>",
            }
        )
    layout: Json = {
        "height": 380,
        "xaxis": {"type": "log", "title": {"text": "latency, ms"}},
        "yaxis": {"title": {"text": "% of messages"}, "range": [0, 101]},
        "hovermode": "closest",
    }
    more = f" The first {MOST_LINES} of {len(drawn)}." if len(drawn) > MOST_LINES else ""
    title = "Share of messages"
    description = f"{title} over latency, one rising line per point.{more}"
    return Chart(chart, description, {"data": traces, "layout": layout}, title)


def _others(facts: ClusterFacts, kind: str) -> list[tuple[str, FactPoint]]:
    """The base and the points beside the sweep, each by what differs from the base; none without
    such points."""
    grid = facts.grids[kind]
    centre, swept = base(kind, grid), set(sweep(kind, grid))
    others = [p for p in facts.points if p.experiment == kind and p.conditions not in swept]
    at_base = _at(facts, kind, [centre]) if others else []
    return [(_difference(p.conditions, centre), p) for p in (*at_base, *others)]


def _at(facts: ClusterFacts, kind: str, conditions: Sequence[PointConditions]) -> list[FactPoint]:
    by_conditions = {p.conditions: p for p in facts.points if p.experiment == kind}
    return [by_conditions[where] for where in conditions if where in by_conditions]


def _difference(where: PointConditions, centre: PointConditions) -> str:
    at_centre = centre.coordinates
    settings = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in where.coordinates.items()
        if name != "policy" and value != at_centre[name]
    ]
    return ", ".join(settings) or "base"
