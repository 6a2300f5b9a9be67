"""One JSON object per record, with Arrow's own reader: many records per call."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.json

from penstock.domain.lake.decoder import JsonDecoder
from penstock.pipeline.lake.arrow_types import arrow_schema
from penstock.pipeline.lake.decoders.decoding import Decoded, Decoding, Value, decodes, reason

_NOTHING = b"{}"


@decodes(JsonDecoder)
class JsonDecoding(Decoding):
    def __init__(self, decoder: JsonDecoder) -> None:
        self._schema = arrow_schema(decoder.columns)
        self._options = pyarrow.json.ParseOptions(
            explicit_schema=self._schema, unexpected_field_behavior="ignore"
        )

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Sequence[Value]) -> Decoded:
        lines = [_NOTHING if v is None else _one_line(v.strip()) for v in values]
        rejected: dict[int, str] = {}
        tables = [*self._tables(lines, 0, rejected)]
        columns = pa.concat_tables(tables) if tables else self._schema.empty_table()
        return Decoded(columns, rejected)

    def _tables(self, lines: list[bytes], first: int, rejected: dict[int, str]) -> list[pa.Table]:
        """All at once if all can be read; otherwise the halves, so that one bad record costs
        little and every other one is read by the same rules."""
        if not lines:
            return []
        problem = ""
        try:
            table = self._read(lines)
            if len(table) == len(lines):
                return [table]
            problem = f"{len(table)} values instead of one"
        except (pa.ArrowException, ValueError) as error:
            problem = reason(error)
        if len(lines) == 1:
            rejected[first] = problem
            return []
        middle = len(lines) // 2
        return [
            *self._tables(lines[:middle], first, rejected),
            *self._tables(lines[middle:], first + middle, rejected),
        ]

    def _read(self, lines: list[bytes]) -> pa.Table:
        # The reader skips blank lines and reads on over the ends of others; what begins and ends
        # like this it cannot join to the next one.
        if not all(line.startswith(b"{") and line.endswith(b"}") for line in lines):
            raise ValueError("is no JSON object")
        text = b"\n".join(lines)
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        return pyarrow.json.read_json(pa.BufferReader(text), options, self._options)


def _one_line(value: bytes) -> bytes:
    """A text over several lines (which most are not) as one; nothing if it is no JSON."""
    if b"\n" not in value:
        return value
    try:
        return json.dumps(json.loads(value)).encode()
    except ValueError:
        return b""
