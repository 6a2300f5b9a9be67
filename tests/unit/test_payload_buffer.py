"""Messages made in advance: numbers, sizes and keys as librdkafka finds them in memory."""

from __future__ import annotations

import ctypes
import secrets
from random import Random

import numpy as np
import pytest

from penstock.domain.sizes import UniformSizes
from penstock.domain.trace import message_id
from penstock.domain.workload import Payload
from penstock.load.contents.sales import SalesContent
from penstock.load.contents.web_log import WebLogContent
from penstock.load.payload_buffer import PayloadBuffer
from penstock.load.rdkafka import MESSAGE


def _messages(payload: Payload, keys: int | None = None, producer: int = 3) -> PayloadBuffer:
    return PayloadBuffer(payload, keys, producer, Random(secrets.randbits(64)))


def _read(messages: PayloadBuffer, number: int) -> tuple[bytes, bytes | None, int]:
    """(value, key, tag) of a message at its address."""
    raw = ctypes.string_at(messages.address(number), MESSAGE.itemsize)
    message = np.frombuffer(raw, dtype=MESSAGE)[0]
    value = ctypes.string_at(int(message["value"]), int(message["size"]))
    key = (
        ctypes.string_at(int(message["key"]), int(message["key_size"])) if message["key"] else None
    )
    return value, key, int(message["tag"])


def test_the_first_8_bytes_are_the_number() -> None:
    messages = _messages(Payload(size_bytes=100))
    for first in (0, messages.window, messages.count * 5 + messages.window):
        messages.prepare(first)
        for number in (first, first + 1, first + messages.window - 1):
            value, key, tag = _read(messages, number)
            assert len(value) == 100
            assert int.from_bytes(value[:8], "big") == message_id(3, number)
            assert tag == number
            assert key is None


def test_a_message_of_8_bytes_is_its_number_only() -> None:
    messages = _messages(Payload(size_bytes=8))
    messages.prepare(0)
    assert _read(messages, 7)[0] == message_id(3, 7).to_bytes(8, "big")


def test_sizes_are_drawn_and_remembered() -> None:
    sizes = UniformSizes(min_bytes=8, max_bytes=203)
    messages = _messages(Payload(sizes=sizes, content=SalesContent()))
    messages.prepare(0)
    lengths = [len(_read(messages, number)[0]) for number in range(messages.window)]
    assert lengths == messages.sizes_of(np.arange(messages.window)).tolist()
    assert min(lengths) < 20 < 190 < max(lengths)
    error = np.std(messages.sizes) / np.sqrt(messages.count)
    assert np.mean(messages.sizes) == pytest.approx(sizes.mean_bytes, abs=5 * error)
    # Those of the next round are the same values again.
    later = np.arange(3) + 2 * messages.count
    assert messages.sizes_of(later).tolist() == lengths[:3]


def test_keys_are_drawn_from_the_given_number() -> None:
    messages = _messages(Payload(), keys=5)
    messages.prepare(0)
    keys = [_read(messages, number)[1] for number in range(messages.window)]
    assert {int.from_bytes(key or b"", "big") for key in keys} == set(range(5))


def test_bodies_differ_and_a_seed_repeats_them() -> None:
    seed = secrets.randbits(64)
    one, two = (
        PayloadBuffer(Payload(content=WebLogContent()), None, 0, Random(seed)) for _ in range(2)
    )
    for messages in (one, two):
        messages.prepare(0)
    values = [_read(one, number)[0] for number in range(50)]
    assert values == [_read(two, number)[0] for number in range(50)]
    assert len({value[8:] for value in values}) > 40


def test_large_messages_need_little_memory() -> None:
    messages = _messages(Payload(size_bytes=1_000_000))
    assert messages.count * 1_000_000 <= 4_000_000
    messages.prepare(0)
    assert len(_read(messages, 1)[0]) == 1_000_000
