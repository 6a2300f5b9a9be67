"""Predictions on settings never measured before, written down before they are measured.

One cluster in network namespaces. First the runs of the calibration's design, and the fit. Then the
settings of model_cells.py are predicted and written to a file, whose hash is in the result; only then
they are measured, each twice (quick: three of eight twice), in an order that mixes them.

An error is exp|ln(predicted / measured)| − 1, against the mean of the repeats (of their logarithms);
the noise of a setting is the same between its repeats. Load levels are by the CPU that a run really
used: light below 40 %, medium below 65 %, heavy up to 85 %. A setting whose repeats differ by more
than 20 % is measured once more for three times as long; if they still do, it is not judged.

The document's rule (three stages) gets the calibration runs, too: of each stage and network it takes
the one that fits best in sample.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness import Row, kafka_tool, main
from model_cells import CLUSTER, SECONDS, Cell, cells, full_cells
from penstock import specs
from penstock.analysis.background import BackgroundSpark
from penstock.api.calibration import calibrate
from penstock.api.evidence import analyse
from penstock.api.models import observation, sending
from penstock.api.prediction import forecast
from penstock.api.testbeds import remove_testbed, start_testbed
from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.lake.partition import Partition
from penstock.domain.run import Run
from penstock.domain.scenario import Scenario
from penstock.kafka.connection import KafkaCluster
from penstock.kafka.log_sizes import LogSizes
from penstock.models.costs import used_cores
from penstock.models.design import capacity_per_s
from penstock.models.fitted import FittedModel
from penstock.models.forecast import Forecast, judge
from penstock.models.observation import MeasuredLatency, Observation
from penstock.models.path.predict import PERCENTS, Prediction, Saturated
from penstock.models.throughput import Throughput
from penstock.runs import campaign as campaigns
from penstock.runs.clusters import Clusters, set_network
from penstock.runs.run_directory import RunDirectory
from penstock.stats.distributions import Observations as Times
from penstock.stats.distributions.selection import select
from penstock.stats.histogram import Histogram
from penstock.testbed.cluster import Cluster

QUICK_RUNS = 5
NOISY = 0.20
LEVELS = {"light": 0.40, "medium": 0.65, "heavy": 0.85}
AIMS = {"links": {"mean": 0.05, "99": 0.10}, "cpu": {"mean": 0.10, "99": 0.20}}
_TESTBED = "bench-models"
_JAVA = re.compile(
    r"([\d.]+) ms avg latency.*?([\d.]+) ms 50th, ([\d.]+) ms 95th, ([\d.]+) ms 99th", re.S
)


@dataclass(frozen=True)
class Measured:
    """One measurement of a cell."""

    latencies: Mapping[str, MeasuredLatency]
    cpu_share: float | None
    seen: Observation | None = None
    histogram: Histogram | None = None
    # On the disks of all brokers.
    stored_bytes_per_message: float | None = None
    # Why it has no latencies: unsteady, or refused.
    problem: str = ""


def measure(quick: bool, say: Callable[[str], None]) -> tuple[dict[str, Any], list[Row]]:
    with tempfile.TemporaryDirectory() as scratch:
        return _measure(quick, say, Path(scratch))


def _measure(
    quick: bool, say: Callable[[str], None], scratch: Path
) -> tuple[dict[str, Any], list[Row]]:
    start_testbed(CLUSTER, name=_TESTBED, on_progress=say)
    try:
        calibrated = calibrate(
            testbed=_TESTBED,
            model=scratch / "model.json",
            most_runs=QUICK_RUNS if quick else None,
            throughput=not quick,
            out=scratch / "calibration",
            on_progress=say,
        )
        model = calibrated.fit.model
        first = model.observations[0]
        full = capacity_per_s(float(first.machine["cores"]), used_cores(first))
        chosen = [cell for cell in cells(full) if cell.is_quick or not quick]
        say("predicting")
        forecasts = {
            cell.name: forecast(model, cell.scenario, client=cell.client) for cell in chosen
        }
        written = Path("bench") / "out" / "models-predictions.json"
        digest = _write(written, forecasts)
        say(f"predictions written: {written}, SHA-256 {digest}")
        full_runs = [] if quick else full_cells()
        most = {run.name: forecast(model, run).most for run in full_runs}
        plan = [cell for cell in chosen if cell.is_repeated or not quick] + chosen
        random.Random(1).shuffle(plan)
        found = _all(plan, scratch / "runs", say)
        if not quick:
            again = [cell for cell in chosen if _noise(found[cell.name], "mean") > NOISY]
            longer = [_longer(cell) for cell in again]
            for name, more in _all(longer, scratch / "again", say).items():
                found[name] += more
        above = _full(full_runs, most, scratch / "full", say)
    finally:
        remove_testbed(_TESTBED)
    return _results(chosen, forecasts, found, model, digest, quick, above)


def _longer(cell: Cell) -> Cell:
    workload = replace(cell.scenario.workload, duration_s=3 * SECONDS)
    return replace(cell, scenario=replace(cell.scenario, workload=workload))


def _write(file: Path, forecasts: Mapping[str, Forecast]) -> str:
    """Write the predictions; the hash of the file."""
    text = specs.dump_json({name: one.answer for name, one in forecasts.items()})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()


# --- measuring -------------------------------------------------------------------------------------------


def _all(plan: Sequence[Cell], out: Path, say: Callable[[str], None]) -> dict[str, list[Measured]]:
    """Measure in this order; analysed together at the end."""
    found: dict[str, list[Measured]] = {cell.name: [] for cell in plan}
    directories: list[tuple[Cell, RunDirectory]] = []
    stored: dict[str, float | None] = {}
    spark = BackgroundSpark("local[*]")
    try:
        with Clusters(None, "when-needed", _TESTBED, lambda _: None) as clusters:
            for number, cell in enumerate(plan, 1):
                say(f"measuring {number} of {len(plan)}: {cell.name}")
                if cell.client == "java":
                    with clusters.of(cell.scenario) as cluster:
                        assert isinstance(cluster, Cluster)
                        found[cell.name].append(_java(cluster, cell, number))
                    continue
                campaign = campaigns.create(cell.scenario, cell.name, out)
                campaigns.carry_on(
                    campaign,
                    clusters=clusters,
                    before_load=spark.get,
                    after_load=lambda cluster, run: stored.update(
                        {run.id: _log_bytes(cluster, run)}
                    ),
                )
                directories += [(cell, one) for one in campaign.directories]
        analyse(spark.get(), [one for _, one in directories], (), lambda _: None)
    finally:
        spark.stop()
    for cell, directory in directories:
        found[cell.name].append(_measured(directory, stored.get(directory.run().id)))
    return found


def _full(
    runs: Sequence[Scenario],
    predicted: Mapping[str, Throughput | None],
    out: Path,
    say: Callable[[str], None],
) -> list[float]:
    """Errors of the most that a producer can send."""
    if not runs:
        return []
    directories: list[RunDirectory] = []
    spark = BackgroundSpark("local[*]")
    try:
        with Clusters(None, "when-needed", _TESTBED, lambda _: None) as clusters:
            for run in runs:
                say(f"measuring {run.name}")
                campaign = campaigns.create(run, run.name, out)
                campaigns.carry_on(campaign, clusters=clusters, before_load=spark.get)
                directories += campaign.directories
        analyse(spark.get(), directories, (), lambda _: None)
    finally:
        spark.stop()
    errors = []
    for directory in directories:
        most = predicted[directory.run().spec.name]
        if most is not None:
            errors.append(abs(most.messages_per_s / sending(directory).messages_per_s - 1))
    return errors


def _log_bytes(cluster: KafkaCluster, run: Run) -> float | None:
    """Bytes of all copies of the logs, per record."""
    topic = run.spec.topic
    with cluster.inside():
        sizes = LogSizes(cluster.client_config)
        found = sizes.of([Partition(topic.name, number) for number in range(topic.partitions)])
        sizes.close()
    records = sum(cluster.admin.end_offsets(topic.name).values())
    return topic.replication * sum(found.values()) / records if found and records else None


def _measured(directory: RunDirectory, stored: float | None) -> Measured:
    try:
        seen = observation(directory)
    except BadInput as error:
        return Measured({}, None, problem=error.message)
    latency = directory.metrics().latency
    return Measured(
        seen.latencies,
        used_cores(seen) / float(seen.machine["cores"]),
        seen,
        None if latency is None else Histogram.of_distribution(latency),
        stored,
    )


def _java(cluster: Cluster, cell: Cell, number: int) -> Measured:
    """Kafka's own client and its own figures."""
    spec = cell.scenario
    set_network(cluster, spec.cluster, seed=f"bench.{number}")
    topic = f"{spec.topic.name}-{number}"
    cluster.create_topic(
        TopicSpec(name=topic, partitions=spec.topic.partitions, replication=spec.topic.replication)
    )
    rate = spec.workload.messages_per_s
    command = [
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(int(rate * (SECONDS + 3)))),
        *("--record-size", str(spec.workload.payload.size_bytes), "--throughput", str(int(rate))),
        *("--warmup-records", str(int(3 * rate)), "--command-property"),
        f"bootstrap.servers={cluster.bootstrap_servers}",
        *(f"acks={spec.settings.acks}", f"linger.ms={spec.settings.linger_ms:g}"),
        "enable.idempotence=false",
    ]
    text = kafka_tool(cluster, command)
    lines = list(_JAVA.finditer(text))
    if not lines:
        raise TestbedError(f"ProducerPerformance printed no figures:\n{text[-2000:]}")
    mean, p50, _p95, p99 = (float(value) for value in lines[-1].groups())
    latency = MeasuredLatency(count=1, mean_ms=mean, percentiles_ms={"50": p50, "99": p99})
    return Measured({"produce": latency}, None)


