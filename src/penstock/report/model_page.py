"""The page of a model: how good it is, what it knows, and what follows for throughput and disks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from penstock.models.fitted import FittedModel
from penstock.models.storage import DAY_S, broker_use, leaders
from penstock.models.throughput import FittedRequestInterval, ProducerThroughput, largest_batch
from penstock.report import forecasts, formatting
from penstock.report.charts import Chart, Json, line, rounded
from penstock.report.document import Section, document, figure, titled_figure
from penstock.report.markup import Markup, remark, table, tag
from penstock.report.tables import Cells, Table

# S0, 4.3: quotas in MB/s of all brokers together, a stream at one of them, and a disk in bytes.
_QUOTAS_MB_PER_S = (20.0, 30.0, 40.0)
_STREAM_MB_PER_S = 20.0
_DISK_BYTES = 500e9
_BROKERS, _VALUE_BYTES = 3, 100
_MOST_PARTITIONS = 12


def render(model: FittedModel) -> str:
    """One file that opens from disk, like the report of a run."""
    header = tag(
        "header",
        tag("h1", "Model"),
        tag("p", sentence(model), class_="outcome"),
        tag("p", forecasts.about(model), class_="about"),
    )
    before = model.history[-1] if model.history else None
    good = _left_out(model)
    sections: list[Section | Markup | None] = [
        Section(
            "errors",
            "How good it is",
            (
                figure(good),
                table(forecasts.errors(model.record, before), "Medians over the runs"),
                table(forecasts.left_out(model), "Each run, predicted by a fit of the others"),
            ),
            (good,),
        )
    ]
    if model.sending is not None:
        charts = (
            _interval(model, model.sending),
            _payload(model, model.sending),
            _disks(model.sending),
        )
        sections.append(
            Section(
                "throughput",
                "The most that a producer can send",
                (
                    remark(
                        f"librdkafka, values of {_VALUE_BYTES} B, three brokers, in the largest batches "
                        "that keep within the quota. Compare S0's Figs. 4.9 and 4.10, and its worked "
                        "case (3 partitions, 20 MB/s: 12 messages per batch, 19 MB/s)."
                    ),
                    tag("div", *(titled_figure(chart) for chart in charts), class_="charts"),
                    table(worked(model.sending), "Largest batches at 3 partitions"),
                ),
                charts,
            )
        )
    if model.reading is not None:
        shown = table(forecasts.readings(model, model.reading), "Measured, and by the fit")
        sections.append(
            Section("reading", "The most that a consumer can read that is behind", (shown,))
        )
    return document("Model", header, sections)


def sentence(model: FittedModel) -> str:
    """How good it is, in one sentence."""
    errors = model.record.errors
    known = [
        f"{name} {formatting.quantity(errors[key], 'share')}"
        for key, name in (("end_to_end_mean", "the mean"), ("end_to_end_p99", "the p99"))
        if key in errors
    ]
    if not known:
        return f"{len(model.observations)} runs; none of them measured latency end to end."
    return (
        f"{len(model.observations)} runs; left out in turn, their latency end to end was predicted "
        f"with errors of {formatting.listed(known)} (median)."
    )


def worked(fitted: FittedRequestInterval) -> Table:
    """S0's worked case, for several quotas."""
    rows: list[Cells] = []
    for quota in _QUOTAS_MB_PER_S:
        count, sent = _at_quota(fitted, 3, quota)
        rows.append(
            [
                formatting.quantity(quota, "mb_per_s"),
                str(count),
                formatting.quantity(sent, "mb_per_s"),
            ]
        )
    return Table(["quota of all brokers", "messages per batch", "sent"], rows)


def _left_out(model: FittedModel) -> Chart:
    """Measured over predicted, of each run."""
    names = [one.run for one in model.left_out]
    traces: list[Json] = []
    for place, (statistic, title) in enumerate((("mean", "mean"), ("50", "p50"), ("99", "p99"))):
        values = [one.errors.get("end_to_end", {}).get(statistic) for one in model.left_out]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": title,
                "x": rounded([None if v is None else math.exp(v) for v in values]),
                "y": names,
                "marker": {"size": 8, "color": line(place)["color"]},
                "hovertemplate": f"%{{y}}: {title} measured %{{x:.2f}} × predicted<extra></extra>",
            }
        )
    layout: Json = {
        "height": 140 + 24 * len(names),
        "xaxis": {"title": {"text": "measured over predicted, end to end"}, "type": "log"},
        "yaxis": {"autorange": "reversed"},
        "meta": {"label": max(map(len, names), default=0)},
        "hovermode": "closest",
    }
    return Chart(
        "left-out",
        "Measured over predicted latency of every run, by a fit of the other runs. The table below "
        "has the figures.",
        {"data": traces, "layout": layout},
    )


