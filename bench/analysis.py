"""The analysis of traces on Spark: how quick, how much memory, how it grows, against pandas and duckdb.

The traces are made up: 100,000 messages a second from two producers to twelve partitions, of which
1 % are lost, .5 % duplicated and .2 % re-delivered. pandas and duckdb do the same join and come to
the same counts and percentiles (checked), per run and per second; intervals and the histograms they
need only Spark works out. Every engine has a process of its own, whose memory is watched with that
of all its children.
"""

from __future__ import annotations

import math
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import harness
from harness import Figure, Row
from penstock.domain.arrivals.constant import ConstantArrivals
from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import PenstockError
from penstock.domain.objective import Objective
from penstock.domain.run import ClockAnchor, Experiment, Run
from penstock.domain.trace import message_id
from penstock.domain.workload import Workload
from penstock.measure.run_directory import RunDirectory
from penstock.measure.trace import schema

MILLION = 1_000_000
RATE_PER_S = 100_000
PRODUCERS, CONSUMERS, PARTITIONS = 2, 2, 12
ZERO_NS = 10**15
WALL_NS = 1_700_000_000_000_000_000
# The first two seconds are warm-up.
WARM_UP_S = 2
PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
TIMES = ("latency", "acknowledgement", "waiting", "produce", "commit+fetch", "answer")
Say = Callable[[str], None]
Result = dict[str, Any]


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    sizes = (1, 3, 10) if quick else (1, 3, 10, 30)
    repeats = 1 if quick else 3
    root = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        directories = {}
        for size in sizes:
            say(f"making up {size} M messages")
            directories[size] = root / f"{size}m"
            make_up(directories[size], size * MILLION)
        say("1 M messages, cold")
        cold = [_apart(spark_cold, directories[1]) for _ in range(repeats)]
        spark: dict[int, Result] = {}
        rivals: dict[str, dict[int, Result]] = {"pandas": {}, "duckdb": {}}
        for size in sizes:
            say(f"{size} M messages with Spark")
            spark[size] = _apart(spark_warm, directories[size], 3 if size < 10 else repeats)
            for name, engine in (("duckdb", with_duckdb), ("pandas", with_pandas)):
                if name == "pandas" and not _fits(size):
                    continue
                say(f"{size} M messages with {name}")
                rivals[name][size] = _apart(engine, directories[size], 3 if size < 10 else repeats)
                _check_agreement(spark[size], rivals[name][size], f"{name}, {size} M")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return _results(cold, spark, rivals)


def _results(
    cold: list[Result], spark: dict[int, Result], rivals: dict[str, dict[int, Result]]
) -> tuple[dict[str, Any], list[Row]]:
    seconds = {size: Figure.of(result["seconds"]) for size, result in spark.items()}
    largest = max(spark)
    exponent = _exponent({size: figure.median for size, figure in seconds.items()})
    ratios = {
        name: {
            size: Figure.of(r["seconds"]).median / seconds[size].median for size, r in by.items()
        }
        for name, by in rivals.items()
    }
    cold_s = Figure.of([result["seconds"][0] for result in cold])
    rows_per_s = spark[largest]["rows"] / seconds[largest].median
    keys = {
        "rows_per_s": rows_per_s,
        "peak_rss_mb": spark[largest]["peak_rss_mb"],
        "growth_exponent": exponent,
        # Above 1 Spark is the quicker one; at the largest size that the other one could do.
        "ratio_vs_pandas": ratios["pandas"][max(ratios["pandas"])],
        "ratio_vs_duckdb": ratios["duckdb"][max(ratios["duckdb"])],
        "summary_1m_warm_s": seconds[1].median,
        "summary_1m_cold_s": cold_s.median,
        "session_s": Figure.of([result["session_s"] for result in cold]).median,
        "seconds": {
            "spark": {size: figure.median for size, figure in seconds.items()},
            **{
                name: {size: Figure.of(r["seconds"]).median for size, r in by.items()}
                for name, by in rivals.items()
            },
        },
        "peak_rss_mb_by_size": {
            "spark": {size: result["peak_rss_mb"] for size, result in spark.items()},
            **{
                name: {size: r["peak_rss_mb"] for size, r in by.items()}
                for name, by in rivals.items()
            },
        },
        "ratios": ratios,
        "spread": {"warm": seconds, "cold": cold_s},
    }
    table = [
        Row("summary of 1 M, warm (s)", seconds[1], "≤ 5", seconds[1].median <= 5),
        Row("summary of 1 M, cold (s)", cold_s, "≤ 20", cold_s.median <= 20),
        Row("… of it the session", f"{keys['session_s']:.1f}"),
        Row(f"rows_per_s at {largest} M", f"{rows_per_s:,.0f}"),
        Row(f"peak_rss_mb at {largest} M", f"{spark[largest]['peak_rss_mb']:,.0f}"),
        Row("growth_exponent", f"{exponent:.2f}", "≤ 1.1", exponent <= 1.1),
    ]
    for name, by in ratios.items():
        shown = ", ".join(f"{ratio:.2f} at {size} M" for size, ratio in by.items())
        table.append(Row(f"ratio_vs_{name} (above 1: Spark is quicker)", shown))
    return keys, table


