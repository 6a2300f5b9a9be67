"""Records for the decoders: at least half of them good, the others as hostile as can be thought of.

Every record follows from its stream and its number, so it can be made again.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE

import fuzz_function

HOSTILE_SHARE = 0.45
# In place of headers: the name of one is not UTF-8.
BAD_HEADERS = "bad"
# These end or hold up a decoder process, which takes seconds each.
DEADLY = (b"!exit", b"!abort", b"!loop", b"!sleep", b"!memory")

JSON_COLUMNS = {
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
    "type": "string",
}
TYPES = ("a", "b", "c", "ping")


@dataclass(frozen=True)
class Made:
    """One record, but for where it is."""

    value: bytes | None
    key: bytes | None
    headers: Any
    timestamp: tuple[int, int]


def make(stream: str, kind: str, number: int, deadly: bytes | None) -> Made:
    """`deadly`: what the function is to do."""
    rng = random.Random(zlib.crc32(stream.encode()) * 10_000_019 + number)
    if deadly is not None:
        value: bytes | None = deadly
    elif rng.random() < 0.02:
        value = None
    else:
        value = MAKERS[kind](rng, rng.random() < HOSTILE_SHARE)
    return Made(value, _key(rng), _headers(rng), _timestamp(rng))


# --- what is beside the value -------------------------------------------------------------------------


def _key(rng: random.Random) -> bytes | None:
    which = rng.random()
    if which < 0.3:
        return None
    return rng.choice((b"a", b"b", b"c", b"", b"\xff\xfe")) if which < 0.9 else rng.randbytes(9)


def _headers(rng: random.Random) -> Any:
    which = rng.random()
    if which < 0.7:
        return None
    if which < 0.71:
        return BAD_HEADERS
    return [
        (rng.choice(("h", "", "é水", "a\0b")), rng.choice((None, b"", rng.randbytes(4))))
        for _ in range(rng.randrange(3))
    ]


def _timestamp(rng: random.Random) -> tuple[int, int]:
    which = rng.random()
    if which < 0.9:
        return TIMESTAMP_CREATE_TIME, 1_700_000_000_000 + rng.randrange(10**9)
    if which < 0.93:
        return TIMESTAMP_NOT_AVAILABLE, -1
    edges = (-(2**63), -62_135_596_800_001, -62_135_596_800_000, -1, 0, 253_402_300_799_999,
             253_402_300_800_000, 2**63 - 1)  # fmt: skip
    return TIMESTAMP_CREATE_TIME, rng.choice(edges)


# --- bytes --------------------------------------------------------------------------------------------


def _raw(rng: random.Random, is_hostile: bool) -> bytes:
    return rng.randbytes(rng.randrange(64)) if is_hostile else b"value %d" % rng.randrange(10**6)


def _mutated(rng: random.Random, value: bytes) -> bytes:
    """As a faulty disk or a careless hand would have it."""
    changed = bytearray(value)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(5):
            case 0:
                changed[at:at] = rng.randbytes(rng.randrange(1, 4))
            case 1:
                del changed[at : at + rng.randrange(1, 4)]
            case 2 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 3:
                changed[at:at] = changed[at : at + rng.randrange(1, 9)]
            case _:
                del changed[at:]
    return bytes(changed)


# --- JSON ---------------------------------------------------------------------------------------------

# As they stand in a text, right or wrong for any column.
_TOKENS = (
    "NaN", "-NaN", "Infinity", "-Infinity", "Inf", "1e999", "-1e999", "1e309", "1.8e308", "1.5e309",
    "1e-999", "0e400", "-0", "-0.0", "0", "1", "1.0", "1e3", "1E+2", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "2147483647",
    "2147483648", "-2147483649", "1e38", "1e39", "9" * 400, "0." + "3" * 12, "01", "+1", ".5", "1.",
    "0x10", "1_000", "true", "false", "True", "null", "nul", "undefined", '"text"', '"1"', '""',
    "'x'", '"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"', '"\\ud83dx"', '"\\u0000"', '"\\x41"',
    '"a\nb"', '"a\tb"', '"unclosed', "[]", "{}", "[1]", '["a"]', '["a", null]', '["a", 1]',
    '[["a"]]', '{"a": 1}', '{"a": 1, "b": "x", "c": 2}', '{"a": "1"}', '{"a": 1, "a": 2}',
    '{"c": 1, "c": 2}', "[" * 3000 + "]" * 3000, "[" * 3000, '"2020-01-01T00:00:00Z"',
    '"2020-01-01T02:00:00+02:00"', '"2020-02-30T00:00:00Z"', '"0000-01-01T00:00:00Z"',
    '"9999-12-31T23:59:59-02:00"', '"2020-01-01T00:00:00.123456Z"', '"2020-01-01"',
    "18262", "2932896", "2932897", "-719162", "-719163", "2147483646",
)  # fmt: skip
_NAMES = (*JSON_COLUMNS, "other", "id", "i\\u0064")
_TAILS = (b"x", b"}", b"{}", b' {"id": 1}', b'\n{"id": 1}', b"\0", b"\0}", b" null {}", b",", b"]",
          b"\x0c", b"\xff", b" \n\t", b"//", b"null")  # fmt: skip


def _json(rng: random.Random, is_hostile: bool) -> bytes:
    if not is_hostile:
        return _styled(rng, _object(rng, with_time=True))
    match rng.randrange(8):
        case 0:
            return _mutated(rng, _styled(rng, _object(rng, with_time=False)))
        case 1:
            return rng.randbytes(rng.randrange(40))
        case 2:
            return _styled(rng, _object(rng, with_time=True)) + rng.choice(_TAILS)
        case 3:
            head = rng.choice(
                (b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"\xef\xbb\xbf" * 2, b"\x0c", b"\0")
            )
            return head + _styled(rng, _object(rng, with_time=True))
        case 4:
            return json.dumps(_object(rng, with_time=True)).encode(rng.choice(("utf-16", "utf-32")))
        case 5:
            value = bytearray(_styled(rng, _object(rng, with_time=False)))
            bad = rng.choice((b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82", b"\x80"))
            at = rng.randrange(len(value))
            value[at:at] = bad
            return bytes(value)
    pairs = [f'"{rng.choice(_NAMES)}":{rng.choice(_TOKENS)}' for _ in range(rng.randrange(1, 4))]
    space = rng.choice(("", " ", "\n", "\r\n\t"))
    return ("{" + space + f",{space}".join(pairs) + space + "}").encode("utf-8", "surrogatepass")


def _object(rng: random.Random, with_time: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"id": rng.randrange(-(2**63), 2**63), "type": rng.choice(TYPES)}
    optional: dict[str, Callable[[], Any]] = {
        "n": lambda: rng.randrange(-(2**31), 2**31),
        "d": lambda: rng.choice((rng.random(), rng.uniform(-1e300, 1e300), 0.0, 5, -0.0)),
        "f": lambda: rng.randrange(1000) / 8,
        "name": lambda: _text(rng),
        "ok": lambda: rng.random() < 0.5,
        "tags": lambda: [rng.choice((None, _text(rng))) for _ in range(rng.randrange(3))],
        "s": lambda: rng.choice((None, {"a": 1}, {"b": _text(rng), "z": {}}, {})),
        "bin": lambda: _text(rng),
        "day": lambda: rng.randrange(-719_162, 2_932_897),
        "other": lambda: rng.choice((None, [1, {"id": 2}], "} null", {"id": 1.5}, 1e300)),
    }
    if with_time:
        optional["at"] = lambda: (
            f"20{rng.randrange(10, 99)}-01-02T03:04:05.{rng.randrange(10**6):06d}Z"
        )
    for name in rng.sample(sorted(optional), rng.randrange(len(optional))):
        made[name] = optional[name]()
    if rng.random() < 0.1:
        made["type"] = rng.choice((None, "zzz", "", "水"))
    return made


def _text(rng: random.Random) -> str:
    return rng.choice(
        ("plain", "", "é水\N{GRINNING FACE}", 'quote " and \\', "line\nend", "null {}", "\0")
    )


def _styled(rng: random.Random, value: dict[str, Any]) -> bytes:
    text = json.dumps(
        value,
        ensure_ascii=rng.random() < 0.5,
        indent=rng.choice((None, None, 1)),
        separators=rng.choice((None, (",", ":"))),
    )
    return rng.choice(("", " ", "\n")).encode() + text.encode()


# --- Avro ---------------------------------------------------------------------------------------------

KIND = {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C", "PING"]}
SUB = {
    "type": "record",
    "name": "Sub",
    "fields": [{"name": "x", "type": "long"}, {"name": "e", "type": "Kind"}],
}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
COST = {"type": "fixed", "name": "Cost", "size": 8}
_FIELDS: dict[str, Any] = {
    "id": "long",
    "n": "int",
    "d": "double",
    "f": "float",
    "name": "string",
    "ok": "boolean",
    "kind": KIND,
    "u": ["null", "long"],
    "tags": {"type": "array", "items": "string"},
    "m": {"type": "map", "values": "long"},
    "at": MILLIS,
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "fx": {"type": "fixed", "name": "Four", "size": 4},
    "sub": ["null", SUB],
    "blob": "bytes",
    "blobs": {"type": "array", "items": "bytes"},
    "day": {"type": "int", "logicalType": "date"},
    "cost": {**COST, "logicalType": "decimal", "precision": 12, "scale": 2},
    "last": {
        "type": "record",
        "name": "Last",
        "fields": [{"name": "t", "type": MILLIS}, {"name": "b", "type": "bytes"}],
    },
}
# As they stand in the schema; the judge has what they mean.
_DEFAULTS: dict[str, Any] = {
    "name": "unknown",
    "at": 1_600_000_000_000,
    "price": "\u0004\u00d2",
    "blob": "\u00ff\u0001",
    "blobs": ["\u00ff", ""],
    "day": 18_518,
    "cost": "\u00ff" * 7 + "\u009c",
    "last": {"t": 1_600_000_000_000, "b": "\u00ff"},
}


def _record(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": name, "type": kind}
            | ({"default": _DEFAULTS[name]} if name in _DEFAULTS else {})
            for name, kind in fields.items()
        ],
    }


def _plain(name: str, kind: Any) -> dict[str, Any]:
    """A type without the logical type that the reader has there; records have such values."""
    return {**kind, "like": _FIELDS[name]}


AVRO = _record(_FIELDS)
# Numbers of a registry: the reader's own, an older one, a longer one, one whose logical types are
# where the reader has none and the other way round, one of smaller types; and what is no use.
_OLDER = _record(
    {n: t for n, t in _FIELDS.items() if n not in _DEFAULTS} | {"old": "string", "less": "int"}
)
_LONGER = _record(
    {"extra": {"type": "array", "items": "null"}, **_FIELDS, "more": ["null", "Kind"]}
)
NODE: dict[str, Any] = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}
_OTHERWISE = _record(
    {
        "chain": NODE,
        **_FIELDS,
        "id": MILLIS,
        "n": {"type": "int", "logicalType": "date"},
        "d": {"type": "long", "logicalType": "timestamp-micros"},
        "u": ["null", MILLIS],
        "blob": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        "at": _plain("at", {"type": "long"}),
        "price": _plain("price", {"type": "bytes"}),
        "day": _plain("day", {"type": "int"}),
        "cost": _plain("cost", COST),
    }
)
_SMALLER = _record(
    {
        "less": "int",
        **_FIELDS,
        "id": "int",
        "d": "int",
        "u": ["null", "int"],
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 3},
        "cost": {**COST, "logicalType": "decimal", "precision": 4, "scale": 2},
    }
)
WRITERS: dict[int, Any] = {1: AVRO, 2: _OLDER, 3: _LONGER, 8: _OTHERWISE, 9: _SMALLER}
# Nodes in each other that are read, and that are not; a node is two values, one in the other.
MOST_NODES, TOO_MANY_NODES = 1400, 20_000
USELESS = {4: '"string"', 5: "{", 6: '["null", "long"]', 7: "[" * 10_000}


def _avro_file(rng: random.Random, is_hostile: bool) -> bytes:
    return _avro(rng, is_hostile, AVRO)


def _avro_registry(rng: random.Random, is_hostile: bool) -> bytes:
    number = rng.choice(tuple(WRITERS))
    body = _avro(rng, is_hostile and rng.random() < 0.8, WRITERS[number])
    if is_hostile and rng.random() < 0.2:
        odd = (*USELESS, 0, 77, 2**31, 2**32 - 1)
        return (
            rng.choice((b"\0" + rng.choice(odd).to_bytes(4, "big"), b"\1\0\0\0\1", b"\0\0")) + body
        )
    return b"\0" + number.to_bytes(4, "big") + body


def _avro(rng: random.Random, is_hostile: bool, schema: Any) -> bytes:
    if not is_hostile:
        return _encoded(rng, schema, 0.0)
    match rng.randrange(6):
        case 0:
            return _mutated(rng, _encoded(rng, schema, 0.0))
        case 1:
            return rng.randbytes(rng.randrange(80))
        case 2:
            return _encoded(rng, schema, 0.0) + rng.randbytes(rng.randrange(1, 3))
        case 3:
            whole = _encoded(rng, schema, 0.0)
            return whole[: rng.randrange(len(whole))]
    return _encoded(rng, schema, 0.12)


def zigzag(number: int) -> bytes:
    """Avro's code, of a number of any size."""
    code = number << 1 if number >= 0 else ((-number) << 1) - 1
    out = bytearray()
    while code >= 0x80:
        out.append(code & 0x7F | 0x80)
        code >>= 7
    out.append(code)
    return bytes(out)


