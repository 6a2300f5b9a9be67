"""What Avro bytes decode to, by the rules of docs/lake.md."""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.errors import BadInput
from penstock.lake.decoded import Limits
from penstock.lake.decoders import Decoding, decoding_of
from penstock.lake.decoders.avro import AvroDecoder
from penstock.lake.isolated.avro_check import checker, long_at
from penstock.lake.isolated.isolation import DecoderHost
from penstock.lake.rejection import RejectKind

FIELDS: dict[str, Any] = {
    "i": "int",
    "l": "long",
    "d": "double",
    "s": "string",
    "b": "boolean",
    "e": {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]},
    "u": ["null", "long"],
    "a": {"type": "array", "items": "long"},
    "m": {"type": "map", "values": "long"},
    "n": {"type": "array", "items": {"type": "fixed", "name": "Z", "size": 0}},
    "t": {"type": "long", "logicalType": "timestamp-millis"},
    "x": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    "r": ["null", {"type": "record", "name": "In", "fields": [{"name": "e", "type": "E"}]}],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()],
}
# Every field of a good record, as bytes.
GOOD_BYTES: dict[str, bytes] = {
    "i": b"\x02", "l": b"\x04", "d": struct.pack("<d", 0.5), "s": b"\x02x", "b": b"\x01",
    "e": b"\x02", "u": b"\x02\x06", "a": b"\x04\x02\x04\x00", "m": b"\x02\x02k\x02\x00", "n": b"\x00",
    "t": b"\x00", "x": b"\x02\x64", "r": b"\x02\x04",
}  # fmt: skip
MAX_LONG = b"\xfe" + b"\xff" * 8 + b"\x01"


def long(number: int) -> bytes:
    """Avro's code of a number of any size."""
    number = number << 1 if number >= 0 else ((-number) << 1) - 1
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def with_bytes(**changed: bytes) -> bytes:
    return b"".join({**GOOD_BYTES, **changed}.values())


@pytest.fixture(scope="module")
def decoding() -> Iterator[Decoding]:
    host = DecoderHost(Limits(10.0, 128))
    yield decoding_of(AvroDecoder(schema=json.dumps(SCHEMA)), host)
    host.close()


def decode(decoding: Decoding, values: list[bytes | None]) -> list[Any]:
    """Per value its row, or why it is rejected."""
    decoded = decoding.decode(values)
    rows = iter(decoded.columns.to_pylist())
    return [
        decoded.rejected[i].kind if i in decoded.rejected else next(rows)
        for i in range(len(values))
    ]


RULES: list[tuple[str, bytes, Any]] = [
    ("a good record", with_bytes(), {"i": 1, "e": "B", "u": 3, "a": [1, 2], "r": {"e": "C"}}),
    ("bytes behind the record", with_bytes() + b"!", RejectKind.NOT_AVRO),
    ("a record that is cut off", with_bytes()[:-1], RejectKind.NOT_AVRO),
    ("nothing", b"", RejectKind.NOT_AVRO),
    ("NaN", with_bytes(d=struct.pack("<d", math.nan)), {"d": math.nan}),
    ("Infinity", with_bytes(d=struct.pack("<d", math.inf)), {"d": math.inf}),
    ("the largest long", with_bytes(l=MAX_LONG), {"l": 2**63 - 1}),
    ("a number of 65 bits", with_bytes(l=long(2**64)), RejectKind.NOT_AVRO),
    ("a number of 20 bytes", with_bytes(l=b"\x80" * 19 + b"\x01"), RejectKind.NOT_AVRO),
    ("a number that is longer than it need be", with_bytes(l=b"\x84\x00"), {"l": 2}),
    ("the largest int", with_bytes(i=long(2**31 - 1)), {"i": 2**31 - 1}),
    ("the least int", with_bytes(i=long(-(2**31))), {"i": -(2**31)}),
    ("too large for an int", with_bytes(i=long(2**31)), RejectKind.NOT_AVRO),
    ("too small for an int", with_bytes(i=long(-(2**31) - 1)), RejectKind.NOT_AVRO),
    ("bytes ff fe in a text", with_bytes(s=b"\x04\xff\xfe"), RejectKind.NOT_UTF8),
    ("a surrogate in a text", with_bytes(s=b"\x06\xed\xa0\x80"), RejectKind.NOT_UTF8),
    ("a text of negative length", with_bytes(s=b"\x01x"), RejectKind.NOT_AVRO),
    ("a text of length 2⁶⁴+1", with_bytes(s=long(2**64 + 1) + b"x"), RejectKind.NOT_AVRO),
    ("Chinese", with_bytes(s=b"\x24" + "水水水水水水".encode()), {"s": "水" * 6}),
    ("an enum beyond its symbols", with_bytes(e=b"\x06"), RejectKind.NOT_AVRO),
    ("a negative enum", with_bytes(e=b"\x01"), RejectKind.NOT_AVRO),
    ("a negative enum by its name", with_bytes(r=b"\x02\x01"), RejectKind.NOT_AVRO),
    ("a union beyond its types", with_bytes(u=b"\x04\x06"), RejectKind.NOT_AVRO),
    ("a negative union", with_bytes(u=b"\x01\x06"), RejectKind.NOT_AVRO),
    ("a boolean of 2", with_bytes(b=b"\x02"), {"b": True}),
    ("an array in blocks", with_bytes(a=b"\x02\x02\x03\x04\x04\x06\x00"), {"a": [1, 2, 3]}),
    ("a key twice in a map", with_bytes(m=b"\x04\x02k\x02\x02k\x04\x00"), {"m": [("k", 2)]}),
    ("a time after 9999", with_bytes(t=MAX_LONG), RejectKind.NOT_AVRO),
    ("a decimal of too many digits", with_bytes(x=b"\x06\x7f\xff\xff"), RejectKind.WRONG_TYPE),
    ("a block with a wrong size", with_bytes(a=b"\x03\x7f\x02\x04\x00"), RejectKind.NOT_AVRO),
    ("a block of 2⁶³ items", with_bytes(a=long(-(2**63)) + b"\x00\x00"), RejectKind.NOT_AVRO),
    ("2⁶⁰ items", with_bytes(a=long(2**60)), RejectKind.NOT_AVRO),
    ("2⁶⁰ items without bytes", with_bytes(n=long(2**60) + b"\0"), RejectKind.NOT_AVRO),
    ("3 items without bytes", with_bytes(n=b"\x06\0"), {"n": [b"", b"", b""]}),
]


