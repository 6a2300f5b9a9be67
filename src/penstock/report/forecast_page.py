"""Pages of predictions: of a scenario, along a sweep, beside a run."""

from __future__ import annotations

import html
from collections.abc import Sequence

from penstock.domain.axis import number_or_text
from penstock.models.fitted import FittedModel
from penstock.models.forecast import Forecast, Judged
from penstock.models.path.predict import CURVE_SHARES, PERCENTS, Prediction, Saturated
from penstock.report import forecasts
from penstock.report.charts import Chart, Json, error_bars, line, rounded
from penstock.report.document import Section, document, figure
from penstock.report.markup import Markup, folded, table, tag


def render(every: Sequence[Forecast], model: FittedModel, over: str | None = None) -> str:
    """The page of predictions."""
    header = tag(
        "header",
        tag("h1", "Prediction"),
        tag("p", forecasts.outcome(every, over), class_="outcome"),
        tag("p", forecasts.about(model), class_="about"),
    )
    sections: list[Section | Markup | None] = [_outside(every)]
    if len(every) > 1:
        chart = _sweep(every, over) if over else None
        shown = table(forecasts.overview(every), "Predicted end to end, with 90 % intervals")
        content = (figure(chart), shown) if chart else (shown,)
        sections.append(Section("overview", "Settings", content, (chart,) if chart else ()))
    else:
        sections += _single(every[0])
    sections.append(_evidence(model))
    return document("Prediction", header, sections)


def render_judged(every: Sequence[Judged], model: FittedModel) -> str:
    """The page of predictions beside measurements."""
    header = tag(
        "header",
        tag("h1", "Prediction beside measurement"),
        tag("p", forecasts.judged_outcome(every), class_="outcome"),
        tag("p", forecasts.about(model), class_="about"),
    )
    sections: list[Section | Markup | None] = [_outside([one.forecast for one in every])]
    for number, one in enumerate(every):
        name = f"run-{number}"
        if not isinstance(one.forecast.answer, Prediction):
            told = tag("p", forecasts.capital(str(one.forecast.answer)))
            sections.append(Section(name, one.seen.run, (told,)))
            continue
        chart = _cumulative(f"{name}-cdf", one.forecast.answer, one)
        content = (
            figure(chart),
            table(forecasts.beside(one), "Latency, predicted (90 % intervals) and measured"),
            table(forecasts.parts_beside(one), "Means of the parts"),
        )
        sections.append(Section(name, one.seen.run, content, (chart,)))
    sections.append(_evidence(model))
    return document("Prediction beside measurement", header, sections)


def _single(one: Forecast) -> list[Section]:
    if isinstance(one.answer, Saturated):
        return []
    chart = _cumulative("cdf", one.answer)
    return [
        Section(
            "latency",
            "Latency",
            (
                figure(chart),
                table(forecasts.latencies(one.answer), "Predicted, with 90 % intervals"),
            ),
            (chart,),
        ),
        Section(
            "parts",
            "Parts and load",
            (
                table(forecasts.parts(one.answer), "Mean end-to-end latency by part"),
                table(forecasts.load(one.answer), "Load"),
                table(forecasts.traffic(one), "Networks and disks"),
            ),
        ),
    ]


def _outside(every: Sequence[Forecast]) -> Markup | None:
    notes = list(dict.fromkeys(note for one in every for note in one.outside))
    if not notes:
        return None
    listed = tag("ul", *(tag("li", note) for note in notes))
    return tag("div", tag("h2", "Beyond the calibration"), listed, class_="notice")


def _evidence(model: FittedModel) -> Section:
    before = model.history[-1] if model.history else None
    content = (
        table(
            forecasts.errors(model.record, before), "Each run was predicted by a fit of the others"
        ),
        folded("Each run", table(forecasts.left_out(model), "Measured over predicted")),
    )
    return Section("evidence", "How good the model is", content)


def _sweep(every: Sequence[Forecast], over: str | None) -> Chart:
    """Percentiles over the axis; numbers as such, other values in their order."""
    axis = over or ""
    drawn = [(number_or_text(one.place.get(axis, one.label)), one) for one in every]
    drawn = [(x, one) for x, one in drawn if isinstance(one.answer, Prediction)]
    is_number = all(isinstance(x, float) for x, _ in drawn)
    traces: list[Json] = []
    for place, percent in enumerate(("50", "90", "99")):
        values = [
            one.answer.latencies["end_to_end"].percentiles_ms[percent]
            for _, one in drawn
            if isinstance(one.answer, Prediction)
        ]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"p{percent}",
                "x": [x if is_number else html.escape(str(x)) for x, _ in drawn],
                "y": rounded([value.value for value in values]),
                "error_y": {**error_bars(values), "color": line(place)["color"]},
                "line": line(place),
                "hovertemplate": f"%{{x}}: p{percent} %{{y:,.4~g}} ms<extra></extra>",
            }
        )
    layout: Json = {
        "height": 380,
        "hovermode": "closest",
        "xaxis": {"title": {"text": html.escape(axis.removeprefix("settings."))}},
        "yaxis": {"title": {"text": "end to end, ms"}, "rangemode": "tozero"},
    }
    return Chart(
        "sweep",
        f"Predicted percentiles of the end-to-end latency over {axis}, with 90 % intervals. The "
        "table below has the figures.",
        {"data": traces, "layout": layout},
    )


def _cumulative(name: str, answer: Prediction, beside: Judged | None = None) -> Chart:
    """The predicted distribution as a line; percentiles that were measured as points on it."""
    traces: list[Json] = []
    for place, latency in enumerate(("end_to_end", "produce")):
        predicted = answer.latencies[latency]
        title = forecasts.LATENCIES[latency]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{title}, predicted",
                "x": rounded(predicted.curve_ms),
                "y": rounded(100 * CURVE_SHARES),
                "line": line(place),
                "hovertemplate": f"{title}: %{{y:.1f}} % within %{{x:,.4~g}} ms<extra></extra>",
            }
        )
        if beside is not None and latency in beside.seen.latencies:
            measured = beside.seen.latencies[latency].percentiles_ms
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": f"{title}, measured",
                    "x": rounded([measured[f"{p:g}"] for p in PERCENTS]),
                    "y": list(PERCENTS),
                    "marker": {"size": 8, "color": line(place)["color"], "symbol": "x"},
                    "hovertemplate": f"{title}, measured: p%{{y}} %{{x:,.4~g}} ms<extra></extra>",
                }
            )
    layout: Json = {
        "height": 360,
        "hovermode": "closest",
        "xaxis": {"title": {"text": "latency, ms"}, "type": "log"},
        "yaxis": {"title": {"text": "% of messages"}, "range": [0, 100]},
    }
    return Chart(
        name,
        "The predicted distribution of the latency end to end and until acknowledged. The table "
        "below has the figures.",
        {"data": traces, "layout": layout},
    )