def _exponent(seconds: dict[int, float]) -> float:
    """Of time against messages, by least squares on logarithms; what is fixed flatters it."""
    sizes, times = np.log(list(seconds)), np.log(list(seconds.values()))
    return float(np.polyfit(sizes, times, 1)[0])


def _fits(size: int) -> bool:
    """Whether pandas has room: some 700 bytes for each message at its peak."""
    return 700 * size * MILLION < 0.8 * psutil.virtual_memory().available


def _check_agreement(one: Result, other: Result, name: str) -> None:
    if one["counts"] != other["counts"]:
        raise PenstockError(f"{name}: counts {other['counts']}, Spark has {one['counts']}")
    for kind, percentiles in other["percentiles_ms"].items():
        for ours, theirs in zip(one["percentiles_ms"][kind], percentiles, strict=True):
            # Spark's are the upper edges of buckets of three digits.
            if not math.isclose(ours, theirs, rel_tol=2**-9, abs_tol=1e-6):
                raise PenstockError(f"{name}: {kind} {theirs} ms, Spark has {ours} ms")


# --- processes -----------------------------------------------------------------------------------


def _apart(work: Callable[..., Result], *arguments: Any) -> Result:
    """Do it in a process of its own; its result, with the most memory it and its children had."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_send, args=(there, work, arguments))
    process.start()
    there.close()
    peak = 0
    while not here.poll(0.05):
        peak = max(peak, _tree_rss(process.pid or 0))
    try:
        result: Result = here.recv()
    except EOFError:
        raise PenstockError(f"{work.__name__} ended without a result") from None
    finally:
        process.join()
    if "error" in result:
        raise PenstockError(f"{work.__name__}: {result['error']}")
    return {**result, "peak_rss_mb": peak / 2**20}


def _send(there: Connection, work: Callable[..., Result], arguments: tuple[Any, ...]) -> None:
    try:
        there.send(work(*arguments))
    except Exception as error:
        there.send({"error": str(error)})


def _tree_rss(pid: int) -> int:
    total = 0
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):
                total += process.memory_info().rss
    return total


def _timed(work: Callable[[], Any], repeats: int) -> tuple[list[float], Any]:
    times, result = [], None
    for _ in range(repeats):
        start = time.monotonic()
        result = work()
        times.append(time.monotonic() - start)
    return times, result


# --- Spark ---------------------------------------------------------------------------------------


def spark_cold(directory: Path) -> Result:
    """From nothing: imports, session, analysis."""
    start = time.monotonic()
    from penstock.pipeline.analysis import analyze
    from penstock.pipeline.session import session

    spark = session()
    session_s = time.monotonic() - start
    analyze(spark, [directory])
    seconds = time.monotonic() - start
    spark.stop()
    return {"seconds": [seconds], "session_s": session_s}


def spark_warm(directory: Path, repeats: int) -> Result:
    from penstock.pipeline.analysis import analyze, warm
    from penstock.pipeline.session import session

    spark = session()
    warm(spark)
    times, found = _timed(lambda: analyze(spark, [directory])[directory], repeats)
    spark.stop()
    named = {"latency": found.latency, "acknowledgement": found.acknowledgement, **found.parts}
    return {
        "seconds": times,
        "rows": sum(pq.read_metadata(file).num_rows for file in directory.glob("*/*.parquet")),
        "counts": asdict(found.counts),
        "percentiles_ms": {
            name: [named[name].percentiles_ms[f"{percent:g}"].value for percent in PERCENTS]
            for name in TIMES
        },
    }


# --- duckdb --------------------------------------------------------------------------------------

_DUCKDB = """
create or replace temp table messages as
with records as (
    select id, partition, "offset", count(*) as receipts, min(received_ns) as received_ns,
           min(appended_ms) as appended_ms
    from read_parquet('{directory}/received/*.parquet') group by all
), arrivals as (
    select id, count(*) as copies, sum(receipts) as receipts, min(received_ns) as received_ns,
           min(appended_ms) as appended_ms
    from records group by id
), joined as (
    select s.*, a.id as received_id, coalesce(a.copies, 0) as copies,
           coalesce(a.receipts, 0) as receipts, a.received_ns,
           least(greatest((a.appended_ms * 1000000 + 500000 - {wall}) + {zero}, s.sent_ns),
                 a.received_ns) as appended_ns
    from read_parquet('{directory}/sent/*.parquet') s full outer join arrivals a on s.id = a.id
)
select *, intended_ns >= {begin} and intended_ns < {end} as is_measured,
       received_ns - intended_ns as latency,
       case when told = 'acknowledged' then told_ns - intended_ns end as acknowledgement,
       case when received_ns is not null then sent_ns - intended_ns end as waiting,
       appended_ns - sent_ns as produce, received_ns - appended_ns as "commit+fetch",
       told_ns - sent_ns as answer
