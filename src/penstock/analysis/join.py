"""Sent joined with received by number: one row per message, with its copies. No figures yet.

A copy is a record of the topic, a (partition, offset), or one of the messages that a record holds;
the same one given to the application again is a re-delivery. Of several copies the first counts: when the message was first appended, first
visible, first received.

The join is an aggregation: what was sent and what was received of a message are rows with the same
number, so one pass over both does, it spills where memory is short, and numbers that only one side
knows come along. The rows are cut into pieces by *neighbouring* numbers: those messages were sent
one after the other, so a piece covers few slices of time, and the counts that follow are nearly
done before anything has to be gathered from all pieces.

Expressions are SQL text, here and in what follows: built from columns in Python, they would take
longer to build than a small run to count.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.analysis.outcome_bits import outcome_number
from penstock.domain.trace import SEQUENCE_BITS

# Stands for "there is none" in the columns of `messages`: all that they hold is 0 or more. Spark
# makes twice as much code of a column that may be empty, and its compilation is what a small run
# waits for.
NONE = -1

# Run and message in one number: 2¹³ runs of 2¹⁰ producers. What has no place in it is foreign for
# certain; all of a run's have one number, the largest.
_ID_BITS = SEQUENCE_BITS + 10
_NO_ID = (1 << _ID_BITS) - 1
MOST_RUNS = 1 << 63 - _ID_BITS
# Messages whose numbers differ in the lowest bits only stay together: 16,384 of them.
_CHUNK_BITS = 14
# Partition and offset in one number: 2²⁰ partitions of 2⁴³ records.
_PLACE = "shiftleft(bigint(partition), 43) | `offset`"
# Outcome, tries and size of a message in one number.
_MISC = "shiftleft(bigint(size_bytes), 18) | shiftleft(bigint({tries} + 1), 2) | {outcome}"


def messages(
    sent: DataFrame,
    received: DataFrame,
    seen: DataFrame | None,
    pieces: int,
    *,
    is_exact: bool = False,
    is_packed: bool = False,
) -> DataFrame:
    """One row for each message sent, and one without `intended_ns` for each foreign number.

    Columns: run, intended_ns, sent_ns, reported_ns, outcome (its place in `outcome_bits.OUTCOMES`),
    tries, size_bytes; copies, receipts, received_ns, appended_ms, visible_ns (NONE where nobody
    watched). Then `is_unclear`: received three times or more, as some of two or more copies; how
    many, only the exact way counts, which costs half as much again. With `seen` it is always exact,
    and so it is if records hold several messages (`is_packed`).
    """
    if seen is None and not is_exact and not is_packed:
        receipts = received.selectExpr(
            f"{_number()} as number",
            "received_ns as a",
            f"coalesce(appended_ms, {NONE}L) as b",
            f"{_PLACE} as c",
            "bigint(null) as d",
        )
        copies = (
            "count(if(d is null, 1, null)) as receipts",
            "min(if(d is null, c, null)) as first_place",
            "max(if(d is null, c, null)) as last_place",
        )
        counted = (
            "if(receipts < 2 or first_place = last_place, least(receipts, 1L), receipts) as copies",
            "receipts",
            f"{NONE}L as visible_ns",
            "receipts > 2 and first_place < last_place as is_unclear",
        )
        both = _sent(sent).unionAll(receipts)
    else:
        copies_of = _packed_copies if is_packed else _copies
        records = copies_of(received, seen, pieces).selectExpr(
            "number",
            "received_ns as a",
            f"coalesce(appended_ms, {NONE}L) as b",
            "visible_ns as c",
            "bigint(null) as d",
            "receipts as e",
        )
        copies = (
            "count(if(d is null, 1, null)) as copies",
            "sum(e) as receipts",
            "min(if(d is null, c, null)) as visible_ns",
        )
        counted = (
            "copies",
            "coalesce(receipts, 0L) as receipts",
            f"coalesce(visible_ns, {NONE}L) as visible_ns",
            "false as is_unclear",
        )
        both = _sent(sent).selectExpr("*", "bigint(null) as e").unionAll(records)
    grouped = (
        _cut(both, "number", pieces)
        .groupBy("chunk", "number")
        .agg(
            *_sql(
                "max(if(d is null, null, a)) as intended_ns",
                "max(if(d is null, null, b)) as sent_ns",
                "max(if(d is null, null, c)) as reported_ns",
                "max(d) as misc",
                "min(if(d is null, a, null)) as received_ns",
                "min(if(d is null, b, null)) as appended_ms",
                *copies,
            )
        )
    )
    times = ("intended_ns", "sent_ns", "reported_ns", "received_ns", "appended_ms", "misc")
    return grouped.selectExpr(
        f"shiftright(number, {_ID_BITS}) as run",
        *(f"coalesce({name}, {NONE}L) as {name}" for name in times),
        *counted,
    ).selectExpr(
        "*",
        "int(misc & 3) as outcome",
        "int(shiftright(misc, 2) & 65535) - 1 as tries",
        "shiftright(misc, 18) as size_bytes",
    )


def _sent(sent: DataFrame) -> DataFrame:
    return sent.selectExpr(
        f"{_number()} as number",
        "intended_ns as a",
        f"coalesce(sent_ns, {NONE}L) as b",
        f"coalesce(reported_ns, {NONE}L) as c",
        _MISC.format(tries=f"coalesce(int(tries), {NONE})", outcome=f"bigint({outcome_number})")
        + " as d",
    )


def records(received: DataFrame) -> DataFrame:
    """run → how many distinct records were read, where records hold several messages."""
    firsts = received.where("index = 0").selectExpr("run", f"{_PLACE} as place")
    return firsts.distinct().groupBy("run").count()


def _copies(received: DataFrame, seen: DataFrame | None, pieces: int) -> DataFrame:
    """One row per record that was received: number, receipts, received_ns, appended_ms, visible_ns.

    By place, for a watcher reads no numbers: receipts and sightings of a record are rows with the
    same place. What only the watcher saw was received by nobody.
    """
    rows = received.selectExpr(
        "run",
        f"{_PLACE} as place",
        f"{_number()} as number",
        "received_ns",
        "appended_ms",
        "bigint(null) as visible_ns",
    )
    if seen is not None:
        sightings = seen.selectExpr(
            "run",
            f"{_PLACE} as place",
            *(f"bigint(null) as {name}" for name in ("number", "received_ns", "appended_ms")),
            "seen_ns as visible_ns",
        )
        rows = rows.unionAll(sightings)
    return (
        _cut(rows, "place", pieces, "run")
        .groupBy("run", "chunk", "place")
        .agg(
            *_sql(
                "max(number) as number",
                "count(received_ns) as receipts",
                "min(received_ns) as received_ns",
                "min(appended_ms) as appended_ms",
                "min(visible_ns) as visible_ns",
            )
        )
        .where("number is not null")
    )


def _packed_copies(received: DataFrame, seen: DataFrame | None, pieces: int) -> DataFrame:
    """The same where records hold several messages: one row per message of a record. A message
    that is in a record twice is two copies."""
    rows = received.selectExpr(
        "run",
        f"{_PLACE} as place",
        "index",
        f"{_number()} as number",
        "received_ns",
        "appended_ms",
    )
    copies = (
        _cut(rows, "place", pieces, "run")
        .groupBy("run", "chunk", "place", "index")
        .agg(
            *_sql(
                "max(number) as number",
                "count(received_ns) as receipts",
                "min(received_ns) as received_ns",
                "min(appended_ms) as appended_ms",
            )
        )
    )
    if seen is None:
        return copies.selectExpr("*", "bigint(null) as visible_ns")
    sightings = (
        seen.selectExpr("run", f"{_PLACE} as place", "seen_ns")
        .groupBy("run", "place")
        .agg(*_sql("min(seen_ns) as visible_ns"))
    )
    return copies.join(sightings, ["run", "place"], "left")


def _number() -> str:
    """The number of the message among those of all runs."""
    is_ours = f"id >= 0 and id < {_NO_ID}L"
    return f"shiftleft(bigint(run), {_ID_BITS}) | if({is_ours}, id, {_NO_ID}L)"


def _cut(rows: DataFrame, column: str, pieces: int, *more: str) -> DataFrame:
    chunked = rows.selectExpr("*", f"shiftright({column}, {_CHUNK_BITS}) as chunk")
    return chunked.repartition(pieces, *more, "chunk")


def _sql(*expressions: str) -> list[Column]:
    return [F.expr(expression) for expression in expressions]
