"""What bench/models.py makes of its measurements: errors, noise, coverage, the document's rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness import Row
from model_cells import Cell, cells, full_cells, reading_cells
from model_data import Measured, Measurements
from penstock.api.prediction import forecast
from penstock.domain.scenario import Scenario
from penstock.domain.value import FieldError
from penstock.models.fitted import FittedModel
from penstock.models.forecast import Forecast, judge
from penstock.models.observation import Observation
from penstock.models.path.predict import PERCENTS, Prediction, Saturated
from penstock.models.reading import most_read
from penstock.models.three_stages import SyncLatency, stage, uniform_stage
from penstock.report.charts import PALETTE, Chart, rounded
from penstock.report.document import Section, document, figure
from penstock.report.markup import tag
from penstock.stats.distributions import Law, Uniform
from penstock.stats.distributions import Observations as Times
from penstock.stats.distributions.selection import select
from penstock.stats.histogram import Histogram

NOISY = 0.20
LEVELS = {"light": 0.40, "medium": 0.65, "heavy": 0.85}
AIMS = {"links": {"mean": 0.05, "99": 0.10}, "cpu": {"mean": 0.10, "99": 0.20}}


def predicted(model: FittedModel, chosen: Sequence[Cell]) -> dict[str, Forecast]:
    """What the model says of these cells."""
    return {cell.name: forecast(model, cell.scenario, client=cell.client) for cell in chosen}


def _figure(one: Measured, statistic: str) -> float | None:
    """End to end; of Java's client, until acknowledged."""
    latency = one.latencies.get("end_to_end") or one.latencies.get("produce")
    if latency is None:
        return None
    return latency.mean_ms if statistic == "mean" else latency.percentiles_ms.get(statistic)


def _logs(every: Sequence[Measured], statistic: str) -> list[float]:
    """Of each repeat. If there are three, the last one was measured for longer, since the first two
    disagreed: these together count as one."""
    values = [_figure(one, statistic) for one in every]
    logs = [math.log(value) for value in values if value]
    return logs if len(logs) < 3 else [float(np.mean(logs[:-1])), logs[-1]]


def noise(every: Sequence[Measured], statistic: str) -> float:
    """How far repeats are apart; 0 if there is one."""
    logs = _logs(every, statistic)
    return math.expm1(max(logs) - min(logs)) if len(logs) > 1 else 0.0


@dataclass(frozen=True)
class Verdict:
    """A cell that was predicted and measured."""

    cell: Cell
    forecast: Forecast
    every: Sequence[Measured]

    @property
    def prediction(self) -> Prediction | None:
        return self.forecast.prediction

    @property
    def is_measured(self) -> bool:
        return bool(_logs(self.every, "mean"))

    @property
    def level(self) -> str:
        shares = [one.cpu_share for one in self.every if one.cpu_share is not None]
        share = float(np.mean(shares)) if shares else 0.0
        return next((name for name, most in LEVELS.items() if share <= most), "saturated")

    @property
    def group(self) -> str:
        return f"{self.cell.regime}_{self.level}"

    def estimate(self, statistic: str) -> Any:
        assert self.prediction is not None
        name = "produce" if self.cell.client == "java" else "end_to_end"
        latency = self.prediction.latencies[name]
        return latency.mean_ms if statistic == "mean" else latency.percentiles_ms[statistic]

    def measured_ms(self, statistic: str) -> float:
        return math.exp(float(np.mean(_logs(self.every, statistic))))

    def error(self, statistic: str) -> float:
        predicted = self.estimate(statistic).value
        return math.expm1(abs(math.log(predicted / self.measured_ms(statistic))))

    def is_inside(self, statistic: str) -> bool | None:
        estimate = self.estimate(statistic)
        if estimate.low is None:
            return None
        return bool(estimate.low <= self.measured_ms(statistic) <= estimate.high)

    def violation_errors(self) -> list[float]:
        """|predicted − measured| share of late messages, at limits that are measured percentiles."""
        histograms = [one.histogram for one in self.every if one.histogram is not None]
        if not histograms or self.prediction is None:
            return []
        merged = Histogram.merged(histograms)
        predicted = self.prediction.latencies["end_to_end"]
        found = []
        for percent in (10, 25, 50, 75, 90, 95, 99):
            limit_ns = merged.percentile(percent)
            measured = 1 - merged.count_at_most(limit_ns) / merged.count
            found.append(abs(predicted.late_share(limit_ns / 1e6) - measured))
        return found


