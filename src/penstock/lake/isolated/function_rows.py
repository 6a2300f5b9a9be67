"""Rows from a user's Python function."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from penstock.lake.isolated.strict import strict
from penstock.lake.rejection import Rejected, Rejection, RejectKind


class FunctionRows:
    kind = RejectKind.FUNCTION_FAILED

    def __init__(self, schema: pa.Schema, function: str) -> None:
        self._function = _find(function)
        converters = ((field.name, strict(field.type)) for field in schema)
        self._strict = [(name, convert) for name, convert in converters if convert is not None]

    def learn(self, number: int, text: str) -> None:
        raise NotImplementedError("a function has no schemas")

    def blame(self, number: int, rejection: Rejection) -> None:
        raise NotImplementedError("a function has no schemas")

    def row(self, value: bytes) -> dict[str, Any] | None:
        returned = self._function(value)
        if returned is None:
            return None
        if not isinstance(returned, Mapping):
            what = f"{type(returned).__name__} instead of a dict or None"
            raise Rejected(RejectKind.FUNCTION_FAILED, f"returned {what}")
        row = dict(returned)
        for key in row:
            # Most likely a mistake (b"id" for "id") that would make the column null.
            if not isinstance(key, str):
                what = f"a dict with the key {key!r}, which is not text"
                raise Rejected(RejectKind.FUNCTION_FAILED, f"returned {what}")
        for name, convert in self._strict:
            cell = row.get(name)
            if cell is not None:
                try:
                    row[name] = convert(cell)
                except (TypeError, ValueError, OverflowError) as error:
                    raise Rejected(RejectKind.WRONG_TYPE, f"{name}: {error}") from None
        return row


def _find(path: str) -> Callable[[bytes], Any]:
    module, _, name = path.partition(":")
    function = getattr(importlib.import_module(module), name)
    if not callable(function):
        raise TypeError(f"{path} is not a function")
    result: Callable[[bytes], Any] = function
    return result