# --- judging ---------------------------------------------------------------------------------------------


def _figure(one: Measured, statistic: str) -> float | None:
    """End to end; of Java's client, until acknowledged."""
    latency = one.latencies.get("end_to_end") or one.latencies.get("produce")
    if latency is None:
        return None
    return latency.mean_ms if statistic == "mean" else latency.percentiles_ms.get(statistic)


def _logs(every: Sequence[Measured], statistic: str) -> list[float]:
    values = [_figure(one, statistic) for one in every]
    return [math.log(value) for value in values if value]


def _noise(every: Sequence[Measured], statistic: str) -> float:
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


def _results(
    chosen: Sequence[Cell],
    forecasts: Mapping[str, Forecast],
    found: Mapping[str, Sequence[Measured]],
    model: FittedModel,
    digest: str,
    quick: bool,
    above: Sequence[float],
) -> tuple[dict[str, Any], list[Row]]:
    verdicts = [Verdict(cell, forecasts[cell.name], found[cell.name]) for cell in chosen]
    refused = [v for v in verdicts if isinstance(v.forecast.answer, Saturated)]
    usable = [v for v in verdicts if v.prediction and v.is_measured and v.level != "saturated"]
    unjudged = [v for v in usable if not quick and _noise(v.every, "mean") > NOISY]
    judged = [v for v in usable if v not in unjudged]
    groups = sorted({v.group for v in judged})

    def by_group(value: Callable[[Verdict], float]) -> dict[str, float]:
        return {
            group: float(np.mean([value(v) for v in judged if v.group == group]))
            for group in groups
        }

    errors = {s: by_group(lambda v, s=s: v.error(s)) for s in ("mean", "99")}  # type: ignore[misc]
    noise = {s: by_group(lambda v, s=s: _noise(v.every, s)) for s in ("mean", "99")}  # type: ignore[misc]
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
        "repeat_noise_mape": {"mean": noise["mean"], "p99": noise["99"]},
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
        "overhead_mape": _traffic(judged, _overhead),
        "storage_mape": _traffic(judged, _stored),
        "unjudged": [v.cell.name for v in unjudged],
        "refused": [v.cell.name for v in refused],
        "worst": [_parts(v) for v in worst],
        "cells": [_row(v) for v in verdicts],
    }
    rows = []
    for group in groups:
        regime = group.partition("_")[0]
        for statistic, name in (("mean", "mean"), ("99", "p99")):
            error, noisy = errors[statistic][group], noise[statistic][group]
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
        Row("overhead_mape", keys["overhead_mape"]),
        Row("storage_mape", keys["storage_mape"]),
    ]  # fmt: skip
    return keys, rows


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
    """In sample, as the document gives it: fitted distributions against what they were fitted to."""
    found: dict[str, list[float]] = {"phase_type": [], "uniform": []}
    for verdict in verdicts:
        for one in verdict.every:
            if one.histogram is None:
                continue
            times = _times(one.histogram)
            for name, families in (("phase_type", ("hyper-Erlang",)), ("uniform", ("uniform",))):
                law = select(times, families).best.law
                limits = np.array([one.histogram.percentile(p) / 1e6 for p in PERCENTS[:-1]])
                measured = [
                    1 - one.histogram.count_at_most(int(limit * 1e6)) / one.histogram.count
                    for limit in limits
                ]
                found[name].append(float(np.mean(np.abs(law.sf(limits) - measured))))
    return {name: float(np.mean(errors)) for name, errors in found.items() if errors}


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
    """Its rule: up to ten messages in a batch, the latency of the calibration run that is of the same
    stage and network; above, uniform from L_min to 0.9·(L_max + B_T) of the synchronous one."""
    spec: Scenario = verdict.cell.scenario
    linked = _links(spec)
    alike = [one for one in model.observations if _links(one.spec) == linked]
    pool = alike or list(model.observations)
    linger_ms = spec.settings.linger_ms or 0.0
    if linger_ms == 0:
        single = [one for one in pool if not one.spec.settings.linger_ms] or pool
        latency = single[0].latencies["end_to_end"]
        predicted = latency.mean_ms if statistic == "mean" else latency.percentiles_ms["99"]
    else:
        sync = min(pool, key=lambda one: one.latencies["end_to_end"].mean_ms)
        latency = sync.latencies["end_to_end"]
        low = latency.percentiles_ms["10"]
        high = 0.9 * (latency.percentiles_ms["99.9"] + linger_ms)
        share = 0.5 if statistic == "mean" else 0.99
        predicted = low + share * max(0.0, high - low)
    return math.expm1(abs(math.log(predicted / verdict.measured_ms(statistic))))


def _links(spec: Any) -> bool:
    network = spec.cluster.network
    return network is not None and bool(network.links)


if __name__ == "__main__":
    main("models", measure)
