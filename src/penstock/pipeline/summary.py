"""All figures of all runs as one table of counts, small enough to collect. The one aggregation.

Every message becomes some entries (run, what, at, bucket, amount), and equal ones are counted:

    a time        at 0, its bucket of three digits           the distribution of the whole run
    a time        its slice or block, bucket of two digits   intervals; percentiles of each second
    its outcome   its slice, the number of the outcome       every count, per slice; amount: bytes
    …             see `WHATS`

Its size depends on the length of the runs and not on the number of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DoubleType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from penstock.pipeline import buckets
from penstock.pipeline.latency import LATENCY, TIMES
from penstock.pipeline.outcomes import packed
from penstock.pipeline.timeline import SECOND_NS, Timeline, WallClock

# The times of the whole run come first, then those by slice, then the rest.
WHOLE = {name: number for number, name in enumerate(TIMES)}
SLICED = {name: len(TIMES) + number for number, name in enumerate(TIMES)}
OUTCOME, ARRIVED, COPIES, AGAIN, FOREIGN, MISPLACED, BACKWARDS = range(
    2 * len(TIMES), 2 * len(TIMES) + 7
)
WHATS = BACKWARDS + 1
# Limits come in so many columns at least: the code that Spark compiles depends on their number.
_LEAST_LIMITS = 4
_NO_LIMIT_NS = 2**63 - 1


@dataclass(frozen=True)
class RunColumns:
    """What is joined to every message of a run."""

    number: int
    timeline: Timeline
    clock: WallClock | None
    stale_ns: int | None
    limits_ns: tuple[int, ...]  # rising


def table(spark: SparkSession, runs: Sequence[RunColumns]) -> DataFrame:
    """The runs as a DataFrame, one row each."""
    width = max(_LEAST_LIMITS, *(len(run.limits_ns) for run in runs))
    columns = [
        StructField("run", IntegerType(), False),
        *(StructField(name, LongType(), False) for name in ("from_ns", "to_ns", "slice_ns")),
        *(StructField(name, IntegerType(), False) for name in ("slices", "slices_per_block")),
        *(StructField(name, LongType(), True) for name in ("anchor_wall_ns", "anchor_ns")),
        StructField("clock_rate", DoubleType(), True),
        StructField("stale_ns", LongType(), True),
        *(StructField(f"limit_{i}_ns", LongType(), False) for i in range(width)),
    ]
    rows = [
        (
            run.number,
            run.timeline.from_ns,
            run.timeline.to_ns,
            run.timeline.slice_ns,
            run.timeline.slices,
            run.timeline.slices_per_block,
            run.clock.wall_ns if run.clock else None,
            run.clock.monotonic_ns if run.clock else None,
            run.clock.rate if run.clock else None,
            run.stale_ns,
            *run.limits_ns,
            *(_NO_LIMIT_NS for _ in range(width - len(run.limits_ns))),
        )
        for run in runs
    ]
    return spark.createDataFrame(rows, StructType(columns))


def counted(messages: DataFrame) -> DataFrame:
    """(run, what, at, bucket) → entries, total, least, most. See above.

    Expects the columns of `table` and those of `latency.with_times`.
    """
    return (
        _entries(messages)
        .groupBy("run", "what", "at", "bucket")
        .agg(
            F.count(F.lit(1)).alias("entries"),
            F.sum("amount").alias("total"),
            F.min("amount").alias("least"),
            F.max("amount").alias("most"),
        )
    )


def _entries(messages: DataFrame) -> DataFrame:
    """(run, what, at, bucket, amount), several for each message."""
    intended, since = F.col("intended_ns"), F.col("intended_ns") - F.col("from_ns")
    limits = [F.col(name) for name in messages.columns if name.startswith("limit_")]
    prepared = messages.select(
        "run",
        *TIMES.values(),
        "copies",
        "slices_per_block",
        intended.isNull().alias("is_foreign"),
        (intended.between(F.col("from_ns"), F.col("to_ns") - 1)).alias("is_measured"),
        # What was due after the end is in no slice that counts.
        F.when(intended < F.col("to_ns"), F.floor(since / F.col("slice_ns")).cast("int"))
        .otherwise(F.col("slices"))
        .alias("slice"),
        F.floor((F.col("received_ns") - F.col("from_ns")) / SECOND_NS)
        .cast("int")
        .alias("received_at"),
        F.col("size_bytes").cast("long").alias("size_bytes"),
        (F.col("receipts") - F.col("copies")).alias("again"),
        "is_misplaced",
        "is_backwards",
        packed(
            told=F.col("told"),
            copies=F.col("copies"),
            tries=F.col("tries"),
            is_sent=F.col("sent_ns").isNotNull(),
            latency_ns=F.col("latency_ns"),
            stale_ns=F.col("stale_ns"),
            limits_ns=limits,
        ).alias("outcome"),
    )
    # A list of numbers and a choice by each of them: unlike a list of structures, nothing is
    # allocated for it.
    several = prepared.withColumn("what", F.explode(F.array(*map(F.lit, range(WHATS)))))
    several = several.withColumn("amount", _amount()).where(F.col("amount").isNotNull())
    several = several.withColumn("bits", buckets.bit_length(F.col("amount")))
    what = F.col("what")
    bucket = (
        F.when(what < OUTCOME, buckets.bucket(F.col("amount"), F.col("bits"), _is_whole(what)))
        .when(what == OUTCOME, F.col("outcome"))
        .otherwise(0)
    )
    return several.select("run", "what", _at(what).alias("at"), bucket.alias("bucket"), "amount")


def _amount() -> Column:
    """What is summed up for an entry; without one there is no entry."""
    what, is_measured, is_foreign = F.col("what"), F.col("is_measured"), F.col("is_foreign")
    # The latency by slice shows the warm-up too.
    amount = F.when(what == SLICED[LATENCY], F.when(~is_foreign, F.col(TIMES[LATENCY])))
    for name, column in TIMES.items():
        is_it = what == WHOLE[name]
        if name != LATENCY:
            is_it = is_it | (what == SLICED[name])
        amount = amount.when(is_it, F.when(is_measured, F.col(column)))
    copies = F.col("copies")
    one = F.lit(1).cast("long")
    return (
        amount.when(what == OUTCOME, F.when(~is_foreign, F.col("size_bytes")))
        .when(what == ARRIVED, F.when(~is_foreign & (copies > 0), F.col("size_bytes")))
        .when(what == COPIES, F.when(~is_foreign & (copies > 1), copies))
        .when(what == AGAIN, F.when(is_measured & (F.col("again") > 0), F.col("again")))
        .when(what == FOREIGN, F.when(is_foreign, copies))
        .when(what == MISPLACED, F.when(is_measured & F.col("is_misplaced"), one))
        .when(what == BACKWARDS, F.when(is_measured & F.col("is_backwards"), one))
    )


def _at(what: Column) -> Column:
    """Where in time: slice, block of slices, second of receipt, or 0 for the whole run."""
    block = F.floor(F.col("slice") / F.col("slices_per_block")).cast("int")
    is_by_slice = (what == SLICED[LATENCY]) | (what == OUTCOME) | (what == COPIES)
    return (
        F.when(is_by_slice, F.col("slice"))
        .when((what >= len(TIMES)) & (what < OUTCOME), block)
        .when(what == ARRIVED, F.col("received_at"))
        .otherwise(0)
    )


def _is_whole(what: Column) -> Column:
    return what < len(TIMES)
