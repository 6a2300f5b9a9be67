"""The result of a decoder, and the limits of decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.lake.rejection import Rejection

RecordValue = bytes | None


@dataclass(frozen=True)
class Decoded:
    """The columns of the records that decode, in their order, and why the others do not.

    A decoder may stop early when few bytes have become much data, so that it can be written before
    the decoder continues.
    """

    columns: pa.Table
    # Index of a record → why it is rejected.
    rejected: Mapping[int, Rejection] = field(default_factory=dict)
    # Indexes of records that the decoder itself leaves out.
    ignored: frozenset[int] = frozenset()
    # How many records were decoded, from the first on; None: all.
    count: int | None = None
    # Decodes the remaining records, with indexes from 0 again; None: none remain.
    rest: Callable[[], Decoded] | None = None


@dataclass(frozen=True)
class Limits:
    """What decoding may take. Time is limited where third-party code runs: Avro, functions."""

    record_s: float = 5.0
    record_memory_mb: int = 1024
    # Decoding stops after the answer that exceeds this.
    decoded_bytes: int = 64_000_000
    # Records that end the decoder process may take so much time of a lane's part; then it ends.
    lost_s: float = 60.0
