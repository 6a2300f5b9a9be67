"""Decoder for JSON: one object per record, read by Arrow, many records per call.

docs/lake.md has the rules. They hold for a record whatever its neighbours are: every record is read
by the same reader, alone or among others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from penstock.domain.lake.decoder import COLUMN_TYPES, Decoder, check_columns
from penstock.domain.value import Doc
from penstock.lake.arrow_types import arrow_schema
from penstock.lake.checks import check, leaves
from penstock.lake.decoded import Decoded, Limits, RecordValue
from penstock.lake.decoders.decoding import Decoding
from penstock.lake.isolated.isolation import DecoderHost
from penstock.lake.rejection import Rejected, Rejection, RejectKind, rejection_of

_NOTHING = b"{}"
_BOM = b"\xef\xbb\xbf"
# White space in JSON; Python's bytes.strip() strips more.
_BLANK = b" \t\r\n"
# Parts of Arrow's message that are not about the record itself.
_PREFIX = re.compile(r"^JSON parse error: | in row \d+$")
_ROW = re.compile(r" in row (\d+)$")
# Up to this many records, the row in the reader's error is used to find the bad one. That reads all
# records before it again, which for many records costs more than halving.
_FEW = 64
# A cell takes 8 bytes while it is read, and as much in the table.
_CELL_BYTES = 16
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class JsonDecoder(Decoder):
    """One JSON object per record. Fields that are not columns are ignored."""

    kind = "json"
    columns: Annotated[Mapping[str, str], Doc(COLUMN_TYPES)]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_columns(self.columns)

    def decoding(self, host: DecoderHost) -> Decoding:
        return JsonDecoding(self, host.limits)


class JsonDecoding(Decoding):
    def __init__(self, decoder: JsonDecoder, limits: Limits) -> None:
        self.schema = arrow_schema(decoder.columns)
        self._limits = limits
        # An empty object in an array takes 3 bytes of text and a cell for every field of its row.
        self._object_bytes = _CELL_BYTES * max(map(_item_cells, self.schema.types), default=0)
        self._options = pyarrow.json.ParseOptions(
            explicit_schema=self.schema, unexpected_field_behavior="ignore"
        )

    def decode(self, values: Sequence[RecordValue]) -> Decoded:
        texts = [_NOTHING if v is None else v.strip(_BLANK) for v in values]
        return self._decode_bounded(texts) if self._object_bytes else self._decode(texts)

    def _decode_bounded(self, texts: list[bytes]) -> Decoded:
        """Decode as many as fit into memory at once, whatever they contain."""
        rejected: dict[int, Rejection] = {}
        count = total_bytes = 0
        for text in texts:
            size_bytes = text.count(b"{") * self._object_bytes
            if size_bytes > self._most_bytes:  # now exactly, as a brace may be part of a text
                size_bytes = _STRING.sub(b"", text).count(b"{") * self._object_bytes
            if size_bytes > self._most_bytes:
                detail = f"its objects take up to {size_bytes / 1e6:.0f} MB as rows"
                rejected[count] = Rejection(RejectKind.TOO_MUCH_MEMORY, detail)
            elif count and total_bytes + size_bytes > self._limits.decoded_bytes:
                break
            else:
                total_bytes += size_bytes
            count += 1
        kept = [place for place in range(count) if place not in rejected]
        decoded = self._decode([texts[place] for place in kept])
        rejected |= {kept[place]: why for place, why in decoded.rejected.items()}
        rest = partial(self._decode_bounded, texts[count:]) if count < len(texts) else None
        return Decoded(decoded.columns, rejected, count=count, rest=rest)

    @property
    def _most_bytes(self) -> float:
        return self._limits.record_memory_mb * 1e6

    def _decode(self, texts: list[bytes]) -> Decoded:
        if not texts:
            return Decoded(self.schema.empty_table())
        try:
            return Decoded(self._read(texts))
        except Exception:  # of some record; `_decode_parts` finds out which and why
            return self._decode_parts(texts)

    def _decode_parts(self, texts: list[bytes]) -> Decoded:
        """Reject what can be recognised without the reader, and read the rest in halves, so that
        one bad record costs little. Among few records, drop the one that the reader names, so that
        many bad records do not cost much more."""
        rejected: dict[int, Rejection] = {}
        places: list[int] = []
        for place, text in enumerate(texts):
            if text.startswith(_BOM):
                texts[place] = text = text.removeprefix(_BOM).lstrip(_BLANK)
            try:
                _check_text(text)
                places.append(place)
            except Rejected as error:
                rejected[place] = error.rejection
        tables = [self.schema.empty_table(), *self._read_halves(texts, places, rejected)]
        return Decoded(pa.concat_tables(tables), rejected)

    def _read_halves(
        self, texts: list[bytes], places: list[int], rejected: dict[int, Rejection]
    ) -> list[pa.Table]:
        while places:
            try:
                return [self._read([texts[place] for place in places])]
            except Exception as error:
                if len(places) == 1:
                    rejected[places[0]] = _why(error)
                    return []
                named = _named(error, places) if len(places) <= _FEW else None
            why = None if named is None else self._why_alone(texts[named])
            if named is None or why is None:
                middle = len(places) // 2
                first = self._read_halves(texts, places[:middle], rejected)
                return first + self._read_halves(texts, places[middle:], rejected)
            rejected[named] = why
            places = [place for place in places if place != named]
        return []

    def _why_alone(self, text: bytes) -> Rejection | None:
        """Why this text alone is rejected; None: it is good. Among others its error may have
        another text, or belong to another record: a text of two objects shifts the rows after
        it."""
        try:
            self._read([text])
        except Exception as error:
            return _why(error)
        return None

    def _read(self, texts: list[bytes]) -> pa.Table:
        # The reader reads values one after the other, wherever lines end. A text that begins and
        # ends like this cannot reach into the next (a line end in a string is not JSON), and is one
        # row or more. So if there are as many rows as texts, each text is one row.
        if not all(text.startswith(b"{") and text.endswith(b"}") for text in texts):
            raise Rejected(RejectKind.NOT_JSON, "is not a JSON object")
        text = b"\n".join(texts)
        if not text.isascii():
            text.decode()  # the reader accepts any bytes as text, also outside of columns
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        # Not read_json, which uses another thread: four times as slow for one record.
        with pyarrow.json.open_json(pa.BufferReader(text), options, self._options) as reader:
            table = reader.read_all()
        if len(table) != len(texts):
            raise Rejected(RejectKind.NOT_JSON, f"has {len(table)} values instead of one")
        check(table)
        for name, numbers in leaves(table, pa.types.is_floating):
            if pc.all(pc.is_finite(numbers)).as_py() is False:
                raise Rejected(
                    RejectKind.NOT_FINITE, f"{name}: is not finite, or too large for its type"
                )
        return table


def _item_cells(kind: pa.DataType) -> int:
    """The most cells that one item of an array or map of this type has; 0: there are none."""
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    most = max(map(_item_cells, inner), default=0)
    is_repeated = pa.types.is_list(kind) or pa.types.is_map(kind)
    return max(most, sum(map(_cells, inner))) if is_repeated else most


def _cells(kind: pa.DataType) -> int:
    return 1 + sum(_cells(kind.field(i).type) for i in range(kind.num_fields))


def _check_text(text: bytes) -> None:
    if not (text.startswith(b"{") and text.endswith(b"}")):
        raise Rejected(RejectKind.NOT_JSON, "is not a JSON object")
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise Rejected(RejectKind.NOT_UTF8, str(error)) from None


def _named(error: Exception, places: list[int]) -> int | None:
    """The index of the record that Arrow's message names, if it does."""
    match = _ROW.search(str(error)) if isinstance(error, pa.ArrowInvalid) else None
    return places[int(match[1])] if match and int(match[1]) < len(places) else None


def _why(error: Exception) -> Rejection:
    """The kind of rejection by Arrow's message: there is nothing else to tell it by."""
    if not isinstance(error, pa.ArrowInvalid):
        return rejection_of(error, RejectKind.NOT_JSON)
    text = _PREFIX.sub("", str(error))
    kind = RejectKind.NOT_JSON
    if text.startswith("Column(") and " was specified twice" in text:
        kind = RejectKind.DUPLICATE_KEY
    elif text.startswith(("Column(", "Failed to convert")):
        kind = RejectKind.WRONG_TYPE
    return Rejection(kind, text)