def results(
    model: FittedModel,
    forecasts: Mapping[str, Forecast],
    measurements: Measurements,
    digest: str | None = None,
) -> tuple[dict[str, Any], list[Row]]:
    """The keys of the JSON and the rows of the table. `digest`: of the file of predictions that were
    written before anything was measured; none of those that were not."""
    quick = measurements.quick
    chosen = cells(measurements.full_per_s, quick)
    verdicts = [
        Verdict(cell, forecasts[cell.name], measurements.cells[cell.name]) for cell in chosen
    ]
    above, read = _sending_errors(model, measurements), _reading_errors(model, measurements)
    refused = [v for v in verdicts if isinstance(v.forecast.answer, Saturated)]
    usable = [v for v in verdicts if v.prediction and v.is_measured and v.level != "saturated"]
    unjudged = [v for v in usable if not quick and noise(v.every, "mean") > NOISY]
    judged = [v for v in usable if v not in unjudged]
    groups = sorted({v.group for v in judged})

    def by_group(value: Callable[[Verdict], float]) -> dict[str, float]:
        return {
            group: float(np.mean([value(v) for v in judged if v.group == group]))
            for group in groups
        }

    errors = {s: by_group(lambda v, s=s: v.error(s)) for s in ("mean", "99")}  # type: ignore[misc]
    apart = {s: by_group(lambda v, s=s: noise(v.every, s)) for s in ("mean", "99")}  # type: ignore[misc]
    inside = [v.is_inside(s) for v in judged for s in ("mean", "50", "99")]
    held = [one for one in inside if one is not None]
    widths = [
        (e.high - e.low) / e.value
        for v in judged
        for e in (v.estimate("mean"), v.estimate("99"))
        if e.low is not None
    ]
    violations = [error for v in judged for error in v.violation_errors()]
    right = [
        isinstance(v.forecast.answer, Saturated)
        == (v.level == "saturated" or any("not steady" in one.problem for one in v.every))
        for v in verdicts
        if v.every
    ]
    worst = sorted(judged, key=lambda v: -v.error("99"))[:5]
    document = _document(judged, model)
    keys: dict[str, Any] = {
        "settings": len(chosen),
        "calibration_runs": len(model.observations),
        "predictions_sha256": digest,
        "latency_mean_mape": errors["mean"],
        "latency_p99_mape": errors["99"],
        "repeat_noise_mape": {"mean": apart["mean"], "p99": apart["99"]},
        "violation_mae": float(np.mean(violations)) if violations else None,
        "violation_mae_fit": _fit_errors(judged),
        "interval_coverage": float(np.mean(held)) if held else None,
        "interval_width": float(np.median(widths)) if widths else None,
        "saturation_right": float(np.mean(right)) if right else None,
        "ratio_vs_document": document,
        "throughput_mape": {
            "below_half_limit": _traffic(judged, _sent_per_s),
            "above": float(np.mean(above)) if above else None,
        },
        "consumer_throughput_mape": float(np.mean(read)) if read else None,
        "overhead_mape": _traffic(judged, _overhead),
        "storage_mape": _traffic(judged, _stored),
        "unjudged": [v.cell.name for v in unjudged],
        "refused": [v.cell.name for v in refused],
        "worst": [_parts(v) for v in worst],
        "cells": [_row(v) for v in verdicts],
    }
    plot = Path("bench") / "out" / "models.html"
    plot.write_text(_page(judged))
    rows = []
    for group in groups:
        regime = group.partition("_")[0]
        for statistic, name in (("mean", "mean"), ("99", "p99")):
            error, noisy = errors[statistic][group], apart[statistic][group]
            aim = max(AIMS[regime][statistic], 1.5 * noisy)
            rows.append(
                Row(
                    f"{group}, {name}: error (noise of repeats)",
                    f"{error:.1%} ({noisy:.1%})",
                    f"≤ {aim:.0%}",
                    error <= aim,
                )
            )
    rows += [
        Row("violation_mae", keys["violation_mae"], "≤ 0.03", _at_most(keys["violation_mae"], 0.03)),
        Row(
            "interval_coverage of 90 %",
            keys["interval_coverage"],
            "0.85 to 0.95",
            held != [] and 0.85 <= keys["interval_coverage"] <= 0.95,
        ),
        Row("interval_width", keys["interval_width"], "≤ 0.5", _at_most(keys["interval_width"], 0.5)),
        Row("saturation_right", keys["saturation_right"]),
        Row("ratio_vs_document, mean and p99", str(document)),
        *(
            Row(f"throughput_mape, {name}", value, f"≤ {aim:g}", _at_most(value, aim))
            for (name, value), aim in zip(keys["throughput_mape"].items(), (0.02, 0.05), strict=True)
        ),
        Row("consumer_throughput_mape", keys["consumer_throughput_mape"]),
        Row("overhead_mape", keys["overhead_mape"]),
        Row("storage_mape", keys["storage_mape"]),
    ]  # fmt: skip
    return keys, rows


