"""Public API: runs and facts as the input of a model; what must not be used is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock import specs
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.facts import COLD, FACTS_FORMAT, ClusterFacts, FactPoint
from penstock.domain.metrics import Distribution, RunMetrics
from penstock.domain.run import Existing, Run, RunSpec
from penstock.models.observation import (
    BrokerWork,
    MeasuredLatency,
    MeasuredReading,
    MeasuredSending,
    Observation,
)
from penstock.models.path.from_run import KEY_BYTES, path_lines, path_spec
from penstock.models.path.predict import PERCENTS
from penstock.models.record_batch import BATCH_HEADER_BYTES, record_bytes
from penstock.models.requests import produce_request_bytes
from penstock.runs.experiments.kinds.experiment_kind import experiment
from penstock.runs.observation import broker_rates, client_cores, young_bytes
from penstock.runs.run_directory import CELLS, RUN, RunDirectory, find_runs
from penstock.specs.files import read_text
from penstock.stats.histogram import Histogram

AnyPath = str | Path

# More brokers than a testbed can have.
MOST_BROKERS = 16
# Parts of a latency as a run measures them → as predictions name them.
_FIX = "leave it out, or run it again"
_PARTS = {"until appended": "produce", "until visible": "commit", "fetch": "fetch"}


@dataclass
class ModelInput:
    """What a model is fitted to; and why other runs were left out."""

    observations: list[Observation] = field(default_factory=list)
    readings: list[MeasuredReading] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def read_input(paths: Sequence[Path], skip_unusable: bool = False) -> ModelInput:
    """From directories of runs and campaigns, directories of them, and `facts.json` files."""
    given = ModelInput()
    for path in paths:
        if path.is_file() and path.suffix == ".json":
            facts = _read_facts(path)
            latencies, readings = _of_facts(path, facts), _readings(facts)
            if not latencies and not readings:
                given.skipped.append(f"{path}: its facts have neither latencies nor reading rates")
            given.observations += latencies
            given.readings += readings
            continue
        for directory in _find(path):
            try:
                given.observations.append(observation(directory))
            except BadInput as error:
                if not skip_unusable:
                    raise
                given.skipped.append(error.message)
    if not given.observations:
        why = "; ".join(given.skipped) or "none was found"
        raise BadInput(f"there are no runs to fit a model to: {why}", "name runs that can be used")
    return given


def _find(path: Path) -> list[RunDirectory]:
    """A run, a campaign, or a directory of them."""
    is_either = (path / RUN).exists() or (path / CELLS).exists() or not path.is_dir()
    below = [] if is_either else sorted(path.iterdir())
    inside = [one for one in below if (one / RUN).exists() or (one / CELLS).exists()]
    return find_runs(inside or [path])


def observation(directory: RunDirectory) -> Observation:
    """One run, as a model uses it; refuses one that must not be used."""
    run = directory.run()
    if run.status != "complete" or run.invalid:
        why = run.reason or "; ".join(run.invalid) or run.status
        raise BadInput(f"{directory.path}: the run is not valid: {why}", _FIX)
    if not directory.has_metrics:
        raise BadInput(
            f"{directory.path}: the run is not analysed yet", f"penstock analyze {directory.path}"
        )
    metrics = directory.metrics()
    _check(directory, run, metrics)
    return observed(directory, run, metrics)


def observed(directory: RunDirectory, run: Run, metrics: RunMetrics) -> Observation:
    """What one analysed run shows."""
    span = (run.measured_from_ns, run.measured_to_ns)
    cores = client_cores(directory.path, *span)
    work = broker_rates(directory.path, *span)
    counters = [report.counters for report in run.producers if report.counters is not None]
    messages_per_s = metrics.counts.sent / metrics.seconds_measured
    counted = sum(one.messages for one in counters)
    share = messages_per_s / counted if counted else 0.0
    return Observation(
        run=run.id,
        spec=_spec(directory, run),
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
        parts_ms={
            name: metrics.parts[part].mean_ms.value
            for name, part in _PARTS.items()
            if part in metrics.parts
        },
        # Counted from the start of each client, so per message and not per second.
        produce_requests_per_s=share * sum(one.requests for one in counters) if counted else None,
        sent_bytes_per_message=(
            sum(one.sent_bytes for one in counters) / counted if counted else None
        ),
        compression_ratio=_compression_ratio(run),
        producer_cores=_sum(cores, "producer-"),
        consumer_cores=_sum(cores, "consumer-"),
        # With a view of some brokers only, costs would come out too low.
        brokers=BrokerWork.of(work, young_bytes(directory.path))
        if len(work) == run.spec.cluster.brokers
        else None,
        is_local=run.spec.existing is None,
        cluster="" if run.spec.existing is None else _servers(run.spec.existing),
        versions=run.versions,
        machine=run.machine,
    )


def sending(directory: RunDirectory) -> MeasuredSending:
    """What the producers of a run achieved that always had more to send."""
    run = directory.run()
    counters = [report.counters for report in run.producers if report.counters is not None]
    requests = sum(one.requests for one in counters)
    if run.status != "complete" or run.invalid or not directory.has_metrics or not requests:
        raise BadInput(f"{directory.path}: the run is not valid, not analysed or was not counted")
    if not any(report.queue_full_s > 0 for report in run.producers):
        raise BadInput(
            f"{directory.path}: the producer sent all that was offered", "offer more messages/s"
        )
    per_s = directory.metrics().throughput_per_s
    if per_s is None or per_s.value <= 0:
        raise BadInput(f"{directory.path}: no message was acknowledged")
    return MeasuredSending(
        run=run.id,
        spec=_spec(directory, run),
        messages_per_s=per_s.value,
        request_messages=sum(one.messages for one in counters) / requests,
        request_bytes=sum(one.sent_bytes for one in counters) / requests,
    )


def of_place(directory: RunDirectory) -> Observation:
    """A run by where it was made only, to compare that."""
    run = directory.run()
    return Observation(
        run=run.id,
        spec=_spec(directory, run),
        messages_per_s=0.0,
        latencies={},
        is_local=run.spec.existing is None,
        cluster="" if run.spec.existing is None else _servers(run.spec.existing),
        versions=run.versions,
        machine=run.machine,
    )


def used_cores(directory: RunDirectory) -> tuple[float, float]:
    """Cores of the machine of a run, and how many of them brokers and clients used."""
    run = directory.run()
    if run.status != "complete":
        raise TestbedError(f"{directory.path}: the run {run.status}: {run.reason}")
    span = (run.measured_from_ns, run.measured_to_ns)
    brokers = sum(one.cpu_cores for one in broker_rates(directory.path, *span).values())
    clients = sum(client_cores(directory.path, *span).values())
    return float(run.machine.get("cores", 0)), brokers + clients


# --- facts -----------------------------------------------------------------------------------------------


def _read_facts(path: Path) -> ClusterFacts:
    # First, since another format has other fields.
    try:
        file_format = json.loads(read_text(path)).get("format")
    except (ValueError, AttributeError):
        file_format = None
    if isinstance(file_format, int) and file_format != FACTS_FORMAT:
        raise BadInput(f"{path}: format: {file_format} is not {FACTS_FORMAT}", "measure again")
    return specs.load(path, ClusterFacts)


def _of_facts(path: Path, facts: ClusterFacts) -> list[Observation]:
    """The points with a latency. Facts have no counters of requests: their model is that of a cluster
    which only clients can see."""
    if not isinstance(facts.machine.get("cores"), int):
        raise BadInput(f"{path}: machine.cores: must be a whole number", "measure again")
    observations = []
    for point in facts.points:
        kind = experiment(point.experiment)
        drawn = point.distributions.get(kind.distribution)
        if drawn is None or not kind.latency or any(w.startswith(COLD) for w in point.warnings):
            continue
        if point.experiment not in facts.grids:
            raise BadInput(f"{path}: grids.{point.experiment}: is missing", "measure again")
        if not drawn.buckets:
            raise BadInput(f"{path}: {_label(point)}: its distribution is empty", "measure again")
        load = kind.latency_load(point.conditions, facts.grids[point.experiment])
        assert load is not None
        try:
            path_spec(load)
            path_lines(load)
        except BadInput as error:
            raise BadInput(f"{path}: {_label(point)}: {error.message}", error.fix) from None
        observations.append(
            Observation(
                run=f"{_label(point)} ({facts.made_at})",
                spec=load,
                messages_per_s=load.workload.messages_per_s,
                latencies={kind.latency: _latency(drawn)},
                versions=facts.versions,
                machine=facts.machine,
            )
        )
    return observations


def _readings(facts: ClusterFacts) -> list[MeasuredReading]:
    """Of consumers that were alone."""
    readings = []
    for point in facts.points:
        per_s, messages = (
            point.figures.get(name) for name in ("throughput_records_per_s", "fetch_messages")
        )
        if point.conditions.consumers != 1 or not (per_s and messages and messages.value > 0):
            continue
        readings.append(
            MeasuredReading(
                run=f"{_label(point)} ({facts.made_at})",
                message_bytes=point.conditions.message_bytes,
                partitions=point.conditions.partitions,
                messages_per_s=per_s.value,
                fetch_messages=messages.value,
                versions=facts.versions,
                machine=facts.machine,
            )
        )
    return readings


def _label(point: FactPoint) -> str:
    where = point.conditions
    own, added = where.coordinates, {one.axis for one in where.further}
    given = {name: value for name, value in own.items() if value or name in added}
    return ", ".join([point.experiment, *(f"{name}={value}" for name, value in given.items())])


# --- parts of a run ---------------------------------------------------------------------------------------


def _check(directory: RunDirectory, run: Run, metrics: RunMetrics) -> None:
    path = directory.path
    if run.coldness:
        raise BadInput(f"{path}: {run.coldness}", _FIX)
    if metrics.unsteadiness:
        raise BadInput(f"{path}: the run was not steady: {metrics.unsteadiness}", _FIX)
    if metrics.steadiness is not None and metrics.steadiness.state != "steady":
        raise BadInput(f"{path}: {metrics.steadiness.state}: {metrics.steadiness.sentence}", _FIX)
    if metrics.latency is None or metrics.acknowledgement is None:
        raise BadInput(f"{path}: the run has no latencies", _FIX)
    try:
        path_spec(run.spec)
        path_lines(run.spec)
    except BadInput as error:
        raise BadInput(f"{path}: {error.message}", "leave it out") from None


def _spec(directory: RunDirectory, run: Run) -> RunSpec:
    """The run's spec; of a run on another cluster, with as many brokers as that has."""
    if run.spec.existing is None:
        return run.spec
    if run.brokers is None or run.brokers > MOST_BROKERS:
        raise BadInput(
            f"{directory.path}: the cluster had {run.brokers or 'an unknown number of'} brokers; a "
            f"model knows up to {MOST_BROKERS}",
            "leave it out",
        )
    return replace(run.spec, existing=None, cluster=ClusterSpec(brokers=run.brokers))


def _servers(existing: Existing) -> str:
    return ",".join(sorted(one.strip() for one in existing.bootstrap_servers.split(",")))


def _compression_ratio(run: Run) -> float:
    """Bytes of records over what was sent of them, by the producers' counters."""
    counters = [report.counters for report in run.producers if report.counters is not None]
    messages = sum(one.messages for one in counters)
    if run.spec.settings.compression_type in (None, "none") or not messages:
        return 1.0
    key = None if run.spec.workload.keys is None else KEY_BYTES
    mean = sum(one.message_bytes for one in counters) / messages - (key or 0)
    records = messages * float(record_bytes(round(mean), key_bytes=key))
    requests = sum(one.requests for one in counters)
    around = BATCH_HEADER_BYTES + produce_request_bytes(0, topic=run.spec.topic.name)
    sent = sum(one.sent_bytes for one in counters) - requests * around
    return records / sent if sent > 0 else 1.0


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
    cores_used = [used for name, used in cores.items() if name.startswith(prefix)]
    return sum(cores_used) if cores_used else None
