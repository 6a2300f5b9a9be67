"""The records that a lane has gathered, as columns of Python values, before they are decoded."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from penstock.domain.lake.partition import Partition
from penstock.lake.checks import FIRST_US, LAST_US
from penstock.lake.rejection import Rejection, RejectKind, described

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
# Of what `Message.timestamp` returns.
_KIND, _TIME_MS = itemgetter(0), itemgetter(1)
# A producer may have set anything; times beyond these are null, since no reader takes them.
_FIRST_MS, _LAST_MS = FIRST_US // _US_PER_MS, LAST_US // _US_PER_MS


@dataclass(frozen=True)
class RejectedEarly:
    """Stands for the headers of a record that is rejected before it is decoded: the client cannot
    return its headers, or cannot read the record at all."""

    rejection: Rejection


@dataclass
class Records:
    """Grows while a lane gathers; one entry per record in each list."""

    topics: list[str] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    # None: the record has none. (No tuples: Python's garbage collector would visit every one.)
    times_ms: list[int | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    # Whether there may be RejectedEarly among the headers.
    has_early_rejects: bool = False

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, messages: Sequence[Message]) -> int:
        """Append them; returns the bytes of their keys and values."""
        keys: list[Any] = [m.key() for m in messages]
        values: list[Any] = [m.value() for m in messages]
        self.topics += _shared([m.topic() for m in messages])  # type: ignore[misc]
        self.partitions += [m.partition() for m in messages]  # type: ignore[misc]
        self.offsets += [m.offset() for m in messages]  # type: ignore[misc]
        self.times_ms += _times_ms([m.timestamp() for m in messages])
        self.headers += self._headers_of(messages)
        self.keys += keys
        self.values += values
        return sum(map(len, filter(None, values))) + sum(map(len, filter(None, keys)))

    def add_unreadable(self, partition: Partition, offset: int, why: str) -> None:
        """Append a record that the client cannot read: nothing but its place is known."""
        self.topics.append(partition.topic)
        self.partitions.append(partition.number)
        self.offsets.append(offset)
        for column in (self.times_ms, self.keys, self.values):
            column.append(None)
        self.headers.append(RejectedEarly(Rejection(RejectKind.UNREADABLE, why)))
        self.has_early_rejects = True

    def _headers_of(self, messages: Sequence[Message]) -> list[Any]:
        """Call `headers` once per message, and from C. If a name is not UTF-8, the client returns a
        list with a NULL in it, which crashes any reader, and sets an error. Python sees that error
        if C code calls, but not in its own optimised loop; and a second call returns the list
        without an error."""
        headers: list[Any] = []
        rest = iter(messages)
        while len(headers) < len(messages):
            try:
                headers.extend(map(type(messages[0]).headers, rest))
            except Exception as error:  # of the message after those in `headers`
                self.has_early_rejects = True
                headers.append(RejectedEarly(_bad_header(error)))
        return headers

    def sizes(self) -> npt.NDArray[np.int64]:
        """Bytes of key and value."""
        return _lengths(self.keys) + _lengths(self.values)

    def span_ms(self) -> tuple[int | None, int | None]:
        """The times of the oldest and the newest record."""
        known = [time_ms for time_ms in self.times_ms if time_ms is not None]
        return min(known, default=None), max(known, default=None)

    def only(self, which: Sequence[int]) -> Records:
        """The records at these indexes."""

        def chosen(column: list[Any]) -> list[Any]:
            if isinstance(which, range):
                return column[which.start : which.stop : which.step]
            return [column[i] for i in which]

        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        return Records(
            **{n: chosen(column) for n, column in columns.items() if isinstance(column, list)},
            has_early_rejects=self.has_early_rejects,
        )

    def early_rejects(self) -> dict[int, Rejection]:
        """Index → why the record is rejected before it is decoded."""
        if not self.has_early_rejects:
            return {}
        return {
            place: headers.rejection
            for place, headers in enumerate(self.headers)
            if isinstance(headers, RejectedEarly)
        }

    def kafka_columns(self, *, must_succeed: bool = False) -> pa.Table:
        """Everything of the records except the value.

        `must_succeed`: headers that no column can hold become null, as for a row of the rejects.
        """
        times_ms = pa.array(self.times_ms, pa.int64())
        is_odd = pc.or_(pc.less(times_ms, _FIRST_MS), pc.greater(times_ms, _LAST_MS))
        times_us = pc.multiply(pc.if_else(is_odd, None, times_ms), _US_PER_MS)
        arrays = [
            pa.array(self.topics, pa.string()),
            pa.array(np.array(self.partitions, dtype=np.int32)),
            pa.array(np.array(self.offsets, dtype=np.int64)),
            times_us.cast(KAFKA_COLUMNS.field("kafka_timestamp").type),
            pa.array(self.keys, pa.binary()),
            _header_column(self.headers, must_succeed),
        ]
        return pa.Table.from_arrays(arrays, schema=KAFKA_COLUMNS)


def _header_column(headers: Sequence[Any], must_succeed: bool) -> pa.Array:
    kind = KAFKA_COLUMNS.field("kafka_headers").type
    if not any(headers):
        return pa.nulls(len(headers), kind)
    try:
        column = pa.array([_header_cell(of_record) for of_record in headers], kind)
        column.validate(full=True)
        return column
    except Exception:
        if not must_succeed:
            raise
    if len(headers) == 1:
        return pa.nulls(1, kind)
    return pa.concat_arrays([_header_column([of_record], True) for of_record in headers])


def _header_cell(headers: Any) -> list[dict[str, Any]] | None:
    if not headers or isinstance(headers, RejectedEarly):
        return None
    return [{"key": key, "value": value} for key, value in headers]


def _bad_header(error: Exception) -> Rejection:
    if isinstance(error.__cause__ or error, UnicodeDecodeError):
        return Rejection(RejectKind.BAD_HEADER, "header name is not UTF-8")
    return Rejection(RejectKind.BAD_HEADER, described(error))


def _shared(topics: list[str]) -> Iterable[str]:
    """The same names as few objects: the client makes a new one for every message, which takes as
    much memory as the rest of a small record."""
    if topics.count(topics[0]) == len(topics):  # almost always, and the cheapest test
        return topics[:1] * len(topics)
    return map(sys.intern, topics)


def _times_ms(timestamps: Sequence[tuple[int, int]]) -> list[int | None]:
    # By C code, as for every record: a loop of Python's would cost a lane several percent.
    kinds = set(map(_KIND, timestamps))
    if TIMESTAMP_NOT_AVAILABLE not in kinds:  # almost always
        return list(map(_TIME_MS, timestamps))
    return [None if kind == TIMESTAMP_NOT_AVAILABLE else ms for kind, ms in timestamps]


def _lengths(values: list[bytes | None]) -> npt.NDArray[np.int64]:
    if not any(values):
        return np.zeros(len(values), dtype=np.int64)
    try:
        return np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]
    except TypeError:  # there are None among them
        return np.fromiter((len(v) if v else 0 for v in values), np.int64, len(values))