def _page(judged: Sequence[Verdict]) -> str:
    """Predicted against measured."""
    charts = []
    for statistic, name in (("mean", "mean"), ("99", "p99")):
        traces: list[dict[str, Any]] = []
        for colour, group in zip(PALETTE, sorted({v.group for v in judged}), strict=False):
            of_group = [v for v in judged if v.group == group]
            estimates = [v.estimate(statistic) for v in of_group]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": group,
                    "x": rounded([v.measured_ms(statistic) for v in of_group]),
                    "y": rounded([e.value for e in estimates]),
                    "text": [v.cell.name for v in of_group],
                    "marker": {"color": colour},
                    "error_y": {
                        "array": rounded([(e.high or e.value) - e.value for e in estimates]),
                        "arrayminus": rounded([e.value - (e.low or e.value) for e in estimates]),
                    },
                }
            )
        ends = [min(x for t in traces for x in t["x"]), max(x for t in traces for x in t["x"])]
        traces.append({"type": "scatter", "mode": "lines", "name": "equal", "x": ends, "y": ends})
        layout = {
            "xaxis": {"title": {"text": f"measured {name}, ms"}, "type": "log"},
            "yaxis": {"title": {"text": f"predicted {name}, ms"}, "type": "log"},
        }
        about = f"Predicted against measured {name} of each setting, with 90 % intervals"
        charts.append(Chart(statistic, about, {"data": traces, "layout": layout}, about))
    title = "Predicted and measured"
    sections = [Section(c.id, c.title, (figure(c),), (c,)) for c in charts]
    return document(title, tag("header", tag("h1", title)), sections)


def _at_most(value: float | None, most: float) -> bool | None:
    return None if value is None else value <= most


def _row(verdict: Verdict) -> dict[str, Any]:
    answer = verdict.forecast.answer
    return {
        "name": verdict.cell.name,
        "group": verdict.group,
        "saturated": str(answer) if isinstance(answer, Saturated) else None,
        "predicted_ms": None
        if verdict.prediction is None
        else {s: verdict.estimate(s) for s in ("mean", "50", "99")},
        "measured_ms": [
            {s: _figure(one, s) for s in ("mean", "50", "99")} for one in verdict.every
        ],
        "cpu_share": [one.cpu_share for one in verdict.every],
        "problems": [one.problem for one in verdict.every if one.problem],
    }


def _parts(verdict: Verdict) -> dict[str, Any]:
    """Where a cell is wrong."""
    seen = next((one.seen for one in verdict.every if one.seen is not None), None)
    parts = [] if seen is None else judge(verdict.forecast, seen).parts
    return {
        "name": verdict.cell.name,
        "error_p99": verdict.error("99"),
        "error_mean": verdict.error("mean"),
        "parts_ms": {part.name.strip(): (part.predicted_ms, part.measured_ms) for part in parts},
    }


# --- highest rates -------------------------------------------------------------------------------------------


def _sending_errors(model: FittedModel, measurements: Measurements) -> list[float]:
    """Of the most that a producer can send."""
    runs = {run.name: run for run in full_cells()}
    return [
        abs(most.messages_per_s / one.messages_per_s - 1)
        for one in measurements.full
        if (most := forecast(model, runs[one.spec.name]).most) is not None
    ]


def _reading_errors(model: FittedModel, measurements: Measurements) -> list[float]:
    """Of the most that a consumer can read."""
    if model.reading is None:
        return []
    most = {
        what.name: most_read(model.reading, scenario, what.batch_messages)
        for what, scenario in reading_cells()
    }
    return [abs(most[one.run].messages_per_s / one.messages_per_s - 1) for one in measurements.read]


# --- traffic -----------------------------------------------------------------------------------------------


Pair = tuple[float, float]


def _sent_per_s(predicted: Forecast, seen: Observation, _: float | None) -> Pair | None:
    """MB/s of produce requests, predicted and measured."""
    if seen.sent_bytes_per_message is None or predicted.traffic is None:
        return None
    return (
        predicted.traffic.sent_mb_per_s,
        seen.sent_bytes_per_message * seen.messages_per_s / 1e6,
    )


def _overhead(predicted: Forecast, seen: Observation, _: float | None) -> Pair | None:
    """The share of it that is not payload."""
    if seen.sent_bytes_per_message is None or predicted.traffic is None:
        return None
    key = 0 if seen.spec.workload.keys is None else 8
    payload = (seen.spec.workload.payload.mean_bytes + key) / seen.compression_ratio
    return predicted.traffic.overhead_share, 1 - payload / seen.sent_bytes_per_message


def _stored(predicted: Forecast, seen: Observation, stored: float | None) -> Pair | None:
    """Bytes on all disks per message."""
    if stored is None or predicted.traffic is None or predicted.prediction is None:
        return None
    per_s = 1e6 * sum(predicted.traffic.disk_mb_per_s)
    return per_s / predicted.prediction.messages_per_s, stored


