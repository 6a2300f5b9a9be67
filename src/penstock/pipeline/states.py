"""Sent joined with received by number: one row per message, with its copies. No figures yet.

A copy is a record of the topic, a (partition, offset); the same one given to the application again
is a re-delivery. Of several copies the first counts: when the message was first appended, first
visible, first received.

Both sides are cut into pieces by *neighbouring* numbers: messages with neighbouring numbers were
sent one after the other, so a piece covers few slices of time, and the counts that follow are
nearly done before anything has to be gathered from all pieces.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.pipeline.outcomes import told_number

# Messages whose numbers differ in the lowest bits only stay together: 16,384 of them.
_CHUNK_BITS = 14
# Partition and offset in one number: 2²⁰ partitions of 2⁴³ records.
_OFFSET_BITS = 43


def messages(
    sent: DataFrame, received: DataFrame, seen: DataFrame | None, pieces: int
) -> DataFrame:
    """One row for each message sent, and one with an empty `intended_ns` for each foreign number.

    Columns: run, intended_ns, sent_ns, told_ns, told (place in `outcomes.TOLD`), tries, size_bytes;
    copies, receipts, received_ns, appended_ms, visible_ns (empty where nobody watched).
    """
    by_number = ["run", "chunk", "id"]
    left = _cut(
        sent.select(
            "run",
            _chunk("id"),
            "id",
            "intended_ns",
            "sent_ns",
            "told_ns",
            told_number(F.col("told")).alias("told"),
            "tries",
            "size_bytes",
        ),
        pieces,
    )
    right = _arrivals(received, seen, pieces)
    # A hash table per piece: the number of pieces grows with the rows, so that it stays small.
    joined = left.join(right.hint("shuffle_hash"), by_number, "full_outer")
    return joined.drop("chunk", "id").withColumns(
        {
            "copies": F.coalesce("copies", F.lit(0)),
            "receipts": F.coalesce("receipts", F.lit(0)),
        }
    )


def _arrivals(received: DataFrame, seen: DataFrame | None, pieces: int) -> DataFrame:
    """One row per number that was received: its copies and receipts, and the first times of it."""
    if seen is None:
        rows = received.select(
            "run", _chunk("id"), "id", _place(), "received_ns", "appended_ms", _nothing()
        )
        records = _records(_cut(rows, pieces), ["run", "chunk", "id", "place"])
    else:
        records = _cut(_watched_records(received, seen, pieces), pieces)
    return records.groupBy("run", "chunk", "id").agg(
        F.count(F.lit(1)).alias("copies"),
        F.sum("receipts").alias("receipts"),
        F.min("received_ns").alias("received_ns"),
        F.min("appended_ms").alias("appended_ms"),
        F.min("visible_ns").alias("visible_ns"),
    )


def _watched_records(received: DataFrame, seen: DataFrame, pieces: int) -> DataFrame:
    """Records with the time at which the watcher saw them; by place, for a watcher reads no numbers.

    One aggregation over both instead of a join of two: receipts and sightings of a record are rows
    with the same place.
    """
    receipts = received.select(
        "run", _chunk("offset"), _place(), "id", "received_ns", "appended_ms", _nothing()
    )
    sightings = seen.select(
        "run",
        _chunk("offset"),
        _place(),
        F.lit(None).cast("long").alias("id"),
        F.lit(None).cast("long").alias("received_ns"),
        F.lit(None).cast("long").alias("appended_ms"),
        F.col("seen_ns").alias("visible_ns"),
    )
    both = _cut(receipts.unionAll(sightings), pieces)
    records = _records(both, ["run", "chunk", "place"], F.max("id").alias("id"))
    # What only the watcher saw was received by nobody.
    return records.where(F.col("id").isNotNull()).select(
        "run", _chunk("id"), "id", "receipts", "received_ns", "appended_ms", "visible_ns"
    )


def _records(receipts: DataFrame, keys: list[str], *more: Column) -> DataFrame:
    """One row per record; how often it was received, and when first."""
    return receipts.groupBy(*keys).agg(
        F.count("received_ns").alias("receipts"),
        F.min("received_ns").alias("received_ns"),
        F.min("appended_ms").alias("appended_ms"),
        F.min("visible_ns").alias("visible_ns"),
        *more,
    )


def _cut(rows: DataFrame, pieces: int) -> DataFrame:
    return rows.repartition(pieces, "run", "chunk")


def _chunk(column: str) -> Column:
    return F.shiftright(column, _CHUNK_BITS).alias("chunk")


def _place() -> Column:
    partition = F.shiftleft(F.col("partition").cast("long"), _OFFSET_BITS)
    return partition.bitwiseOR(F.col("offset")).alias("place")


def _nothing() -> Column:
    return F.lit(None).cast("long").alias("visible_ns")