def _interval(model: FittedModel, fitted: FittedRequestInterval) -> Chart:
    """f_p: points that were measured, and the lines."""
    traces: list[Json] = []
    low, high = fitted.sizes_bytes
    for place, count in enumerate(sorted({one.spec.topic.partitions for one in model.sendings})):
        seen = [one for one in model.sendings if one.spec.topic.partitions == count]
        sizes = np.array([low, high])
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{count} partitions",
                "x": rounded([one.request_bytes for one in seen]),
                "y": rounded([1e3 * one.interval_s for one in seen]),
                "marker": {"size": 8, "color": line(place)["color"]},
            }
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{count} partitions, fitted",
                "x": rounded(sizes),
                "y": rounded(1e3 * fitted.interval.seconds(count, sizes)),
                "line": line(place),
            }
        )
    return _chart("interval", "Interval of requests (f_p)", traces, "bytes of a request", "ms")


def _payload(model: FittedModel, fitted: FittedRequestInterval) -> Chart:
    """Fig. 4.9: relative payload over partitions."""
    partitions = range(3, _MOST_PARTITIONS + 1)
    traces: list[Json] = []
    for place, quota in enumerate(_QUOTAS_MB_PER_S):
        shares = [_share(fitted, count, quota) for count in partitions]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{quota:g} MB/s",
                "x": list(partitions),
                "y": rounded([100 * share for share in shares]),
                "line": line(place),
            }
        )
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "measured, without a quota",
            "x": [one.spec.topic.partitions for one in model.sendings],
            "y": rounded(
                [
                    100
                    * one.spec.workload.payload.mean_bytes
                    * one.request_messages
                    / one.request_bytes
                    for one in model.sendings
                ]
            ),
            "text": [f"{one.request_messages:.0f} per batch" for one in model.sendings],
            "marker": {"size": 8, "color": line(3)["color"], "symbol": "x"},
        }
    )
    return _chart("payload", "Relative payload (Fig. 4.9)", traces, "partitions", "% of bytes sent")


def _disks(fitted: FittedRequestInterval) -> Chart:
    """Fig. 4.10: disks after a day, and hours until one is full."""
    partitions = list(range(3, _MOST_PARTITIONS + 1))
    stored = [_stored_per_s(fitted, count) for count in partitions]
    traces: list[Json] = [
        {
            "type": "bar",
            "name": f"broker {broker + 1}",
            "x": partitions,
            "y": rounded([per_s[broker] * DAY_S / 1e9 for per_s in stored]),
            "marker": {"color": line(broker)["color"]},
        }
        for broker in range(_BROKERS)
    ]
    traces.append(
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "hours until 500 GB",
            "x": partitions,
            "y": rounded([_DISK_BYTES / max(per_s) / 3600 for per_s in stored]),
            "line": line(3),
        }
    )
    return _chart(
        "disks",
        f"Disks after a day at {_STREAM_MB_PER_S:g} MB/s (Fig. 4.10)",
        traces,
        "partitions",
        "GB; hours",
    )


def _chart(name: str, title: str, traces: list[Json], x: str, y: str) -> Chart:
    layout: Json = {
        "height": 320,
        "hovermode": "closest",
        "barmode": "group",
        "xaxis": {"title": {"text": x}},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero"},
    }
    return Chart(f"model-{name}", f"{title}, over {x}.", {"data": traces, "layout": layout}, title)


def _producer(fitted: FittedRequestInterval) -> ProducerThroughput:
    return ProducerThroughput(interval=fitted.interval)


def _at_quota(
    fitted: FittedRequestInterval, partitions: int, quota_mb_per_s: float
) -> tuple[int, float]:
    """The largest batch within the quota, and MB/s that are sent then."""
    model, counts = _producer(fitted), leaders(partitions, _BROKERS)
    count = largest_batch(model, counts, _VALUE_BYTES, 1e6 * quota_mb_per_s / _BROKERS)
    return count, float(model.predict(counts, count, _VALUE_BYTES).bytes_per_s.sum()) / 1e6


def _share(fitted: FittedRequestInterval, partitions: int, quota_mb_per_s: float) -> float:
    model, counts = _producer(fitted), leaders(partitions, _BROKERS)
    count, _ = _at_quota(fitted, partitions, quota_mb_per_s)
    return model.predict(counts, count, _VALUE_BYTES).payload_share


def _stored_per_s(fitted: FittedRequestInterval, partitions: int) -> Sequence[float]:
    """Bytes/s onto the disk of each broker, without replication, as in the document."""
    model, counts = _producer(fitted), leaders(partitions, _BROKERS)
    count, _ = _at_quota(fitted, partitions, _STREAM_MB_PER_S)
    sent = model.predict(counts, count, _VALUE_BYTES)
    batch = float(np.max(sent.request_bytes))
    use = broker_use(sent.bytes_per_s, batch)
    return [float(value) for value in use.disk_bytes_per_s]
