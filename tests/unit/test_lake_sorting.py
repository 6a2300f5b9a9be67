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
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.errors import BadInput
from penstock.domain.lake.columns import parse_type
from penstock.domain.lake.decoder import (
    AvroDecoder,
    FunctionDecoder,
    JsonDecoder,
    RawDecoder,
)
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream, TableBy
from penstock.domain.value import FieldError
from penstock.pipeline.lake.decoders import decoding_of
from penstock.pipeline.lake.records import Records
from penstock.pipeline.lake.sorting import Sorted, Sorter
from penstock.pipeline.lake.tally import tally_lists, tally_rows


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


def records(*values: bytes | None, **more: Any) -> Records:
    made = Records()
    made.add([Record(value, i, **more) for i, value in enumerate(values)])  # type: ignore[misc]
    return made


def pipeline(*streams: Stream) -> Pipeline:
    return Pipeline(name="p", bootstrap_servers="x:1", streams=streams, lake="lake")


def sort(stream: Stream, found: Records) -> Sorted:
    return Sorter(pipeline(stream)).sort(found)


def rows(done: Sorted, table: str) -> list[dict[str, Any]]:
    return pa.concat_tables(done.tables[table]).to_pylist() if table in done.tables else []


# --- decoders ------------------------------------------------------------------------------------


def test_raw_keeps_value_and_all_that_kafka_says_of_a_record():
    found = records(b"x", None, key_=b"k", headers_=[("h", b"1"), ("h", None)])
    [first, second] = rows(sort(Stream(topics=("orders",), table="t"), found), "t")
    assert first["value"] == b"x" and second["value"] is None
    assert first["kafka_topic"] == "orders" and first["kafka_offset"] == 0
    assert first["kafka_key"] == b"k"
    assert first["kafka_headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert first["kafka_timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"


JSON = JsonDecoder(columns={"id": "long", "name": "string", "tags": "array<string>"})


def test_json_reads_good_records_and_rejects_bad_ones_with_the_reason():
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
    done = sort(Stream(topics=("orders",), decoder=JSON, table="t"), records(*values))
    good = rows(done, "t")
    assert [(r["kafka_offset"], r["id"]) for r in good] == [(0, 1), (3, 3), (8, None)]
    assert good[0]["tags"] == ["x"]
    bad = rows(done, "p_rejects")
    assert [r["kafka_offset"] for r in bad] == [1, 2, 4, 5, 6, 7]
    assert all(r["reason"] for r in bad) and bad[0]["value"] == b"not json"


objects = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": st.text(),
        "tags": st.lists(st.text(), max_size=3),
        "other": st.none() | st.booleans(),
    },
)


@settings(max_examples=60, deadline=None)
@given(st.lists(objects.map(lambda o: json.dumps(o).encode()) | st.binary(max_size=12)))
def test_json_gives_every_record_a_place(values):
    decoded = decoding_of(JSON).decode(values)
    assert len(decoded.columns) + len(decoded.rejected) == len(values)
    kept = [v for i, v in enumerate(values) if i not in decoded.rejected]
    for value, row in zip(kept, decoded.columns.to_pylist(), strict=True):
        said = json.loads(value)
        assert row["id"] == said.get("id") and row["name"] == said.get("name")


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


def test_avro_with_the_schema_of_a_file():
    sale = {"id": 7, "price": None, "at": 1_700_000_000_000, "kind": "B", "lines": [{"sku": "s"}]}
    decoding = decoding_of(AvroDecoder(schema=json.dumps(SCHEMA)))
    decoded = decoding.decode([avro(sale), b"\x02", avro(sale) + b"!", None])
    assert list(decoded.rejected) == [1, 2]
    [first, second] = decoded.columns.to_pylist()
    assert first["id"] == 7 and first["kind"] == "B" and first["lines"] == [{"sku": "s"}]
    assert first["at"].year == 2023
    assert second["id"] is None


def test_avro_without_a_schema_is_refused():
    with pytest.raises(FieldError, match="schema_file"):
        AvroDecoder()
    with pytest.raises(BadInput, match="cannot be read"):
        decoding_of(AvroDecoder(schema="{"))


