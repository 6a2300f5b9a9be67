"""The value as it is."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.domain.lake.decoder import RawDecoder
from penstock.pipeline.lake.decoders.decoding import Decoded, Decoding, Value, decodes


@decodes(RawDecoder)
class RawDecoding(Decoding):
    schema = pa.schema([("value", pa.binary())])

    def __init__(self, _: RawDecoder) -> None: ...

    def decode(self, values: Sequence[Value]) -> Decoded:
        return Decoded(pa.table([pa.array(values, pa.binary())], schema=self.schema))
