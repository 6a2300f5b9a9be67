"""Bodies of messages, cut from the records of a content."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from penstock.domain.content import Content


def bodies(content: Content, rng: Random) -> Callable[[int], bytes]:
    """A function that makes one body after the other, each of exactly the size asked for.

    A body begins with a whole record and continues with further ones; the last is cut off.
    """
    stream = content.records(rng)

    def body(size_bytes: int) -> bytes:
        parts = []
        missing = size_bytes
        while missing > 0:
            parts.append(next(stream))
            missing -= len(parts[-1])
        return b"".join(parts)[:size_bytes]

    return body
