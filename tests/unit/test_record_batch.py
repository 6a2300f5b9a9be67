"""Sizes of record batches, against batches that another Kafka client builds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecordsBuilder

from penstock.models.record_batch import (
    BATCH_HEADER_BYTES,
    batch_bytes,
    record_bytes,
    stored_bytes,
    varint_bytes,
)

sizes = st.integers(0, 20_000)


@pytest.mark.parametrize(
    ("number", "size"),
    [
        (0, 1),
        (-1, 1),
        (63, 1),
        (64, 2),
        (-64, 1),
        (-65, 2),
        (8191, 2),
        (8192, 3),
        (2**62 - 1, 9),
        (2**62, 10),
    ],
)
def test_varints_take_a_byte_for_seven_bits(number: int, size: int) -> None:
    assert int(varint_bytes(number)) == size


@given(
    messages=st.integers(1, 300),
    value=sizes,
    key=st.none() | st.integers(0, 300),
    headers=st.dictionaries(st.text(max_size=20), st.none() | st.integers(0, 200), max_size=3),
    interval_ms=st.integers(0, 50),
)
def test_a_batch_is_as_large_as_the_one_that_kafka_python_builds(
    messages: int, value: int, key: int | None, headers: dict[str, int | None], interval_ms: int
) -> None:
    builder = MemoryRecordsBuilder(2, 0, 1 << 30)
    for number in range(messages):
        builder.append(
            1_700_000_000_000 + interval_ms * number,
            None if key is None else b"k" * key,
            b"v" * value,
            [(name, None if size is None else b"h" * size) for name, size in headers.items()],
        )
    builder.close()
    size = batch_bytes(
        messages, value, key_bytes=key, headers=headers, interval_ms=float(interval_ms)
    )
    assert size == builder.size_in_bytes()


def test_a_mean_size_is_met_by_sizes_around_it() -> None:
    whole = [batch_bytes(1000, size) for size in (100, 101)]
    assert batch_bytes(1000, 100.25) == pytest.approx(0.75 * whole[0] + 0.25 * whole[1])


def test_compression_spares_the_header() -> None:
    plain, halved = batch_bytes(10, 100), batch_bytes(10, 100, compression_ratio=2)
    assert halved - BATCH_HEADER_BYTES == pytest.approx((plain - BATCH_HEADER_BYTES) / 2)


def test_indexes_add_an_entry_for_every_interval_and_at_most_one_for_a_batch() -> None:
    assert stored_bytes(100_000) == 100_020
    # 41 batches of 100 bytes are the first that exceed 4,096.
    assert stored_bytes(100) == pytest.approx(100 + 20 / 41)


def test_impossible_batches_are_refused() -> None:
    for messages, size in ((0, 1), (1, -1)):
        with pytest.raises(ValueError, match="at least one message"):
            batch_bytes(messages, size)
    assert int(record_bytes(0)) == 7
