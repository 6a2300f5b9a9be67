"""Routes records to tables: decodes them by stream, drops ignored ones, assigns each to a table.

One record must never stop or corrupt a lane. If records fail on the way to their rows, or would
make the file unreadable, each half of them is tried again, down to the one record, which is
rejected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.domain.errors import BadInput, LaneBlocked
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.lake.checks import check
from penstock.lake.decoded import Decoded, Limits, RecordValue
from penstock.lake.decoders import Decoding, decoding_of
from penstock.lake.isolated.isolation import DecoderHost
from penstock.lake.records import KAFKA_COLUMNS, Records
from penstock.lake.rejection import Rejection, RejectKind, rejection_of

REJECT_COLUMNS = pa.schema([*KAFKA_COLUMNS, ("value", pa.binary()), ("reason", pa.string())])
# Bytes of decoded rows that may wait, in multiples of `lane_bytes`, before they are written. Rows
# with Kafka's columns usually come to less, so a lane writes one file per table. But a few bytes
# may decode to megabytes.
DECODED_FACTOR = 2
# Less than this is not worth a file.
_LEAST_DECODED_BYTES = 16_000_000
# Decoded at a time if there are array columns, each item of which may be a large struct.
_PIECE_RECORDS, _PIECE_BYTES = 50_000, 8_000_000
# Size of a null cell.
_CELL_BYTES = 8
Places = npt.NDArray[np.int64]


@dataclass
class Routed:
    """The rows of each table, and Kafka's columns of ignored records."""

    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    ignored: list[pa.Table] = field(default_factory=list)
    # Kind of reason → how many records were rejected for it.
    rejects: Counter[str] = field(default_factory=Counter)

    def add(self, table: str, rows: pa.Table) -> None:
        if len(rows):
            self.tables.setdefault(table, []).append(rows)

    def merge(self, other: Routed) -> None:
        for table, parts in other.tables.items():
            self.tables.setdefault(table, []).extend(parts)
        self.ignored += other.ignored
        self.rejects += other.rejects

    @property
    def size_bytes(self) -> int:
        """Size of the rows in memory."""
        return sum(rows.nbytes for parts in self.tables.values() for rows in parts)

    def check(self) -> None:
        """Raise if a row would make its file unreadable."""
        for parts in self.tables.values():
            for rows in parts:
                check(rows)


def most_decoded_bytes(pipeline: Pipeline) -> int:
    """Limit of the decoded rows that wait to be written."""
    return max(_LEAST_DECODED_BYTES, DECODED_FACTOR * pipeline.lane_bytes)


Take = Callable[[Routed], None]
Decode = Callable[[], Decoded]


