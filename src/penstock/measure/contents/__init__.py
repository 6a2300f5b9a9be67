"""What messages are about: one file per content. It decides how well they compress.

A content is an endless stream of records, as one source would write them: `records(rng)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from penstock.measure.contents import random_bytes, sales, telemetry, web_log

Content = Callable[[Random], Iterator[bytes]]

# Name in `Payload.content` → the content.
CONTENTS: dict[str, Content] = {
    "random": random_bytes.records,
    "web-log": web_log.records,
    "telemetry": telemetry.records,
    "sales": sales.records,
}


def bodies(content: str, rng: Random) -> Callable[[int], bytes]:
    """A function that makes one body after the other, each of exactly the size asked for.

    A body begins with a whole record and goes on with further ones; the last is cut off.
    """
    stream = CONTENTS[content](rng)

    def body(size_bytes: int) -> bytes:
        parts = []
        missing = size_bytes
        while missing > 0:
            parts.append(next(stream))
            missing -= len(parts[-1])
        return b"".join(parts)[:size_bytes]

    return body
