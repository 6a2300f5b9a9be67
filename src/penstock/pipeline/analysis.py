"""Run directories → their metrics, all of them in one Spark job. Writes nothing.

spark = session()
metrics = analyze(spark, [Path("runs/orders-1"), Path("runs/orders-2")])
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.metrics import RunMetrics
from penstock.domain.run import Run
from penstock.domain.workload import Workload
from penstock.measure.run_directory import RunDirectory
from penstock.pipeline import latency, states, summary, traces
from penstock.pipeline.assembly import Assembly
from penstock.pipeline.collected import Summary
from penstock.pipeline.outcomes import MOST_LIMITS
from penstock.pipeline.rehearsal import make_up
from penstock.pipeline.summary import RunColumns
from penstock.pipeline.timeline import MOST_DRIFT_NS, Timeline, WallClock, moved_ns
from penstock.pipeline.traces import TraceFile

# Of a piece of work. Its hash table takes some 60 MB, so memory does not grow with the run.
_MESSAGES_PER_PIECE = 400_000


def analyze(
    spark: SparkSession, directories: Sequence[Path], limits_ms: Sequence[float] = ()
) -> dict[Path, RunMetrics]:
    """What each run showed. `limits_ms`: count what is later, beside the objective's own limit."""
    runs = _opened(directories, limits_ms)
    if not runs:
        return {}
    collected = Summary.of(_counted(spark, runs, is_exact=False).toArrow())
    if not collected.is_clear:
        collected = Summary.of(_counted(spark, runs, is_exact=True).toArrow())
    return {run.directory: _metrics(run, collected) for run in runs}


def warm(spark: SparkSession) -> None:
    """Do all of it once with a made-up run, so that Spark has compiled what a real one needs."""
    with tempfile.TemporaryDirectory(prefix="penstock-warm-") as temporary:
        plain, watched = Path(temporary) / "plain", Path(temporary) / "watched"
        for directory in (plain, watched):
            make_up(directory, is_watched=directory == watched)
            analyze(spark, [directory])


# --- what is asked -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _OpenRun:
    """A run whose directory was found to be sound."""

    directory: Path
    run: Run
    files: dict[str, list[TraceFile]]
    columns: RunColumns
    limits_ms: tuple[float, ...]

    def rows(self, trace: str) -> int:
        return sum(file.rows for file in self.files[trace])


def _opened(directories: Sequence[Path], limits_ms: Sequence[float]) -> list[_OpenRun]:
    for limit_ms in limits_ms:
        if not (math.isfinite(limit_ms) and limit_ms > 0):
            raise BadInput(f"a latency limit of {limit_ms:g} ms says nothing", "use more than 0")
    if len(directories) > states.MOST_RUNS:
        raise BadInput(
            f"{len(directories)} runs are too many for one analysis",
            f"analyse at most {states.MOST_RUNS} at a time",
        )
    runs = [_open(number, path, limits_ms) for number, path in enumerate(directories)]
    by_id: dict[str, Path] = {}
    for found in runs:
        other = by_id.setdefault(found.run.id, found.directory)
        if other is not found.directory:
            raise BadInput(
                f"{other} and {found.directory} are both the run '{found.run.id}'",
                "is one a copy of the other? Analyse only one of them",
            )
    return runs


def _open(number: int, directory: Path, limits_ms: Sequence[float]) -> _OpenRun:
    run = RunDirectory(directory).run()
    files = {trace: traces.files(directory, trace) for trace in traces.READ}
    last = max((f.last_intended_ns for f in files["sent"] if f.last_intended_ns), default=None)
    experiment = run.experiment
    objective_ms = experiment.objective.latency_ms if experiment.objective else None
    own = () if objective_ms is None else (objective_ms,)
    rising = tuple(sorted({*map(float, limits_ms), *own}))
    if len(rising) > MOST_LIMITS:
        raise BadInput(f"{len(rising)} latency limits are too many", f"at most {MOST_LIMITS}")
    stale_ms = experiment.timeliness_ms
    columns = RunColumns(
        number=number,
        timeline=Timeline.of(run, last),
        clock=WallClock.of(run.anchors),
        stale_ns=None if stale_ms is None else round(stale_ms * 1e6),
        limits_ns=tuple(round(limit_ms * 1e6) for limit_ms in rising),
    )
    return _OpenRun(directory, run, files, columns, rising)


# --- counting, on Spark --------------------------------------------------------------------------


def _counted(spark: SparkSession, runs: Sequence[_OpenRun], *, is_exact: bool) -> DataFrame:
    def read(trace: str) -> DataFrame:
        found = [(run.columns.number, file) for run in runs for file in run.files[trace]]
        return traces.read(spark, trace, found)

    def rows(trace: str) -> int:
        return sum(run.rows(trace) for run in runs)

    seen = read("seen") if rows("seen") else None
    most = max(rows("sent"), rows("received"))
    cores = spark.sparkContext.defaultParallelism
    # A multiple of the cores, or some would idle at the end.
    pieces = cores * max(1, math.ceil(most / _MESSAGES_PER_PIECE / cores))
    messages = states.messages(read("sent"), read("received"), seen, pieces, is_exact=is_exact)
    table = summary.table(spark, [run.columns for run in runs])
    with_run = messages.join(F.broadcast(table), "run")
    return summary.counted(latency.with_times(with_run))


# --- figures, on the driver ----------------------------------------------------------------------


def _metrics(run: _OpenRun, collected: Summary) -> RunMetrics:
    experiment, sent, line = run.run.experiment, run.rows("sent"), run.columns.timeline
    assembly = Assembly(
        run=run.run.id,
        timeline=line,
        found=collected.of_run(run.columns.number),
        limits_ms=run.limits_ms,
        objective_ms=experiment.objective.latency_ms if experiment.objective else None,
        closed_loop_ns=_closed_loop_ns(experiment.workload),
        disturbance=run.run.disturbance,
        requests=traces.requests(
            run.files["requests"], line.from_ns, line.to_ns, topic=experiment.topic.name
        ),
    )
    if assembly.rows != sent:
        raise PenstockError(
            f"{run.directory}: {assembly.rows} of {sent} messages were counted",
            "this is a mistake in Penstock: the figures cannot be trusted",
        )
    return assembly.metrics(_clock_warnings(run.run))


def _closed_loop_ns(workload: Workload) -> int | None:
    return round(1e9 / workload.arrivals.mean_per_s) if workload.loop == "closed" else None


def _clock_warnings(run: Run) -> tuple[str, ...]:
    moved = moved_ns(run.anchors)
    if abs(moved) <= MOST_DRIFT_NS:
        return ()
    return (
        f"the wall clock was set by {moved / 1e6:+.0f} ms during the run: the brokers' append "
        "times cannot be used, so the latency is not split into its parts",
    )