class Router:
    """Made once per worker and pipeline. `close` ends its decoder process, if it has one."""

    def __init__(self, pipeline: Pipeline, lost_s: float | None = None) -> None:
        """`lost_s`: time that records which end the decoder process may take; without, the
        pipeline's `lane_seconds`."""
        self._pipeline = pipeline
        most_bytes = most_decoded_bytes(pipeline)
        limits = Limits(
            pipeline.record_seconds,
            pipeline.record_memory_mb,
            most_bytes,
            pipeline.lane_seconds if lost_s is None else lost_s,
        )
        self._host = DecoderHost(limits)
        self._decodings = [decoding_of(s.decoder, self._host) for s in pipeline.streams]
        self._piece_limits = [_piece_limits(d.schema, most_bytes) for d in self._decodings]
        self._streams: dict[str, int | None] = {}
        for i, (stream, decoding) in enumerate(zip(pipeline.streams, self._decodings, strict=True)):
            _check_columns(stream, decoding, f"streams.{i}")
        for decoding in self._decodings:
            decoding.start()

    def schemas(self) -> dict[str, pa.Schema]:
        """The schema of every table that the pipeline may write to, except its ledger."""
        schemas = {self._pipeline.rejects_table: REJECT_COLUMNS}
        for stream, decoding in zip(self._pipeline.streams, self._decodings, strict=True):
            for table in stream.tables:
                schemas[table] = pa.schema([*KAFKA_COLUMNS, *decoding.schema])
        return schemas

    def close(self) -> None:
        self._host.close()

    def route(self, records: Records) -> Routed:
        """Route every record to one place. Raises `LaneBlocked` if no record is at fault."""
        done = Routed()
        left = self.route_into(done.merge, records)
        assert not left, "records hang; use `route_into`"
        return done

    def route_into(self, take: Take, records: Records) -> dict[Partition, int]:
        """Like `route`, piece by piece: `take` gets each piece before the next is decoded, and no
        reference to it is kept here.

        Ends early if records that end the decoder process take too long. Returns the first offset
        of each partition that was not routed.
        """
        self._host.lost_s = 0.0
        left: dict[Partition, int] = {}
        for stream, part in self._by_stream(records):
            for piece in _pieces(part, *self._piece_limits[stream]):
                rest = piece if self._host.is_spent else self._route_piece(stream, piece, take)
                places = zip(rest.topics, rest.partitions, strict=True)
                for place, offset in zip(places, rest.offsets, strict=True):
                    left.setdefault(Partition(*place), offset)
        return left

    def _route_piece(self, stream: int, records: Records, take: Take) -> Records:
        """Route the records; returns those that are left."""
        if not (early := records.early_rejects()):
            return self._route_guarded(stream, records, take)
        kept = [place for place in range(len(records)) if place not in early]
        rest = self._route_guarded(stream, records.only(kept), take)
        count = kept[-len(rest)] if len(rest) else len(records)
        take(self._rejected(records, {i: why for i, why in early.items() if i < count}))
        return records.only(range(count, len(records)))

    def _route_guarded(self, stream: int, records: Records, take: Take) -> Records:
        """Route the records; returns those that are left."""
        decode: Decode | None = partial(self._decodings[stream].decode, records.values)
        while decode is not None and len(records):
            if self._host.is_spent:
                return records
            try:
                part, count, decode = self._route_first(stream, records, decode)
            except LaneBlocked:
                raise
            except Exception as error:  # also RecursionError and MemoryError
                if len(records) == 1:
                    take(self._rejected(records, {0: rejection_of(error)}))
                    return Records()
                break
            take(part)
            del part
            records = records.only(range(count, len(records)))
        else:
            return Records()
        # Not in the `except`, where the error would keep the data of the failed try alive.
        middle = len(records) // 2
        rest = self._route_guarded(stream, records.only(range(middle)), take)
        if len(rest):
            return records.only(range(middle - len(rest), len(records)))
        return self._route_guarded(stream, records.only(range(middle, len(records))), take)

    def _route_first(
        self, stream: int, records: Records, decode: Decode
    ) -> tuple[Routed, int, Decode | None]:
        """Route the records that are decoded at once. Returns also their number, and what decodes
        the rest."""
        decoded = decode()
        count = len(records) if decoded.count is None else decoded.count
        first = records if count == len(records) else records.only(range(count))
        done = self._route_stream(self._pipeline.streams[stream], decoded, first)
        done.check()
        return done, count, decoded.rest

    def _by_stream(self, records: Records) -> Iterable[tuple[int, Records]]:
        streams = {topic: self._stream_of(topic) for topic in set(records.topics)}
        if len(all_streams := set(streams.values())) == 1:
            yield all_streams.pop(), records
            return
        places: dict[int, list[int]] = {}
        for place, topic in enumerate(records.topics):
            places.setdefault(streams[topic], []).append(place)
        for stream, which in places.items():
            yield stream, records.only(which)

    def _stream_of(self, topic: str) -> int:
        if topic not in self._streams:
            self._streams[topic] = self._pipeline.stream_of(topic)
        stream = self._streams[topic]
        assert stream is not None, f"no stream reads {topic}"
        return stream

    def _route_stream(self, stream: Stream, decoded: Decoded, records: Records) -> Routed:
        done, kafka = Routed(), records.kafka_columns()
        kept, good = records, kafka
        if left_out := sorted({*decoded.rejected, *decoded.ignored}):
            places = np.setdiff1d(np.arange(len(records)), left_out)
            kept, good = records.only(places.tolist()), kafka.take(pa.array(places))
        if decoded.rejected:
            done.merge(self._rejected(records, decoded.rejected))
        if decoded.ignored:
            done.ignored.append(kafka.take(pa.array(sorted(decoded.ignored))))
        rows = _beside(good, decoded.columns)
        if stream.ignore:
            is_ignored = _is_ignored(rows, stream.ignore)
            if is_ignored.any():
                done.ignored.append(good.filter(pa.array(is_ignored)))
                stays = np.flatnonzero(~is_ignored)
                kept, rows = kept.only(stays.tolist()), rows.take(pa.array(stays))
        if stream.table is not None:
            done.add(stream.table, rows)
        else:
            self._spread(stream, kept, rows, done)
        return done

    def _spread(self, stream: Stream, records: Records, rows: pa.Table, done: Routed) -> None:
        """Spread rows over several tables, by a column."""
        by = stream.table_by
        assert by is not None
        places: dict[str, list[int]] = {}
        nowhere: dict[int, Rejection] = {}
        for place, text in enumerate(_texts(rows.column(by.column))):
            table = by.tables.get(text, by.otherwise) if text is not None else by.otherwise
            if table is None:
                nowhere[place] = Rejection(RejectKind.NO_TABLE, f"{by.column}={text}")
            else:
                places.setdefault(table, []).append(place)
        for table, which in places.items():
            done.add(table, rows.take(pa.array(which)))
        if nowhere:
            done.merge(self._rejected(records, nowhere))

    def _rejected(self, records: Records, reasons: Mapping[int, Rejection]) -> Routed:
        """The rows of rejected records. Must not fail: they cannot go anywhere else."""
        places = sorted(reasons)
        part = records.only(places)
        rows = part.kafka_columns(must_succeed=True)
        rows = rows.append_column(REJECT_COLUMNS.field("value"), pa.array(part.values, pa.binary()))
        texts = pa.array([str(reasons[place]) for place in places], pa.string())
        rows = rows.append_column(REJECT_COLUMNS.field("reason"), texts)
        kinds = Counter(str(why.kind) for why in reasons.values())
        return Routed({self._pipeline.rejects_table: [rows]}, rejects=kinds)


