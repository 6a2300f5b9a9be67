"""Production: throughput and latency of producers, and unavailability after a broker failure.

On one fresh cluster, one after the other:

1. A moderate open-loop load (`penstock.runs.execute`, with its whole run directory): l_p from
   the intended time to the acknowledgement, and l_r.
2. Saturation: T_p, acknowledged bytes while every producer works.
3. The kill of a broker: u.

**l_r** is how long a request with acks=all waits for the other replicas, as its leader measures it
(RemoteTimeMs of produce requests). The difference between acks=all and acks=1 as a client sees it
is not used: a broker serves one request of a connection at a time, so waiting requests delay those
behind them, and the difference would show that queue, which depends on the client and its load.
Append → visible, by a reader beside the brokers, is written down too, as a second opinion.
"""

from __future__ import annotations

import time

from penstock import specs
from penstock.domain.arrivals import PoissonArrivals
from penstock.domain.facts import COLD, ClusterFacts, PointConditions
from penstock.domain.grid import ExperimentGrid
from penstock.domain.metrics import Estimate
from penstock.domain.run import RunSpec
from penstock.domain.workload import Payload, Workload
from penstock.runs.experiments import latencies, saturating_producer
from penstock.runs.experiments.clients import REPORTS, START_S, clients
from penstock.runs.experiments.kinds.experiment_kind import (
    PARTITIONS,
    SHARED_AXES,
    ExperimentKind,
    FactFigure,
    FigureFormat,
    PointJob,
    PointResults,
    load_of,
)
from penstock.runs.experiments.point_figures import PointFigures
from penstock.runs.experiments.points import base, sweep
from penstock.runs.experiments.unavailability import kill_leader
from penstock.runs.experiments.window import Tally, throughput
from penstock.runs.observation import replication_ms, usage
from penstock.runs.sampling import Sampler
from penstock.specs.files import write_file
from penstock.stats.batch_means import of_repeats, scaled
from penstock.stats.fit import distribution
from penstock.stats.histogram import Histogram
from penstock.testbed.cluster import Cluster

# So that every process has its order before the start.
_LEAD_S = 0.3
_TOPIC = "production"


class ProductionExperiment(ExperimentKind):
    """Throughput and latency of producers, replication latency, and unavailability after a broker failure."""

    kind = "production"
    axes = (*SHARED_AXES, "producers")
    grid = ExperimentGrid(
        partitions=PARTITIONS,
        message_bytes=(1_000, 10_000, 100_000),
        replication=(3, 1),
        brokers=(3, 5),
        policies=("bro-min", "bro-max"),
        producers=(1, 2),
    )
    sends_single = True
    sends_batches = True
    latency = "produce"
    loads = 2
    beyond_s = 55.0
    # S4's constraints are P·r·l_r ≤ b·L, P·u ≤ b·U and P·r ≤ b·H, so the first goes over the replicas
    # of a broker, the second over the partitions it leads, the third over its replicas: each slope is
    # then the coefficient itself.
    fitted = (
        ("replication_ms", "replicas_per_broker"),
        ("visible_ms", "replicas_per_broker"),
        ("election_longest_ms", "led_partitions"),
        ("unavailable_longest_ms", "led_partitions"),
        ("moderate_broker_open_handles", "replicas_per_broker"),
        ("latency_ms", "partitions"),
        ("throughput_mb_per_s", "partitions"),
    )
    reported_figures = (
        FactFigure("throughput_mb_per_s", "throughput", "mb_per_s"),
        FactFigure("throughput_records_per_s", "records", "per_s"),
        FactFigure("latency_ms", "latency", "ms"),
        FactFigure("replication_ms", "replication", "ms"),
        FactFigure("unavailable_longest_ms", "unavailable", "ms"),
        FactFigure("election_longest_ms", "of that election", "ms"),
    )

    def measure(self, job: PointJob) -> PointFigures:
        """One point. The cluster cannot be used afterwards: a broker is dead."""
        measured = _latency(job)
        job.cluster.create_topic(job.topic(_TOPIC))
        job.say(
            f"sending as fast as {job.where.producers} producers can, for {job.grid.seconds:g} s"
        )
        measured = measured.joined(_saturate(job))
        if job.grid.unavailability and job.where.replication > 1:
            job.say("killing a broker")
            measured = measured.joined(_unavailability(job.cluster))
        return measured

    def latency_load(self, where: PointConditions, grid: ExperimentGrid) -> RunSpec:
        return _moderate(where, grid)

    def facts(self, results: PointResults) -> dict[str, object]:
        middle = base(results.kind, results.grid)
        # It has nothing to do with partitions, so every point of the sweep measures it.
        detected = [
            r.figures["detection_ms"]
            for where in sweep(results.kind, results.grid)
            for r in results.of(where)
            if "detection_ms" in r.figures
        ]
        single = next((c for c in sweep(results.kind, results.grid) if c.partitions == 1), None)
        return {
            "partition_mb_per_s": results.figure(single, "throughput_mb_per_s") if single else None,
            "producer_mb_per_s": results.figure(middle, "throughput_mb_per_s"),
            "producer_records_per_s": results.figure(middle, "throughput_records_per_s"),
            "producer_latency_ms": results.figure(middle, "latency_ms"),
            "detection_ms": of_repeats(detected) if detected else None,
        }

    def outcome(self, facts: ClusterFacts, text: FigureFormat) -> list[str]:
        parts = []
        if facts.producer_mb_per_s is not None:
            figure = text(facts.producer_mb_per_s, "mb_per_s")
            parts.append(f"The topic accepts at most {figure}")
        if facts.producer_latency_ms is not None:
            figure = text(facts.producer_latency_ms, "ms")
            parts.append(f"a message is acknowledged after {figure} at a moderate load")
        if facts.replication is not None:
            figure = text(facts.replication.slope, "ms")
            parts.append(f"every replica on a broker adds {figure} to replication")
        if facts.election is not None:
            figure = text(facts.election.slope, "ms")
            parts.append(
                f"every partition that a killed broker led adds {figure} until all are back"
            )
        if facts.detection_ms is not None:
            seconds = text(scaled(facts.detection_ms, 1e-3), "s")
            parts.append(f"the controller fences it after {seconds}")
        return parts


