"""Turns values into rows and columns, in the decoder process. A failure rejects one record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from penstock.lake.checks import check
from penstock.lake.decoded import Decoded, RecordValue
from penstock.lake.isolated.wire import BUILDING
from penstock.lake.rejection import Rejected, Rejection, RejectKind, is_for_memory, rejection_of


class Rows(Protocol):
    """A kind of rows; made from the schema of the columns and the arguments of the recipe."""

    # Kind of rejection for errors of `row` that do not have one.
    kind: RejectKind

    def learn(self, number: int, text: str) -> None:
        """Add a schema of the registry."""

    def blame(self, number: int, rejection: Rejection) -> None:
        """Reject the records of a schema that is missing or cannot be used."""

    def row(self, value: bytes) -> dict[str, Any] | None:
        """The row of a value; None leaves the record out."""


class Decoder:
    """Tries all values at once; if that fails, one after the other.

    Raises MemoryError, which may not be the record's fault: this process also holds data that
    earlier records left behind.
    """

    def __init__(self, rows: Rows, schema: pa.Schema, at: Callable[[int], None]) -> None:
        self.rows, self._schema, self._at = rows, schema, at

    def decode(self, values: Sequence[RecordValue], *, is_careful: bool) -> Decoded:
        """`is_careful`: one by one, since trying all at once has ended the process."""
        if not is_careful:
            # Its error would hold on to all rows made so far.
            try:
                return self._all_at_once(values)
            except BaseException:
                pass
        return self._one_by_one(values)

    def _all_at_once(self, values: Sequence[RecordValue]) -> Decoded:
        rows, rejected, ignored = self._each(values, None)
        columns = pa.Table.from_pylist(rows, self._schema)
        check(columns)
        return Decoded(columns, rejected, ignored)

    def _one_by_one(self, values: Sequence[RecordValue]) -> Decoded:
        tables, rejected, ignored = self._each(values, self._table)
        columns = pa.concat_tables([self._schema.empty_table(), *tables]).combine_chunks()
        return Decoded(columns, rejected, ignored)

    def _each(
        self, values: Sequence[RecordValue], build: Callable[[dict[str, Any]], Any] | None
    ) -> tuple[list[Any], dict[int, Rejection], frozenset[int]]:
        """The rows, or what `build` makes of each; and which records are rejected or left out."""
        made: list[Any] = []
        rejected: dict[int, Rejection] = {}
        ignored: set[int] = set()
        make, at, kind = self.rows.row, self._at, self.rows.kind
        for place, value in enumerate(values):
            at(place)
            try:
                row = {} if value is None else make(value)
                if row is None:
                    ignored.add(place)
                else:
                    made.append(row if build is None else build(row))
            except BaseException as error:  # a function may call sys.exit()
                rejected[place] = _rejection_of(error, kind)
        at(BUILDING)
        return made, rejected, frozenset(ignored)

    def _table(self, row: dict[str, Any]) -> pa.Table:
        try:
            made = pa.Table.from_pylist([row], self._schema)
        except Exception as error:
            raise Rejected(RejectKind.WRONG_TYPE, rejection_of(error).detail) from None
        check(made)
        return made


def _rejection_of(error: BaseException, kind: RejectKind) -> Rejection:
    if is_for_memory(error):
        raise MemoryError from None
    return rejection_of(error, kind)
