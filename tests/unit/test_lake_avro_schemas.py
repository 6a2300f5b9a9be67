"""What Avro decodes to if the writer's schema is not the reader's, by the rules of docs/lake.md."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from penstock.domain.errors import BadInput
from penstock.lake.decoders.avro_types import avro_columns
from penstock.lake.isolated.avro_check import checker
from penstock.lake.isolated.avro_defaults import convert_defaults
from penstock.lake.isolated.avro_logical import resolve
from penstock.lake.isolated.avro_rows import AvroRows
from penstock.lake.isolated.rows import Decoder
from penstock.lake.rejection import RejectKind

HEAD = b"\0\0\0\0\1"
TIME_MS = 1_600_000_000_000
TIME = datetime.datetime(2020, 9, 13, 12, 26, 40, tzinfo=datetime.UTC)
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DATE = {"type": "int", "logicalType": "date"}
BYTES_OF_2 = {"type": "fixed", "name": "Two", "size": 2}


def long(number: int) -> bytes:
    """Avro's code of a number of 64 bits."""
    code = (number << 1) ^ (number >> 63)
    out = b""
    while code >= 0x80:
        out += bytes([code & 0x7F | 0x80])
        code >>= 7
    return out + bytes([code])


def sized(data: bytes) -> bytes:
    return long(len(data)) + data


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def fixed_decimal(precision: int, scale: int, size: int = 8) -> dict[str, Any]:
    return {**decimal(precision, scale), "type": "fixed", "name": "D", "size": size}


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields],
    }


def with_default(kind: Any, default: Any) -> dict[str, Any]:
    schema = record(("a", "long"), ("x", kind))
    schema["fields"][1]["default"] = default
    return schema


def landed(writer: Any, reader: Any, value: bytes) -> Any:
    """The row, or the kind of the rejection."""
    columns = avro_columns(json.dumps(reader))
    rows = AvroRows(columns, json.dumps(reader), True)
    rows.learn(1, json.dumps(writer))
    decoded = Decoder(rows, columns, lambda _: None).decode([HEAD + value], is_careful=False)
    return decoded.rejected[0].kind if decoded.rejected else decoded.columns.to_pylist()[0]


def resolved(writer: Any, reader: Any) -> Any:
    """The type of the writer's field `x` after `resolve`."""
    parsed: Any = fastavro.parse_schema(record(("x", writer)))
    resolve(parsed, fastavro.parse_schema(record(("x", reader))))
    return parsed["fields"][0]["type"]


# --- decimals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1234, Decimal("12.34")),
        (12345, Decimal("123.45")),  # more than the writer declared
        (-1234567, Decimal("-12345.67")),
        (10**10 - 1, Decimal("99999999.99")),
        (10**10, RejectKind.WRONG_TYPE),
        (-(10**10), RejectKind.WRONG_TYPE),
    ],
)
@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_decimal_is_landed_exactly_or_rejected(
    number: int, expected: Any, is_fixed: bool
) -> None:
    make: Callable[[int, int], Any] = fixed_decimal if is_fixed else decimal
    data = number.to_bytes(8, "big", signed=True)
    row = landed(
        record(("x", make(4, 2))), record(("x", make(10, 2))), data if is_fixed else sized(data)
    )
    assert row == (expected if isinstance(expected, RejectKind) else {"x": expected})


def test_a_decimal_keeps_all_38_digits() -> None:
    number = 12345678901234567890123456789012345678
    schema = record(("x", decimal(38, 2)))
    row = landed(schema, schema, sized(number.to_bytes(16, "big", signed=True)))
    assert row == {"x": Decimal("123456789012345678901234567890123456.78")}


@pytest.mark.parametrize(
    ("number", "scale", "expected"),
    [(1234, 4, Decimal("12.34")), (1234, 1, RejectKind.WRONG_TYPE), (1230, 1, Decimal("12.3"))],
)
def test_the_scale_of_a_decimal_changes_without_loss(
    number: int, scale: int, expected: Any
) -> None:
    row = landed(
        record(("x", decimal(4, 2))),
        record(("x", decimal(10, scale))),
        sized(number.to_bytes(2, "big", signed=True)),
    )
    assert row == (expected if isinstance(expected, RejectKind) else {"x": expected})


# --- defaults -----------------------------------------------------------------------------------------