def _encoded(rng: random.Random, schema: Any, oddity: float) -> bytes:
    """By schema; each part is odd with this probability."""
    if isinstance(schema, dict):
        schema = schema.get("like", schema)
    if isinstance(schema, dict) and "logicalType" not in schema:
        kind = schema["type"]
        if schema is NODE:
            return _nodes(rng, oddity)
        if kind == "record":
            return b"".join(_encoded(rng, field["type"], oddity) for field in schema["fields"])
    else:
        kind = schema
    if rng.random() < oddity:
        return _odd(rng, kind if isinstance(kind, str) else "other")
    match kind:
        case "null":
            return b""
        case "boolean":
            return rng.choice((b"\0", b"\1"))
        case "int":
            return zigzag(rng.randrange(-(2**31), 2**31))
        case "long":
            return zigzag(rng.choice((rng.randrange(100), rng.randrange(-(2**63), 2**63))))
        case "float":
            return struct.pack("<f", rng.uniform(-10, 10))
        case "double":
            return struct.pack("<d", rng.choice((rng.random(), float("nan"), float("inf"), -0.0)))
        case "bytes":
            data = rng.choice((b"", b"\xff\xfe", b"plain"))
            return zigzag(len(data)) + data
        case "string":
            text = rng.choice(("plain", "", "水" * 7, "é\0", "\N{GRINNING FACE}")).encode()
            return zigzag(len(text)) + text
        case "enum":
            return zigzag(rng.randrange(len(schema["symbols"])))
        case "Kind":
            return _encoded(rng, KIND, 0.0)
        case "fixed":
            return rng.randbytes(schema["size"])
        case "array":
            return _blocks(rng, lambda: _encoded(rng, schema["items"], oddity))
        case "map":
            return _blocks(
                rng,
                lambda: _encoded(rng, "string", oddity) + _encoded(rng, schema["values"], oddity),
            )
        case list():
            index = rng.randrange(len(schema))
            return zigzag(index) + _encoded(rng, schema[index], oddity)
        case {"logicalType": "decimal"}:
            number = rng.choice((rng.randrange(-9999, 10**4), rng.randrange(-(10**9) + 1, 10**9)))
            if rng.random() < 0.95:  # so that the reader's two places are enough
                number -= number % 10 ** (schema["scale"] - 2)
            if schema["type"] == "fixed":
                return number.to_bytes(schema["size"], "big", signed=True)
            code = number.to_bytes(rng.choice((4, 4, 8)), "big", signed=True)
            return zigzag(len(code)) + code
        case {"logicalType": "date"}:
            return zigzag(rng.randrange(-719_162, 2_932_897))
    return zigzag(rng.randrange(-62_135_596_800_000, 253_402_300_800_000))  # a timestamp


