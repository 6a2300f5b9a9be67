"""Records as a lane gathers them: columns of Python values until their stream decodes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
KAFKA_COLUMNS = pa.schema(
    [
        ("kafka_topic", pa.string()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("kafka_timestamp", pa.timestamp("us", tz="UTC")),
        ("kafka_key", pa.binary()),
        ("kafka_headers", pa.list_(HEADER)),
    ]
)
_US_PER_MS = 1000
# What fits into a column of microseconds.
_MOST_MS = (2**63 - 1) // _US_PER_MS


@dataclass
class Records:
    """Grows while a lane gathers; one entry per record in each list."""

    topics: list[str] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    # None: the record has none. (No tuples: Python's collector would look at each, ever again.)
    times_ms: list[int | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, messages: Sequence[Message]) -> int:
        """Take them; says how many bytes their keys and values have."""
        keys: list[Any] = [m.key() for m in messages]
        values: list[Any] = [m.value() for m in messages]
        self.topics += [m.topic() for m in messages]  # type: ignore[misc]
        self.partitions += [m.partition() for m in messages]  # type: ignore[misc]
        self.offsets += [m.offset() for m in messages]  # type: ignore[misc]
        self.times_ms += _times_ms([m.timestamp() for m in messages])
        self.headers += [m.headers() for m in messages]
        self.keys += keys
        self.values += values
        return sum(map(len, filter(None, values))) + sum(map(len, filter(None, keys)))

    def sizes(self) -> npt.NDArray[np.int64]:
        """Bytes of key and value."""
        return _lengths(self.keys) + _lengths(self.values)

    def span_ms(self) -> tuple[int | None, int | None]:
        """The times of the oldest and of the newest."""
        known = [time_ms for time_ms in self.times_ms if time_ms is not None]
        return min(known, default=None), max(known, default=None)

    def only(self, which: Sequence[int]) -> Records:
        """Some of them, by their places."""
        lists = (
            self.topics,
            self.partitions,
            self.offsets,
            self.times_ms,
            self.keys,
            self.headers,
            self.values,
        )
        return Records(*([column[i] for i in which] for column in lists))  # type: ignore[arg-type]

    def kafka_columns(self) -> pa.Table:
        """What the record brings beside its value."""
        times_ms = pa.array(self.times_ms, pa.int64())
        # A producer may have set anything.
        is_odd = pc.greater(pc.abs(times_ms), _MOST_MS)
        times_us = pc.multiply(pc.if_else(is_odd, None, times_ms), _US_PER_MS)
        arrays = [
            pa.array(self.topics, pa.string()),
            pa.array(np.array(self.partitions, dtype=np.int32)),
            pa.array(np.array(self.offsets, dtype=np.int64)),
            times_us.cast(KAFKA_COLUMNS.field("kafka_timestamp").type),
            pa.array(self.keys, pa.binary()),
            self._headers(),
        ]
        return pa.Table.from_arrays(arrays, schema=KAFKA_COLUMNS)

    def _headers(self) -> pa.Array:
        kind = KAFKA_COLUMNS.field("kafka_headers").type
        if not any(self.headers):
            return pa.nulls(len(self), kind)
        return pa.array(
            [
                None if found is None else [{"key": k, "value": v} for k, v in found]
                for found in self.headers
            ],
            kind,
        )


def _times_ms(timestamps: Sequence[tuple[int, int]]) -> list[int | None]:
    kinds = {kind for kind, _ in timestamps}
    if TIMESTAMP_NOT_AVAILABLE not in kinds:  # almost always
        return [time_ms for _, time_ms in timestamps]
    return [None if kind == TIMESTAMP_NOT_AVAILABLE else ms for kind, ms in timestamps]


def _lengths(values: list[bytes | None]) -> npt.NDArray[np.int64]:
    if not any(values):
        return np.zeros(len(values), dtype=np.int64)
    return np.fromiter((len(v) if v else 0 for v in values), np.int64, len(values))
