"""Records → tables: decode by stream, leave out what is ignored, send each to its table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.pipeline.lake.decoders import Decoding, decoding_of
from penstock.pipeline.lake.records import KAFKA_COLUMNS, Records

REJECT_COLUMNS = pa.schema([*KAFKA_COLUMNS, ("value", pa.binary()), ("reason", pa.string())])
Places = npt.NDArray[np.int64]


@dataclass
class Sorted:
    """Table → its rows; and Kafka's columns of what is ignored, and goes nowhere."""

    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    ignored: list[pa.Table] = field(default_factory=list)

    def add(self, table: str, rows: pa.Table) -> None:
        if len(rows):
            self.tables.setdefault(table, []).append(rows)


class Sorter:
    """Made once per worker and pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._decodings = [decoding_of(stream.decoder) for stream in pipeline.streams]
        self._streams: dict[str, int | None] = {}
        for i, (stream, decoding) in enumerate(zip(pipeline.streams, self._decodings, strict=True)):
            _check_columns(stream, decoding, f"streams.{i}")

    def schemas(self) -> dict[str, pa.Schema]:
        """Every table that the pipeline may write to, but for its ledger."""
        found = {self._pipeline.rejects_table: REJECT_COLUMNS}
        for stream, decoding in zip(self._pipeline.streams, self._decodings, strict=True):
            for table in stream.tables:
                found[table] = pa.schema([*KAFKA_COLUMNS, *decoding.schema])
        return found

    def sort(self, records: Records) -> Sorted:
        done = Sorted()
        for stream, part in self._by_stream(records):
            self._sort_stream(self._pipeline.streams[stream], self._decodings[stream], part, done)
        return done

    def _by_stream(self, records: Records) -> Iterable[tuple[int, Records]]:
        streams = {topic: self._stream_of(topic) for topic in set(records.topics)}
        if len(set(streams.values())) == 1:
            yield next(iter(streams.values())), records
            return
        places: dict[int, list[int]] = {}
        for place, topic in enumerate(records.topics):
            places.setdefault(streams[topic], []).append(place)
        for stream, which in places.items():
            yield stream, records.only(which)

    def _stream_of(self, topic: str) -> int:
        if topic not in self._streams:
            self._streams[topic] = self._pipeline.stream_of(topic)
        found = self._streams[topic]
        assert found is not None, f"no stream takes {topic}"
        return found

    def _sort_stream(
        self, stream: Stream, decoding: Decoding, records: Records, done: Sorted
    ) -> None:
        decoded = decoding.decode(records.values)
        kafka = records.kafka_columns()
        left_out = sorted({*decoded.rejected, *decoded.ignored})
        if left_out:
            places = np.setdiff1d(np.arange(len(records)), left_out)
            kept, good = records.only(places.tolist()), kafka.take(pa.array(places))
        else:
            kept, good = records, kafka
        if decoded.rejected:
            self._reject(records, decoded.rejected, done)
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

    def _spread(self, stream: Stream, records: Records, rows: pa.Table, done: Sorted) -> None:
        """To several tables, by a column."""
        by = stream.table_by
        assert by is not None
        places: dict[str, list[int]] = {}
        nowhere: dict[int, str] = {}
        for place, text in enumerate(_texts(rows.column(by.column))):
            table = by.tables.get(text, by.otherwise) if text is not None else by.otherwise
            if table is None:
                nowhere[place] = f"no table for {by.column}={text}"
            else:
                places.setdefault(table, []).append(place)
        for table, which in places.items():
            done.add(table, rows.take(pa.array(which)))
        if nowhere:
            self._reject(records, nowhere, done)

    def _reject(self, records: Records, reasons: Mapping[int, str], done: Sorted) -> None:
        places = sorted(reasons)
        part = records.only(places)
        rows = part.kafka_columns()
        rows = rows.append_column(REJECT_COLUMNS.field("value"), pa.array(part.values, pa.binary()))
        texts = pa.array([reasons[place] for place in places], pa.string())
        rows = rows.append_column(REJECT_COLUMNS.field("reason"), texts)
        done.add(self._pipeline.rejects_table, rows)


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """What its cells say; of bytes that are no text, something that no table is called."""
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
    found = np.zeros(len(rows), dtype=bool)
    for column, values in ignore.items():
        cells = rows.column(column)
        wanted = pa.array(list(values)).cast(cells.type)
        found |= pc.is_in(cells, value_set=wanted).to_numpy(zero_copy_only=False)
    return found


def _check_columns(stream: Stream, decoding: Decoding, where: str) -> None:
    known = pa.schema([*KAFKA_COLUMNS, *decoding.schema])
    asked = [("ignore", name) for name in stream.ignore]
    if stream.table_by is not None:
        asked.append(("table_by.column", stream.table_by.column))
    for field_name, column in asked:
        if column not in known.names:
            raise BadInput(
                f"{where}.{field_name}: there is no column {column!r}",
                f"its columns are {', '.join(known.names)}",
            )
    by = stream.table_by
    if by is not None and pa.types.is_nested(known.field(by.column).type):
        raise BadInput(
            f"{where}.table_by.column: {by.column} is of type {known.field(by.column).type}",
            "choose a column of text, numbers or truth values",
        )
    for column, values in stream.ignore.items():
        try:
            pa.array(list(values)).cast(known.field(column).type)
        except pa.ArrowException:
            raise BadInput(
                f"{where}.ignore.{column}: {', '.join(map(str, values))} cannot be in a column of "
                f"type {known.field(column).type}"
            ) from None
