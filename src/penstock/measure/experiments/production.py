"""Production: how much producers get into a topic, how fast, and how it fares when a broker dies.

On one fresh cluster, one after the other:

1. A moderate open-loop load (`penstock.measure.carry_out`, with its whole run directory): l_p from
   the intended time to the acknowledgement, and l_r.
2. Saturation: T_p, acknowledged bytes while every producer works.
3. The kill of a broker: u.

**l_r** is how long a request with acks=all waits for the other copies, as its leader measures it
(RemoteTimeMs of produce requests). The difference between acks=all and acks=1 as a client sees it
is not used: a broker serves one request of a connection at a time, so waiting requests delay those
behind them, and the difference would show that queue, which depends on the client and its load.
Append → visible, by a reader beside the brokers, is written down too, as a second opinion.
"""

from __future__ import annotations

import time
from pathlib import Path

from penstock import specs
from penstock.domain.arrivals import PoissonArrivals
from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import TestbedError
from penstock.domain.facts import Conditions
from penstock.domain.grid import ExperimentGrid
from penstock.domain.metrics import Estimate
from penstock.domain.run import Experiment
from penstock.domain.workload import Payload, Workload
from penstock.files import write_file
from penstock.measure.carry_out import carry_out
from penstock.measure.experiments import latencies, saturating_producer
from penstock.measure.experiments.clients import START_S, TOLD, clients
from penstock.measure.experiments.fit import distribution
from penstock.measure.experiments.measured import Measured
from penstock.measure.experiments.unavailability import kill_leader
from penstock.measure.experiments.usage import replication_ms, usage
from penstock.measure.experiments.window import Tally, throughput
from penstock.measure.histogram import Histogram
from penstock.measure.run_directory import RunDirectory
from penstock.measure.sampling import Sampler
from penstock.progress import Progress
from penstock.testbed.cluster import Cluster

# So that all have heard when to begin before they do.
_LEAD_S = 0.3
_TOPIC = "production"


def measure(
    cluster: Cluster,
    where: Conditions,
    grid: ExperimentGrid,
    directory: Path,
    seed: int,
    say: Progress,
) -> Measured:
    """One point. The cluster is of no use afterwards: a broker is dead."""
    found = _latency(cluster, where, grid, directory, seed, say)
    cluster.create_topic(
        TopicSpec(name=_TOPIC, partitions=where.partitions, replication=where.replication)
    )
    say(f"sending as fast as {where.producers} producers can, for {grid.seconds:g} s")
    found = found.joined(_saturate(cluster, where, grid, directory))
    if grid.unavailability and where.replication > 1:
        say("killing a broker")
        found = found.joined(_unavailability(cluster))
    return found


def _latency(
    cluster: Cluster,
    where: Conditions,
    grid: ExperimentGrid,
    directory: Path,
    seed: int,
    say: Progress,
) -> Measured:
    per_s = min(grid.latency_per_s, grid.latency_mb_per_s * 1e6 / where.message_bytes)
    experiment = Experiment(
        name="latency",
        cluster=cluster.spec,
        topic=TopicSpec(name="latency", partitions=where.partitions, replication=where.replication),
        workload=Workload(
            arrivals=PoissonArrivals(rate_per_s=per_s / where.producers),
            payload=Payload(size_bytes=where.message_bytes),
            producers=where.producers,
            duration_s=grid.seconds,
        ),
        settings=grid.settings,
        warm_up_s=grid.warm_up_s,
        cluster_warm_up=grid.cluster_warm_up,
        schedule_lag_ms=grid.schedule_lag_ms,
        seed=seed,
    )
    path = directory / "latency"
    path.mkdir()
    run = carry_out(experiment, cluster, RunDirectory(path), on_progress=say)
    if run.status != "complete":
        raise TestbedError(f"the load for the latency failed: {run.reason}")
    figures: dict[str, Estimate] = {}
    warnings = [run.coldness] if run.coldness else []
    span = (run.measured_from_ns, run.measured_to_ns)
    waited = replication_ms(path, *span)
    if waited is None:
        warnings.append("the brokers did not tell how long requests waited for the other copies")
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
        return Measured(figures, warnings=tuple(warnings))
    answers = latencies.acknowledged(path, run)
    if answers.unsteadiness:
        warnings.append(f"no latency: not steady, {answers.unsteadiness}")
        return Measured(figures, warnings=tuple(warnings))
    figures["latency_ms"] = answers.mean_ms
    drawn = distribution([answers.histogram])
    assert drawn is not None
    if answers.missing:
        warnings.append(f"{answers.missing} messages were not acknowledged")
    return Measured(figures, {"latency": drawn}, tuple(warnings))


def _saturate(
    cluster: Cluster, where: Conditions, grid: ExperimentGrid, directory: Path
) -> Measured:
    path = directory / "saturation"
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
        told = [sender.said("report") or {} for sender in senders.workers]
    write_file(path / TOLD, specs.dump_json(told))
    failed = sum(sum(words["failed"].values()) for words in told)
    done = throughput([Tally.of(words) for words in told], from_ns, to_ns)
    waits = Histogram.merged(Histogram.from_buckets(words["latency"]) for words in told)
    figures = {
        "throughput_mb_per_s": done.mb_per_s,
        "throughput_records_per_s": done.records_per_s,
        **{n: Estimate(value=v) for n, v in usage(path, done.from_ns, done.to_ns).items()},
    }
    drawn = distribution([waits])
    warnings = (f"{failed} messages failed at saturation",) if failed else ()
    return Measured(figures, {"latency_at_saturation": drawn} if drawn else {}, warnings)


def _unavailability(cluster: Cluster) -> Measured:
    found = kill_leader(cluster, _TOPIC)
    if found is None:
        why = "unavailability was not measured: only the active controller led partitions"
        return Measured({}, warnings=(why,))
    figures = {
        "led_partitions": float(found.led_partitions),
        "unavailable_first_ms": found.first_ms,
        "unavailable_mean_ms": found.mean_ms,
        "unavailable_longest_ms": found.longest_ms,
    }
    if found.detection_ms is not None:
        figures |= {
            "detection_ms": found.detection_ms,
            "election_longest_ms": found.longest_ms - found.detection_ms,
        }
    return Measured({name: Estimate(value=value) for name, value in figures.items()})
