"""The runs second by second, with what was done to the cluster meanwhile."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from penstock.domain.metrics import Second
from penstock.domain.run import RunEvent
from penstock.report.charts import Chart, Json, line, log_ticks, points, rounded
from penstock.report.shown import Side

_PANEL_PX = 150
_GAP = 0.05

Fold = Callable[[list[float]], float]


@dataclass(frozen=True)
class _Series:
    """One figure of a second, and how several seconds become one point."""

    title: str
    of: Callable[[Second], float | None]
    fold: Fold
    colour: str = ""
    dash: str = ""


def _rate(title: str, of: Callable[[Second], float], colour: str = "", dash: str = "") -> _Series:
    return _Series(title, of, fmean, colour, dash)


_RECEIVED = _rate("received", lambda s: s.received, "#009E73")
_DUE = _rate("due", lambda s: s.due, "#8C8C8C", "dot")
_P50 = _Series("p50", lambda s: s.p50_ms, median, "#56B4E9")
# The worst second is what one looks for; a mean would hide it.
_P99 = _Series("p99", lambda s: s.p99_ms, max, "#0072B2")
_LOST = _rate("lost", lambda s: s.lost, "#D55E00")
_FAILED = _rate("failed", lambda s: s.failed, "#E69F00", "dash")
_DUPLICATED = _rate("duplicated", lambda s: s.duplicated, "#CC79A7", "dot")


@dataclass(frozen=True)
class Marked:
    """An event as the chart numbers it."""

    number: int
    side: int
    label: str
    event: RunEvent


def marked(sides: Sequence[Side]) -> tuple[Marked, ...]:
    """Every event of every run; what is said in the same words has the same number."""
    numbers: dict[str, int] = {}
    found = []
    for place, side in enumerate(sides):
        for shown in side.used:
            for event in shown.run.events:
                number = numbers.setdefault(event.sentence, len(numbers) + 1)
                found.append(Marked(number, place, shown.label, event))
    return tuple(found)


def timeline(sides: Sequence[Side]) -> Chart | None:
    """Throughput, latency and what went wrong; panels in which nothing happened are left out."""
    all_seconds = [s for side in sides for shown in side.used for s in shown.metrics.seconds]
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
            for one in series
            for trace in _traces(one, sides, axis, is_single, limit, show_legend=i == 0)
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
    """What did not happen at all, and so has no line."""
    all_seconds = [s for side in sides for shown in side.used for s in shown.metrics.seconds]
    words = [
        "reported failed" if one is _FAILED else one.title
        for one in (_LOST, _FAILED, _DUPLICATED)
        if not any(one.of(second) for second in all_seconds)
    ]
    return f"No message was {' or '.join(words)}." if words else ""


def _panels(
    seconds: Sequence[Second], is_single: bool
) -> Iterator[tuple[str, bool, tuple[_Series, ...]]]:
    """(title, whether logarithmic, series). One run has its series together, several apart."""
    has_times = any(second.p50_ms is not None for second in seconds)
    wrong = [
        one for one in (_LOST, _FAILED, _DUPLICATED) if any(one.of(second) for second in seconds)
    ]
    if is_single:
        yield "messages/s", False, (_DUE, _RECEIVED)
        if has_times:
            yield "latency, ms", True, (_P50, _P99)
        if wrong:
            yield "wrong/s", False, tuple(wrong)
        return
    yield "received/s", False, (_RECEIVED,)
    if has_times:
        yield "p50, ms", True, (_P50,)
        yield "p99, ms", True, (_P99,)
    for one in wrong:
        yield f"{one.title}/s", False, (one,)


def _traces(
    series: _Series,
    sides: Sequence[Side],
    axis: str,
    is_single: bool,
    limit: int,
    show_legend: bool,
) -> Iterator[Json]:
    for place, side in enumerate(sides):
        for i, shown in enumerate(side.used):
            x, y = _folded(shown.metrics.seconds, series, limit)
            name = series.title if is_single else side.label
            drawn = line(place, i == 0, width=1.6 if i == 0 else 0.8)
            if is_single:
                drawn = {"color": series.colour, "width": 1.6, "dash": series.dash or "solid"}
            yield {
                "type": "scatter",
                "mode": "lines+markers" if sum(v is not None for v in y) < 3 else "lines",
                "name": html.escape(name),
                "legendgroup": series.title if is_single else f"side-{place}",
                "showlegend": is_single or (show_legend and i == 0),
                "xaxis": "x",
                "yaxis": axis,
                "x": x,
                "y": y,
                "line": drawn,
                "opacity": 1 if i == 0 else 0.6,
                "text": html.escape(shown.label),
                "hovertemplate": f"{series.title} %{{y:,.4~g}}"
                + ("<extra></extra>" if is_single else "<br>%{text}, %{x} s<extra></extra>"),
                "meta": {"side": place},
            }


def _folded(
    seconds: Sequence[Second], series: _Series, limit: int
) -> tuple[list[float | None], list[float | None]]:
    """At most `limit` points: several seconds become one, at the first of them."""
    size = -(-len(seconds) // limit) if seconds else 1
    x: list[float | None] = []
    y: list[float | None] = []
    for i in range(0, len(seconds), size):
        together = seconds[i : i + size]
        found = [value for second in together if (value := series.of(second)) is not None]
        x.append(together[0].at_s)
        y.append(series.fold(found) if found else None)
    return x, rounded(y)


def _mark_warm_up(seconds: Sequence[Second], layout: Json) -> None:
    first = min(second.at_s for second in seconds)
    if first >= 0:
        return
    layout["shapes"].append(
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": first,
            "x1": 0,
            "y0": 0,
            "y1": 1,
            "fillcolor": "rgba(128,128,128,0.18)",
            "line": {"width": 0},
            "layer": "below",
            "name": "warm-up",
        }
    )
    layout["annotations"].append(
        {
            "xref": "x",
            "yref": "paper",
            "x": first,
            "y": 1,
            "xanchor": "left",
            "yanchor": "bottom",
            "text": "warm-up",
            "showarrow": False,
            "name": "warm-up",
        }
    )


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
        common = {"xref": "x", "yref": "paper", "name": f"side-{mark.side}"}
        if took_s >= 0.1:
            layout["shapes"].append(
                {
                    "type": "rect",
                    **common,
                    "x0": at_s,
                    "x1": at_s + took_s,
                    "y0": 0,
                    "y1": 1,
                    "fillcolor": colour,
                    "opacity": 0.13,
                    "line": {"width": 0},
                    "layer": "below",
                }
            )
        layout["shapes"].append(
            {
                "type": "line",
                **common,
                "x0": at_s,
                "x1": at_s,
                "y0": 0,
                "y1": 1,
                "line": {"color": colour, "width": 1.3, "dash": "dash"},
            }
        )
        layout["annotations"].append(
            {
                **common,
                "x": at_s,
                "y": 1,
                "yanchor": "bottom",
                "text": f"<b>{mark.number}</b>",
                "hovertext": html.escape(mark.event.sentence),
                "showarrow": False,
            }
        )
