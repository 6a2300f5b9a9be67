"""Rules of the audit: problems, from the counts in ledger and tables. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from penstock.domain.lake.partition import Partition


@dataclass(frozen=True)
class PartitionRead:
    """What was read of one partition, by the ledger."""

    topic: str
    partition: int
    first: int
    end: int
    rows: int
    ignored: int
    gaps: int
    lost: int


@dataclass(frozen=True)
class LedgerRows:
    """Rows of one partition in one table, by the ledger; only micro-batches that the table has."""

    table: str
    topic: str
    partition: int
    rows: int
    offset_sum: Decimal


@dataclass(frozen=True)
class Unlanded:
    """Rows of one writer that the ledger has and one table lacks."""

    table: str
    writer: str
    # Micro-batches that must be there, since the writer has landed them or begun a later one.
    late_batches: int
    first_late: int | None
    late_rows: int
    # The last one that the writer had begun; None if the table has it.
    batch: int | None
    rows: int


@dataclass(frozen=True)
class Moving:
    """Rows of one partition that a reland has added to `table` and not yet removed from `source`."""

    source: str
    table: str
    topic: str
    partition: int
    rows: int


@dataclass(frozen=True)
class TableRows:
    """Rows of one partition that tables hold: the offsets that are only in `table` (then `other` is
    the same), or in `table` and in `other` (and perhaps in tables between them by name)."""

    table: str
    other: str
    topic: str
    partition: int
    rows: int
    distinct_rows: int
    offset_sum: Decimal
    least: int
    most: int
    first_doubled: int | None


def position_problems(
    reads: Sequence[PartitionRead], positions: Mapping[Partition, int]
) -> Iterator[str]:
    """Partitions whose ledger rows do not end at their position. One commit writes both."""
    ends = {Partition(r.topic, r.partition): r.end for r in reads}
    for name in sorted({*ends, *positions}):
        end, at = ends.get(name), positions.get(name)
        if end == at:
            continue
        rows = "it has no rows" if end is None else f"its rows end at {end}"
        if at is None:
            yield f"{name}: the ledger has no position for it, but {rows}: rows were added to it"
        else:
            why = "added to it" if end is not None and end > at else "removed, or it was set back"
            yield f"{name}: the ledger's position is {at}, but {rows}: rows were {why}"


def row_problems(
    reads: Sequence[PartitionRead],
    ledger_rows: Sequence[LedgerRows],
    table_rows: Sequence[TableRows],
    moving: Sequence[Moving] = (),
) -> Iterator[str]:
    """Differences between the rows in the tables and the rows in the ledger."""
    read_by_partition = {(r.topic, r.partition): r for r in reads}
    ledger_by_place = {(s.table, s.topic, s.partition): s for s in ledger_rows}
    table_by_place = {(h.table, h.topic, h.partition): h for h in table_rows if h.table == h.other}
    moves = {(*sorted((m.source, m.table)), m.topic, m.partition): m.rows for m in moving}
    # Offsets in two tables belong to one of them; it is not known to which.
    shared: dict[tuple[str, str, int], int] = {}
    for h in table_rows:
        if h.table == h.other:
            continue
        moved = moves.get((h.table, h.other, h.topic, h.partition), 0)
        surplus = h.rows - h.distinct_rows - min(moved, h.distinct_rows)
        if surplus:
            beyond = f", beyond the {moved} that a half-landed reland moves" if moved else ""
            yield (
                f"{h.table} and {h.other}: {surplus} rows of {h.topic}-{h.partition} are in both "
                f"(offsets from {h.first_doubled}){beyond}"
            )
        for table in (h.table, h.other):
            place = (table, h.topic, h.partition)
            if surplus:
                shared[place] = shared.get(place, 0) + h.distinct_rows
            else:  # they belong to both: each table is checked with them
                table_by_place[place] = _joined(table, table_by_place.get(place), h)
    for place in sorted({*ledger_by_place, *table_by_place}):
        table, topic, partition = place
        where = f"{topic}-{partition}"
        expected = ledger_by_place.get(place) or LedgerRows(table, topic, partition, 0, Decimal(0))
        actual = table_by_place.get(place) or TableRows(
            table, table, topic, partition, 0, 0, Decimal(0), 0, 0, None
        )
        missing, in_others = expected.rows - actual.distinct_rows, shared.get(place, 0)
        if actual.rows > actual.distinct_rows:
            yield (
                f"{table}: {actual.rows - actual.distinct_rows} rows of {where} are duplicates "
                f"(offsets from {actual.first_doubled})"
            )
        if missing > in_others:
            yield (
                f"{table}: {missing - in_others} of the {expected.rows} rows of {where} in the "
                "ledger are missing"
            )
        elif missing < 0:
            yield f"{table}: holds {-missing} rows of {where} that are not in the ledger"
        elif actual.rows:
            span = read_by_partition.get((topic, partition))
            is_within = span and span.first <= actual.least and actual.most < span.end
            is_same_sum = actual.offset_sum == expected.offset_sum or in_others
            if not (is_within and is_same_sum):
                yield f"{table}: rows of {where} differ from those in the ledger"


def _joined(table: str, own: TableRows | None, both: TableRows) -> TableRows:
    """The rows that a table holds alone, together with those that another one holds too."""
    once = replace(both, table=table, other=table, rows=both.distinct_rows, first_doubled=None)
    if own is None:
        return once
    return replace(
        own,
        rows=own.rows + once.rows,
        distinct_rows=own.distinct_rows + once.distinct_rows,
        offset_sum=own.offset_sum + once.offset_sum,
        least=min(own.least, once.least),
        most=max(own.most, once.most),
    )


def late_problems(
    unlanded: Sequence[Unlanded], can_complete: Callable[[str, int], bool]
) -> Iterator[str]:
    """Micro-batches that a table lacks and that no process will land."""
    for u in unlanded:
        if u.first_late is not None:
            yield (
                f"{u.table}: lacks {u.late_batches} micro-batches of writer {u.writer[:8]} that the "
                f"ledger has ({u.late_rows} rows, from micro-batch {u.first_late} on): commits are "
                "missing, or the table was set back"
            )
        if u.batch is not None and not can_complete(u.writer, u.batch):
            what, complete = ("lacks", "add") if u.rows >= 0 else ("still has", "remove")
            yield (
                f"{u.table}: {what} {abs(u.rows)} rows of micro-batch {u.batch}, and the checkpoint "
                f"of writer {u.writer[:8]} that would {complete} them is gone"
            )


def half_landed(
    unlanded: Sequence[Unlanded], can_complete: Callable[[str, int], bool]
) -> Iterator[str]:
    """Micro-batches that are in the ledger but not yet in all tables; this is not a problem."""
    landing = "landed: they are being landed now, or the writer's next start completes them"
    moving = "moved: a reland is removing them now, or the next one completes it"
    for u in unlanded:
        if u.batch is not None and can_complete(u.writer, u.batch):
            rows = f"{abs(u.rows)} rows of micro-batch {u.batch} of writer {u.writer[:8]}"
            yield f"{u.table}: {rows} are half {landing if u.rows >= 0 else moving}"


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """Number of offsets that are in at least one of these [start, end)."""
    total, reached = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total
