"""A Python function of the user's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from penstock.domain.errors import BadInput
from penstock.domain.lake.decoder import FunctionDecoder
from penstock.pipeline.lake.arrow_types import arrow_schema
from penstock.pipeline.lake.decoders.decoding import (
    Decoded,
    Decoding,
    Value,
    decode_each,
    decodes,
)


@decodes(FunctionDecoder)
class FunctionDecoding(Decoding):
    def __init__(self, decoder: FunctionDecoder) -> None:
        self._schema = arrow_schema(decoder.columns)
        self._function = _find(decoder.function)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Sequence[Value]) -> Decoded:
        return decode_each(values, self._schema, self._function)


def _find(path: str) -> Callable[[bytes], Any]:
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BadInput(
            f"decoder.function: {path} cannot be found: {error}",
            "it must be importable where the lanes run: install it there, or set PYTHONPATH",
        ) from None
    if not callable(found):
        raise BadInput(f"decoder.function: {path} is no function")
    result: Callable[[bytes], Any] = found
    return result
