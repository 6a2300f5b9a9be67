"""The messages of one producer, made before the load begins: a value each, ready to be sent.

A message that is due must cost nothing more than its number. So a few thousand values are made in
advance and used in turn; the number is written into the first 8 bytes just before. There are
enough of them that no batch contains one twice, or compression would find it.
"""

from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt

from penstock.domain.content import Content
from penstock.domain.sizes.sizes import ID_BYTES
from penstock.domain.trace import message_id
from penstock.domain.workload import Payload
from penstock.load.bodies import bodies
from penstock.load.rdkafka import MESSAGE

# More than a batch holds by librdkafka's defaults: 10,000 messages, 1 MB.
MOST_VALUES = 1 << 14
ENOUGH_BYTES = 4_000_000
# Prepared at a time: 20 µs, short enough between two messages that are due.
WINDOW = 1024


class PayloadBuffer:
    """Values in turn, as an array of librdkafka's messages. Value i is that of message i mod n.

    Sizes are n independent draws from the payload's distribution, n up to 16,384: their mean is
    that of the distribution but for 1/√n of its standard deviation. With keys, each message gets
    one at random, its number in 8 bytes.
    """

    def __init__(self, payload: Payload, keys: int | None, producer: int, rng: Random) -> None:
        self._producer = producer
        self._keys = keys
        # A power of two: a window never runs over the end.
        enough = min(MOST_VALUES, max(2, int(ENOUGH_BYTES / payload.mean_bytes)))
        self.count = 1 << (enough.bit_length() - 1)
        self.window = min(WINDOW, self.count)
        self.sizes = self._draw_sizes(payload, rng)
        # Each begins at a multiple of 8, so that the numbers can be written as 8-byte words.
        rooms = (self.sizes + 7) // 8
        self._words_at = np.cumsum(rooms) - rooms
        self._buffer = self._fill(payload.content, int(rooms.sum()), rng)
        self._key_draws = np.random.default_rng(rng.getrandbits(64))
        self._key_words = np.zeros(self.count, dtype=">i8")
        self.array = np.zeros(self.count, dtype=MESSAGE)
        self.array["value"] = self._buffer.ctypes.data + 8 * self._words_at
        self.array["size"] = self.sizes
        if keys is not None:
            self.array["key"] = self._key_words.ctypes.data + 8 * np.arange(self.count)
            self.array["key_size"] = 8
        self._address: int = self.array.ctypes.data

    def prepare(self, first: int) -> None:
        """Number the window of messages that begins with this one."""
        slot = first % self.count
        window = slice(slot, slot + self.window)
        sequence = np.arange(first, first + self.window)
        self._buffer[self._words_at[window]] = message_id(self._producer, 0) | sequence
        self.array["tag"][window] = sequence
        if self._keys is not None:
            self._key_words[window] = self._key_draws.integers(0, self._keys, self.window)

    def address(self, message: int) -> int:
        """Where it lies; the rest of its window follows."""
        return self._address + MESSAGE.itemsize * (message % self.count)

    def sizes_of(self, sequence: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        return np.take(self.sizes, sequence & (self.count - 1))

    def _draw_sizes(self, payload: Payload, rng: Random) -> npt.NDArray[np.int32]:
        if payload.sizes is None:
            return np.full(self.count, payload.size_bytes, dtype=np.int32)
        return np.fromiter(payload.sizes.draw(rng), dtype=np.int32, count=self.count)

    def _fill(self, content: Content, words: int, rng: Random) -> npt.NDArray[np.int64]:
        buffer = np.zeros(words, dtype=">i8")
        whole = memoryview(buffer.view(np.uint8).data)
        body = bodies(content, rng)
        for word, size in zip(self._words_at.tolist(), self.sizes.tolist(), strict=True):
            at = 8 * word + ID_BYTES
            whole[at : 8 * word + size] = body(size - ID_BYTES)
        return buffer
