"""Decodes values in a decoder process, and rejects records that end the process.

The process publishes which record it is working on, so the one at fault is known. That record is
tried once more, alone in a new process: the old one may have been killed, the machine may have
stalled, or other processes may have used the memory. If it fails again, it is rejected, and the
others are decoded by a new process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.domain.errors import LaneBlocked
from penstock.lake.decoded import Decoded, Limits, RecordValue
from penstock.lake.isolated import wire
from penstock.lake.isolated.process import CannotStart, DecoderProcess, Died, Recipe
from penstock.lake.rejection import Rejection, RejectKind

# Decoded at a time: rows in Python are many times larger than their bytes.
_MOST_RECORDS, _MOST_BYTES = 5000, 4_000_000
_TRIES = 2


@dataclass(frozen=True)
class _Part:
    """Values from `start` to `stop`. `deaths`: how often this record, alone, ended the process."""

    start: int
    stop: int
    is_careful: bool = False
    deaths: int = 0

    def __len__(self) -> int:
        return self.stop - self.start


class DecoderHost:
    """The decoder process of a lane, for all of its streams. Started when it is needed, and again
    when it has died; kept from one micro-batch to the next."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._recipes: list[Recipe] = []
        self._process: DecoderProcess | None = None
        # Number of processes started so far, to tell whether it is still the same one.
        self.generation = 0
        # Time that records which ended the process have taken, of one lane's part.
        self.lost_s = 0.0

    @property
    def is_spent(self) -> bool:
        """Whether bad records have taken so much time that the lane should land what it has."""
        return self.lost_s > self.limits.lost_s

    def add(self, recipe: Recipe) -> Isolated:
        self.close()  # a running process would not know the new recipe
        self._recipes.append(recipe)
        return Isolated(self, len(self._recipes) - 1, recipe.schema)

    def start(self) -> None:
        """Start the process unless it runs. Raises `CannotStart`."""
        if self._process is None or not self._process.is_alive:
            self.close()
            self._process = DecoderProcess(self._recipes, self.limits)
            self.generation += 1

    def renew(self) -> None:
        """Make sure that the next request is the first of its process."""
        if self._process is not None and self._process.requests:
            self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def ask(self, meta: Mapping[str, Any], table: pa.Table) -> tuple[dict[str, Any], pa.Table]:
        """Send a request to the started process. Raises `Died`."""
        assert self._process is not None
        try:
            answer, columns = self._process.ask(meta, table)
        except Died:
            self._process = None
            raise
        if answer["grown_mb"] > self.limits.record_memory_mb / 2:
            self.close()  # a function's cache, for example; a new process has all its memory
        return answer, columns


