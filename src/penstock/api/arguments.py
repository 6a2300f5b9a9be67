"""Arguments of the public API, checked before anything starts."""

from __future__ import annotations

from pathlib import Path

from penstock.domain.value import FieldError


def as_path(argument: str, value: object) -> Path:
    """The path that was given as this argument."""
    if isinstance(value, str | Path) and str(value).strip() and "\0" not in str(value):
        return Path(value)
    raise FieldError(argument, value, "must be a path: text or a pathlib.Path")
