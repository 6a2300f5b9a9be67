"""Abstract decoding: a schema, and a function from values to columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from penstock.domain.lake.decoder import Decoder
from penstock.lake.decoded import Decoded, RecordValue
from penstock.lake.isolated.isolation import DecoderHost


class Decoding(ABC):
    """Does the work of a decoder. Made once per worker and pipeline, from the pipeline file."""

    # The columns it makes.
    schema: pa.Schema

    @abstractmethod
    def decode(self, values: Sequence[RecordValue]) -> Decoded:
        """Decode values. A record without a value (a tombstone) becomes a row of nulls.

        What a record decodes to does not depend on the others. Raises `LaneBlocked` if the failure
        is not a record's fault.
        """

    def start(self) -> None:
        """Raise BadInput if something that it needs is missing."""
        return


def decoding_of(decoder: Decoder, host: DecoderHost) -> Decoding:
    """Make the decoding of a decoder. `host` runs third-party code."""
    decoding: Decoding = decoder.decoding(host)
    return decoding
