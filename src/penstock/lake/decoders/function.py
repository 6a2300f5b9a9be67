"""Decoder that calls a user's Python function, in its own process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from penstock.domain.errors import BadInput, LaneBlocked
from penstock.domain.lake.decoder import COLUMN_TYPES, Decoder, check_columns
from penstock.domain.value import Doc
from penstock.lake.arrow_types import arrow_schema
from penstock.lake.decoded import Decoded, RecordValue
from penstock.lake.decoders.decoding import Decoding
from penstock.lake.isolated.isolation import DecoderHost
from penstock.lake.isolated.process import CannotStart, Recipe

_ROWS = "penstock.lake.isolated.function_rows:FunctionRows"


@dataclass(frozen=True, kw_only=True)
class FunctionDecoder(Decoder):
    """A user's Python function: it takes the value and returns the columns as a dict."""

    kind = "function"
    function: Annotated[
        str, Doc("module:name; takes bytes, returns a dict, or None to drop the record")
    ]
    columns: Annotated[Mapping[str, str], Doc(COLUMN_TYPES)] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        module, _, name = self.function.partition(":")
        self.require(
            bool(module and name), "function", "must be MODULE:NAME, such as shop.events:decode"
        )
        check_columns(self.columns)

    def decoding(self, host: DecoderHost) -> Decoding:
        return FunctionDecoding(self, host)


class FunctionDecoding(Decoding):
    def __init__(self, decoder: FunctionDecoder, host: DecoderHost) -> None:
        self.schema = arrow_schema(decoder.columns)
        self._host = host
        self._isolated = host.add(Recipe(_ROWS, {"function": decoder.function}, self.schema))

    def start(self) -> None:
        try:
            self._host.start()
        except CannotStart as error:
            path = error.recipe.arguments.get("function") if error.recipe else None
            if path is None:  # it failed before it looked for the function
                raise LaneBlocked(error.message, error.fix) from None
            raise BadInput(
                f"decoder.function: {path} cannot be used: {error.message}",
                "it must be importable where the lanes run: install it there, or set PYTHONPATH",
            ) from None

    def decode(self, values: Sequence[RecordValue]) -> Decoded:
        return self._isolated.decode(values)
