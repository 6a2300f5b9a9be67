"""The audit without Spark, for tests: what Spark counts is counted by hand.

So the looks and the rules can be tried on many more moments than Spark has time for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline
from penstock.lake.audit_rules import (
    LedgerRows,
    Moving,
    PartitionRead,
    TableRows,
    Unlanded,
    half_landed,
    late_problems,
    position_problems,
    row_problems,
)
from penstock.lake.snapshot import Snapshot, TableSnapshot, take
from penstock.lake.tables import position_of


@dataclass(frozen=True)
class Found:
    problems: list[str]
    half_landed: list[str]


def look(pipeline: Pipeline, between: Callable[[], None] = lambda: None) -> Found:
    """The audit. `between` happens after the tables were looked at."""

    def named(ledger: TableSnapshot) -> set[str]:
        return {entry["table"] for row in rows_of(ledger) for entry in row["tables"]}

    original = TableSnapshot.take.__func__  # type: ignore[attr-defined]
    looks = iter(range(100))

    def watched(cls: type[TableSnapshot], audited_pipeline: Pipeline, name: str) -> TableSnapshot:
        if name == pipeline.ledger_table and next(looks) == 1:
            between()
        table: TableSnapshot = original(cls, audited_pipeline, name)
        return table

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TableSnapshot, "take", classmethod(watched))
        snapshot = take(pipeline, named)
    rows = rows_of(snapshot.ledger)
    unlanded = count_unlanded(snapshot, rows)
    read, ledger_rows, moving = (
        count_read(rows),
        count_ledger_rows(snapshot, rows),
        count_moving(snapshot, rows),
    )
    problems = [
        *snapshot.problems,
        *position_problems(read, positions(snapshot.ledger, read)),
        *late_problems(unlanded, snapshot.can_complete),
        *row_problems(read, ledger_rows, count_table_rows(snapshot), moving),
    ]
    return Found(problems, [*half_landed(unlanded, snapshot.can_complete)])


def rows_of(table: TableSnapshot) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.handle.to_pyarrow_table().to_pylist()
    return rows


def count_read(rows: list[dict[str, Any]]) -> list[PartitionRead]:
    by: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by[row["topic"], row["partition"]].append(row)
    return [
        PartitionRead(
            *place,
            first=min(row["start_offset"] for row in own),
            end=max(row["end_offset"] for row in own),
            rows=sum(row["rows"] for row in own),
            ignored=0,
            gaps=0,
            lost=0,
        )
        for place, own in by.items()
    ]


def count_ledger_rows(snapshot: Snapshot, rows: list[dict[str, Any]]) -> list[LedgerRows]:
    counts: Counter[tuple[str, str, int]] = Counter()
    sums: dict[tuple[str, str, int], Decimal] = defaultdict(Decimal)
    for row in rows:
        for entry in row["tables"]:
            table = snapshot.tables.get(entry["table"])
            if table and row["batch"] <= table.last_batch(row["writer"]):
                place = (entry["table"], row["topic"], row["partition"])
                counts[place] += entry["rows"]
                sums[place] += entry["offset_sum"]
    return [LedgerRows(*place, counts[place], sums[place]) for place in counts]


def count_unlanded(snapshot: Snapshot, rows: list[dict[str, Any]]) -> list[Unlanded]:
    by: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        for entry in row["tables"]:
            writer, batch = row["writer"], row["batch"]
            table = snapshot.tables.get(entry["table"])
            is_known = batch <= max(snapshot.begun(writer), snapshot.due(writer) - 1)
            if table and table.last_batch(writer) < batch and is_known:
                by[entry["table"], writer].append((batch, entry["rows"]))
    unlanded = []
    for (name, writer), own in by.items():
        late = [(b, n) for b, n in own if b < snapshot.due(writer)]
        half = [(b, n) for b, n in own if b >= snapshot.due(writer)]
        unlanded.append(
            Unlanded(
                name,
                writer,
                late_batches=len({b for b, _ in late}),
                first_late=min((b for b, _ in late), default=None),
                late_rows=sum(n for _, n in late),
                batch=max((b for b, _ in half), default=None),
                rows=sum(n for _, n in half),
            )
        )
    return unlanded


def count_moving(snapshot: Snapshot, rows: list[dict[str, Any]]) -> list[Moving]:
    counts: Counter[tuple[str, str, str, int]] = Counter()
    for row in rows:
        has = {
            entry["table"]: row["batch"]
            <= snapshot.tables[entry["table"]].last_batch(row["writer"])
            for entry in row["tables"]
            if entry["table"] in snapshot.tables
        }
        changes = {e["table"]: e["rows"] for e in row["tables"] if e["table"] in has}
        for source in (t for t, n in changes.items() if n < 0 and not has[t]):
            for table in (t for t, n in changes.items() if n > 0 and has[t]):
                counts[source, table, row["topic"], row["partition"]] += changes[table]
    return [Moving(*place, rows=count) for place, count in counts.items()]


def positions(ledger: TableSnapshot, read: list[PartitionRead]) -> dict[Partition, int]:
    """Of the partitions that have rows: delta-rs cannot list others."""
    names = [Partition(r.topic, r.partition) for r in read]
    versions = {name: ledger.handle.transaction_version(position_of(name)) for name in names}
    return {name: at for name, at in versions.items() if at is not None}


def count_table_rows(snapshot: Snapshot) -> list[TableRows]:
    tables: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    for name, table in snapshot.tables.items():
        for row in rows_of(table):
            place = row["kafka_topic"], row["kafka_partition"], row["kafka_offset"]
            tables[place].append(name)
    by: dict[tuple[str, str, str, int], dict[int, int]] = defaultdict(dict)
    for (topic, partition, offset), names in tables.items():
        by[min(names), max(names), topic, partition][offset] = len(names)
    return [
        TableRows(
            *place,
            rows=sum(copies.values()),
            distinct_rows=len(copies),
            offset_sum=Decimal(sum(copies)),
            least=min(copies),
            most=max(copies),
            first_doubled=min((offset for offset, n in copies.items() if n > 1), default=None),
        )
        for place, copies in by.items()
    ]
