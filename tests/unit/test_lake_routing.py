"""Decoders and the way to tables, on hand-made records: no record vanishes, none is doubled."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import BadInput
from penstock.domain.lake.columns import parse_type
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream, TableBy
from penstock.domain.value import FieldError
from penstock.lake.decoded import Limits
from penstock.lake.decoders import decoding_of
from penstock.lake.decoders.avro import AvroDecoder
from penstock.lake.decoders.function import FunctionDecoder
from penstock.lake.decoders.json import JsonDecoder
from penstock.lake.decoders.raw import RawDecoder
from penstock.lake.isolated.isolation import DecoderHost
from penstock.lake.records import Records
from penstock.lake.routing import Routed, Router
from penstock.lake.tally import tally_lists, tally_rows


@dataclass
class Record:
    """What a lane needs of confluent-kafka's Message."""

    value_: bytes | None
    offset_: int
    topic_: str = "orders"
    partition_: int = 0
    key_: bytes | None = None
    headers_: Any = None
    timestamp_: tuple[int, int] = field(default=(1, 1_700_000_000_123))

    def __getattr__(self, name: str) -> Any:
        return lambda: self.__dict__[f"{name}_"]

    def headers(self) -> Any:
        return self.headers_


def records(*values: bytes | None, **more: Any) -> Records:
    batch = Records()
    batch.add([Record(value, i, **more) for i, value in enumerate(values)])  # type: ignore[misc]
    return batch


def pipeline(*streams: Stream) -> Pipeline:
    return Pipeline(name="p", bootstrap_servers="x:1", streams=streams, lake="lake")


def route(stream: Stream, batch: Records) -> Routed:
    return Router(pipeline(stream)).route(batch)


def rows(done: Routed, table: str) -> list[dict[str, Any]]:
    return pa.concat_tables(done.tables[table]).to_pylist() if table in done.tables else []


# --- decoders ------------------------------------------------------------------------------------


def test_raw_keeps_value_and_all_that_kafka_says_of_a_record() -> None:
    batch = records(b"x", None, key_=b"k", headers_=[("h", b"1"), ("h", None)])
    [first, second] = rows(route(Stream(topics=("orders",), table="t"), batch), "t")
    assert first["value"] == b"x" and second["value"] is None
    assert first["kafka_topic"] == "orders" and first["kafka_offset"] == 0
    assert first["kafka_key"] == b"k"
    assert first["kafka_headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert first["kafka_timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"


JSON = JsonDecoder(columns={"id": "long", "name": "string", "tags": "array<string>"})


def test_json_reads_good_records_and_rejects_bad_ones_with_the_reason() -> None:
    values = [
        b'{"id": 1, "name": "a", "tags": ["x"], "more": 1}',
        b"not json",
        b'{"id": "two"}',
        b'{\n  "id": 3\n}',
        b"",
        b"  ",
        b'{"id": 4}{"id": 5}',
        b"[1]",
        None,
    ]
    done = route(Stream(topics=("orders",), decoder=JSON, table="t"), records(*values))
    good = rows(done, "t")
    assert [(r["kafka_offset"], r["id"]) for r in good] == [(0, 1), (3, 3), (8, None)]
    assert good[0]["tags"] == ["x"]
    bad = rows(done, "p_rejects")
    assert [r["kafka_offset"] for r in bad] == [1, 2, 4, 5, 6, 7]
    assert {r["reason"].partition(":")[0] for r in bad} == {"not-json", "wrong-type"}
    assert bad[0]["value"] == b"not json"
    assert done.rejects == {"not-json": 5, "wrong-type": 1}


SCHEMA = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}],
                },
            },
        },
    ],
}


def avro(row: dict[str, Any], schema: Any = SCHEMA) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def test_avro_with_the_schema_of_a_file() -> None:
    sale = {"id": 7, "price": None, "at": 1_700_000_000_000, "kind": "B", "lines": [{"sku": "s"}]}
    decoding = decoding_of(AvroDecoder(schema=json.dumps(SCHEMA)), DecoderHost(Limits()))
    decoded = decoding.decode([avro(sale), b"\x02", avro(sale) + b"!", None])
    assert list(decoded.rejected) == [1, 2]
    [first, second] = decoded.columns.to_pylist()
    assert first["id"] == 7 and first["kind"] == "B" and first["lines"] == [{"sku": "s"}]
    assert first["at"].year == 2023
    assert second["id"] is None


def test_avro_without_a_schema_is_refused() -> None:
    with pytest.raises(FieldError, match="schema_file"):
        AvroDecoder()
    with pytest.raises(BadInput, match="cannot be read"):
        decoding_of(AvroDecoder(schema="{"), DecoderHost(Limits()))


def test_a_function_of_the_users_own() -> None:
    stream = Stream(
        topics=("orders",),
        decoder=FunctionDecoder(
            function="lake_functions:halve", columns={"half": "long", "odd": "boolean"}
        ),
        table="t",
    )
    done = route(stream, records(b"5", b"x", b"0", b"8"))
    assert [(r["half"], r["odd"]) for r in rows(done, "t")] == [(2, True), (4, False)]
    [bad] = rows(done, "p_rejects")
    assert bad["kafka_offset"] == 1 and "ValueError" in bad["reason"]
    assert [t.column("kafka_offset").to_pylist() for t in done.ignored] == [[2]]


def test_a_function_that_is_not_there() -> None:
    with pytest.raises(BadInput, match="cannot be used"):
        decoder = FunctionDecoder(function="no.such:thing", columns={"a": "long"})
        Router(pipeline(Stream(topics=("a",), decoder=decoder, table="t")))
    with pytest.raises(FieldError, match="MODULE:NAME"):
        FunctionDecoder(function="nothing", columns={"a": "long"})