INNER = record(("q", MILLIS), ("b", "bytes"), name="Inner")
DEFAULTS: list[tuple[str, Any, Any, Any]] = [
    ("milliseconds", MILLIS, TIME_MS, TIME),
    ("microseconds", MICROS, TIME_MS * 1000, TIME),
    ("a date", DATE, 5, datetime.date(1970, 1, 6)),
    ("bytes", "bytes", "\u00ff\u0001", b"\xff\x01"),
    ("fixed", BYTES_OF_2, "\u00ff\u0001", b"\xff\x01"),
    ("a decimal", decimal(4, 2), "\u0004\u00d2", Decimal("12.34")),
    ("a negative decimal", decimal(4, 2), "\u00ff", Decimal("-0.01")),
    ("a fixed decimal", fixed_decimal(4, 2, size=2), "\u0004\u00d2", Decimal("12.34")),
    ("an array", {"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
    ("a map", {"type": "map", "values": MILLIS}, {"k": TIME_MS}, [("k", TIME)]),
    ("a record", INNER, {"q": TIME_MS, "b": "\u00ff"}, {"q": TIME, "b": b"\xff"}),
    ("a union's first type", [MILLIS, "null"], TIME_MS, TIME),
    ("a union's second type", ["null", "bytes"], "\u00ff", b"\xff"),
    ("null", ["null", MILLIS], None, None),
    ("a whole double", "double", 1, 1.0),
    ("text", "string", "\u00ff", "\u00ff"),
    ("an enum", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
]


@pytest.mark.parametrize(
    ("kind", "default", "expected"), [pytest.param(*case, id=name) for name, *case in DEFAULTS]
)
def test_a_default_is_landed_as_a_value_of_its_type(kind: Any, default: Any, expected: Any) -> None:
    row = landed(record(("a", "long")), with_default(kind, default), long(1))
    assert row == {"a": 1, "x": expected}


def test_a_record_has_the_defaults_of_its_fields() -> None:
    inner = record(("q", MILLIS), name="Inner")
    inner["fields"][0]["default"] = TIME_MS
    for writer, value in (
        (record(("a", "long")), long(1)),
        (record(("a", "long"), ("x", record(("other", "null"), name="Inner"))), long(1)),
    ):
        assert landed(writer, with_default(inner, {}), value) == {"a": 1, "x": {"q": TIME}}


BAD_DEFAULTS: list[tuple[str, Any, Any]] = [
    ("too many bytes", BYTES_OF_2, "abc"),
    ("a character that is not a byte", "bytes", "水"),
    ("an int of 33 bits", "int", 2**31),
    ("a long of 65 bits", "long", 2**63),
    ("a boolean for a number", "long", True),
    ("a time after 9999", MILLIS, 2**60),
    ("a decimal of too many digits", decimal(4, 2), "\u007f\u00ff"),
    ("a text for an array's number", {"type": "array", "items": "long"}, ["1"]),
    ("a record without a field", INNER, {"q": 1}),
    ("no symbol", {"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
    ("too large for a float", "float", 1e39),
]


@pytest.mark.parametrize(
    ("kind", "default"), [pytest.param(*case, id=name) for name, *case in BAD_DEFAULTS]
)
def test_a_default_that_does_not_fit_its_type_is_refused_at_the_start(
    kind: Any, default: Any
) -> None:
    with pytest.raises(BadInput, match=r"default .*"):
        avro_columns(json.dumps(with_default(kind, default)))
    with pytest.raises(ValueError, match=r"the default of R\.x does not fit its type"):
        # As fastavro parses it, which refuses some of them by itself.
        parsed: Any = fastavro.parse_schema(record(("a", "long"), ("x", kind)))
        parsed["fields"][1]["default"] = default
        convert_defaults(parsed)


# --- logical types ------------------------------------------------------------------------------------

RAW_DECIMAL = b"\x04\xd2"
LOGICAL: list[tuple[str, Any, Any, bytes, Any]] = [
    ("milliseconds as a long", MILLIS, "long", long(TIME_MS), TIME_MS),
    ("any long, of a timestamp", MILLIS, "long", long(2**63 - 1), 2**63 - 1),
    ("milliseconds as a double", MILLIS, "double", long(TIME_MS), float(TIME_MS)),
    ("a date as an int", DATE, "int", long(100), 100),
    ("a date as a long", DATE, "long", long(100), 100),
    ("a date as a double", DATE, "double", long(100), 100.0),
    ("a decimal as bytes", decimal(4, 2), "bytes", sized(RAW_DECIMAL), RAW_DECIMAL),
    ("a decimal as text", decimal(4, 2), "string", sized(b"ab"), "ab"),
    ("a fixed decimal as fixed", fixed_decimal(4, 2, 2),
     {"type": "fixed", "name": "D", "size": 2}, RAW_DECIMAL, RAW_DECIMAL),
    ("a time of day as an int", {"type": "int", "logicalType": "time-millis"}, "int", long(7), 7),
    ("in a union", ["null", MILLIS], ["null", "long"], b"\x02" + long(5), 5),
    ("of a union", ["null", MILLIS], "long", b"\x02" + long(5), 5),
    ("to a union", MILLIS, ["null", "long"], long(5), 5),
    ("in an array", {"type": "array", "items": MILLIS}, {"type": "array", "items": "long"},
     b"\x02" + long(5) + b"\x00", [5]),
    ("in a map", {"type": "map", "values": MILLIS}, {"type": "map", "values": "long"},
     b"\x02\x02k" + long(5) + b"\x00", [("k", 5)]),
    ("in a record", record(("t", MILLIS), name="In"), record(("t", "long"), name="In"),
     long(5), {"t": 5}),
    ("a long as milliseconds", "long", MILLIS, long(TIME_MS), TIME),
    ("an int as milliseconds", "int", MILLIS, long(0), datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)),
    ("a long as microseconds", "long", MICROS, long(TIME_MS * 1000), TIME),
    ("an int as a date", "int", DATE, long(5), datetime.date(1970, 1, 6)),
    ("bytes as a decimal", "bytes", decimal(4, 2), sized(RAW_DECIMAL), Decimal("12.34")),
    ("bytes as a decimal of too many digits", "bytes", decimal(2, 1), sized(RAW_DECIMAL), RejectKind.WRONG_TYPE),
    ("a long as a time after 9999", "long", MILLIS, long(2**62), RejectKind.NOT_AVRO),
    ("milliseconds as microseconds", MILLIS, MICROS, long(TIME_MS), TIME),
    ("a UUID as text", {"type": "string", "logicalType": "uuid"}, "string", sized(b"abc"), "abc"),
    ("a UUID as bytes", {"type": "string", "logicalType": "uuid"}, "bytes", sized(b"abc"), b"abc"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [pytest.param(*case, id=name) for name, *case in LOGICAL],
)
def test_a_logical_type_that_one_schema_lacks_follows_the_reader(
    writer: Any, reader: Any, value: bytes, expected: Any
) -> None:
    row = landed(record(("x", writer)), record(("x", reader)), value)
    assert row == (expected if isinstance(expected, RejectKind) else {"x": expected})


def test_one_type_of_the_writer_is_read_as_two_of_the_reader() -> None:
    one = record(("t", MILLIS), name="One")
    other = {**record(("t", "long"), name="Other"), "aliases": ["One"]}
    row = landed(
        record(("a", one), ("b", "One")), record(("a", one), ("b", other)), long(TIME_MS) * 2
    )
    assert row == {"a": {"t": TIME}, "b": {"t": TIME_MS}}


def test_an_alias_does_not_hide_the_field_of_that_name() -> None:
    reader = record(("x", "long"), ("y", MILLIS))
    reader["fields"][1]["aliases"] = ["x"]
    reader["fields"][1]["default"] = 0
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert landed(record(("x", MILLIS)), reader, long(5)) == {"x": 5, "y": epoch}


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (MILLIS, MILLIS),
        (MILLIS, MICROS),
        (["null", MILLIS], ["null", MICROS]),
        ("long", "double"),
        (decimal(4, 2), decimal(10, 2)),
        (["null", "string"], "string"),
    ],
)
def test_ordinary_values_are_read_as_fast_as_before(writer: Any, reader: Any) -> None:
    parsed: Any = fastavro.parse_schema(record(("x", writer)))
    assert resolved(writer, reader) == parsed["fields"][0]["type"]


# --- numbers and depth --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["int", DATE])
@pytest.mark.parametrize("reader", [record(("x", "long")), record(("x", "double")), None])
def test_an_int_of_more_than_32_bits_is_rejected_wherever_it_is(kind: Any, reader: Any) -> None:
    reader = reader or record(("y", "long"))
    writer = record(("x", kind), ("y", "long"))
    for number in (2**31, -(2**31) - 1, 2**40):
        assert landed(writer, reader, long(number) + long(1)) is RejectKind.NOT_AVRO
    for number in (2**31 - 1, -(2**31)):
        assert not isinstance(landed(writer, reader, long(number) + long(1)), RejectKind)


NODES: list[tuple[str, Any, Callable[[int], bytes]]] = [
    ("union", ["null", "Node"], lambda depth: b"\x02" * depth + b"\x00"),
    ("array", {"type": "array", "items": "Node"}, lambda depth: b"\x02" * depth + b"\0" * (depth + 1)),
    ("map", {"type": "map", "values": "Node"}, lambda depth: b"\x02\x00" * depth + b"\0" * (depth + 1)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("next_one", "nested"), [pytest.param(*case, id=name) for name, *case in NODES]
)
def test_fields_that_the_reader_lacks_may_be_nested_3000_deep(
    next_one: Any, nested: Callable[[int], bytes]
) -> None:
    node = record(("next", next_one), name="Node")
    writer = record(("a", "long"), ("x", node))
    limit = sys.getrecursionlimit()
    for depth in (1, 400, 1500):  # a node is two values, one in the other
        assert landed(writer, record(("a", "long")), long(7) + nested(depth)) == {"a": 7}
        cut = long(7) + nested(depth)[:-1]
        assert landed(writer, record(("a", "long")), cut) is RejectKind.NOT_AVRO
    for depth in (10_000, 200_000):
        value = long(7) + nested(depth)
        assert landed(writer, record(("a", "long")), value) is RejectKind.NOT_AVRO
        with pytest.raises(ValueError, match="nested in each other more than 3000 deep"):
            checker(fastavro.parse_schema(writer))(value, 0)
    assert sys.getrecursionlimit() == limit
