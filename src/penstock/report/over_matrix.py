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
from penstock.measure.matrix import short
from penstock.report.charts import MOST_LINES, PALETTE, Chart, Json, error_bars, line, rounded
from penstock.report.figures import Figure, figures
from penstock.report.shown import Side

_PANELS_IN_A_ROW = 3
_PANEL_PX = 230
_BETWEEN_PX = 76  # room for the title of an axis and that of the panel below
_GAP = 0.05
# So few cells are seen at once in the comparison; two points make no curve.
_FEW = 3
# Beyond this ratio the small values of an axis would all stand at its left end.
_WIDE = 30
_UNITS = {"ms": "ms", "share": "%", "per_s": "/s", "mb_per_s": "MB/s"}
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
    if placed is None or (len(sides) <= _FEW and len(placed.values[placed.x]) <= 2):
        return ()
    metrics = [shown.metrics for side in sides for shown in side.used]
    found = [f for f in figures(metrics) if f.is_key or f.name in _ALSO]
    charts = []
    for figure in found:
        estimates = [side.estimate(figure) for side in sides]
        if any(e is not None and e.value for e in estimates):
            charts.append(_chart(figure, placed, sides, estimates))
    return tuple(charts)


def flat_figures(sides: Sequence[Side]) -> list[str]:
    """The figures that are 0 in every cell, and so have no chart."""
    metrics = [shown.metrics for side in sides for shown in side.used]
    estimates = {
        f.title: [e for side in sides if (e := side.estimate(f)) is not None]
        for f in figures(metrics)
        if f.is_key
    }
    return [t for t, found in estimates.items() if found and not any(e.value for e in found)]


def _chart(
    figure: Figure, placed: Axes, sides: Sequence[Side], estimates: Sequence[Estimate | None]
) -> Chart:
    panels = list(product(*(placed.values[name] for name in placed.panels)))
    columns = min(_PANELS_IN_A_ROW, len(panels))
    rows = -(-len(panels) // columns)
    traces: list[Json] = []
    layout: Json = {
        "height": 110 + _PANEL_PX * rows,
        "annotations": [],
        "hovermode": "closest",
        "meta": {"above": 20 if placed.panels else 0},  # pixels, for the titles of the panels
        "legend": {
            "title": {
                "text": html.escape(short(placed.lines)) if placed.lines else "",
                "font": {"size": 13},
            },
        },
    }
    highest = max((e.high or e.value) for e in estimates if e is not None)
    for i, panel in enumerate(panels):
        _add_panel(layout, figure, placed, panel, i, columns, rows, highest)
        traces += _panel_traces(figure, placed, panel, i, sides, estimates)
    lines = f", a line per {short(placed.lines)}" if placed.lines else ""
    more = f", a panel per {' and '.join(map(short, placed.panels))}" if placed.panels else ""
    return Chart(
        f"matrix-{figure.name}",
        f"{figure.title} over {short(placed.x)}{lines}{more}. Bars are 95 % intervals. "
        "The overview has the same figures.",
        {"data": traces, "layout": layout},
    )


def _panel_traces(
    figure: Figure,
    placed: Axes,
    panel: Key,
    number: int,
    sides: Sequence[Side],
    estimates: Sequence[Estimate | None],
) -> list[Json]:
    suffix = "" if number == 0 else str(number + 1)
    scale = 100 if figure.unit == "share" else 1
    traces: list[Json] = []
    for place, value in enumerate(placed.values[placed.lines] if placed.lines else [""]):
        wanted = dict(zip(placed.panels, panel, strict=True))
        if placed.lines:
            wanted[placed.lines] = value
        drawn: list[tuple[str, Estimate]] = []
        for x in placed.values[placed.x]:
            for side, estimate in zip(sides, estimates, strict=True):
                cell = side.runs[0].run.cell
                is_here = cell.get(placed.x) == x and all(
                    cell.get(k) == v for k, v in wanted.items()
                )
                if is_here and estimate is not None:
                    drawn.append((x, _scaled(estimate, scale)))
        positions = _numbers([x for x, _ in drawn]) if _is_number_axis(placed) else None
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
                "error_y": {
                    **error_bars([e for _, e in drawn]),
                    "color": PALETTE[place % MOST_LINES],
                },
                "line": line(place),
                "marker": {"symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": 7},
                "hovertemplate": f"{html.escape(short(placed.x))}=%{{x}}"
                + (
                    f", {html.escape(short(placed.lines))}=%{{fullData.name}}"
                    if placed.lines
                    else ""
                )
                + f"<br>{figure.title} %{{y:,.4~g}} {_UNITS[figure.unit]}<extra></extra>",
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
    scale = 100 if figure.unit == "share" else 1
    x_axis: Json = {
        "domain": [left, min(1.0, left + width)],
        "anchor": f"y{suffix}",
        "title": {"text": html.escape(short(placed.x))},
        "type": "category",
    }
    if _is_number_axis(placed):
        found = _numbers(placed.values[placed.x]) or []
        is_log = min(found) > 0 and max(found) / min(found) > _WIDE
        x_axis |= {"type": "log" if is_log else "linear"}
        if len(found) <= 10:
            x_axis |= {"tickvals": found, "ticktext": placed.values[placed.x]}
    else:
        x_axis |= {
            "categoryorder": "array",
            "categoryarray": [html.escape(value) for value in placed.values[placed.x]],
        }
    layout[f"xaxis{suffix}"] = x_axis
    layout[f"yaxis{suffix}"] = {
        "domain": [max(0.0, top - height), top],
        "anchor": f"x{suffix}",
        # One scale for all panels, or they cannot be compared.
        "range": [0, highest * scale * 1.06],
        **({"title": {"text": _UNITS[figure.unit]}} if column == 0 else {}),
    }
    if placed.panels:
        text = ", ".join(
            f"{short(name)}={value}" for name, value in zip(placed.panels, panel, strict=True)
        )
        layout["annotations"].append(
            {
                "xref": "paper",
                "yref": "paper",
                "x": left + width / 2,
                "y": top,
                "xanchor": "center",
                "yanchor": "bottom",
                "text": html.escape(text),
                "showarrow": False,
            }
        )


def _is_number_axis(placed: Axes) -> bool:
    return _numbers(placed.values[placed.x]) is not None


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    def by(number: float | None) -> float | None:
        return None if number is None else number * factor

    return Estimate(value=estimate.value * factor, low=by(estimate.low), high=by(estimate.high))


def _ordered(values: Sequence[str]) -> list[str]:
    """Numbers by their size, other values as the scenario has them."""
    distinct = list(dict.fromkeys(values))
    found = _numbers(distinct)
    if found is None:
        return distinct
    return [value for _, value in sorted(zip(found, distinct, strict=True))]


def _numbers(values: Sequence[str]) -> list[float] | None:
    try:
        found = [float(value) for value in values]
    except ValueError:
        return None
    return found if all(map(math.isfinite, found)) else None