def _traffic(
    verdicts: Sequence[Verdict],
    both: Callable[[Forecast, Observation, float | None], Pair | None],
) -> float | None:
    errors = []
    for verdict in verdicts:
        for one in verdict.every:
            if one.seen is None:
                continue
            pair = both(verdict.forecast, one.seen, one.stored_bytes_per_message)
            if pair is not None and pair[1]:
                errors.append(abs(pair[0] / pair[1] - 1))
    return float(np.mean(errors)) if errors else None


# --- the document's models -----------------------------------------------------------------------------------


def _fit_errors(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """In sample, as the document gives it: the distribution of a setting's stage (uniform above ten
    messages per batch, else hyper-Erlang), fitted, against what it was fitted to."""
    found: dict[str, list[float]] = {"phase_type": [], "uniform": []}
    for verdict in verdicts:
        is_uniform = stage(_batch_messages(verdict.cell.scenario)) == "uniform"
        for histogram in (one.histogram for one in verdict.every):
            if histogram is None:
                continue
            law: Law = _uniform(histogram) if is_uniform else _phase_type(histogram)
            limits_ns = [histogram.percentile(p) for p in PERCENTS[:-1]]
            measured = [1 - histogram.count_at_most(ns) / histogram.count for ns in limits_ns]
            errors = np.abs(law.sf(np.array(limits_ns) / 1e6) - measured)
            found["uniform" if is_uniform else "phase_type"].append(float(np.mean(errors)))
    return {name: float(np.mean(errors)) for name, errors in found.items() if errors}


def _phase_type(histogram: Histogram) -> Law:
    return select(_times(histogram), ("hyper-Erlang",)).best.law


def _uniform(histogram: Histogram) -> Uniform:
    """By its 10th and 90th percentile: a single outlier would decide the maximum."""
    low, high = (histogram.percentile(p) / 1e6 for p in (10, 90))
    return Uniform(max(0.0, low - (high - low) / 8), high + (high - low) / 8)


def _times(histogram: Histogram) -> Times:
    edges = histogram.to_buckets()
    values = np.array([edge for edge, _ in edges], np.float64) / 1e6
    return Times.of(np.repeat(values, [count for _, count in edges]))


def _document(verdicts: Sequence[Verdict], model: FittedModel) -> dict[str, float]:
    """The error of the document's rule over ours, by the same calibration runs."""
    ratios: dict[str, list[float]] = {"mean": [], "99": []}
    for verdict in verdicts:
        for statistic, values in ratios.items():
            theirs = _document_error(verdict, statistic, model)
            if theirs is not None:
                values.append(theirs / max(verdict.error(statistic), 0.005))
    return {name: float(np.median(values)) for name, values in ratios.items() if values}


def _document_error(verdict: Verdict, statistic: str, model: FittedModel) -> float | None:
    """Its rule on what was calibrated, on the same kind of network: in its first two stages, the
    calibration run of that stage whose load is nearest (a fit to it is taken as perfect); in the third,
    uniform by the synchronous runs. None: there is no run to take."""
    spec: Scenario = verdict.cell.scenario
    pool = [one for one in model.observations if _links(one.spec) == _links(spec)]
    here = stage(_batch_messages(spec))
    if here == "uniform":
        sync = [one for one in pool if _batch_messages(one.spec) == 1]
        if not sync:
            return None
        latencies = [one.latencies["end_to_end"].percentiles_ms for one in sync]
        span = SyncLatency(
            min(each["10"] for each in latencies), max(each["99.9"] for each in latencies)
        )
        try:
            law = uniform_stage(spec.settings.linger_ms or 0.0, span)
        except FieldError:
            return None
        predicted = law.mean if statistic == "mean" else float(law.quantile(0.99))
    else:
        alike = [one for one in pool if stage(_batch_messages(one.spec)) == here]
        if not alike:
            return None
        rate = spec.workload.messages_per_s
        nearest = min(alike, key=lambda one: abs(math.log(one.messages_per_s / rate)))
        latency = nearest.latencies["end_to_end"]
        predicted = latency.mean_ms if statistic == "mean" else latency.percentiles_ms["99"]
    return math.expm1(abs(math.log(predicted / verdict.measured_ms(statistic))))


def _batch_messages(spec: Any) -> int:
    """Messages per batch as its settings have it: what arrives within linger.ms, and at most so many."""
    linger_s = (spec.settings.linger_ms or 0.0) / 1000
    each = spec.workload.messages_per_s / spec.workload.producers
    most = spec.settings.batch_num_messages or 10_000
    return int(max(1, min(most, round(each * linger_s))))


def _links(spec: Any) -> bool:
    network = spec.cluster.network
    return network is not None and bool(network.links)