class Isolated:
    """One recipe of a host."""

    def __init__(self, host: DecoderHost, index: int, schema: pa.Schema) -> None:
        self._host, self._index, self._schema = host, index, schema
        # Registry schemas that the process of this generation knows.
        self._known: dict[int, str | Rejection] = {}
        self._generation = -1
        # Schemas that ended the process when they were parsed → how often.
        self._schema_deaths: dict[int, int] = {}
        self._blamed: dict[int, Rejection] = {}

    def decode(
        self, values: Sequence[RecordValue], schemas: Mapping[int, str | Rejection] | None = None
    ) -> Decoded:
        """`schemas`: number → schema text of the registry, or why there is none."""
        # There may be any number of missing schemas; they are sent again when a record names them.
        self._known = {n: text for n, text in self._known.items() if isinstance(text, str)}
        # Parts are popped from the end of the list, so tables come in the order of the values.
        return self._decode(values, schemas or {}, [*_parts(values)][::-1])

    def _decode(
        self,
        values: Sequence[RecordValue],
        schemas: Mapping[int, str | Rejection],
        todo: Sequence[_Part],
    ) -> Decoded:
        tables = [self._schema.empty_table()]
        rejected: dict[int, Rejection] = {}
        ignored: set[int] = set()
        parts, size_bytes = [*todo], 0
        first = parts[-1].start if parts else 0
        while parts and size_bytes < self._host.limits.decoded_bytes:
            if self._host.is_spent and parts[-1].start > first:
                break
            part, asked_s = parts.pop(), time.monotonic()
            start = part.start - first
            if part.deaths:
                self._host.renew()
            try:
                decoded = self._ask(values[part.start : part.stop], part.is_careful, schemas)
            except Died as died:
                self._host.lost_s += time.monotonic() - asked_s
                left = _after(part, died)
                if not left:
                    rejected[start] = died.rejection
                parts.extend(reversed(left))
                continue
            tables.append(decoded.columns)
            size_bytes += decoded.columns.nbytes
            rejected |= {start + i: why for i, why in decoded.rejected.items()}
            ignored |= {start + i for i in decoded.ignored}
        return Decoded(
            pa.concat_tables(tables),
            rejected,
            frozenset(ignored),
            (parts[-1].start if parts else len(values)) - first,
            partial(self._decode, values, schemas, parts) if parts else None,
        )

    def _ask(
        self,
        values: Sequence[RecordValue],
        is_careful: bool,
        schemas: Mapping[int, str | Rejection],
    ) -> Decoded:
        try:
            self._host.start()
        except CannotStart as error:
            raise LaneBlocked(error.message, error.fix) from None
        if self._generation != self._host.generation:
            self._generation, self._known = self._host.generation, {}
        new = {n: schema for n, schema in schemas.items() if self._known.get(n) != schema}
        sent = {n: self._blamed.get(n, schema) for n, schema in new.items()}
        learn = [n for n, schema in sent.items() if isinstance(schema, str)]
        blamed = [(n, why) for n, why in sent.items() if isinstance(why, Rejection)]
        meta = {
            "recipe": self._index,
            "is_careful": is_careful,
            "schemas": [(n, sent[n]) for n in learn],
            "blamed": [(n, str(why.kind), why.detail) for n, why in blamed],
        }
        table = pa.table({"value": pa.array(values, pa.binary())})
        try:
            answer, columns = self._host.ask(meta, table)
        except Died as died:
            if died.at <= wire.LEARNING:
                self._blame(learn[wire.LEARNING - died.at], died)
            raise
        self._known |= new
        for n in learn:
            self._schema_deaths.pop(n, None)
        return Decoded(
            columns,
            {place: Rejection(RejectKind(kind), why) for place, kind, why in answer["rejected"]},
            frozenset(answer["ignored"]),
        )

    def _blame(self, number: int, died: Died) -> None:
        deaths = self._schema_deaths[number] = self._schema_deaths.get(number, 0) + 1
        if deaths >= _TRIES:
            detail = f"schema {number} cannot be parsed: it {died.rejection.detail}"
            self._blamed[number] = Rejection(RejectKind.UNKNOWN_SCHEMA, detail)


def _parts(values: Sequence[RecordValue]) -> Iterator[_Part]:
    start, size = 0, 0
    for place, value in enumerate(values):
        if size >= _MOST_BYTES or place - start >= _MOST_RECORDS:
            yield _Part(start, place)
            start, size = place, 0
        size += len(value or b"")
    if len(values) > start:
        yield _Part(start, len(values))


def _after(part: _Part, died: Died) -> list[_Part]:
    """The remaining parts, in order; none if it was one record that is to be rejected."""
    if died.at <= wire.LEARNING:
        return [part]  # not a record's fault; a schema that does it again is not sent any more
    if len(part) == 1:
        deaths = part.deaths + 1
        return [_Part(part.start, part.stop, True, deaths)] if deaths < _TRIES else []
    if 0 <= died.at < len(part):
        guilty = part.start + died.at
        around = (
            _Part(part.start, guilty, part.is_careful),
            _Part(guilty, guilty + 1, True, 1),
            _Part(guilty + 1, part.stop, part.is_careful),
        )
        return [piece for piece in around if len(piece)]
    # Not known which: one by one, and in halves in case they are too much together.
    middle = (part.start + part.stop) // 2
    return [_Part(part.start, middle, True), _Part(middle, part.stop, True)]
