"""Decoder that keeps the value as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.domain.lake.decoder import Decoder
from penstock.lake.decoded import Decoded, RecordValue
from penstock.lake.decoders.decoding import Decoding
from penstock.lake.isolated.isolation import DecoderHost


@dataclass(frozen=True, kw_only=True)
class RawDecoder(Decoder):
    """The value as it is, in a column of that name."""

    kind = "raw"

    def decoding(self, host: DecoderHost) -> Decoding:
        return RawDecoding()


class RawDecoding(Decoding):
    schema = pa.schema([("value", pa.binary())])

    def decode(self, values: Sequence[RecordValue]) -> Decoded:
        return Decoded(pa.table([pa.array(values, pa.binary())], schema=self.schema))
