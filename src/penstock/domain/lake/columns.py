"""Column types in pipeline files: `long`, `array<string>`, `struct<a:long,b:double>`.

The names are those of Spark's SQL and of Delta.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SCALARS = ("binary", "boolean", "date", "double", "float", "int", "long", "string", "timestamp")
_NO_TYPE = f"is not a type; use {', '.join(SCALARS)}, array<…> or struct<name:type,…>"
_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|[<>:,])")


@dataclass(frozen=True)
class Scalar:
    name: str


@dataclass(frozen=True)
class ArrayOf:
    item: ColumnType


@dataclass(frozen=True)
class StructOf:
    fields: tuple[tuple[str, ColumnType], ...]


ColumnType = Scalar | ArrayOf | StructOf


def parse_type(text: str) -> ColumnType:
    """Raises ValueError; its text says what is allowed."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text):
        raise ValueError(_NO_TYPE)
    kind, rest = _parse(tokens)
    if rest:
        raise ValueError(f"has {''.join(rest)!r} after the type")
    return kind


def _parse(tokens: list[str]) -> tuple[ColumnType, list[str]]:
    head, rest = (tokens[0], tokens[1:]) if tokens else ("", [])
    if head == "array":
        item, rest = _parse(_expect("<", rest))
        return ArrayOf(item), _expect(">", rest)
    if head == "struct":
        return _struct(_expect("<", rest))
    if head not in SCALARS:
        raise ValueError(_NO_TYPE)
    return Scalar(head), rest


def _struct(rest: list[str]) -> tuple[ColumnType, list[str]]:
    fields: list[tuple[str, ColumnType]] = []
    while True:
        if not rest or not rest[0].isidentifier():
            raise ValueError("must be struct<name:type,…>")
        name, rest = rest[0], _expect(":", rest[1:])
        inner, rest = _parse(rest)
        fields.append((name, inner))
        if rest[:1] != [","]:
            return StructOf(tuple(fields)), _expect(">", rest)
        rest = rest[1:]


def _expect(sign: str, tokens: list[str]) -> list[str]:
    if tokens[:1] != [sign]:
        raise ValueError(f"lacks a {sign!r}")
    return tokens[1:]
