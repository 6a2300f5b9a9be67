"""End-to-end: from a stream's intended times to its consumers, as a distribution.

Producers send at their own constant pace, sizes vary; consumers of one group read along. One run
with its whole directory (`penstock.measure.carry_out`).
"""

from __future__ import annotations

from pathlib import Path

from penstock.domain.arrivals import ConstantArrivals
from penstock.domain.cluster import TopicSpec
from penstock.domain.consumers import Consumers
from penstock.domain.errors import TestbedError
from penstock.domain.facts import Conditions
from penstock.domain.grid import LEAST_SIZE_SHARE, ExperimentGrid
from penstock.domain.metrics import Estimate
from penstock.domain.run import Experiment
from penstock.domain.sizes import UniformSizes
from penstock.domain.sizes.sizes import ID_BYTES
from penstock.domain.workload import Payload, Workload
from penstock.measure.carry_out import carry_out
from penstock.measure.experiments import latencies
from penstock.measure.experiments.fit import PERCENTILES, distribution
from penstock.measure.experiments.measured import Measured
from penstock.measure.experiments.usage import usage
from penstock.measure.run_directory import RunDirectory
from penstock.progress import Progress
from penstock.testbed.cluster import Cluster


def measure(
    cluster: Cluster,
    where: Conditions,
    grid: ExperimentGrid,
    directory: Path,
    seed: int,
    say: Progress,
) -> Measured:
    """One point."""
    path = directory / "stream"
    path.mkdir()
    run = carry_out(
        stream(cluster, where, grid, seed), cluster, RunDirectory(path), on_progress=say
    )
    if run.status != "complete":
        raise TestbedError(f"the stream failed: {run.reason}")
    if run.invalid:
        raise TestbedError(f"the stream says nothing: {'; '.join(run.invalid)}")
    arrived = latencies.received(path, run)
    if arrived.unsteadiness:
        raise TestbedError(f"the stream was not steady: {arrived.unsteadiness}")
    drawn = distribution([arrived.histogram])
    assert drawn is not None
    seconds = (run.measured_to_ns - run.measured_from_ns) / 1e9
    figures = {
        "end_to_end_ms": arrived.mean_ms,
        **{f"end_to_end_p{p:g}_ms": drawn.percentiles_ms[f"{p:g}"] for p in PERCENTILES},
        "stream_records_per_s": Estimate(value=arrived.histogram.count / seconds),
        **{
            name: Estimate(value=value)
            for name, value in usage(path, run.measured_from_ns, run.measured_to_ns).items()
        },
    }
    warnings = [*run.warnings, *([run.coldness] if run.coldness else [])]
    if arrived.missing:
        warnings.append(f"{arrived.missing} messages never arrived")
    return Measured(figures, {"end_to_end": drawn}, tuple(warnings))


def stream(cluster: Cluster, where: Conditions, grid: ExperimentGrid, seed: int) -> Experiment:
    """The run of one point."""
    least = max(ID_BYTES, round(where.message_bytes * LEAST_SIZE_SHARE))
    sizes = UniformSizes(min_bytes=least, max_bytes=where.message_bytes)
    return Experiment(
        name="stream",
        cluster=cluster.spec,
        topic=TopicSpec(name="stream", partitions=where.partitions, replication=where.replication),
        workload=Workload(
            arrivals=ConstantArrivals(rate_per_s=grid.stream_per_s),
            payload=Payload(sizes=sizes),
            producers=where.producers,
            duration_s=grid.seconds,
        ),
        settings=grid.settings,
        consumers=Consumers(count=where.consumers),
        warm_up_s=grid.warm_up_s,
        cluster_warm_up=grid.cluster_warm_up,
        schedule_lag_ms=grid.schedule_lag_ms,
        visibility="off",
        seed=seed,
    )
