"""Bodies of messages, cut from the records of a content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from penstock.domain.content import Content
from penstock.domain.errors import BadInput
from penstock.domain.value import FieldError

# So many records without a byte in a row, and there will never be one.
_MOST_EMPTY = 1000


def records(content: Content, rng: Random) -> Iterator[bytes]:
    """The records of a content, which may be code of another package: what goes wrong in it is
    reported with its name."""
    if not isinstance(content, Content):
        raise FieldError("content", content, "must be a kind of Content")
    empty = 0
    try:
        for record in content.records(rng):
            if not isinstance(record, bytes):
                raise _broken(content, f"a record must be bytes, not {type(record).__name__}")
            empty = 0 if record else empty + 1
            if empty > _MOST_EMPTY:
                raise _broken(content, f"{empty:,} records in a row are empty")
            yield record
    except BadInput:
        raise
    except Exception as error:  # whatever the code of others raises
        raise _broken(content, f"{type(error).__name__}: {error}") from error
    raise _broken(content, "its records end; they must be endless")


def bodies(content: Content, rng: Random) -> Callable[[int], bytes]:
    """A function that makes one body after the other, each of exactly the size asked for.

    A body begins with a whole record and continues with further ones; the last is cut off.
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


def _broken(content: Content, problem: str) -> BadInput:
    return BadInput(f"content {content.kind!r}: {problem}", "correct its `records`")