def _blocks(rng: random.Random, item: Callable[[], bytes]) -> bytes:
    out = b""
    for _ in range(rng.randrange(3)):
        items = [item() for _ in range(rng.randrange(1, 4))]
        body = b"".join(items)
        if rng.random() < 0.3:
            out += zigzag(-len(items)) + zigzag(len(body)) + body
        else:
            out += zigzag(len(items)) + body
    return out + b"\0"


def _nodes(rng: random.Random, oddity: float) -> bytes:
    depth = rng.randrange(4)
    if rng.random() < 0.05:
        depth = TOO_MANY_NODES if oddity else rng.choice((400, MOST_NODES))
    return (zigzag(rng.randrange(64)) + zigzag(1)) * depth + b"\0\0"


def _odd(rng: random.Random, kind: str) -> bytes:
    """Bytes that are wrong, or unusual, where a part of a record begins."""
    numbers = (-1, -2, -3, -4, 2, 3, 4, 5, 2**31 - 1, 2**31, -(2**31) - 1, 2**60, 2**62, 2**63 - 1,
               -(2**63), 2**63, 2**64, 2**64 + 1, 2**64 + 3, 2**70)  # fmt: skip
    match rng.randrange(6):
        case 0 | 1:
            return zigzag(rng.choice(numbers))
        case 2:
            return b"\x80" * rng.randrange(1, 20) + b"\x01"
        case 3:
            return zigzag(rng.choice((2, 3))) + rng.choice(
                (b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80")
            )
        case 4 if kind == "boolean":
            return bytes([rng.randrange(256)])
        case 4:
            return zigzag(-2) + zigzag(rng.choice((0, 1, 2, 50))) + b"\x02\x02\0"
    return rng.randbytes(rng.randrange(12))


# --- a function ---------------------------------------------------------------------------------------


def _function(rng: random.Random, is_hostile: bool) -> bytes:
    if not is_hostile:
        return b"%d %s" % (rng.randrange(1000), rng.choice((b"a", b"b", b"c", "é水".encode())))
    if rng.random() < 0.3:
        return rng.choice(
            (b"x", b"", b"1 \xff", b"99999999999999999999 a", b"!unknown", b" ", b"1.5 a")
        )
    return rng.choice([act for act in fuzz_function.ACTS if act not in DEADLY])


MAKERS: dict[str, Callable[[random.Random, bool], bytes]] = {
    "raw": _raw,
    "json": _json,
    "avro": _avro_file,
    "registry": _avro_registry,
    "function": _function,
}