# --- tables --------------------------------------------------------------------------------------


def test_what_is_ignored_is_not_landed_but_counted() -> None:
    stream = Stream(
        topics=("orders",),
        decoder=JsonDecoder(columns={"type": "string", "n": "long"}),
        ignore={"type": ("ping", "pong"), "n": (3,)},
        table="t",
    )
    values = [b'{"type":"ping"}', b'{"type":"x","n":1}', b'{"type":"y","n":3}', b"{}"]
    done = route(stream, records(*values))
    assert [r["kafka_offset"] for r in rows(done, "t")] == [1, 3]
    [ignored] = done.ignored
    assert ignored.column("kafka_offset").to_pylist() == [0, 2]


def test_several_tables_by_a_column() -> None:
    by = TableBy(column="type", tables={"a": "as", "b": "bs"}, otherwise="others")
    stream = Stream(
        topics=("orders",), decoder=JsonDecoder(columns={"type": "string"}), table_by=by
    )
    values = [b'{"type":"a"}', b'{"type":"b"}', b'{"type":"c"}', b"{}", b'{"type":"a"}']
    done = route(stream, records(*values))
    offsets = {table: [r["kafka_offset"] for r in rows(done, table)] for table in done.tables}
    assert offsets == {"as": [0, 4], "bs": [1], "others": [2, 3]}


def test_a_record_without_a_table_is_rejected() -> None:
    by = TableBy(column="type", tables={"a": "as"})
    stream = Stream(
        topics=("orders",), decoder=JsonDecoder(columns={"type": "string"}), table_by=by
    )
    done = route(stream, records(b'{"type":"a"}', b'{"type":"z"}'))
    [bad] = rows(done, "p_rejects")
    assert bad["kafka_offset"] == 1 and bad["reason"] == "no-table: type=z"


def test_each_topic_goes_by_the_first_stream_that_takes_it() -> None:
    streams = (
        Stream(topics=("orders",), decoder=JSON, table="orders"),
        Stream(topics=("^.*",), table="rest"),
    )
    batch = Records()
    topics = ["orders", "clicks", "orders", "views"]
    messages = [Record(b'{"id": 1}', i, topic_=topic) for i, topic in enumerate(topics)]
    batch.add(messages)  # type: ignore[arg-type]
    done = Router(pipeline(*streams)).route(batch)
    assert [r["kafka_offset"] for r in rows(done, "orders")] == [0, 2]
    assert [r["kafka_offset"] for r in rows(done, "rest")] == [1, 3]


def test_mistakes_in_a_pipeline_are_named() -> None:
    with pytest.raises(BadInput, match="column 'kind' does not exist"):
        Router(pipeline(Stream(topics=("a",), ignore={"kind": ("x",)}, table="t")))
    with pytest.raises(BadInput, match=r"ignore\.id"):
        Router(pipeline(Stream(topics=("a",), decoder=JSON, ignore={"id": ("x",)}, table="t")))
    with pytest.raises(FieldError, match="two decoders"):
        pipeline(
            Stream(topics=("a",), decoder=JSON, table="t"),
            Stream(topics=("b",), decoder=RawDecoder(), table="t"),
        )
    with pytest.raises(FieldError, match="reserved for the pipeline"):
        pipeline(Stream(topics=("a",), table="p_ledger"))
    with pytest.raises(FieldError, match="table_by"):
        Stream(topics=("a",))
    with pytest.raises(FieldError, match="kafka_"):
        JsonDecoder(columns={"kafka_offset": "long"})
    with pytest.raises(FieldError, match="is not a type"):
        JsonDecoder(columns={"a": "integer8"})


@pytest.mark.parametrize("text", ["array<", "struct<>", "struct<a>", "long long", "array<x>", ""])
def test_types_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        parse_type(text)


# --- tallies -------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 2**50)), max_size=40
    )
)
def test_records_are_counted_by_partition(places: list[tuple[str, int, int]]) -> None:
    topics = [topic for topic, _, _ in places]
    numbers = [number for _, number, _ in places]
    offsets = [offset for _, _, offset in places]
    tallies = tally_lists(topics, numbers, offsets, np.ones(len(places), dtype=np.int64))
    assert sum(t.count for t in tallies.values()) == len(places)
    for (topic, number), tally in tallies.items():
        own = [o for t, n, o in places if (t, n) == (topic, number)]
        assert (tally.count, tally.offset_sum) == (len(own), sum(own))
        assert (tally.first, tally.last, tally.size_bytes) == (own[0], own[-1], len(own))
        assert tally.is_rising == all(a < b for a, b in pairwise(own))


def test_rows_of_a_table_are_counted_alike() -> None:
    batch = Records()
    batch.add([Record(b"v", o, partition_=o % 2) for o in range(5)])  # type: ignore[misc]
    tallies = tally_rows(batch.kafka_columns())
    assert {str(p): t.count for p, t in tallies.items()} == {"orders-0": 3, "orders-1": 2}
    assert tallies[Partition("orders", 0)].offset_sum == 6


@pytest.mark.parametrize("neighbour", [None, [], [("h", b"1")]])
def test_a_record_without_headers_has_null_whatever_its_neighbour_has(neighbour: Any) -> None:
    empty: list[Any] = [None, []]
    for none in empty:
        batch = Records()
        both = [Record(b"a", 0, headers_=none), Record(b"b", 1, headers_=neighbour)]
        batch.add(both)  # type: ignore[arg-type]
        column = batch.kafka_columns().column("kafka_headers").to_pylist()
        assert column == [None, [{"key": "h", "value": b"1"}] if neighbour else None]
