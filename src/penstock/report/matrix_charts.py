"""A figure over the axes of a campaign's matrix: x is one axis, each line a value of another.

What further axes there are becomes panels side by side. Pure; one chart per figure.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from penstock.domain.metrics import Estimate
from penstock.report.charts import (
    MOST_LINES,
    PALETTE,
    Chart,
    Json,
    annotation,
    error_bars,
    line,
    rounded,
)
from penstock.report.figures import Figure, figures
from penstock.report.formatting import UNITS
from penstock.report.reported_run import Side
from penstock.runs.matrix import short
from penstock.stats.batch_means import scaled

_PANELS_IN_A_ROW = 3
_PANEL_PX = 230
_BETWEEN_PX = 76  # room for the title of an axis and that of the panel below
_GAP = 0.05
# So few cells are seen at once in the comparison; two points make no curve.
_FEW = 3
# Beyond this ratio the small values of an axis would all stand at its left end.
_WIDE = 30
# What is drawn beside the figures of the sentences.
_ALSO = ("share.acknowledged_yet_lost", "timely_mb_per_s")

Key = tuple[str, ...]


@dataclass(frozen=True)
class Axes:
    """Which axis of the matrix goes where."""

    x: str
    lines: str | None
    panels: tuple[str, ...]
    values: dict[str, list[str]]

    @property
    def x_values(self) -> list[str]:
        return self.values[self.x]

    @property
    def x_numbers(self) -> list[float] | None:
        return _numbers(self.x_values)


def axes(sides: Sequence[Side]) -> Axes | None:
    """x: the axis of numbers with most values. Lines: the next, if it has not too many."""
    cells = [side.runs[0].run.cell for side in sides]
    names = list(dict.fromkeys(axis for cell in cells for axis in cell))
    values = {name: _ordered([cell[name] for cell in cells if name in cell]) for name in names}
    varying = [name for name in names if len(values[name]) > 1]
    if not varying:
        return None
    x = max(varying, key=lambda name: (_numbers(values[name]) is not None, len(values[name])))
    rest = [name for name in varying if name != x]
    few = [name for name in rest if len(values[name]) <= MOST_LINES]
    lines = max(few, key=lambda name: len(values[name]), default=None)
    return Axes(x, lines, tuple(name for name in rest if name != lines), values)


def over_matrix(sides: Sequence[Side]) -> tuple[Chart, ...]:
    """One chart per figure that varies at all; none if the sides are not cells of a matrix."""
    placed = axes(sides)
    if placed is None or (len(sides) <= _FEW and len(placed.x_values) <= 2):
        return ()
    metrics = [reported.metrics for side in sides for reported in side.used]
    chosen = [f for f in figures(metrics) if f.is_key or f.name in _ALSO]
    charts = []
    for figure in chosen:
        percent = 100 if figure.unit == "share" else 1
        estimates = [(side, scaled(e, percent)) for side in sides if (e := side.estimate(figure))]
        if any(e.value for _, e in estimates):
            charts.append(_chart(figure, placed, estimates))
    return tuple(charts)


def flat_figures(sides: Sequence[Side]) -> list[str]:
    """The figures that are 0 in every cell, and so have no chart."""
    metrics = [reported.metrics for side in sides for reported in side.used]
    estimates = {
        f.title: [e for side in sides if (e := side.estimate(f)) is not None]
        for f in figures(metrics)
        if f.is_key
    }
    return [t for t, values in estimates.items() if values and not any(e.value for e in values)]


def _chart(figure: Figure, placed: Axes, estimates: Sequence[tuple[Side, Estimate]]) -> Chart:
    panels = list(product(*(placed.values[name] for name in placed.panels)))
    columns = min(_PANELS_IN_A_ROW, len(panels))
    rows = -(-len(panels) // columns)
    traces: list[Json] = []
    layout: Json = {
        "height": 110 + _PANEL_PX * rows,
        "annotations": [],
        "hovermode": "closest",
        "meta": {"above": 20 if placed.panels else 0},  # pixels, for the titles of the panels
    }
    legend = html.escape(short(placed.lines)) if placed.lines else ""
    layout["legend"] = {"title": {"text": legend, "font": {"size": 13}}}
    highest = max((e.high or e.value) for _, e in estimates)
    for i, panel in enumerate(panels):
        _add_panel(layout, figure, placed, panel, i, columns, rows, highest)
        traces += _panel_traces(figure, placed, panel, i, estimates)
    lines = f", a line per {short(placed.lines)}" if placed.lines else ""
    more = f", a panel per {' and '.join(map(short, placed.panels))}" if placed.panels else ""
    return Chart(
        f"matrix-{figure.name}",
        f"{figure.title} over {short(placed.x)}{lines}{more}. Bars are 95 % intervals. "
        "The overview has the same figures.",
        {"data": traces, "layout": layout},
        figure.title,
    )


def _panel_traces(
    figure: Figure,
    placed: Axes,
    panel: Key,
    number: int,
    estimates: Sequence[tuple[Side, Estimate]],
) -> list[Json]:
    suffix = "" if number == 0 else str(number + 1)
    over, line_axis = html.escape(short(placed.x)), html.escape(short(placed.lines or ""))
    of_line = f", {line_axis}=%{{fullData.name}}" if placed.lines else ""
    traces: list[Json] = []
    for place, value in enumerate(placed.values[placed.lines] if placed.lines else [""]):
        axis_values = dict(zip(placed.panels, panel, strict=True))
        if placed.lines:
            axis_values[placed.lines] = value
        drawn = [
            (x, estimate)
            for x in placed.x_values
            for side, estimate in estimates
            if {**axis_values, placed.x: x}.items() <= side.runs[0].run.cell.items()
        ]
        positions = _numbers([x for x, _ in drawn]) if placed.x_numbers is not None else None
        colour = PALETTE[place % MOST_LINES]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": html.escape(value),
                "legendgroup": f"line-{place}",
                "showlegend": bool(placed.lines) and number == 0,
                "xaxis": f"x{suffix}",
                "yaxis": f"y{suffix}",
                "x": [html.escape(x) for x, _ in drawn] if positions is None else positions,
                "y": rounded([e.value for _, e in drawn]),
                "error_y": {**error_bars([e for _, e in drawn]), "color": colour},
                "line": line(place),
                "marker": {"symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": 7},
                "hovertemplate": f"{over}=%{{x}}{of_line}<br>"
                f"{figure.title} %{{y:,.4~g}} {UNITS[figure.unit]}<extra></extra>",
            }
        )
    return traces


_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")


def _add_panel(
    layout: Json,
    figure: Figure,
    placed: Axes,
    panel: Key,
    number: int,
    columns: int,
    rows: int,
    highest: float,
) -> None:
    suffix = "" if number == 0 else str(number + 1)
    column, row = number % columns, number // columns
    width = (1 - _GAP * (columns - 1)) / columns
    left = column * (width + _GAP)
    between = _BETWEEN_PX / (_PANEL_PX * rows)
    height = (1 - between * (rows - 1)) / rows
    top = 1 - row * (height + between)
    x_axis: Json = {
        "domain": [left, min(1.0, left + width)],
        "anchor": f"y{suffix}",
        "title": {"text": html.escape(short(placed.x))},
    }
    if (ticks := placed.x_numbers) is not None:
        is_log = min(ticks) > 0 and max(ticks) / min(ticks) > _WIDE
        x_axis["type"] = "log" if is_log else "linear"
        if len(ticks) <= 10:
            x_axis |= {"tickvals": ticks, "ticktext": placed.x_values}
    else:
        values = [html.escape(value) for value in placed.x_values]
        x_axis |= {"type": "category", "categoryorder": "array", "categoryarray": values}
    layout[f"xaxis{suffix}"] = x_axis
    layout[f"yaxis{suffix}"] = {
        "domain": [max(0.0, top - height), top],
        "anchor": f"x{suffix}",
        # One scale for all panels, or they cannot be compared.
        "range": [0, highest * 1.06],
        **({"title": {"text": UNITS[figure.unit]}} if column == 0 else {}),
    }
    if placed.panels:
        text = ", ".join(
            f"{short(name)}={value}" for name, value in zip(placed.panels, panel, strict=True)
        )
        middle = {"xref": "paper", "yref": "paper", "xanchor": "center"}
        title = annotation(left + width / 2, top, html.escape(text), **middle)
        layout["annotations"].append(title)


def _ordered(values: Sequence[str]) -> list[str]:
    """Numbers by their size, other values as the scenario has them."""
    distinct = list(dict.fromkeys(values))
    numbers = _numbers(distinct)
    if numbers is None:
        return distinct
    return [value for _, value in sorted(zip(numbers, distinct, strict=True))]


def _numbers(values: Sequence[str]) -> list[float] | None:
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return None
    return numbers if all(map(math.isfinite, numbers)) else None
