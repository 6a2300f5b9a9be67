"""A content: the abstract class, and messages made from it. The kinds are the other modules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from random import Random
from typing import ClassVar

from penstock.domain import plugins


class Content(ABC):
    """An endless stream of records, as one source would write them."""

    kind: ClassVar[str]

    @abstractmethod
    def records(self, rng: Random) -> Iterator[bytes]: ...


def records(content: str, rng: Random) -> Iterator[bytes]:
    """The stream of the content of that name."""
    made: Content = plugins.get("penstock.contents", content)()
    return made.records(rng)


def bodies(content: str, rng: Random) -> Callable[[int], bytes]:
    """A function that makes one body after the other, each of exactly the size asked for.

    A body begins with a whole record and goes on with further ones; the last is cut off.
    """
    stream = records(content, rng)

    def body(size_bytes: int) -> bytes:
        parts = []
        missing = size_bytes
        while missing > 0:
            parts.append(next(stream))
            missing -= len(parts[-1])
        return b"".join(parts)[:size_bytes]

    return body
