"""End-to-end: from a stream's intended times to its consumers, as a distribution.

Producers send at their own constant pace, sizes vary; consumers of one group read along. One run
with its whole directory (`penstock.runs.execute`).
"""

from __future__ import annotations

from penstock.domain.arrivals import ConstantArrivals
from penstock.domain.consumers import Consumers
from penstock.domain.errors import TestbedError
from penstock.domain.facts import COLD, ClusterFacts, PointConditions
from penstock.domain.grid import LEAST_SIZE_SHARE, ExperimentGrid
from penstock.domain.metrics import Estimate
from penstock.domain.run import RunSpec
from penstock.domain.sizes import UniformSizes
from penstock.domain.sizes.sizes import ID_BYTES
from penstock.domain.workload import Payload, Workload
from penstock.runs.experiments import latencies
from penstock.runs.experiments.kinds.experiment_kind import (
    SHARED_AXES,
    ExperimentKind,
    FactFigure,
    FigureFormat,
    PointJob,
    PointResults,
    load_of,
)
from penstock.runs.experiments.point_figures import PointFigures
from penstock.runs.experiments.points import base
from penstock.runs.observation import usage
from penstock.stats.fit import PERCENTILES, distribution, merged_distribution

# With more, three brokers on two cores are so busy copying that no load beside them is punctual.
_PARTITIONS = (1, 6, 12, 24, 48)


class EndToEndExperiment(ExperimentKind):
    """Latency of streams from producers to consumers, as a distribution."""

    kind = "end-to-end"
    axes = (*SHARED_AXES, "producers", "consumers")
    grid = ExperimentGrid(
        partitions=_PARTITIONS,
        message_bytes=(100_000,),
        replication=(3,),
        brokers=(3, 5),
        policies=("bro-min", "bro-max"),
        producers=(2, 4, 8),
        consumers=(2, 1, 4),
    )
    sends_single = True
    beyond_s = 35.0
    distribution = latency = "end_to_end"
    fitted = (
        ("end_to_end_ms", "partitions"),
        ("end_to_end_p99_ms", "partitions"),
        ("broker_open_handles", "replicas_per_broker"),
    )
    reported_figures = (
        FactFigure("end_to_end_p50_ms", "p50", "ms"),
        FactFigure("end_to_end_p90_ms", "p90", "ms"),
        FactFigure("end_to_end_p99_ms", "p99", "ms"),
        FactFigure("end_to_end_ms", "mean", "ms"),
    )

    def measure(self, job: PointJob) -> PointFigures:
        """One point."""
        run, path = job.run(self.latency_load(job.where, job.grid))
        if run.invalid:
            raise TestbedError(f"the run of the stream is invalid: {'; '.join(run.invalid)}")
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
        warnings = [*run.warnings, *([COLD + run.coldness] if run.coldness else [])]
        if arrived.untested:
            warnings.append(f"steadiness was not tested: {arrived.untested}")
        if arrived.missing:
            warnings.append(f"{arrived.missing} messages never arrived")
        return PointFigures(figures, {"end_to_end": drawn}, tuple(warnings))

    def latency_load(self, where: PointConditions, grid: ExperimentGrid) -> RunSpec:
        return load_of(
            "stream",
            workload(where, grid),
            where,
            grid,
            consumers=Consumers(count=where.consumers),
            visibility="off",
        )

    def facts(self, results: PointResults) -> dict[str, object]:
        of_base = results.of(base(results.kind, results.grid))
        drawn = [r.distributions["end_to_end"] for r in of_base if "end_to_end" in r.distributions]
        return {"end_to_end": merged_distribution(drawn)}

    def outcome(self, facts: ClusterFacts, text: FigureFormat) -> list[str]:
        if facts.end_to_end is None:
            return []
        percentiles = facts.end_to_end.percentiles_ms
        half, most = (text(percentiles[p], "ms") for p in ("50", "99"))
        return [f"Half of the messages arrive within {half}, 99 % within {most}"]


def workload(where: PointConditions, grid: ExperimentGrid) -> Workload:
    """The streams of one point."""
    least = max(ID_BYTES, round(where.message_bytes * LEAST_SIZE_SHARE))
    return Workload(
        arrivals=ConstantArrivals(rate_per_s=grid.stream_per_s),
        payload=Payload(sizes=UniformSizes(min_bytes=least, max_bytes=where.message_bytes)),
        producers=where.producers,
        duration_s=grid.seconds,
    )
