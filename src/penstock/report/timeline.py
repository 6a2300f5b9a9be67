"""Chart of the runs second by second, with the faults and network changes."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from penstock.domain.metrics import RunSecond
from penstock.domain.run import RunEvent
from penstock.report.charts import Chart, Json, annotation, line, log_ticks, points, rounded
from penstock.report.reported_run import Side

_PANEL_PX = 150
_GAP = 0.05
# A mark at a time, over the height of all panels.
_OVER_ALL: Json = {"xref": "x", "yref": "paper"}


@dataclass(frozen=True)
class _Series:
    """One figure of a second, and how several seconds become one point."""

    title: str
    of: Callable[[RunSecond], float | None]
    colour: str
    dash: str = "solid"
    fold: Callable[[list[float]], float] = fmean


_RECEIVED = _Series("received", lambda s: s.received, "#009E73")
_DUE = _Series("due", lambda s: s.due, "#8C8C8C", "dot")
_P50 = _Series("p50", lambda s: s.p50_ms, "#56B4E9", fold=median)
# The worst second is what one looks for; a mean would hide it.
_P99 = _Series("p99", lambda s: s.p99_ms, "#0072B2", fold=max)
_LOST = _Series("lost", lambda s: s.lost, "#D55E00")
_FAILED = _Series("failed", lambda s: s.failed, "#E69F00", "dash")
_DUPLICATED = _Series("duplicated", lambda s: s.duplicated, "#CC79A7", "dot")


@dataclass(frozen=True)
class Marked:
    """An event as the chart numbers it."""

    number: int
    side: int
    label: str
    event: RunEvent


def marked(sides: Sequence[Side]) -> tuple[Marked, ...]:
    """Every event of every run; events with the same text have the same number."""
    numbers: dict[str, int] = {}
    marks = []
    for place, side in enumerate(sides):
        for reported in side.used:
            for event in reported.run.events:
                number = numbers.setdefault(event.sentence, len(numbers) + 1)
                marks.append(Marked(number, place, reported.label, event))
    return tuple(marks)


def timeline(sides: Sequence[Side]) -> Chart | None:
    """Throughput, latency and what went wrong; panels in which nothing happened are left out."""
    all_seconds = _all_seconds(sides)
    if not all_seconds:
        return None
    is_single = sum(len(side.used) for side in sides) == 1
    panels = list(_panels(all_seconds, is_single))
    limit = points(sides, per_run=len(panels))
    traces: list[Json] = []
    layout: Json = {
        "height": 90 + _PANEL_PX * len(panels),
        "xaxis": {"title": {"text": "seconds from the measured start"}, "zeroline": False},
        "hovermode": "x unified" if is_single else "closest",
        "meta": {"above": 20},  # pixels, for the marks of the events
        "shapes": [],
        "annotations": [],
    }
    height = (1 - _GAP * (len(panels) - 1)) / len(panels)
    for i, (title, is_log, series) in enumerate(panels):
        axis = "y" if i == 0 else f"y{i + 1}"
        drawn = [
            trace
            for kind in series
            for trace in _traces(kind, sides, axis, is_single, limit, show_legend=i == 0)
        ]
        traces += drawn
        top = 1 - i * (height + _GAP)
        layout[f"yaxis{'' if i == 0 else i + 1}"] = {
            "title": {"text": title},
            "domain": [max(0.0, top - height), top],
            **({"type": "log", **log_ticks(drawn, wide=30)} if is_log else {"rangemode": "tozero"}),
        }
    layout["xaxis"]["anchor"] = f"y{len(panels)}" if len(panels) > 1 else "y"
    _mark_warm_up(all_seconds, layout)
    _mark_events(sides, layout)
    titles = ", ".join(title for title, _, _ in panels)
    return Chart(
        "timeline",
        f"Second by second: {titles}. Vertical lines mark what was done to the cluster; "
        "the shaded seconds before 0 are the warm-up.",
        {"data": traces, "layout": layout},
        is_choice=True,
    )


def quiet(sides: Sequence[Side]) -> str:
    """What did not happen at all, and so is not drawn."""
    wrong = _wrong(_all_seconds(sides))
    titles = {_LOST: "lost", _FAILED: "reported failed", _DUPLICATED: "duplicated"}
    words = [title for kind, title in titles.items() if kind not in wrong]
    return f"No message was {' or '.join(words)}." if words else ""


def _all_seconds(sides: Sequence[Side]) -> list[RunSecond]:
    return [s for side in sides for reported in side.used for s in reported.metrics.seconds]


def _wrong(seconds: Sequence[RunSecond]) -> tuple[_Series, ...]:
    kinds = (_LOST, _FAILED, _DUPLICATED)
    return tuple(kind for kind in kinds if any(map(kind.of, seconds)))


def _panels(
    seconds: Sequence[RunSecond], is_single: bool
) -> Iterator[tuple[str, bool, tuple[_Series, ...]]]:
    """(title, whether logarithmic, series). One run has its series together, several apart."""
    has_times = any(second.p50_ms is not None for second in seconds)
    wrong = _wrong(seconds)
    if is_single:
        yield "messages/s", False, (_DUE, _RECEIVED)
        if has_times:
            yield "latency, ms", True, (_P50, _P99)
        if wrong:
            yield "wrong/s", False, wrong
        return
    yield "received/s", False, (_RECEIVED,)
    if has_times:
        yield "p50, ms", True, (_P50,)
        yield "p99, ms", True, (_P99,)
    for kind in wrong:
        yield f"{kind.title}/s", False, (kind,)


def _traces(
    series: _Series,
    sides: Sequence[Side],
    axis: str,
    is_single: bool,
    limit: int,
    show_legend: bool,
) -> Iterator[Json]:
    for place, side in enumerate(sides):
        for i, reported in enumerate(side.used):
            x, y = _folded(reported.metrics.seconds, series, limit)
            trace: Json = {
                "type": "scatter",
                "mode": "lines+markers" if sum(v is not None for v in y) < 3 else "lines",
                "xaxis": "x",
                "yaxis": axis,
                "x": x,
                "y": y,
                "opacity": 1 if i == 0 else 0.6,
                "text": html.escape(reported.label),
                "meta": {"side": place},
            }
            where = "" if is_single else "<br>%{text}, %{x} s"
            trace["hovertemplate"] = f"{series.title} %{{y:,.4~g}}{where}<extra></extra>"
            if is_single:
                drawn = {"color": series.colour, "width": 1.6, "dash": series.dash}
                trace |= {"name": series.title, "legendgroup": series.title, "line": drawn}
                yield {**trace, "showlegend": True}
            else:
                drawn = line(place, i == 0, width=1.6 if i == 0 else 0.8)
                trace |= {"name": html.escape(side.label), "legendgroup": f"side-{place}"}
                yield {**trace, "line": drawn, "showlegend": show_legend and i == 0}


def _folded(
    seconds: Sequence[RunSecond], series: _Series, limit: int
) -> tuple[list[float | None], list[float | None]]:
    """At most `limit` points: several seconds become one, at the first of them."""
    size = -(-len(seconds) // limit) if seconds else 1
    x: list[float | None] = []
    y: list[float | None] = []
    for i in range(0, len(seconds), size):
        together = seconds[i : i + size]
        values = [value for second in together if (value := series.of(second)) is not None]
        x.append(together[0].at_s)
        y.append(series.fold(values) if values else None)
    return x, rounded(y)


def _mark_warm_up(seconds: Sequence[RunSecond], layout: Json) -> None:
    first = min(second.at_s for second in seconds)
    if first < 0:
        warm_up = _OVER_ALL | {"name": "warm-up"}
        layout["shapes"].append(_band(first, 0, fillcolor="rgba(128,128,128,0.18)", **warm_up))
        layout["annotations"].append(annotation(first, 1, "warm-up", xanchor="left", **warm_up))


def _mark_events(sides: Sequence[Side], layout: Json) -> None:
    seen: set[tuple[int, int, int]] = set()
    for mark in marked(sides):
        at_s, took_s = mark.event.at_s, mark.event.took_s
        # Repeats of a side have their events at about the same time: one mark does.
        key = (mark.side, mark.number, round(at_s))
        if key in seen:
            continue
        seen.add(key)
        colour = "#888888" if len(sides) == 1 else str(line(mark.side)["color"])
        common = _OVER_ALL | {"name": f"side-{mark.side}"}
        if took_s >= 0.1:
            band = _band(at_s, at_s + took_s, fillcolor=colour, opacity=0.13, **common)
            layout["shapes"].append(band)
        dashed = {"color": colour, "width": 1.3, "dash": "dash"}
        upright = {"type": "line", "x0": at_s, "x1": at_s, "y0": 0, "y1": 1, "line": dashed}
        layout["shapes"].append(upright | common)
        hover = html.escape(mark.event.sentence)
        number = annotation(at_s, 1, f"<b>{mark.number}</b>", hovertext=hover, **common)
        layout["annotations"].append(number)


def _band(from_s: float, to_s: float, **more: Any) -> Json:
    edges = {"type": "rect", "x0": from_s, "x1": to_s, "y0": 0, "y1": 1}
    return {**edges, "line": {"width": 0}, "layer": "below", **more}
