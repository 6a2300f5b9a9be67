"""Predictions as sentences and tables: of a scenario, along a sweep, beside a run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.domain.metrics import Estimate
from penstock.models.fitted import FitRecord, FittedModel
from penstock.models.forecast import Forecast, Judged, JudgedFigure
from penstock.models.path.predict import Prediction, Saturated
from penstock.models.reading import FittedReading
from penstock.models.record_batch import record_bytes
from penstock.report import formatting
from penstock.report.tables import Cell, Cells, Table, estimate_cell

# Name in the model → what people call it.
LATENCIES = {
    "end_to_end": "end to end",
    "produce": "until acknowledged",
    "commit": "append to visible",
}
_PARTS = {
    "wait": "wait for its batch",
    "queue": "wait for its turn",
    "append": "append",
    "replicate": "replicate",
    "fetch": "fetch",
    "until appended": "until appended",
    "until visible": "until visible",
}
_SHOWN = ("50", "90", "99", "99.9")
_ERRORS = {
    "produce_mean": "acknowledged, mean",
    "produce_p99": "acknowledged, p99",
    "end_to_end_mean": "end to end, mean",
    "end_to_end_p99": "end to end, p99",
}


# --- sentences -----------------------------------------------------------------------------------------


def outcome(every: Sequence[Forecast], over: str | None = None) -> str:
    """The outcome in one sentence."""
    steady = [one for one in every if isinstance(one.answer, Prediction)]
    if len(every) == 1:
        [one] = every
        if isinstance(one.answer, Saturated):
            return f"{capital(str(one.answer))}."
        latency = one.answer.latencies["end_to_end"]
        return (
            f"Predicted end to end: half within {_ms(latency.percentiles_ms['50'])}, "
            f"99 % within {_ms(latency.percentiles_ms['99'])}."
        )
    if not steady:
        return f"The load is too high in all {len(every)} settings."
    best = min(steady, key=_p99)
    lost = len(every) - len(steady)
    rest = f"; the load is too high in {lost} of {len(every)}" if lost else ""
    worst = max(steady, key=_p99)
    return (
        f"Lowest p99 end to end: {_ms(_p99_of(best))} at {best.label}; highest: "
        f"{_ms(_p99_of(worst))} at {worst.label}{rest}."
    )


def judged_outcome(every: Sequence[Judged]) -> str:
    """How many of the figures lie in their intervals, and how far the p99 is off."""
    figures = [figure for one in every for figure in one.figures]
    refused = sum(isinstance(one.forecast.answer, Saturated) for one in every)
    if not figures:
        return "The load is predicted as too high in every run."
    inside = [figure for figure in figures if figure.is_inside is not None]
    clauses = []
    if inside:
        held = sum(bool(figure.is_inside) for figure in inside)
        clauses.append(f"{held} of {len(inside)} measured figures lie in the 90 % intervals")
    if len(every) == 1:
        off = [
            f"{name} {formatting.ratio(figure.measured_ms, figure.predicted.value) or 'equal'}"
            for statistic, name in (("mean", "mean"), ("99", "p99"))
            for figure in figures
            if (figure.latency, figure.statistic) == ("end_to_end", statistic)
        ]
        clauses.append(f"measured against predicted, end to end: {formatting.listed(off)}")
    if refused:
        clauses.append(f"the load is predicted as too high in {refused} of {len(every)} runs")
    return f"{capital('; '.join(clauses))}."


def _p99_of(one: Forecast) -> Estimate:
    assert isinstance(one.answer, Prediction)
    return one.answer.latencies["end_to_end"].percentiles_ms["99"]


def _p99(one: Forecast) -> float:
    return _p99_of(one).value


def _ms(figure: Estimate) -> str:
    return formatting.estimate(figure, "ms")


def capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def about(model: FittedModel) -> str:
    """Where the model comes from."""
    machine = ", ".join(
        f"{name} {value}"
        for name, value in model.machine.items()
        if value and name != "load_average"
    )
    kafka = model.versions.get("kafka", "")
    return (
        f"Model fitted to {len(model.observations)} runs, {model.made_at}"
        + (f", Kafka {kafka}" if kafka else "")
        + f" ({machine})"
    )


# --- tables --------------------------------------------------------------------------------------------


def latencies(answer: Prediction) -> Table:
    """A row per latency: mean and percentiles, each with its interval."""
    rows: list[Cells] = [
        [
            title,
            *(
                estimate_cell(value, "ms")
                for value in (
                    answer.latencies[name].mean_ms,
                    *(answer.latencies[name].percentiles_ms[p] for p in _SHOWN),
                )
            ),
        ]
        for name, title in LATENCIES.items()
    ]
    return Table(["predicted", "mean", *(f"p{p}" for p in _SHOWN)], rows)


def parts(answer: Prediction) -> Table:
    """Where the mean end-to-end latency goes."""
    total = sum(answer.parts_ms.values())
    rows: list[Cells] = [
        [_PARTS[name], formatting.quantity(ms, "ms"), formatting.quantity(ms / total, "share")]
        for name, ms in answer.parts_ms.items()
    ]
    return Table(["part", "mean", "share"], rows)


def load(answer: Prediction) -> Table:
    """What the run asks of clients and brokers."""
    rows: list[Cells] = [
        ["messages", formatting.quantity(answer.messages_per_s, "per_s")],
        ["produce requests", formatting.quantity(answer.requests_per_s, "per_s")],
        ["messages per request", formatting.significant(answer.batch_messages)],
        ["used share of the cores", formatting.quantity(answer.cpu_share, "share")],
    ]
    return Table(["load", "predicted"], rows)


def traffic(one: Forecast, disk_gb: float | None = None) -> Table:
    """What the run takes of networks and disks."""
    found = one.traffic
    if found is None:
        return Table(["traffic"], [])
    rows: list[Cells] = [
        ["payload, before compression", formatting.quantity(found.payload_mb_per_s, "mb_per_s")],
        ["sent by producers", formatting.quantity(found.sent_mb_per_s, "mb_per_s")],
        ["… of which overhead", formatting.quantity(found.overhead_share, "share")],
        ["compression ratio", formatting.significant(one.compression_ratio)],
        [
            "into the busiest broker",
            formatting.quantity(max(found.network_in_mb_per_s), "mb_per_s"),
        ],
        ["out of the busiest", formatting.quantity(max(found.network_out_mb_per_s), "mb_per_s")],
        ["onto the fullest disk", formatting.quantity(max(found.disk_mb_per_s), "mb_per_s")],
        ["fullest disk over the mean", formatting.significant(found.imbalance)],
    ]
    if one.most is not None:
        most = float(one.most.bytes_per_s.sum()) / 1e6
        rows.append(
            [
                "most that one producer can send (acks=1, 1 replica)",
                formatting.quantity(most, "mb_per_s"),
            ]
        )
        rows.append(["… messages", formatting.quantity(one.most.messages_per_s, "per_s")])
    if one.most_read is not None:
        read = one.most_read
        figure = formatting.quantity(read.payload_mb_per_s, "mb_per_s")
        rows.append(["most that one consumer can read", figure])
        rows.append(["… messages", formatting.quantity(read.messages_per_s, "per_s")])
    if disk_gb is not None:
        days = formatting.significant(found.days_until_full(disk_gb))
        rows.append([f"days until {disk_gb:g} GB are full", days])
    return Table(["traffic", "predicted"], rows)


def until_full(every: Sequence[Forecast], disk_gb: float) -> Table:
    """Of several cells, when the fullest disk is full."""
    rows: list[Cells] = [
        [one.label, formatting.significant(one.traffic.days_until_full(disk_gb))]
        for one in every
        if one.traffic is not None
    ]
    return Table(["setting", f"days until {disk_gb:g} GB are full"], rows)


def readings(model: FittedModel, fitted: FittedReading) -> Table:
    """What consumers read that were behind, measured and by f_c."""
    rows: list[Cells] = []
    for one in model.readings:
        size = float(record_bytes(one.message_bytes))
        messages = one.fetch_messages
        per_s = messages / fitted.seconds(messages, messages * size)
        rows.append(
            [
                f"{one.message_bytes} B",
                str(one.partitions),
                formatting.significant(messages),
                formatting.quantity(one.messages_per_s, "per_s"),
                formatting.quantity(per_s, "per_s"),
            ]
        )
    return Table(["messages of", "partitions", "messages per fetch", "measured", "fitted"], rows)


def overview(every: Sequence[Forecast]) -> Table:
    """A row per cell or point of a sweep."""
    names = list(dict.fromkeys(name for one in every for name in one.place))
    rows: list[Cells] = []
    for one in every:
        place = [one.place.get(name, "") for name in names] or [one.label]
        if isinstance(one.answer, Saturated):
            limit = formatting.quantity(one.answer.limit_per_s, "per_s")
            rows.append([*place, f"too high: limit {limit}", *[formatting.NOTHING] * 4])
            continue
        latency, answer = one.answer.latencies["end_to_end"], one.answer
        rows.append(
            [
                *place,
                estimate_cell(latency.mean_ms, "ms"),
                estimate_cell(latency.percentiles_ms["50"], "ms"),
                estimate_cell(latency.percentiles_ms["99"], "ms"),
                formatting.quantity(answer.requests_per_s, "per_s"),
                formatting.quantity(answer.cpu_share, "share"),
            ]
        )
    heads = [name.removeprefix("settings.") for name in names] or ["run"]
    return Table([*heads, "mean", "p50", "p99", "produce requests", "CPU used"], rows)


def late(every: Sequence[Forecast], limits_ms: Sequence[float]) -> Table:
    """η_v: the share of messages that are later than each limit."""
    rows: list[Cells] = [
        [one.label, *(formatting.quantity(one.late_share(limit), "share") for limit in limits_ms)]
        for one in every
    ]
    return Table(["end to end", *(f"later than {limit:g} ms" for limit in limits_ms)], rows)


def beside(one: Judged) -> Table:
    """Predicted and measured, a row per figure."""
    rows: list[Cells] = [
        [
            f"{LATENCIES[row.latency]}, {_statistic(row.statistic)}",
            estimate_cell(row.predicted, "ms"),
            formatting.quantity(row.measured_ms, "ms"),
            formatting.ratio(row.measured_ms, row.predicted.value) or "=",
            _inside(row),
        ]
        for row in one.figures
    ]
    return Table(
        ["latency", "predicted", "measured", "measured/predicted", "in the interval"], rows
    )


def parts_beside(one: Judged) -> Table:
    """Where the model is right, and where it is wrong."""
    rows: list[Cells] = [
        [
            _indented(part.name),
            formatting.quantity(part.predicted_ms, "ms"),
            formatting.quantity(part.measured_ms, "ms"),
        ]
        for part in one.parts
    ]
    return Table(["part of the mean, end to end", "predicted", "measured"], rows)


def errors(record: FitRecord, before: FitRecord | None = None) -> Table:
    """Typical errors on runs that were left out of the fit, and those of the fit before it."""
    rows: list[Cells] = [
        [
            title,
            formatting.quantity(record.errors.get(name), "share"),
            *([formatting.quantity(before.errors.get(name), "share")] if before else []),
        ]
        for name, title in _ERRORS.items()
    ]
    heads = ["typical error on left-out runs", f"{record.runs} runs"]
    return Table([*heads, *([f"{before.runs} runs, before"] if before else [])], rows)


def left_out(model: FittedModel) -> Table:
    """How each run was predicted by a fit of the others."""
    rows: list[Cells] = [
        [
            one.run,
            *(
                formatting.NOTHING
                if error is None
                else formatting.ratio(math.exp(error), 1.0) or "="
                for error in (
                    one.errors.get(latency, {}).get(statistic)
                    for latency in ("produce", "end_to_end")
                    for statistic in ("mean", "99")
                )
            ),
        ]
        for one in model.left_out
    ]
    heads = [f"{name}, {s}" for name in ("acknowledged", "end to end") for s in ("mean", "p99")]
    return Table(["measured/predicted, left out", *heads], rows)


def _statistic(name: str) -> str:
    return name if name == "mean" else f"p{name}"


def _indented(name: str) -> str:
    inner = name.strip()
    return ("  " if inner != name else "") + _PARTS[inner]


def _inside(row: JudgedFigure) -> Cell | str:
    if row.is_inside is None:
        return formatting.NOTHING
    return Cell("yes", "good") if row.is_inside else Cell("no", "bad")
