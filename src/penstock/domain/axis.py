"""The values along one axis of a matrix: what they are called, and what else they change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TIED = {"value", "with"}


def untied(value: object) -> tuple[object, Mapping[str, Any]]:
    """The value itself, and the other fields that go with it: {value: 50, with: {field: its value}}."""
    if isinstance(value, Mapping) and set(value) == _TIED and isinstance(value["with"], Mapping):
        return value["value"], value["with"]
    return value, {}


def text_of(value: object) -> str:
    """What a value is called in cells, tables and findings."""
    value, _ = untied(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        if named := value.get("name") or value.get("file"):
            return str(named)
        rest = ",".join(f"{k}={text_of(v)}" for k, v in value.items() if k != "kind")
        kind = str(value.get("kind", ""))
        return f"{kind}({rest})" if kind and rest else kind or rest
    if isinstance(value, (list, tuple)):
        return "+".join(text_of(item) for item in value) or "none"
    return str(value)


def number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