def halve(value: bytes) -> dict[str, Any] | None:
    """A decoder as a user would write one."""
    number = int(value)
    return None if number == 0 else {"half": number // 2, "odd": bool(number % 2)}


def test_a_function_of_the_users_own():
    stream = Stream(
        topics=("orders",),
        decoder=FunctionDecoder(
            function=f"{__name__}:halve", columns={"half": "long", "odd": "boolean"}
        ),
        table="t",
    )
    done = sort(stream, records(b"5", b"x", b"0", b"8"))
    assert [(r["half"], r["odd"]) for r in rows(done, "t")] == [(2, True), (4, False)]
    [bad] = rows(done, "p_rejects")
    assert bad["kafka_offset"] == 1 and "ValueError" in bad["reason"]
    assert [t.column("kafka_offset").to_pylist() for t in done.ignored] == [[2]]


def test_a_function_that_is_not_there():
    with pytest.raises(BadInput, match="cannot be found"):
        decoding_of(FunctionDecoder(function="no.such:thing", columns={"a": "long"}))
    with pytest.raises(FieldError, match="MODULE:NAME"):
        FunctionDecoder(function="nothing", columns={"a": "long"})


# --- tables --------------------------------------------------------------------------------------


def test_what_is_ignored_is_not_landed_but_counted():
    stream = Stream(
        topics=("orders",),
        decoder=JsonDecoder(columns={"type": "string", "n": "long"}),
        ignore={"type": ("ping", "pong"), "n": (3,)},
        table="t",
    )
    values = [b'{"type":"ping"}', b'{"type":"x","n":1}', b'{"type":"y","n":3}', b"{}"]
    done = sort(stream, records(*values))
    assert [r["kafka_offset"] for r in rows(done, "t")] == [1, 3]
    [ignored] = done.ignored
    assert ignored.column("kafka_offset").to_pylist() == [0, 2]


def test_several_tables_by_a_column():
    by = TableBy(column="type", tables={"a": "as", "b": "bs"}, otherwise="others")
    stream = Stream(
        topics=("orders",), decoder=JsonDecoder(columns={"type": "string"}), table_by=by
    )
    values = [b'{"type":"a"}', b'{"type":"b"}', b'{"type":"c"}', b"{}", b'{"type":"a"}']
    done = sort(stream, records(*values))
    found = {table: [r["kafka_offset"] for r in rows(done, table)] for table in done.tables}
    assert found == {"as": [0, 4], "bs": [1], "others": [2, 3]}


def test_a_record_for_which_there_is_no_table_is_rejected():
    by = TableBy(column="type", tables={"a": "as"})
    stream = Stream(
        topics=("orders",), decoder=JsonDecoder(columns={"type": "string"}), table_by=by
    )
    done = sort(stream, records(b'{"type":"a"}', b'{"type":"z"}'))
    [bad] = rows(done, "p_rejects")
    assert bad["kafka_offset"] == 1 and bad["reason"] == "no table for type=z"


def test_each_topic_goes_by_the_first_stream_that_takes_it():
    streams = (
        Stream(topics=("orders",), decoder=JSON, table="orders"),
        Stream(topics=("^.*",), table="rest"),
    )
    found = Records()
    topics = ["orders", "clicks", "orders", "views"]
    made = [Record(b'{"id": 1}', i, topic_=topic) for i, topic in enumerate(topics)]
    found.add(made)  # type: ignore[arg-type]
    done = Sorter(pipeline(*streams)).sort(found)
    assert [r["kafka_offset"] for r in rows(done, "orders")] == [0, 2]
    assert [r["kafka_offset"] for r in rows(done, "rest")] == [1, 3]


def test_mistakes_in_a_pipeline_are_named():
    with pytest.raises(BadInput, match="no column 'kind'"):
        Sorter(pipeline(Stream(topics=("a",), ignore={"kind": ("x",)}, table="t")))
    with pytest.raises(BadInput, match=r"ignore\.id"):
        Sorter(pipeline(Stream(topics=("a",), decoder=JSON, ignore={"id": ("x",)}, table="t")))
    with pytest.raises(FieldError, match="two decoders"):
        pipeline(
            Stream(topics=("a",), decoder=JSON, table="t"),
            Stream(topics=("b",), decoder=RawDecoder(), table="t"),
        )
    with pytest.raises(FieldError, match="pipeline's own"):
        pipeline(Stream(topics=("a",), table="p_ledger"))
    with pytest.raises(FieldError, match="table_by"):
        Stream(topics=("a",))
    with pytest.raises(FieldError, match="kafka_"):
        JsonDecoder(columns={"kafka_offset": "long"})
    with pytest.raises(FieldError, match="is no type"):
        JsonDecoder(columns={"a": "integer8"})


@pytest.mark.parametrize("text", ["array<", "struct<>", "struct<a>", "long long", "array<x>", ""])
def test_types_that_are_none(text):
    with pytest.raises(ValueError):
        parse_type(text)


# --- tallies -------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 2**50)), max_size=40
    )
)
def test_records_are_counted_by_partition(found):
    topics, numbers, offsets = ([f[i] for f in found] for i in range(3))
    tallies = tally_lists(topics, numbers, offsets, np.ones(len(found), dtype=np.int64))
    assert sum(t.count for t in tallies.values()) == len(found)
    for (topic, number), tally in tallies.items():
        own = [o for t, n, o in found if (t, n) == (topic, number)]
        assert (tally.count, tally.offset_sum) == (len(own), sum(own))
        assert (tally.first, tally.last, tally.size_bytes) == (own[0], own[-1], len(own))
        assert tally.is_rising == all(a < b for a, b in pairwise(own))


def test_rows_of_a_table_are_counted_alike():
    found = Records()
    found.add([Record(b"v", o, partition_=o % 2) for o in range(5)])  # type: ignore[misc]
    tallies = tally_rows(found.kafka_columns())
    assert {str(p): t.count for p, t in tallies.items()} == {"orders-0": 3, "orders-1": 2}
    assert tallies[Partition("orders", 0)].offset_sum == 6