@pytest.mark.parametrize(
    ("value", "expected"), [pytest.param(v, e, id=name) for name, v, e in RULES]
)
def test_a_record_is_judged_alike_alone_and_among_others(
    decoding: Decoding, value: bytes, expected: Any
) -> None:
    good = with_bytes()
    [alone] = decode(decoding, [value])
    [first, beside_others, _, last] = decode(decoding, [good, value, None, good])
    assert first == last == decode(decoding, [good])[0]
    assert repr(beside_others) == repr(alone)  # NaN does not equal itself
    if isinstance(expected, RejectKind):
        assert alone is expected
    else:
        assert repr({name: alone[name] for name in expected}) == repr(expected)


def test_a_tombstone_is_a_row_of_nulls(decoding: Decoding) -> None:
    assert decode(decoding, [None]) == [dict.fromkeys(FIELDS)]


@given(st.integers(-(2**70), 2**70))
def test_numbers_of_64_bits_are_read_and_no_longer_ones(number: int) -> None:
    code = long(number)
    if -(2**63) <= number < 2**63:
        assert long_at(b"?" + code, 1) == (number, 1 + len(code))
    else:
        with pytest.raises(ValueError, match="64 bits"):
            long_at(code, 0)


@settings(max_examples=60)
@given(
    st.fixed_dictionaries(
        {
            "i": st.integers(-(2**31), 2**31 - 1),
            "l": st.integers(-(2**63), 2**63 - 1),
            "d": st.floats(),
            "s": st.text(),
            "b": st.booleans(),
            "e": st.sampled_from("ABC"),
            "u": st.none() | st.integers(-(2**63), 2**63 - 1),
            "a": st.lists(st.integers(-(2**63), 2**63 - 1)),
            "m": st.dictionaries(st.text(), st.integers(0, 9)),
            "n": st.lists(st.just(b""), max_size=3),
            "t": st.just(0),
            "x": st.just(b"\x01"),
            "r": st.none() | st.fixed_dictionaries({"e": st.sampled_from("ABC")}),
        }
    )
)
def test_what_fastavro_writes_is_avro_to_its_end(row: dict[str, Any]) -> None:
    plain = json.loads(json.dumps(SCHEMA).replace('"logicalType"', '"no"'))
    parsed = fastavro.parse_schema(plain)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, row)
    check = checker(parsed)
    check(out.getvalue(), 0)
    with pytest.raises(ValueError, match="follow"):
        check(out.getvalue() + b"\0", 0)
    with pytest.raises(ValueError):
        check(out.getvalue()[:-1], 0)


def test_a_record_without_fields_has_no_column() -> None:
    """Parquet has no such type."""
    empty = {"type": "record", "name": "Empty", "fields": []}
    schema = {"type": "record", "name": "R", "fields": [{"name": "e", "type": empty}]}
    for one in (empty, schema):
        with pytest.raises(BadInput, match="no fields"):
            decoding_of(AvroDecoder(schema=json.dumps(one)), DecoderHost(Limits()))


def test_a_schema_that_contains_itself_has_no_columns() -> None:
    schema = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "next", "type": ["null", "Node"]}],
    }
    with pytest.raises(BadInput, match="contains itself"):
        decoding_of(AvroDecoder(schema=json.dumps(schema)), DecoderHost(Limits()))