def _piece_limits(schema: pa.Schema, most_bytes: int) -> tuple[int, int | None]:
    """How many records, and bytes of values, decode to about `most_bytes` at most.

    Cutting into pieces costs a tenth of the time of JSON, so it is done only where needed.
    """
    if any(pa.types.is_nested(kind) for kind in schema.types):
        return _PIECE_RECORDS, _PIECE_BYTES
    return max(1, most_bytes // (_CELL_BYTES * len(schema))), None


def _pieces(records: Records, most: int, most_bytes: int | None) -> Iterator[Records]:
    start = 0
    while start < len(records):
        count = min(most, len(records) - start)
        if most_bytes is not None:
            while count > 1 and _size_bytes(records.values[start : start + count]) > most_bytes:
                count //= 2
        is_whole = count == len(records)
        yield records if is_whole else records.only(range(start, start + count))
        start += count


def _size_bytes(values: Sequence[RecordValue]) -> int:
    return sum(map(len, filter(None, values)))


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """The cells as text; bytes that are not text become something that is not a table's name."""
    if pa.types.is_binary(column.type):
        return [v if v is None else v.decode(errors="backslashreplace") for v in column.to_pylist()]
    texts: list[str | None] = column.cast(pa.string()).to_pylist()
    return texts


def _beside(left: pa.Table, right: pa.Table) -> pa.Table:
    return pa.Table.from_arrays(
        [*left.columns, *right.columns], schema=pa.schema([*left.schema, *right.schema])
    )


def _is_ignored(
    rows: pa.Table, ignore: Mapping[str, Sequence[str | int | bool]]
) -> npt.NDArray[np.bool_]:
    is_ignored = np.zeros(len(rows), dtype=bool)
    for column, values in ignore.items():
        cells = rows.column(column)
        listed = pa.array(list(values)).cast(cells.type)
        is_ignored |= pc.is_in(cells, value_set=listed).to_numpy(zero_copy_only=False)
    return is_ignored


def _check_columns(stream: Stream, decoding: Decoding, where: str) -> None:
    known, by = pa.schema([*KAFKA_COLUMNS, *decoding.schema]), stream.table_by
    asked = [("ignore", name) for name in stream.ignore]
    if by is not None:
        asked.append(("table_by.column", by.column))
    for field_name, column in asked:
        if column not in known.names:
            raise BadInput(
                f"{where}.{field_name}: column {column!r} does not exist",
                f"the columns are {', '.join(known.names)}",
            )
    if by is not None and pa.types.is_nested(known.field(by.column).type):
        raise BadInput(
            f"{where}.table_by.column: {by.column} has the type {known.field(by.column).type}",
            "choose a column of text, numbers or booleans",
        )
    for column, values in stream.ignore.items():
        try:
            pa.array(list(values)).cast(known.field(column).type)
        except pa.ArrowException:
            raise BadInput(
                f"{where}.ignore.{column}: {', '.join(map(str, values))} cannot be in a column of "
                f"type {known.field(column).type}"
            ) from None
