"""The trace of a run: what is recorded of every message, column by column.

Times called `_ns` are nanoseconds of one clock, CLOCK_MONOTONIC of the machine of the run; the
broker's own time (`appended_ms`) is its wall clock, which the run's two anchors
(`domain.run.ClockAnchor`) put on that one clock. A file of a trace is Parquet; this is the one
description that writer (Arrow) and reader (Spark) are made from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The number of a message: producer in the upper bits, its sequence (0, 1, …) in the lower ones.
SEQUENCE_BITS = 40


def message_id(producer: int, sequence: int) -> int:
    return producer << SEQUENCE_BITS | sequence


@dataclass(frozen=True)
class Column:
    """One column: its type by Arrow's name, whether it may be empty, and what it says."""

    name: str
    type: Literal["int16", "int32", "int64", "string"]
    nullable: bool
    doc: str


SENT = (
    Column("id", "int64", False, "producer << 40 | sequence; the first 8 bytes of the value"),
    Column("size_bytes", "int32", False, "size of the value"),
    Column("intended_ns", "int64", False, "scheduled send time"),
    Column("sent_ns", "int64", True, "when the client accepted it; empty: never sent"),
    Column("reported_ns", "int64", True, "when the client reported its outcome; empty: no report"),
    Column("outcome", "string", False, "acknowledged, failed or unknown"),
    Column("error", "string", True, "librdkafka's name of the error, if failed"),
    Column("partition", "int32", True, "partition chosen by the client, if reported"),
    Column("offset", "int64", True, "offset assigned by the broker, if reported"),
    Column("tries", "int16", True, "requests that carried it; empty: not recorded"),
)
RECEIVED = (
    Column("id", "int64", False, "as sent"),
    Column("received_ns", "int64", False, "when the application received it"),
    Column("partition", "int32", False, "where it was read"),
    Column("offset", "int64", False, "where it was read; the same one twice is a re-delivery"),
    Column("index", "int32", False, "its index among the messages of that record, from 0"),
    Column(
        "appended_ms", "int64", True, "the broker's append time; empty: not stored by the topic"
    ),
    Column("size_bytes", "int32", False, "size of the value"),
    Column("consumer", "int16", False, "number of the consumer"),
)
# A reader next to the brokers, where the network has no condition, sees a message as soon as
# it is below the high watermark.
SEEN = (
    Column("partition", "int32", False, "where it was read"),
    Column("offset", "int64", False, "where it was read"),
    Column("seen_ns", "int64", False, "when it became readable"),
)
# Every request that carried messages, as librdkafka logs it.
REQUESTS = (
    Column("partition", "int32", False, "partition of the message set"),
    Column("first", "int64", False, "its first message, counted from 1 per partition"),
    Column("messages", "int32", False, "how many"),
    Column("size_bytes", "int32", False, "of the message set"),
    Column("at_ns", "int64", False, "when the log line of the request was seen"),
    Column("producer", "int16", False, "number of the producer"),
)
# Name of the folder in a run directory → its columns. One Parquet file per process.
TRACES = {"sent": SENT, "received": RECEIVED, "seen": SEEN, "requests": REQUESTS}
