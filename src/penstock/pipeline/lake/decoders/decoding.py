"""What every decoder is: a schema, and a function from values to columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from penstock.domain.errors import PenstockError
from penstock.domain.lake.decoder import Decoder

Value = bytes | None
D = TypeVar("D", bound="type[Decoding]")


@dataclass(frozen=True)
class Decoded:
    """The columns of those records that decode, in their order, and why the others do not."""

    columns: pa.Table
    # Place of a record → why it is not among the columns.
    rejected: Mapping[int, str] = field(default_factory=dict)
    # Places of records that the decoder itself says are to be left out.
    ignored: frozenset[int] = frozenset()


class Decoding(ABC):
    """Made once per worker and pipeline from the words in the file."""

    kinds: ClassVar[dict[type[Decoder], type[Decoding]]] = {}

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns it makes."""

    @abstractmethod
    def decode(self, values: Sequence[Value]) -> Decoded:
        """A record without a value (a tombstone) becomes a row of nulls."""


def decodes(words: type[Decoder]) -> Callable[[D], D]:
    """Says which words of a file a class carries out."""

    def register(cls: D) -> D:
        Decoding.kinds[words] = cls
        return cls

    return register


def decoding_of(decoder: Decoder) -> Decoding:
    made: Any = Decoding.kinds[type(decoder)]
    result: Decoding = made(decoder)
    return result


def decode_each(
    values: Sequence[Value], schema: pa.Schema, function: Callable[[bytes], Any]
) -> Decoded:
    """Record by record: what raises is rejected, what gives None is left out."""
    rows: list[Mapping[str, Any]] = []
    rejected: dict[int, str] = {}
    ignored: set[int] = set()
    names = frozenset(schema.names)
    for place, value in enumerate(values):
        try:
            row = {} if value is None else function(value)
            if row is None:
                ignored.add(place)
                continue
            # One at a time, so that one that does not fit rejects no other.
            for name in row.keys() & names:
                pa.scalar(row[name], schema.field(name).type)
        except PenstockError:  # not this record's fault
            raise
        except Exception as error:  # whatever the function of a user raises
            rejected[place] = reason(error)
            continue
        rows.append(row)
    return Decoded(pa.Table.from_pylist(rows, schema), rejected, frozenset(ignored))


def reason(error: BaseException) -> str:
    """One line about an error."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:500]
