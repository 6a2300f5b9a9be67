"""Sizes of Kafka's record batches (message format v2), to the byte.

A batch is what a producer sends, a broker stores and a consumer fetches: 61 bytes of header, then
records. A record has, each as a zigzag varint: its length, the difference of its timestamp and of
its offset to those of the batch, the lengths of key and value (−1 for none) and the number of its
headers with their lengths; and one byte of attributes.

Source: Kafka's protocol guide, "Record Batch". Valid for magic 2, the only format since Kafka 4.
Compression applies to the records together, not to the header of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

BATCH_HEADER_BYTES = 61
_ATTRIBUTES_BYTES = 1
# An entry of the offset index (relative offset, position) and of the time index (timestamp, offset).
OFFSET_INDEX_ENTRY_BYTES, TIME_INDEX_ENTRY_BYTES = 8, 12


def varint_bytes(value: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The size of whole numbers as zigzag varints: seven bits of |2n| to a byte."""
    numbers = np.asarray(value, dtype=np.int64)
    zigzag = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    limits = np.uint64(1) << np.arange(7, 64, 7, dtype=np.uint64)
    return np.asarray(1 + (zigzag[..., np.newaxis] >= limits).sum(axis=-1), dtype=np.int64)


def record_bytes(
    value_bytes: npt.ArrayLike,
    *,
    key_bytes: int | None = None,
    headers: Mapping[str, int | None] | None = None,
    offset_delta: npt.ArrayLike = 0,
    timestamp_delta_ms: npt.ArrayLike = 0,
) -> npt.NDArray[np.int64]:
    """Records with values of these sizes; `headers`: name → size of its value."""
    values = np.asarray(value_bytes, dtype=np.int64)
    body = (
        _ATTRIBUTES_BYTES
        + varint_bytes(timestamp_delta_ms)
        + varint_bytes(offset_delta)
        + _field_bytes(key_bytes)
        + varint_bytes(values)
        + values
        + varint_bytes(len(headers or {}))
    )
    for name, size in (headers or {}).items():
        body = body + _field_bytes(len(name.encode())) + _field_bytes(size)
    return np.asarray(varint_bytes(body) + body)


def batch_bytes(
    messages: int,
    value_bytes: float,
    *,
    key_bytes: int | None = None,
    headers: Mapping[str, int | None] | None = None,
    interval_ms: float = 0.0,
    compression_ratio: float = 1.0,
) -> float:
    """A batch of so many messages of about this size, sent `interval_ms` apart.

    `compression_ratio`: size of the records before compression over the size after.
    """
    if messages < 1 or value_bytes < 0 or compression_ratio <= 0:
        raise ValueError("a batch has at least one message, of 0 bytes or more")
    number = np.arange(messages)
    records = record_bytes(
        # Sizes that have the mean: those of a whole number below and above it, in turn.
        np.diff(np.floor(value_bytes * np.arange(messages + 1))),
        key_bytes=key_bytes,
        headers=headers,
        offset_delta=number,
        timestamp_delta_ms=np.floor(interval_ms * number),
    )
    return BATCH_HEADER_BYTES + float(records.sum()) / compression_ratio


def stored_bytes(batch: float, index_interval_bytes: int = 4096) -> float:
    """A batch in the log with its share of the indexes.

    Kafka adds an entry to both indexes when more than `index.interval.bytes` were appended since the
    last one, and at most one per batch. (S0, eq. 4.2 counts the offset index only, and request
    headers, which are not stored.)
    """
    entries = 1 / max(1.0, np.ceil((index_interval_bytes + 1) / batch))
    return float(batch + entries * (OFFSET_INDEX_ENTRY_BYTES + TIME_INDEX_ENTRY_BYTES))


def _field_bytes(size: int | None) -> int:
    """A length and so many bytes; None: only the length, −1."""
    return int(varint_bytes(-1 if size is None else size)) + (size or 0)
