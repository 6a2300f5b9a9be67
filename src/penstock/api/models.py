"""Models from runs: what a run directory teaches, and the fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.domain.errors import BadInput
from penstock.domain.metrics import Distribution, RunMetrics
from penstock.domain.run import Run
from penstock.models.observation import BrokerWork, MeasuredLatency, Observation
from penstock.models.path.predict import PERCENTS
from penstock.runs.observation import broker_rates, client_cores, young_bytes
from penstock.runs.run_directory import RunDirectory, find_runs
from penstock.stats.histogram import Histogram


def observations(paths: Sequence[Path]) -> list[Observation]:
    """What the runs in these directories teach; refuses runs that must not be used."""
    return [observation(directory) for directory in find_runs(paths)]


def observation(directory: RunDirectory) -> Observation:
    """What one analysed run teaches."""
    run, metrics = directory.run(), directory.metrics()
    _check(directory, run, metrics)
    span = (run.measured_from_ns, run.measured_to_ns)
    cores = client_cores(directory.path, *span)
    work = broker_rates(directory.path, *span)
    counters = [report.counters for report in run.producers if report.counters is not None]
    messages_per_s = metrics.counts.sent / metrics.seconds_measured
    counted = sum(one.messages for one in counters)
    share = messages_per_s / counted if counted else 0.0
    return Observation(
        run=run.id,
        spec=run.spec,
        messages_per_s=messages_per_s,
        latencies={
            name: _latency(distribution)
            for name, distribution in (
                ("produce", metrics.acknowledgement),
                ("commit", metrics.parts.get("commit")),
                ("end_to_end", metrics.latency),
            )
            if distribution is not None
        },
        # Counted from the start of each client, so per message and not per second.
        produce_requests_per_s=share * sum(one.requests for one in counters) if counted else None,
        sent_bytes_per_message=(
            sum(one.sent_bytes for one in counters) / counted if counted else None
        ),
        producer_cores=_sum(cores, "producer-"),
        consumer_cores=_sum(cores, "consumer-"),
        brokers=BrokerWork.of(work, young_bytes(directory.path)) if work else None,
        versions=run.versions,
        machine=run.machine,
    )


def _check(directory: RunDirectory, run: Run, metrics: RunMetrics) -> None:
    if run.status != "complete" or run.invalid:
        why = run.reason or "; ".join(run.invalid) or run.status
        raise BadInput(
            f"{directory.path}: the run is not valid: {why}", "leave it out, or run it again"
        )
    if metrics.latency is None or metrics.acknowledgement is None:
        raise BadInput(f"{directory.path}: the run has no latencies", "leave it out")


def _latency(distribution: Distribution) -> MeasuredLatency:
    histogram = Histogram.of_distribution(distribution)
    percentiles = histogram.percentiles(PERCENTS)
    return MeasuredLatency(
        count=distribution.count,
        mean_ms=distribution.mean_ms.value,
        percentiles_ms={
            f"{percent:g}": ns / 1e6 for percent, ns in zip(PERCENTS, percentiles, strict=True)
        },
    )


def _sum(cores: dict[str, float], prefix: str) -> float | None:
    found = [used for name, used in cores.items() if name.startswith(prefix)]
    return sum(found) if found else None
