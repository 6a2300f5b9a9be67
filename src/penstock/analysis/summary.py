"""All figures of all runs as one table of counts, small enough to collect. The one aggregation.

Every message becomes some entries, and entries with the same key are counted:

    a time        its stretch of time, bucket of two digits   intervals; percentiles of each second;
                                                           of a latency's parts, the distribution too
    latency, ack  its bucket of three digits               the distribution of the whole run
    its outcome   its slice of time, the outcome's number   every count, per slice; amount: bytes
    …             see `what` below

Its size depends on the length of the runs and not on the number of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.analysis import buckets
from penstock.analysis.join import NONE
from penstock.analysis.latency import ACKNOWLEDGEMENT, LATENCY, TIMES
from penstock.analysis.outcome_bits import late, packed
from penstock.analysis.timeline import Timeline, WallClock

# What an entry is about. First times of the whole run, then all times by stretch of time: a block
# of slices, and for the latency, which comes last, a slice.
WHOLE = {name: number for number, name in enumerate((LATENCY, ACKNOWLEDGEMENT))}
_BY_BLOCK = [name for name in TIMES if name != LATENCY]
SLICED = {name: len(WHOLE) + number for number, name in enumerate((*_BY_BLOCK, LATENCY))}
_TIMES_END = len(WHOLE) + len(SLICED)
# By the slice in which it was due: the outcome, and the number of copies where there is more than
# one. By the slice in which it happened: acknowledged, and arrived (bucket: limits exceeded).
OUTCOME, COPIES, ACCEPTED, ARRIVED = (_TIMES_END + i for i in range(4))
# Of the whole run: receipts of the same record again, foreign records, doubtful times…
AGAIN, FOREIGN, MISPLACED, BACKWARDS = (ARRIVED + 1 + i for i in range(4))
# … and messages whose number of copies is unclear; then all has to be counted in the exact way.
UNCLEAR = BACKWARDS + 1
WHATS = UNCLEAR + 1

# The key, from its lowest bits: bucket, stretch of time (the middle is 0), what, run.
BUCKET_BITS, AT_BITS, WHAT_BITS = 16, 24, 5
AT_ZERO = 1 << AT_BITS - 1
_AT_SHIFT, _WHAT_SHIFT = BUCKET_BITS, BUCKET_BITS + AT_BITS
RUN_SHIFT = _WHAT_SHIFT + WHAT_BITS

# Limits come in so many columns at least: the code that Spark compiles depends on their number.
_LEAST_LIMITS = 4
_NO_LIMIT_NS = 2**63 - 1


@dataclass(frozen=True)
class RunColumns:
    """Columns that are joined to every message of a run."""

    number: int
    timeline: Timeline
    clock: WallClock | None
    stale_ns: int | None
    limits_ns: tuple[int, ...]  # rising; at most MOST_LIMITS


def table(spark: SparkSession, runs: Sequence[RunColumns]) -> DataFrame:
    """The runs as a DataFrame, one row each. Missing values are NONE."""
    clocks = [run.clock or WallClock(NONE, NONE, 1.0) for run in runs]
    columns: dict[str, Sequence[int | float]] = {
        "run": [run.number for run in runs],
        "from_ns": [run.timeline.from_ns for run in runs],
        "to_ns": [run.timeline.to_ns for run in runs],
        "slice_ns": [run.timeline.slice_ns for run in runs],
        "slices": [run.timeline.slices for run in runs],
        "slices_per_block": [run.timeline.slices_per_block for run in runs],
        "anchor_wall_ns": [clock.wall_ns for clock in clocks],
        "anchor_ns": [clock.monotonic_ns for clock in clocks],
        "stale_ns": [_NO_LIMIT_NS if run.stale_ns is None else run.stale_ns for run in runs],
    }
    for i in range(max(_LEAST_LIMITS, *(len(run.limits_ns) for run in runs))):
        columns[f"limit_{i}_ns"] = [
            run.limits_ns[i] if i < len(run.limits_ns) else _NO_LIMIT_NS for run in runs
        ]
    arrays = {name: pa.array(values, pa.int64()) for name, values in columns.items()}
    arrays["clock_rate"] = pa.array([clock.rate for clock in clocks], pa.float64())
    schema = pa.schema([pa.field(name, a.type, nullable=False) for name, a in arrays.items()])
    return spark.createDataFrame(pa.table(arrays, schema=schema))


def counted(messages: DataFrame) -> DataFrame:
    """key → entries, total, least, most of their amounts. See above.

    Expects the columns of `table` and those of `latency.with_times`.
    """
    return (
        _entries(messages)
        .groupBy("key")
        .agg(
            F.expr("count(1) as entries"),
            F.expr("sum(amount) as total"),
            F.expr("min(amount) as least"),
            F.expr("max(amount) as most"),
        )
    )


def _entries(messages: DataFrame) -> DataFrame:
    """(key, amount), several for each message."""
    limits = [name for name in messages.columns if name.startswith("limit_") and name != "limit_ns"]
    due = _slice("intended_ns")
    prepared = messages.selectExpr(
        f"shiftleft(run, {RUN_SHIFT}) as run_bits",
        f"{_at_bits(f'floor({due} / slices_per_block)')} as block_bits",
        f"{_at_bits(due)} as slice_bits",
        f"{_at_bits(_slice('reported_ns'))} as reported_bits",
        f"{_at_bits(_slice('received_ns'))} as arrival_bits",
        f"{packed(limits)} as packed",
        f"array({', '.join(_amounts())}) as amounts",
    )
    placed = prepared.selectExpr(
        "run_bits",
        "block_bits",
        "slice_bits",
        "reported_bits",
        "arrival_bits",
        "packed",
        # The outer kind: before the other one Spark would work all of it out a second time, to
        # see whether the list is empty.
        "posexplode_outer(amounts) as (what, amount)",
    ).where("amount >= 0")
    bits = placed.selectExpr("*", f"{buckets.bit_length('amount')} as bits")
    whole = len(WHOLE)
    at = (
        f"case when what < {whole} then {AT_ZERO << _AT_SHIFT}L "
        f"when what < {SLICED[LATENCY]} then block_bits when what < {ACCEPTED} then slice_bits "
        f"when what = {ACCEPTED} then reported_bits when what = {ARRIVED} then arrival_bits "
        f"else {AT_ZERO << _AT_SHIFT}L end"
    )
    bucket = (
        f"case when what < {_TIMES_END} then {buckets.bucket('amount', 'bits', f'what < {whole}')} "
        f"when what = {OUTCOME} then bigint(packed) "
        f"when what = {ARRIVED} then bigint({late('packed')}) else 0L end"
    )
    key = f"run_bits + shiftleft(bigint(what), {_WHAT_SHIFT}) + {at} + {bucket}"
    return bits.selectExpr(f"{key} as key", "amount")


def _amounts() -> list[str]:
    """What is summed up for each `what`, by place; where it is NONE, there is no entry."""
    is_known = "intended_ns >= 0"
    is_measured = "intended_ns >= from_ns and intended_ns < to_ns"
    again = "receipts - copies"
    size = "size_bytes"

    def amount_if(condition: str, amount: str) -> str:
        return f"if({condition}, {amount}, {NONE}L)"

    amounts = {
        OUTCOME: amount_if(is_known, size),
        COPIES: amount_if(f"{is_known} and copies > 1", "copies"),
        ACCEPTED: amount_if(f"{is_known} and outcome = 0 and reported_ns >= 0", size),
        ARRIVED: amount_if(f"{is_known} and copies > 0", size),
        AGAIN: amount_if(f"{is_measured} and {again} > 0", again),
        FOREIGN: amount_if(f"not ({is_known})", "copies"),
        MISPLACED: amount_if(f"{is_measured} and is_misplaced", "1L"),
        BACKWARDS: amount_if(f"{is_measured} and is_backwards", "1L"),
        UNCLEAR: amount_if("is_unclear", "1L"),
    }
    for name, column in TIMES.items():
        amounts[SLICED[name]] = amount_if(is_measured, column)
    for name, what in WHOLE.items():
        amounts[what] = amount_if(is_measured, TIMES[name])
    # By slice, the latency of the warm-up is shown too.
    amounts[SLICED[LATENCY]] = TIMES[LATENCY]
    return [amounts[what] for what in range(WHATS)]


def _slice(time_ns: str) -> str:
    """The slice of a time. After the end it is one that does not count, even if the last is short."""
    slice_ = f"bigint(floor(({time_ns} - from_ns) / slice_ns))"
    return f"if({time_ns} < to_ns, {slice_}, greatest({slice_}, slices))"


def _at_bits(at: str) -> str:
    """The stretch of time in its place in the key; a time that cannot be is put at the edge."""
    inside = f"greatest(least(bigint({at}), {AT_ZERO - 1}L), {1 - AT_ZERO}L)"
    return f"shiftleft({inside} + {AT_ZERO}L, {_AT_SHIFT})"