from joined
"""


def with_duckdb(directory: Path, repeats: int) -> Result:
    import duckdb

    run = RunDirectory(directory).run()
    made = _DUCKDB.format(
        directory=directory,
        wall=WALL_NS,
        zero=ZERO_NS,
        begin=run.measured_from_ns,
        end=run.measured_to_ns,
    )
    names = [name for name in _CONDITIONS if name not in ("foreign", "records", "warm_up")]
    counts = ", ".join(f"count(*) filter (where {_CONDITIONS[name]}) as {name}" for name in names)
    quantiles = ", ".join(
        f'quantile_disc("{name}", {[p / 100 for p in PERCENTS]}) as "{name}"' for name in TIMES
    )

    def work() -> tuple[dict[str, int], dict[str, list[float]]]:
        with duckdb.connect() as db:
            db.execute(made)
            of_all = db.sql(
                "select count(*) filter (where intended_ns < ?) as warm_up, "
                "sum(copies)::bigint as records, "
                "coalesce(sum(copies) filter (where intended_ns is null), 0)::bigint as foreign_ "
                "from messages",
                params=[run.measured_from_ns],
            ).fetchone()
            row = db.sql(
                f"select {counts}, sum(copies)::bigint, sum(receipts - copies)::bigint, "
                f"{quantiles} from messages where is_measured"
            ).fetchone()
            db.sql(
                f"select (intended_ns - {run.measured_from_ns}) // 1000000000 as second, count(*), "
                "count(*) filter (where copies = 0), quantile_disc(latency, [.5, .99]), "
                "max(latency) from messages where intended_ns is not null group by 1"
            ).fetchall()
        assert row is not None
        assert of_all is not None
        found = dict(zip(names, row, strict=False))
        found |= dict(zip(("copies", "redelivered"), row[len(names) :], strict=False))
        found |= dict(zip(("warm_up", "records", "foreign"), of_all, strict=True))
        return found, dict(zip(TIMES, row[len(names) + 2 :], strict=True))

    times, (found, percentiles) = _timed(work, repeats)
    return {
        "seconds": times,
        "counts": found,
        "percentiles_ms": {n: [v * 1e-6 for v in values] for n, values in percentiles.items()},
    }


# Name of a count → what it counts, in SQL and in `DataFrame.eval`.
_CONDITIONS = {
    "sent": "is_measured",
    "acknowledged": "told = 'acknowledged'",
    "failed": "told = 'failed'",
    "unknown": "told = 'unknown'",
    "delivered": "copies = 1",
    "lost": "copies = 0",
    "duplicated": "copies > 1",
    "acknowledged_yet_lost": "told = 'acknowledged' and copies = 0",
    "failed_yet_delivered": "told = 'failed' and copies > 0",
    "first_try": "copies = 1 and tries <= 1",
    "after_retries": "copies = 1 and tries > 1",
    "lost_first_try": "copies = 0 and tries <= 1",
    "lost_after_retries": "copies = 0 and tries > 1",
    "stale": "latency > 20000000",
    "unsent": "sent_ns is null",
    "tries_unknown": "tries is null",
}


# --- pandas --------------------------------------------------------------------------------------


def with_pandas(directory: Path, repeats: int) -> Result:
    run = RunDirectory(directory).run()
    times, (found, percentiles) = _timed(lambda: _pandas(directory, run), repeats)
    return {"seconds": times, "counts": found, "percentiles_ms": percentiles}


def _pandas(directory: Path, run: Run) -> tuple[dict[str, int], dict[str, list[float]]]:
    import pandas as pd

    sent_columns = ["id", "intended_ns", "sent_ns", "told_ns", "told", "tries"]
    sent = pd.read_parquet(directory / "sent", columns=sent_columns)
    received = pd.read_parquet(
        directory / "received", columns=["id", "partition", "offset", "received_ns", "appended_ms"]
    )
    records = received.groupby(["partition", "offset"], sort=False, as_index=False).agg(
        id=("id", "first"),
        receipts=("id", "size"),
        received_ns=("received_ns", "min"),
        appended_ms=("appended_ms", "min"),
    )
    arrivals = records.groupby("id", sort=False).agg(
        copies=("id", "size"),
        receipts=("receipts", "sum"),
        received_ns=("received_ns", "min"),
        appended_ms=("appended_ms", "min"),
    )
    all_ = sent.merge(arrivals, on="id", how="outer")
    all_["copies"] = all_["copies"].fillna(0).astype(np.int64)
    is_known = all_["intended_ns"].notna()
    begin, end = run.measured_from_ns, run.measured_to_ns
    known = all_[is_known]
    seconds = known.assign(
        second=(known["intended_ns"] - begin) // 10**9,
        latency=known["received_ns"] - known["intended_ns"],
    ).groupby("second")
    seconds["latency"].quantile([0.5, 0.99])
    seconds.agg(due=("id", "size"), max=("latency", "max"))
    m = all_[is_known & (all_["intended_ns"] >= begin) & (all_["intended_ns"] < end)]
    appended = (m["appended_ms"] * 1e6 + 5e5 - WALL_NS) + ZERO_NS
    appended = np.minimum(np.maximum(appended, m["sent_ns"]), m["received_ns"])
    columns = {
        "latency": m["received_ns"] - m["intended_ns"],
        "acknowledgement": (m["told_ns"] - m["intended_ns"])[m["told"] == "acknowledged"],
        "waiting": (m["sent_ns"] - m["intended_ns"])[m["copies"] > 0],
        "produce": appended - m["sent_ns"],
        "commit+fetch": m["received_ns"] - appended,
        "answer": m["told_ns"] - m["sent_ns"],
    }
    percentiles = {
        name: (
            np.quantile(
                values.dropna().to_numpy(), [p / 100 for p in PERCENTS], method="inverted_cdf"
            )
            * 1e-6
        ).tolist()
        for name, values in columns.items()
    }
    m = m.assign(latency=columns["latency"])
    told, copies, tries = m["told"], m["copies"], m["tries"]
    is_acknowledged, is_failed = told == "acknowledged", told == "failed"
    masks = {
        "sent": m["sent_ns"].notna(),
        "unsent": m["sent_ns"].isna(),
        "acknowledged": is_acknowledged,
        "failed": is_failed,
        "unknown": told == "unknown",
        "delivered": copies == 1,
        "lost": copies == 0,
        "duplicated": copies > 1,
        "acknowledged_yet_lost": is_acknowledged & (copies == 0),
        "failed_yet_delivered": is_failed & (copies > 0),
        "first_try": (copies == 1) & (tries <= 1),
        "after_retries": (copies == 1) & (tries > 1),
        "lost_first_try": (copies == 0) & (tries <= 1),
        "lost_after_retries": (copies == 0) & (tries > 1),
        "tries_unknown": tries.isna(),
        "stale": m["latency"] > 20e6,
    }
    found = {name: int(mask.sum()) for name, mask in masks.items()}
    found["copies"] = int(copies.sum())
    found["redelivered"] = int((m["receipts"].fillna(0) - copies).sum())
    found["records"] = int(all_["copies"].sum())
    found["foreign"] = int(all_["copies"][~is_known].sum())
    found["warm_up"] = int((all_["intended_ns"] < begin).sum())
    return found, percentiles


# --- traces --------------------------------------------------------------------------------------


def make_up(directory: Path, messages: int, chunk: int = 500_000) -> None:
    """The traces of a run, piece by piece, so that the memory they take does not grow."""
    rng = np.random.default_rng()
    writers: dict[tuple[str, int], pq.ParquetWriter] = {}
    offsets = np.zeros(PARTITIONS, dtype=np.int64)
    for start in range(0, messages, chunk):
        numbers = np.arange(start, min(start + chunk, messages))
        sent, received = _piece(numbers, offsets, rng)
        for trace, columns, owner in (("sent", *sent), ("received", *received)):
            wanted = schema(trace)
            table = pa.table([columns[name] for name in wanted.names], schema=wanted)
            for one in np.unique(owner).tolist():
                path = directory / trace / f"{one + 1}.parquet"
                if (trace, one) not in writers:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    writers[trace, one] = pq.ParquetWriter(path, wanted, compression="zstd")
                writers[trace, one].write_table(
                    table.filter(pa.array(owner == one)), row_group_size=1 << 17
                )
    for writer in writers.values():
        writer.close()
    RunDirectory(directory).write_run(
        Run(
            id=directory.name,
            experiment=Experiment(
                name="bench",
                topic=TopicSpec(name="bench", partitions=PARTITIONS),
                workload=Workload(
                    arrivals=ConstantArrivals(rate_per_s=RATE_PER_S / PRODUCERS),
                    producers=PRODUCERS,
                ),
                objective=Objective(latency_ms=10.0),
                timeliness_ms=20.0,
            ),
            started_at="2026-01-01T00:00:00Z",
            versions={},
            measured_from_ns=ZERO_NS + WARM_UP_S * 10**9,
            measured_to_ns=ZERO_NS + messages * 10**9 // RATE_PER_S,
            anchors=(ClockAnchor(monotonic_ns=ZERO_NS, wall_ns=WALL_NS),),
        )
    )


def _piece(
    numbers: np.ndarray[Any, np.dtype[np.int64]],
    offsets: np.ndarray[Any, np.dtype[np.int64]],
    rng: np.random.Generator,
) -> tuple[tuple[dict[str, Any], Any], tuple[dict[str, Any], Any]]:
    """Some neighbouring messages: columns of `sent` with the producer of each row, and alike of
    `received`. `offsets` are moved on."""
    n = len(numbers)

    def some_ns(least: float, mu: float, sigma: float) -> Any:
        return (least + rng.lognormal(mu, sigma, n)).astype(np.int64)

    producer = numbers % PRODUCERS
    identity = (producer + 1) * message_id(1, 0) + numbers // PRODUCERS
    intended = ZERO_NS + numbers * (10**9 // RATE_PER_S)
    sent = intended + rng.exponential(5e4, n).astype(np.int64)
    appended = sent + some_ns(1e5, 14, 0.6)
    told_ns = appended + some_ns(1e5, 13, 0.5)
    received = appended + some_ns(6e5, 13.5, 0.7)
    lot = rng.random(n)
    is_lost, is_duplicated = lot < 0.01, (lot > 0.5) & (lot < 0.505)
    is_failed = (lot < 0.007) | (lot > 0.997)
    is_unknown = (lot > 0.996) & ~is_failed
    told = np.where(is_failed, 1, np.where(is_unknown, 2, 0)).astype(np.int8)
    partition = rng.integers(0, PARTITIONS, n).astype(np.int32)
    size = np.full(n, 100, dtype=np.int32)
    rows = {
        "id": identity,
        "size_bytes": size,
        "intended_ns": intended,
        "sent_ns": sent,
        "told_ns": pa.array(told_ns, mask=is_unknown),
        "told": _words(told, ["acknowledged", "failed", "unknown"]),
        "error": _words(np.zeros(n, np.int8), ["_MSG_TIMED_OUT"], ~is_failed),
        "partition": partition,
        "offset": pa.nulls(n, pa.int64()),
        "tries": np.where(rng.random(n) < 0.02, 2, 1).astype(np.int16),
    }
    again = np.flatnonzero(is_duplicated)
    copy = np.concatenate([np.flatnonzero(~is_lost), again])
    late = np.repeat([0, 3_000_000], [len(copy) - len(again), len(again)])
    order = np.argsort(appended[copy] + late, kind="stable")
    copy, late = copy[order], late[order]
    place = np.empty(len(copy), dtype=np.int64)
    for one in range(PARTITIONS):
        mine = partition[copy] == one
        place[mine] = offsets[one] + np.arange(mine.sum())
        offsets[one] += mine.sum()
    redelivered = np.flatnonzero(rng.random(len(copy)) < 0.002)
    receipt = np.concatenate([np.arange(len(copy)), redelivered])
    received_ns = received[copy][receipt] + late[receipt]
    received_ns[len(copy) :] += 5 * 10**9
    by_time = np.argsort(received_ns, kind="stable")
    receipt, received_ns = receipt[by_time], received_ns[by_time]
    consumer = (partition[copy][receipt] % CONSUMERS).astype(np.int16)
    got = {
        "id": identity[copy][receipt],
        "received_ns": received_ns,
        "partition": partition[copy][receipt],
        "offset": place[receipt],
        "appended_ms": ((appended[copy] + late)[receipt] - ZERO_NS + WALL_NS) // 10**6,
        "size_bytes": size[copy][receipt],
        "consumer": consumer,
    }
    return (rows, producer), (got, consumer)


def _words(numbers: Any, words: list[str], mask: Any = None) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(numbers, mask=mask), words).cast(pa.string())


if __name__ == "__main__":
    harness.main("analysis", measure)
