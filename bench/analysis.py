"""The analysis: how its time grows with the run, its memory, and the same join without Spark.

The runs are made up, and written as the generator writes them: two producers, one consumer, rows of
the consumer in the order of arrival, 1 % lost, 0.5 % twice in the topic, 0.1 % acknowledged yet lost.
Spark works out all that `metrics.json` holds: eight distributions with intervals, seconds, states.
The others do the least that answers the question, the join, the states, three percentiles of the
latency and the arrivals of each second; all have to agree on the counts.

Ratios are Spark's time divided by theirs: above 1, Spark loses.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from harness import Figure, Row, main
from penstock.analysis.analyze import analyze, warm
from penstock.analysis.session import session
from penstock.domain.arrivals import ConstantArrivals
from penstock.domain.cluster import TopicSpec
from penstock.domain.metrics import RunMetrics
from penstock.domain.run import ClockAnchor, Run, RunSpec
from penstock.domain.trace import message_id
from penstock.domain.workload import Workload
from penstock.load.trace_schema import schema
from penstock.runs.run_directory import RunDirectory

MILLION = 1_000_000
RATE_PER_S = 50_000
PRODUCERS = 2
_BLOCK = 500_000
# What pandas takes for a message in the join; it is left out where that does not fit.
_PANDAS_BYTES = 400
Say = Callable[[str], None]
Counts = dict[str, int]


@dataclass(frozen=True)
class Took:
    """One side's answer: how long it took, its largest memory, and what it counted."""

    seconds: float
    peak_mb: float
    counts: Counts


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    sizes = [MILLION // 4, MILLION, 3 * MILLION] if quick else [m * MILLION for m in (1, 3, 10, 30)]
    repeats = 2 if quick else 3
    took: dict[tuple[str, int], list[Took]] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        say("Spark starts")
        spark = session()
        warm(spark)
        for rows in sizes:
            directory = Path(scratch) / f"run-{rows}"
            say(f"a run of {rows:,} messages")
            expected = _make_run(directory, rows)
            sides: dict[str, Callable[[Path], Took]] = {"duckdb": _duckdb}
            if rows * _PANDAS_BYTES < psutil.virtual_memory().available:
                sides["pandas"] = _pandas
            for repeat in range(repeats):
                say(f"{rows:,} messages, round {repeat + 1} of {repeats}")
                took.setdefault(("spark", rows), []).append(_watched(_spark, spark, directory))
                for name, side in sides.items():
                    took.setdefault((name, rows), []).append(_in_process(side, directory))
            for (side_name, size), answers in took.items():
                for answer in answers if size == rows else []:
                    assert answer.counts == expected, (side_name, answer.counts, expected)
            if rows == MILLION:
                say("the same in a new process")
                cold = Figure.of([_cold(directory) for _ in range(repeats)])
            else:
                shutil.rmtree(directory)
        say("the summary of a run of a million messages, Spark warm")
        summary = [_watched(_spark, spark, Path(scratch) / f"run-{MILLION}") for _ in range(3)]
        spark.stop()
    return _figures(sizes, took, Figure.of([t.seconds for t in summary]), cold)


def _figures(
    sizes: list[int], took: dict[tuple[str, int], list[Took]], warm_s: Figure, cold_s: Figure
) -> tuple[dict[str, Any], list[Row]]:
    seconds = {key: Figure.of([t.seconds for t in found]) for key, found in took.items()}
    largest = sizes[-1]
    per_s = Figure.of([largest / t.seconds for t in took["spark", largest]])
    peak_mb = max(t.peak_mb for t in took["spark", largest])
    # The slope of log time over log rows.
    medians = [seconds["spark", rows].median for rows in sizes]
    exponent = float(np.polyfit(np.log(sizes), np.log(medians), 1)[0])
    ratios = {
        side: {
            rows: Figure.of(
                [
                    s.seconds / o.seconds
                    for s, o in zip(took["spark", rows], took[side, rows], strict=True)
                ]
            )
            for rows in sizes
            if (side, rows) in took
        }
        for side in ("pandas", "duckdb")
    }
    peaks = {
        f"{side}, {rows:,}": round(max(t.peak_mb for t in found))
        for (side, rows), found in took.items()
    }
    keys: dict[str, Any] = {
        "rows_per_s": per_s.median,
        "peak_rss_mb": peak_mb,
        "growth_exponent": exponent,
        **{f"ratio_vs_{side}": found[max(found)].median for side, found in ratios.items()},
        "ratio_at_rows": {side: max(found) for side, found in ratios.items()},
        "summary_warm_s": warm_s.median,
        "summary_cold_s": cold_s.median,
        "spread": {
            "rows_per_s": per_s,
            "seconds": {f"{side}, {rows:,}": figure for (side, rows), figure in seconds.items()},
            "ratios": {
                f"{side}, {rows:,}": figure
                for side, found in ratios.items()
                for rows, figure in found.items()
            },
            "peak_rss_mb": peaks,
            "summary_warm_s": warm_s,
            "summary_cold_s": cold_s,
        },
    }
    rows_shown = [
        Row(f"rows_per_s ({largest:,} messages)", per_s),
        Row("growth_exponent", f"{exponent:.2f}", "≤ 1.1", exponent <= 1.1),
        Row("peak_rss_mb", f"{peak_mb:.0f}"),
        Row("summary_warm_s, 1 M messages", warm_s, "≤ 5", warm_s.median <= 5),
        Row("summary_cold_s, `penstock analyze`", cold_s, "≤ 20", cold_s.median <= 20),
    ]
    for (side, rows), figure in seconds.items():
        rows_shown.append(
            Row(f"{side}, {rows:,} messages, s", f"{figure}, {peaks[f'{side}, {rows:,}']} MB")
        )
    for side, found in ratios.items():
        for rows, figure in found.items():
            rows_shown.append(Row(f"ratio_vs_{side}, {rows:,} messages", figure))
    return keys, rows_shown


# --- the sides ---------------------------------------------------------------------------------


def _spark(spark: Any, directory: Path) -> Counts:
    return _of(analyze(spark, [directory])[directory])


def _of(metrics: RunMetrics) -> Counts:
    counts = metrics.counts
    return {
        "sent": counts.sent,
        "delivered": counts.delivered,
        "lost": counts.lost,
        "duplicated": counts.duplicated,
        "acknowledged_yet_lost": counts.acknowledged_yet_lost,
    }


def _pandas(directory: Path) -> Took:
    import pandas as pd

    began = time.perf_counter()
    sent = pd.read_parquet(directory / "sent", columns=["id", "intended_ns", "outcome"])
    columns = ["id", "received_ns", "partition", "offset"]
    received = pd.read_parquet(directory / "received", columns=columns)
    records = received.drop_duplicates(["partition", "offset"])
    copies = records.groupby("id").received_ns.agg(["count", "min"])
    joined = sent.join(copies, on="id")
    copied = joined["count"].fillna(0)
    latency = joined["min"] - joined["intended_ns"]
    latency.quantile([0.5, 0.99, 0.999])
    joined["min"].dropna().floordiv(1_000_000_000).value_counts()
    counts = {
        "sent": len(joined),
        "delivered": int((copied == 1).sum()),
        "lost": int((copied == 0).sum()),
        "duplicated": int((copied > 1).sum()),
        "acknowledged_yet_lost": int(((copied == 0) & (joined["outcome"] == "acknowledged")).sum()),
    }
    return Took(time.perf_counter() - began, _own_peak_mb(), counts)


_STATES = """
with copies as (
    select id, count(*) as copies, min(received_ns) as received_ns from (
        select id, min(received_ns) as received_ns
        from read_parquet('{directory}/received/*.parquet') group by id, partition, "offset"
    ) group by id
)
select s.outcome, s.intended_ns, c.received_ns, coalesce(c.copies, 0) as copies
from read_parquet('{directory}/sent/*.parquet') s left join copies c using (id)
"""
_SUMS = """
select count(*), count(*) filter (copies = 1), count(*) filter (copies = 0),
    count(*) filter (copies > 1), count(*) filter (copies = 0 and outcome = 'acknowledged'),
    quantile_cont(received_ns - intended_ns, [0.5, 0.99, 0.999])
from states
"""
_SECONDS = "select received_ns // 1000000000 as second, count(*) from states group by second"


def _duckdb(directory: Path) -> Took:
    import duckdb

    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory() as spill,
        duckdb.connect(config={"temp_directory": spill}) as connection,
    ):
        states = _STATES.format(directory=directory)
        connection.execute(f"create temp table states as {states}")
        found = connection.execute(_SUMS).fetchone()
        connection.execute(_SECONDS).fetchall()
    assert found is not None
    names = ("sent", "delivered", "lost", "duplicated", "acknowledged_yet_lost")
    return Took(
        time.perf_counter() - began, _own_peak_mb(), dict(zip(names, found[:5], strict=True))
    )