def _moderate(where: PointConditions, grid: ExperimentGrid) -> RunSpec:
    """The moderate load."""
    per_s = min(grid.latency_per_s, grid.latency_mb_per_s * 1e6 / where.message_bytes)
    workload = Workload(
        arrivals=PoissonArrivals(rate_per_s=per_s / where.producers),
        payload=Payload(size_bytes=where.message_bytes),
        producers=where.producers,
        duration_s=grid.seconds,
    )
    return load_of("latency", workload, where, grid)


def _latency(job: PointJob) -> PointFigures:
    grid, where = job.grid, job.where
    run, path = job.run(_moderate(where, grid))
    figures: dict[str, Estimate] = {}
    warnings = [COLD + run.coldness] if run.coldness else []
    span = (run.measured_from_ns, run.measured_to_ns)
    waited = replication_ms(path, *span)
    if waited is None:
        warnings.append("the brokers did not report how long requests waited for replication")
    elif grid.settings.acks in (None, "all") and where.replication > 1:
        figures["replication_ms"] = Estimate(value=waited)
    if (visible := latencies.visible_ms(path, run)) is not None:
        figures["visible_ms"] = Estimate(value=visible)
    figures |= {
        f"moderate_{name}": Estimate(value=value) for name, value in usage(path, *span).items()
    }
    if run.invalid:
        # What the brokers say of themselves holds; what the generator says of time does not.
        warnings += [f"no latency: {why}" for why in run.invalid]
        return PointFigures(figures, warnings=tuple(warnings))
    answers = latencies.acknowledged(path, run)
    if answers.unsteadiness:
        warnings.append(f"no latency: not steady, {answers.unsteadiness}")
        # What a queue that grows makes of them is not a property of the setting.
        figures = {n: f for n, f in figures.items() if n not in ("replication_ms", "visible_ms")}
        return PointFigures(figures, warnings=tuple(warnings))
    if answers.untested:
        warnings.append(f"steadiness was not tested: {answers.untested}")
    figures["latency_ms"] = answers.mean_ms
    drawn = distribution([answers.histogram])
    assert drawn is not None
    if answers.missing:
        warnings.append(f"{answers.missing} messages were not acknowledged")
    return PointFigures(figures, {"latency": drawn}, tuple(warnings))


def _saturate(job: PointJob) -> PointFigures:
    cluster, where, grid = job.cluster, job.where, job.grid
    path = job.directory / "saturation"
    path.mkdir()
    with clients(cluster, path) as senders:
        for i in range(where.producers):
            senders.start(
                saturating_producer.__name__,
                "producer",
                i,
                topic=_TOPIC,
                size_bytes=where.message_bytes,
                settings=grid.settings.properties(),
            )
        senders.wait_for("ready", START_S)
        begin_ns = time.monotonic_ns() + round(_LEAD_S * 1e9)
        from_ns = begin_ns + round(grid.warm_up_s * 1e9)
        to_ns = from_ns + round(grid.seconds * 1e9)
        with Sampler(cluster, senders.processes, path):
            for sender in senders.workers:
                sender.order("start", start_ns=begin_ns, measured_ns=from_ns, stop_ns=to_ns)
            senders.wait_for("report", grid.warm_up_s + grid.seconds + START_S)
        reports = [sender.said("report") or {} for sender in senders.workers]
    write_file(path / REPORTS, specs.dump_json(reports))
    failed = sum(sum(words["failed"].values()) for words in reports)
    done = throughput([Tally.of(words) for words in reports], from_ns, to_ns)
    waits = Histogram.merged(Histogram.from_buckets(words["latency"]) for words in reports)
    figures = {
        "throughput_mb_per_s": done.mb_per_s,
        "throughput_records_per_s": done.records_per_s,
        **{n: Estimate(value=v) for n, v in usage(path, done.from_ns, done.to_ns).items()},
    }
    drawn = distribution([waits])
    warnings = (f"{failed} messages failed at saturation",) if failed else ()
    return PointFigures(figures, {"latency_at_saturation": drawn} if drawn else {}, warnings)


def _unavailability(cluster: Cluster) -> PointFigures:
    outage = kill_leader(cluster, _TOPIC)
    if outage is None:
        why = "unavailability was not measured: only the active controller led partitions"
        return PointFigures({}, warnings=(why,))
    figures = {
        "led_partitions": float(outage.led_partitions),
        "unavailable_first_ms": outage.first_ms,
        "unavailable_mean_ms": outage.mean_ms,
        "unavailable_longest_ms": outage.longest_ms,
    }
    if outage.detection_ms is not None:
        figures |= {
            "detection_ms": outage.detection_ms,
            "election_longest_ms": outage.longest_ms - outage.detection_ms,
        }
    return PointFigures({name: Estimate(value=value) for name, value in figures.items()})
