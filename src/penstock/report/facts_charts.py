"""Charts of cluster facts, as plain data that Plotly draws: over partitions, other axes, and CDFs."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from penstock.domain.facts import ClusterFacts, Conditions, FactPoint, Line
from penstock.domain.grid import Kind
from penstock.measure.experiments.points import base, sweep
from penstock.report.charts import MOST_LINES, PALETTE, Chart, Json, error_bars, line, rounded

# A figure: its name, its title, its unit.
Figure = tuple[str, str, str]
_UNITS = {"ms": "ms", "per_s": "/s", "mb_per_s": "MB/s", "": ""}
_POINTS = 300


def over_partitions(
    facts: ClusterFacts, kind: Kind, figures: Sequence[Figure]
) -> tuple[Chart, ...]:
    """One chart per figure: the points that differ in nothing but partitions, and their line."""
    swept = _at(facts, kind, sweep(kind, facts.grids[kind]))
    if len(swept) < 2:
        return ()
    found = []
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
                "hovertemplate": f"%{{x}} partitions: %{{y:,.4~g}} {_UNITS[unit]}<extra></extra>",
            }
        ]
        fitted = next((x for x in facts.lines if x.figure == name), None)
        if fitted is not None:
            traces.append(_fitted(fitted, swept))
        layout: Json = {
            "height": 270,
            "showlegend": False,
            "hovermode": "closest",
            "xaxis": {"title": {"text": "partitions"}},
            "yaxis": {"title": {"text": _UNITS[unit]}, "rangemode": "tozero"},
        }
        description = f"{title} over partitions. The tables have the same figures."
        found.append(Chart(f"partitions-{name}", description, {"data": traces, "layout": layout}))
    return tuple(found)


def _fitted(fitted: Line, swept: Sequence[FactPoint]) -> Json:
    """The line over partitions, whatever it was fitted over: both grow together in a sweep."""
    last = swept[-1].conditions
    per_partition = {
        "partitions": 1.0,
        "copies_per_broker": last.copies_per_broker / last.partitions,
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


def over_others(facts: ClusterFacts, kind: Kind, figures: Sequence[Figure]) -> tuple[Chart, ...]:
    """One chart per figure: the base, and the points that differ from it in other axes."""
    grid = facts.grids[kind]
    centre, swept = base(kind, grid), set(sweep(kind, grid))
    others = [p for p in facts.points if p.experiment == kind and p.conditions not in swept]
    if not others:
        return ()
    shown = [*_at(facts, kind, [centre]), *others]
    labels = [_difference(p.conditions, centre) for p in shown]
    found = []
    for place, (name, title, unit) in enumerate(figures):
        drawn = [
            (lbl, e) for lbl, p in zip(labels, shown, strict=True) if (e := p.figures.get(name))
        ]
        if len(drawn) < 2:
            continue
        colour = PALETTE[place % MOST_LINES]
        traces: list[Json] = [
            {
                "type": "bar",
                "orientation": "h",
                "name": title,
                "y": [html.escape(label) for label, _ in drawn],
                "x": rounded([e.value for _, e in drawn]),
                "error_x": error_bars([e for _, e in drawn]),
                "marker": {"color": colour},
                "hovertemplate": f"%{{y}}: %{{x:,.4~g}} {_UNITS[unit]}<extra></extra>",
            }
        ]
        layout: Json = {
            "height": 90 + 26 * len(drawn),
            "showlegend": False,
            "xaxis": {"title": {"text": _UNITS[unit]}, "rangemode": "tozero"},
            "yaxis": {"autorange": "reversed"},
            "meta": {"label": max(len(label) for label, _ in drawn)},
            "hovermode": "closest",
        }
        description = f"{title} over the other axes. The tables have the same figures."
        found.append(Chart(f"others-{name}", description, {"data": traces, "layout": layout}))
    return tuple(found)


def cumulative(facts: ClusterFacts, kind: Kind, name: str) -> tuple[Chart, ...]:
    """The share of messages that took at most so long: a chart of the sweep, one of the rest."""
    grid = facts.grids[kind]
    centre, swept = base(kind, grid), sweep(kind, grid)
    found = _at(facts, kind, swept)
    over = [(f"{p.conditions.partitions} partitions", p) for p in found]
    others = [p for p in facts.points if p.experiment == kind and p.conditions not in set(swept)]
    rest = [(_difference(p.conditions, centre), p) for p in (*_at(facts, kind, [centre]), *others)]
    charts = [_cumulative(over, f"cdf-{name}", name)]
    if others:
        charts.append(_cumulative(rest, f"cdf-others-{name}", name))
    return tuple(chart for chart in charts if chart is not None)


def _cumulative(points: Sequence[tuple[str, FactPoint]], chart: str, name: str) -> Chart | None:
    drawn = [(label, p.distributions[name]) for label, p in points if name in p.distributions]
    if not drawn:
        return None
    traces: list[Json] = []
    for place, (label, found) in enumerate(drawn[:MOST_LINES]):
        edges, counts = np.array(sorted(found.buckets), dtype=np.float64).T
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
    description = f"Share of messages over latency, one rising line per point.{more}"
    return Chart(chart, description, {"data": traces, "layout": layout})


def _names() -> list[str]:
    return [f.name for f in fields(Conditions) if f.name != "policy"]


def _at(facts: ClusterFacts, kind: Kind, wanted: Sequence[Conditions]) -> list[FactPoint]:
    found = {p.conditions: p for p in facts.points if p.experiment == kind}
    return [found[where] for where in wanted if where in found]


def _difference(where: Conditions, centre: Conditions) -> str:
    changed = [n for n in _names() if getattr(where, n) != getattr(centre, n)]
    shown = [f"{n.replace('_', ' ')} {getattr(where, n)}" for n in changed]
    return ", ".join(shown) or "base"
