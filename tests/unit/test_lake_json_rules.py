"""What each JSON text decodes to, by the rules of docs/lake.md, whatever its neighbours are."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.lake.decoded import Limits
from penstock.lake.decoders import decoding_of
from penstock.lake.decoders.json import JsonDecoder, JsonDecoding
from penstock.lake.isolated.isolation import DecoderHost
from penstock.lake.rejection import RejectKind

COLUMNS = {
    "id": "long",
    "n": "int",
    "d": "double",
    "f": "float",
    "name": "string",
    "ok": "boolean",
    "tags": "array<string>",
    "s": "struct<a:long,b:string>",
    "bin": "binary",
    "at": "timestamp",
    "day": "date",
}
DECODING = decoding_of(JsonDecoder(columns=COLUMNS), DecoderHost(Limits()))
GOOD = b'{"id": 7, "name": "good", "s": {"a": 1}, "tags": ["x"], "d": 0.5}'
LINES = b'{\n  "id": 8,\n  "name": "over several lines"\n}'


def decode(values: list[bytes | None]) -> list[Any]:
    """Per value its columns that are not null, or why it is rejected."""
    decoded = DECODING.decode(values)
    assert not decoded.ignored
    rows = iter(decoded.columns.to_pylist())
    return [
        decoded.rejected[i].kind
        if i in decoded.rejected
        else {name: cell for name, cell in next(rows).items() if cell is not None}
        for i in range(len(values))
    ]


NESTED = b"[" * 2000 + b"]" * 2000
RULES: list[tuple[str, bytes, Any]] = [
    ("a key twice", b'{"id": 1, "id": 2}', RejectKind.DUPLICATE_KEY),
    ("a key twice, once null", b'{"id": null, "id": 2}', RejectKind.DUPLICATE_KEY),
    ("a key twice, once escaped", b'{"id": 1, "\\u0069d": 2}', RejectKind.DUPLICATE_KEY),
    ("a key twice in a struct", b'{"s": {"a": 1, "a": 2}}', RejectKind.DUPLICATE_KEY),
    ("another key twice", b'{"x": 1, "x": 2, "id": 1}', {"id": 1}),
    ("another key twice in a struct", b'{"s": {"x": 1, "x": 2}}', {"s": {"a": None, "b": None}}),
    ("a BOM", b'\xef\xbb\xbf{"id": 1}', {"id": 1}),
    ("a BOM and lines", b'\xef\xbb\xbf\n{\n"id": 1}\n', {"id": 1}),
    ("two BOMs", b'\xef\xbb\xbf\xef\xbb\xbf{"id": 1}', RejectKind.NOT_JSON),
    ("UTF-16", '{"id": 1}'.encode("utf-16"), RejectKind.NOT_JSON),
    ("NaN", b'{"d": NaN}', RejectKind.NOT_FINITE),
    ("NaN in a float", b'{"f": NaN}', RejectKind.NOT_FINITE),
    ("Infinity", b'{"d": Infinity}', RejectKind.NOT_FINITE),
    ("-Infinity", b'{"d": -Infinity}', RejectKind.NOT_FINITE),
    ("NaN in an integer", b'{"id": NaN}', RejectKind.WRONG_TYPE),
    ("NaN in a field that is not a column", b'{"x": NaN, "id": 1}', {"id": 1}),
    ("the largest long", b'{"id": 9223372036854775807}', {"id": 2**63 - 1}),
    ("one more", b'{"id": 9223372036854775808}', RejectKind.WRONG_TYPE),
    ("the smallest long", b'{"id": -9223372036854775808}', {"id": -(2**63)}),
    ("one less", b'{"id": -9223372036854775809}', RejectKind.WRONG_TYPE),
    ("too large for an int", b'{"n": 2147483648}', RejectKind.WRONG_TYPE),
    ("too large for a column that it is not in", b'{"x": 92233720368547758080}', {}),
    ("a float in an integer", b'{"id": 1.0}', RejectKind.WRONG_TYPE),
    ("an exponent in an integer", b'{"id": 1e3}', RejectKind.WRONG_TYPE),
    ("an integer in a double", b'{"d": 3}', {"d": 3.0}),
    ("minus zero", b'{"id": -0}', {"id": 0}),
    ("a number for text", b'{"name": 1}', RejectKind.WRONG_TYPE),
    ("a truth value for text", b'{"name": true}', RejectKind.WRONG_TYPE),
    ("an object for text", b'{"name": {}}', RejectKind.WRONG_TYPE),
    ("text for a number", b'{"id": "1"}', RejectKind.WRONG_TYPE),
    ("text for a double", b'{"d": "1.5"}', RejectKind.WRONG_TYPE),
    ("a number for a truth value", b'{"ok": 1}', RejectKind.WRONG_TYPE),
    ("text for an array", b'{"tags": "a"}', RejectKind.WRONG_TYPE),
    ("an array for a struct", b'{"s": [1]}', RejectKind.WRONG_TYPE),
    ("a number among texts", b'{"tags": ["a", 1]}', RejectKind.WRONG_TYPE),
    ("null among texts", b'{"tags": ["a", null]}', {"tags": ["a", None]}),
    ("the largest double", b'{"d": 1.7976931348623157e308}', {"d": 1.7976931348623157e308}),
    ("too large for a double", b'{"d": 1.8e308}', RejectKind.NOT_FINITE),
    ("400 digits", b'{"d": ' + b"9" * 400 + b"}", RejectKind.NOT_FINITE),
    ("1e999", b'{"d": 1e999}', RejectKind.NOT_JSON),
    ("1e999 in a field that is not a column", b'{"x": 1e999}', RejectKind.NOT_JSON),
    ("1e-999", b'{"d": 1e-999}', {"d": 0.0}),
    ("too large for a float", b'{"f": 1e39}', RejectKind.NOT_FINITE),
    ("a lone high surrogate", b'{"name": "\\ud800"}', RejectKind.NOT_JSON),
    ("a lone low surrogate", b'{"name": "\\udc00"}', RejectKind.NOT_JSON),
    ("a lone surrogate elsewhere", b'{"x": "\\udc00"}', RejectKind.NOT_JSON),
    ("a lone surrogate in a key", b'{"\\ud800": 1}', RejectKind.NOT_JSON),
    ("a pair of surrogates", b'{"name": "\\ud83d\\ude00"}', {"name": "\N{GRINNING FACE}"}),
    ("an escaped zero", b'{"name": "a\\u0000b"}', {"name": "a\0b"}),
    ("bytes ff fe", b'{"name": "\xff\xfe"}', RejectKind.NOT_UTF8),
    ("a surrogate as bytes", b'{"name": "\xed\xa0\x80"}', RejectKind.NOT_UTF8),
    ("an overlong code", b'{"name": "\xc0\x80"}', RejectKind.NOT_UTF8),
    ("bad bytes in a field that is not a column", b'{"x": "\xff"}', RejectKind.NOT_UTF8),
    ("bad bytes in a key", b'{"\xff": 1}', RejectKind.NOT_UTF8),
    ("bad bytes in a binary", b'{"bin": "\xff"}', RejectKind.NOT_UTF8),
    ("text in a binary", b'{"bin": "caf\\u00e9"}', {"bin": "café".encode()}),
    ("something behind it", b'{"id": 1} x', RejectKind.NOT_JSON),
    ("a brace behind it", b'{"id": 1}}', RejectKind.NOT_JSON),
    ("two objects", b'{"id": 1}{"id": 2}', RejectKind.NOT_JSON),
    ("two objects on two lines", b'{"id": 1}\n{"id": 2}', RejectKind.NOT_JSON),
    ("null between two objects", b'{"id": 1} null {"id": 2}', RejectKind.NOT_JSON),
    ("a zero byte behind it", b'{"id": 1}\0', RejectKind.NOT_JSON),
    ("a zero byte that hides the rest", b'{"id": 1}{"id": 2}\0}', RejectKind.NOT_JSON),
    ("a comma too many", b'{"id": 1,}', RejectKind.NOT_JSON),
    ("single quotes", b"{'id': 1}", RejectKind.NOT_JSON),
    ("a comment", b'{"id": 1 /* one */}', RejectKind.NOT_JSON),
    ("a leading zero", b'{"id": 01}', RejectKind.NOT_JSON),
    ("several lines", b'{\n"id":\n1\n}', {"id": 1}),
    ("carriage returns", b'{\r\n"id": 1\r\n}\r\n', {"id": 1}),
    ("blanks around it", b' \t\r\n{"id": 1} \n', {"id": 1}),
    ("a form feed before it", b'\x0c{"id": 1}', RejectKind.NOT_JSON),
    ("a line end in a text", b'{"name": "a\nb"}', RejectKind.NOT_JSON),
    ("a tab in a text", b'{"name": "a\tb"}', RejectKind.NOT_JSON),
    ("an unknown escape", b'{"name": "\\x41"}', RejectKind.NOT_JSON),
    ("nothing", b"", RejectKind.NOT_JSON),
    ("blanks", b" \n ", RejectKind.NOT_JSON),
    ("null", b"null", RejectKind.NOT_JSON),
    ("an array", b"[1]", RejectKind.NOT_JSON),
    ("a number", b"5", RejectKind.NOT_JSON),
    ("an empty object", b"{}", {}),
    ("an object that is not closed", b'{"s": {"a": 1}', RejectKind.NOT_JSON),
    ("a text that is not closed", b'{"name": "a}', RejectKind.NOT_JSON),
    ("nested deeply", b'{"x": ' + NESTED + b', "id": 1}', {"id": 1}),
    ("nested deeply, on two lines", b'{"x":\n' + NESTED + b', "id": 1}', {"id": 1}),
    ("a time", b'{"at": "2020-01-01T02:00:00+02:00"}', {"at": datetime(2020, 1, 1, tzinfo=UTC)}),
    ("a time as a number", b'{"at": 1577836800}', RejectKind.WRONG_TYPE),
    ("a time that is none", b'{"at": "2020-02-30T00:00:00Z"}', RejectKind.WRONG_TYPE),
    ("a time before the year 1", b'{"at": "0000-01-01T00:00:00Z"}', RejectKind.UNREPRESENTABLE),
    ("a time after 9999", b'{"at": "9999-12-31T23:59:59-02:00"}', RejectKind.UNREPRESENTABLE),
    ("a date in days", b'{"day": 18262}', {"day": date(2020, 1, 1)}),
    ("a date as text", b'{"day": "2020-01-01"}', RejectKind.WRONG_TYPE),
    ("a date after 9999", b'{"day": 2147483647}', RejectKind.UNREPRESENTABLE),
]


@pytest.mark.parametrize(
    ("value", "expected"), [pytest.param(v, e, id=name) for name, v, e in RULES]
)
def test_a_record_is_judged_alike_alone_and_among_others(value: bytes, expected: Any) -> None:
    assert decode([value]) == [expected]
    good, lines = decode([GOOD]), decode([LINES])
    assert decode([GOOD, value, LINES, None]) == [*good, expected, *lines, {}]
    assert decode([None, value]) == [{}, expected]
    assert decode([value, value]) == [expected, expected]


def test_all_of_them_at_once() -> None:
    assert decode([v for _, v, _ in RULES]) == [expected for *_, expected in RULES]


def test_many_bad_records_get_the_same_reasons_as_single_ones() -> None:
    """Also behind a record of two objects, after which the reader's rows are not the batch's."""
    bad = [
        b'{"id": 1} {"id": 2}',
        b'{"name": "x}',
        b'{"s": {"a": 1}',
        b'{"at": "x"}',
        b'{"id": ""}',
    ]
    values: list[bytes | None] = [*(v for _, v, _ in RULES), *(v for b in bad for v in (GOOD, b))]
    values = [*values, *values[::-1], *[GOOD] * 70, *bad * 30]
    together = DECODING.decode(values).rejected
    for place, value in enumerate(values):
        assert together.get(place) == DECODING.decode([value]).rejected.get(0)


@pytest.mark.parametrize("good", [0, 1, 9, 99])
def test_many_bad_records_do_not_cost_many_reads_each(
    monkeypatch: pytest.MonkeyPatch, good: int
) -> None:
    reads = 0
    read = JsonDecoding._read

    def count(self: JsonDecoding, texts: list[bytes]) -> Any:
        nonlocal reads
        reads += 1
        return read(self, texts)

    monkeypatch.setattr(JsonDecoding, "_read", count)
    values: list[bytes | None] = [b'{"id": oops}', *[GOOD] * good] * (2000 // (good + 1))
    decoded = DECODING.decode(values)
    # One that names it, one of it alone; and few that are shared by 64 records.
    assert reads <= 2 * len(decoded.rejected) + 2000 / 16


def test_reasons_name_the_column_and_not_the_row_of_the_batch() -> None:
    rejections = DECODING.decode([GOOD, b'{"id": "two"}', b'{"id": 1, "id": 2}']).rejected
    assert str(rejections[1]) == "wrong-type: Column(/id) changed from number to string"
    assert str(rejections[2]) == "duplicate-key: Column(/id) was specified twice"


texts = st.sampled_from([v for _, v, _ in RULES] + [GOOD, LINES])
objects = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": st.text(),
        "tags": st.lists(st.text(), max_size=3),
        "d": st.floats(allow_nan=False, allow_infinity=False),
        "other": st.none() | st.booleans(),
    },
).map(lambda o: json.dumps(o).encode())


@settings(max_examples=100)
@given(st.lists(texts | objects | st.binary(max_size=12), max_size=12))
def test_what_a_record_decodes_to_does_not_depend_on_its_neighbours(values: list[bytes]) -> None:
    assert decode(list(values)) == [decode([value])[0] for value in values]


@settings(max_examples=60)
@given(objects)
def test_a_valid_object_is_read_as_pythons_json_reads_it(value: bytes) -> None:
    parsed = json.loads(value)
    [row] = decode([value])
    assert row == {name: parsed[name] for name in ("id", "name", "tags", "d") if name in parsed}


# --- memory -----------------------------------------------------------------------------------------

WIDE = {"items": "array<struct<" + ",".join(f"f{i}:double" for i in range(50)) + ">>"}


def wide(limits: Limits) -> JsonDecoding:
    return JsonDecoding(JsonDecoder(columns=WIDE), limits)


def of_objects(count: int, text: str = "") -> bytes:
    return json.dumps({"items": [{}] * count, "text": text}, separators=(",", ":")).encode()


def test_few_bytes_that_would_become_many_rows_are_rejected_before_they_are_read() -> None:
    decoding = wide(Limits(record_memory_mb=64))
    huge, fine = of_objects(200_000), of_objects(1_000)
    decoded = decoding.decode([fine, huge, fine])
    assert len(huge) < 1_000_000
    assert len(decoded.columns) == 2
    assert str(decoded.rejected[1]).startswith("too-much-memory: its objects take up to 163 MB")


def test_braces_in_texts_are_not_objects() -> None:
    decoding = wide(Limits(record_memory_mb=64))
    decoded = decoding.decode([of_objects(2, text='{"\\{' * 100_000)])
    assert decoded.rejected == {}
    assert len(decoded.columns.column("items")[0]) == 2


def test_many_rows_are_decoded_part_by_part_in_their_order() -> None:
    decoding = wide(Limits(decoded_bytes=3_000_000))
    values: list[bytes | None] = [of_objects(n) for n in (1000, 3000, 2, 5000, 1)]
    counts, lengths, decoded = [], [], decoding.decode(values)
    while True:
        assert decoded.count is not None
        counts.append(decoded.count)
        lengths += [len(items) for items in decoded.columns.column("items").to_pylist()]
        if decoded.rest is None:
            break
        decoded = decoded.rest()
    assert lengths == [1000, 3000, 2, 5000, 1]
    assert sum(counts) == 5 and len(counts) > 2