def _cold(directory: Path) -> float:
    """Seconds of the whole command, from its start, on a run that was not analysed before."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "penstock.cli.main", "analyze", str(directory), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    took_s = time.perf_counter() - began
    assert json.loads(done.stdout)["runs"]
    return took_s


def _in_process(side: Callable[[Path], Took], directory: Path) -> Took:
    """In a fresh process of its own, whose memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(side, (directory,))


def _own_peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _watched(side: Callable[..., Counts], *arguments: Any) -> Took:
    """With the largest memory of this process and its children, Spark's Java among them."""
    peak, is_over = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_over.wait(0.05):
            here = psutil.Process()
            family = [here, *here.children(recursive=True)]
            peak = max(peak, sum(_rss_mb(process) for process in family))

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    try:
        counts = side(*arguments)
        return Took(time.perf_counter() - began, peak, counts)
    finally:
        is_over.set()
        watcher.join()


def _rss_mb(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / 2**20
    except psutil.NoSuchProcess:
        return 0.0


# --- made-up runs ------------------------------------------------------------------------------


def _make_run(directory: Path, messages: int) -> Counts:
    """Write the run in blocks; what became of its messages."""
    zero_ns, wall_ns = 10**12, 10**18
    step_ns = 1_000_000_000 // RATE_PER_S
    random = np.random.default_rng(messages)
    sent_files = [
        _Trace(directory / "sent" / f"producer-{p + 1}.parquet", "sent") for p in range(PRODUCERS)
    ]
    received_file = _Trace(directory / "received" / "consumer-1.parquet", "received")
    totals = np.zeros(4, dtype=np.int64)
    offset = 0
    for first in range(0, messages, _BLOCK):
        n = min(_BLOCK, messages - first)
        number = np.arange(first, first + n, dtype=np.int64)
        producer = number % PRODUCERS
        ids = message_id(1, 0) * producer | number // PRODUCERS
        intended = zero_ns + number * step_ns
        latency = (random.gamma(2.0, 5e6, n) + 2e6).astype(np.int64)
        is_lost, is_promised = random.random(n) < 0.01, random.random(n) < 0.1
        is_twice = ~is_lost & (random.random(n) < 0.005)
        outcome = np.where(is_lost & ~is_promised, "failed", "acknowledged")
        totals += (n, is_lost.sum(), is_twice.sum(), (is_lost & is_promised).sum())
        for p, file in enumerate(sent_files):
            own = producer == p
            file.write(
                id=ids[own],
                size_bytes=np.full(own.sum(), 100, np.int32),
                intended_ns=intended[own],
                sent_ns=intended[own] + 50_000,
                reported_ns=intended[own] + latency[own] // 2,
                outcome=pa.array(outcome[own]).dictionary_encode().cast(pa.string()),
                tries=np.ones(own.sum(), np.int16),
            )
        which = np.concatenate([np.flatnonzero(~is_lost), np.flatnonzero(is_twice)])
        again = np.arange(len(which)) >= (~is_lost).sum()
        received = intended[which] + latency[which] + np.where(again, 50_000_000, 0)
        order = np.argsort(received, kind="stable")
        which, received = which[order], received[order]
        received_file.write(
            id=ids[which],
            received_ns=received,
            partition=np.zeros(len(which), np.int32),
            offset=offset + np.arange(len(which), dtype=np.int64),
            appended_ms=(wall_ns + received - zero_ns) // 1_000_000 - 1,
            size_bytes=np.full(len(which), 100, np.int32),
            consumer=np.zeros(len(which), np.int16),
        )
        offset += len(which)
    for file in (*sent_files, received_file):
        file.close()
    workload = Workload(
        arrivals=ConstantArrivals(rate_per_s=RATE_PER_S / PRODUCERS), producers=PRODUCERS
    )
    end_ns = zero_ns + messages * step_ns
    run = Run(
        id=directory.name,
        spec=RunSpec(name="made-up", topic=TopicSpec(name="made-up"), workload=workload),
        started_at="2026-01-01T00:00:00Z",
        versions={},
        status="complete",
        measured_from_ns=zero_ns,
        measured_to_ns=end_ns,
        anchors=(
            ClockAnchor(monotonic_ns=zero_ns, wall_ns=wall_ns),
            ClockAnchor(monotonic_ns=end_ns, wall_ns=wall_ns + end_ns - zero_ns),
        ),
        end_offsets={"0": offset},
    )
    RunDirectory(directory).write_run(run)
    sent, lost, twice, broken = totals.tolist()
    return {
        "sent": sent,
        "delivered": sent - lost - twice,
        "lost": lost,
        "duplicated": twice,
        "acknowledged_yet_lost": broken,
    }


class _Trace:
    """A file of a trace, written block by block; what is not given is empty."""

    def __init__(self, path: Path, trace: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._schema = schema(trace)
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, **columns: Any) -> None:
        rows = len(columns["id"])
        arrays = [
            pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(rows, f.type)
            for f in self._schema
        ]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


if __name__ == "__main__":
    main("analysis", measure)
