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

from penstock.analysis import join, latency, summary, traces
from penstock.analysis.assembly import Assembly
from penstock.analysis.outcome_bits import MOST_LIMITS
from penstock.analysis.spark_warm_up import make_up
from penstock.analysis.summary import RunColumns
from penstock.analysis.summary_arrays import Summary
from penstock.analysis.timeline import MOST_DRIFT_NS, Timeline, WallClock, moved_ns
from penstock.analysis.traces import TraceFile
from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.metrics import RunMetrics
from penstock.domain.run import Run
from penstock.runs.run_directory import RunDirectory

# Of a piece of work. Its hash table takes some 60 MB, so memory does not grow with the run.
_MESSAGES_PER_PIECE = 400_000


def analyze(
    spark: SparkSession, directories: Sequence[Path], limits_ms: Sequence[float] = ()
) -> dict[Path, RunMetrics]:
    """Metrics of each run. `limits_ms`: latency limits besides the objective's own."""
    runs = _opened(directories, limits_ms)
    if not runs:
        return {}
    collected = Summary.of(_counted(spark, runs, is_exact=False).toArrow())
    if not collected.is_clear:
        collected = Summary.of(_counted(spark, runs, is_exact=True).toArrow())
    records = _packed_records(spark, runs)
    return {
        run.directory: _metrics(run, collected, records.get(run.columns.number)) for run in runs
    }


def warm(spark: SparkSession) -> None:
    """Analyse a made-up run once, so that Spark has compiled the code for a real one."""
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

    @property
    def is_packed(self) -> bool:
        """Whether records hold several messages."""
        return any(file.is_packed for file in self.files["received"])


def _opened(directories: Sequence[Path], limits_ms: Sequence[float]) -> list[_OpenRun]:
    for limit_ms in limits_ms:
        if not (math.isfinite(limit_ms) and limit_ms > 0):
            raise BadInput(f"a latency limit of {limit_ms:g} ms is not positive", "use more than 0")
    if len(directories) > join.MOST_RUNS:
        raise BadInput(
            f"{len(directories)} runs are too many for one analysis",
            f"analyse at most {join.MOST_RUNS} at a time",
        )
    runs = [_open(number, path, limits_ms) for number, path in enumerate(directories)]
    by_id: dict[str, Path] = {}
    for opened in runs:
        other = by_id.setdefault(opened.run.id, opened.directory)
        if other is not opened.directory:
            raise BadInput(
                f"{other} and {opened.directory} are both the run '{opened.run.id}'",
                "analyse only one of them",
            )
    return runs


def _open(number: int, directory: Path, limits_ms: Sequence[float]) -> _OpenRun:
    run = RunDirectory(directory).run()
    files = {trace: traces.files(directory, trace) for trace in traces.READ}
    last = max((f.last_intended_ns for f in files["sent"] if f.last_intended_ns), default=None)
    spec = run.spec
    objective_ms = spec.objective.latency_ms if spec.objective else None
    own = () if objective_ms is None else (objective_ms,)
    rising = tuple(sorted({*map(float, limits_ms), *own}))
    if len(rising) > MOST_LIMITS:
        raise BadInput(f"{len(rising)} latency limits are too many", f"at most {MOST_LIMITS}")
    stale_ms = spec.timeliness_ms
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
        return _read(spark, trace, runs)

    def rows(trace: str) -> int:
        return sum(run.rows(trace) for run in runs)

    seen = read("seen") if rows("seen") else None
    most = max(rows("sent"), rows("received"))
    cores = spark.sparkContext.defaultParallelism
    # A multiple of the cores, or some would idle at the end.
    pieces = cores * max(1, math.ceil(most / _MESSAGES_PER_PIECE / cores))
    messages = join.messages(
        read("sent"),
        read("received"),
        seen,
        pieces,
        is_exact=is_exact,
        is_packed=any(run.is_packed for run in runs),
    )
    table = summary.table(spark, [run.columns for run in runs])
    with_run = messages.join(F.broadcast(table), "run")
    return summary.counted(latency.with_times(with_run))


def _packed_records(spark: SparkSession, runs: Sequence[_OpenRun]) -> dict[int, int]:
    """Number of a run → its records, for runs in which a record may hold several messages."""
    packed = [run for run in runs if run.is_packed]
    if not packed:
        return {}
    rows = join.records(_read(spark, "received", packed)).collect()
    return {row["run"]: row["count"] for row in rows}


def _read(spark: SparkSession, trace: str, runs: Sequence[_OpenRun]) -> DataFrame:
    files = [(run.columns.number, file) for run in runs for file in run.files[trace]]
    return traces.read(spark, trace, files)


# --- figures, on the driver ----------------------------------------------------------------------


def _metrics(run: _OpenRun, collected: Summary, records: int | None) -> RunMetrics:
    spec, sent, line = run.run.spec, run.rows("sent"), run.columns.timeline
    assembly = Assembly(
        run=run.run.id,
        timeline=line,
        run_summary=collected.of_run(run.columns.number),
        limits_ms=run.limits_ms,
        spec=spec,
        disturbance=run.run.disturbance,
        records=records,
        requests=traces.requests(
            run.files["requests"], line.from_ns, line.to_ns, topic=spec.topic.name
        ),
    )
    if assembly.rows != sent:
        raise PenstockError(
            f"{run.directory}: {assembly.rows} of {sent} messages were counted",
            "internal error; please report it: the figures cannot be trusted",
        )
    return assembly.metrics(_clock_warnings(run.run))


def _clock_warnings(run: Run) -> tuple[str, ...]:
    moved = moved_ns(run.anchors)
    if abs(moved) <= MOST_DRIFT_NS:
        return ()
    return (
        f"the wall clock was set by {moved / 1e6:+.0f} ms during the run: the brokers' append "
        "times cannot be used, so the latency is not split into its parts",
    )
