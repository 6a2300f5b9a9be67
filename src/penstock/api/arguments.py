"""Arguments of the public API, checked before anything starts."""

from __future__ import annotations

from pathlib import Path

from penstock.domain.value import FieldError


def as_path(argument: str, value: object, or_value: type | None = None) -> Path:
    """The path that was given as this argument, which may also be a value of `or_value`."""
    if isinstance(value, str | Path) and str(value).strip() and "\0" not in str(value):
        return Path(value)
    others = "" if or_value is None else f", or a {or_value.__name__}"
    raise FieldError(argument, value, f"must be a path: text or a pathlib.Path{others}")
