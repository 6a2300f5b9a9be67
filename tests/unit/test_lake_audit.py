"""The audit's judgement on what was counted. On real tables: tests/integration/test_lake_audit_on_spark.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from penstock.domain.lake.partition import Partition
from penstock.lake.audit_rules import (
    LedgerRows,
    Moving,
    PartitionRead,
    TableRows,
    Unlanded,
    covered,
    half_landed,
    late_problems,
    position_problems,
    row_problems,
)

READ = PartitionRead("t", 0, first=5, end=15, rows=10, ignored=0, gaps=0, lost=0)
IN_LEDGER = LedgerRows("events", "t", 0, rows=10, offset_sum=Decimal(sum(range(5, 15))))
IN_TABLE = TableRows(
    "events", "events", "t", 0, 10, 10, IN_LEDGER.offset_sum, least=5, most=14, first_doubled=None
)


def can(_writer: str, _batch: int) -> bool:
    return True


def cannot(_writer: str, _batch: int) -> bool:
    return False


def test_what_the_tables_hold_is_what_the_ledger_says() -> None:
    assert [*row_problems([READ], [IN_LEDGER], [IN_TABLE])] == []
    assert [*row_problems([], [], [])] == []


@pytest.mark.parametrize(
    ("held", "problem"),
    [
        (
            replace(IN_TABLE, rows=9, distinct_rows=9),
            "1 of the 10 rows of t-0 in the ledger are missing",
        ),
        (replace(IN_TABLE, rows=11, first_doubled=7), "1 rows of t-0 are duplicates"),
        (replace(IN_TABLE, rows=12, distinct_rows=12), "holds 2 rows of t-0 that are not in the"),
        (replace(IN_TABLE, offset_sum=Decimal(1)), "rows of t-0 differ from those in the ledger"),
        (replace(IN_TABLE, most=15), "rows of t-0 differ from those in the ledger"),
        (replace(IN_TABLE, least=4), "rows of t-0 differ from those in the ledger"),
    ],
)
def test_every_kind_of_problem_is_reported(held: TableRows, problem: str) -> None:
    (message,) = row_problems([READ], [IN_LEDGER], [held])
    assert problem in message
    assert message.startswith("events: ")


def test_a_row_doubled_does_not_hide_one_that_is_missing() -> None:
    held = replace(IN_TABLE, rows=10, distinct_rows=9, first_doubled=7)
    doubled, missing = row_problems([READ], [IN_LEDGER], [held])
    assert "duplicates" in doubled
    assert "missing" in missing


def test_a_table_that_lacks_a_partition_and_one_that_nobody_wrote() -> None:
    (missing,) = row_problems([READ], [IN_LEDGER], [])
    assert "10 of the 10 rows of t-0 in the ledger are missing" in missing
    stray = replace(IN_TABLE, table="rejects", other="rejects")
    (strays,) = row_problems([READ], [IN_LEDGER], [IN_TABLE, stray])
    assert strays.startswith("rejects: holds 10 rows")


def test_rows_of_a_topic_that_the_ledger_does_not_know() -> None:
    foreign = replace(IN_TABLE, topic="other")
    (problem,) = row_problems([READ], [IN_LEDGER], [IN_TABLE, foreign])
    assert "holds 10 rows of other-0 that are not in the ledger" in problem


def test_rows_in_two_tables_are_one_problem() -> None:
    """They belong to one of the two, and nothing here tells to which."""
    whole = replace(IN_TABLE, rows=9, distinct_rows=9, offset_sum=IN_LEDGER.offset_sum - 7)
    both = replace(
        IN_TABLE,
        other="rejects",
        rows=2,
        distinct_rows=1,
        offset_sum=Decimal(7),
        least=7,
        most=7,
        first_doubled=7,
    )
    (problem,) = row_problems([READ], [IN_LEDGER], [whole, both])
    assert problem == "events and rejects: 1 rows of t-0 are in both (offsets from 7)"
    without = replace(whole, rows=8, distinct_rows=8)
    problems = [*row_problems([READ], [IN_LEDGER], [without, both])]
    assert any("events: 1 of the 10 rows of t-0" in one for one in problems)


# --- rows of a reland that has not removed them from the rejects yet -----------------------------------

# It moves two rows, 7 and 8, to `events`, which has them; the rejects had 3 there before.
MOVING = Moving("rejects", "events", "t", 0, rows=2)
REJECTS_IN_LEDGER = LedgerRows("rejects", "t", 0, rows=3, offset_sum=Decimal(6 + 7 + 8))
EVENTS = replace(IN_TABLE, rows=8, distinct_rows=8, offset_sum=IN_LEDGER.offset_sum - 7 - 8)
REJECTS = TableRows("rejects", "rejects", "t", 0, 1, 1, Decimal(6), 6, 6, None)
BOTH = TableRows("events", "rejects", "t", 0, 4, 2, Decimal(7 + 8), 7, 8, first_doubled=7)


def judged(*held: TableRows, moving: tuple[Moving, ...] = (MOVING,)) -> list[str]:
    return [*row_problems([READ], [IN_LEDGER, REJECTS_IN_LEDGER], held, moving)]


def test_rows_that_a_half_landed_reland_moves_are_in_both_tables() -> None:
    assert judged(EVENTS, REJECTS, BOTH) == []
    assert "2 rows of t-0 are in both" in judged(EVENTS, REJECTS, BOTH, moving=())[0]


def test_it_explains_only_rows_of_its_tables_and_partition() -> None:
    elsewhere = replace(MOVING, partition=1), replace(MOVING, table="others")
    assert "2 rows of t-0 are in both" in judged(EVENTS, REJECTS, BOTH, moving=elsewhere)[0]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        # One more is in both.
        (
            [
                replace(EVENTS, rows=7, distinct_rows=7, offset_sum=EVENTS.offset_sum - 6),
                replace(BOTH, rows=6, distinct_rows=3, offset_sum=BOTH.offset_sum + 6),
            ],
            "1 rows of t-0 are in both (offsets from 7), beyond the 2",
        ),
        # One of them is in one of the two tables twice.
        ([EVENTS, REJECTS, replace(BOTH, rows=5)], "1 rows of t-0 are in both"),
        # As many as it moves, but 6 instead of 8.
        (
            [
                EVENTS,
                replace(REJECTS, offset_sum=Decimal(8), least=8, most=8),
                replace(BOTH, offset_sum=Decimal(6 + 7), least=6, most=7),
            ],
            "events: rows of t-0 differ from those in the ledger",
        ),
        # 8 did not come, or has left the rejects already.
        (
            [
                EVENTS,
                replace(REJECTS, rows=2, distinct_rows=2, offset_sum=Decimal(6 + 8), most=8),
                replace(BOTH, rows=2, distinct_rows=1, offset_sum=Decimal(7), most=7),
            ],
            "events: 1 of the 10 rows of t-0 in the ledger are missing",
        ),
        (
            [
                replace(EVENTS, rows=9, distinct_rows=9, offset_sum=IN_LEDGER.offset_sum - 7),
                REJECTS,
                replace(BOTH, rows=2, distinct_rows=1, offset_sum=Decimal(7), most=7),
            ],
            "rejects: 1 of the 3 rows of t-0 in the ledger are missing",
        ),
    ],
)
def test_anything_beyond_is_a_problem(changed: list[TableRows], problem: str) -> None:
    (message,) = judged(*changed)
    assert problem in message


# --- rows and positions of the ledger ------------------------------------------------------------------


def test_the_ledgers_rows_end_where_its_transactions_say() -> None:
    name = Partition("t", 0)
    assert [*position_problems([], {})] == []
    assert [*position_problems([READ], {name: 15})] == []
    (removed,) = position_problems([READ], {name: 20})
    assert removed.startswith("t-0: the ledger's position is 20, but its rows end at 15: rows were")
    assert "removed, or it was set back" in removed
    (added,) = position_problems([READ], {name: 9})
    assert "position is 9, but its rows end at 15: rows were added" in added
    (foreign,) = position_problems([READ], {})
    assert "t-0: the ledger has no position for it, but its rows end at 15" in foreign
    (gone,) = position_problems([READ], {name: 15, Partition("t", 1): 4})
    assert "t-1: the ledger's position is 4, but it has no rows: rows were removed" in gone


# --- micro-batches that a table does not have --------------------------------------------------------

HALF = Unlanded(
    "events", "abcdef0123456789", late_batches=0, first_late=None, late_rows=0, batch=7, rows=3
)
LATE = replace(HALF, late_batches=2, first_late=5, late_rows=6, batch=None, rows=0)


def test_the_last_micro_batch_of_a_writer_may_be_half_landed() -> None:
    assert [*late_problems([HALF], can)] == []
    (note,) = half_landed([HALF], can)
    assert "3 rows of micro-batch 7 of writer abcdef01 are half landed" in note
    assert "next start completes them" in note


def test_rows_that_are_to_leave_a_table_are_half_moved() -> None:
    leaving = replace(HALF, table="rejects", rows=-3)
    (note,) = half_landed([leaving], can)
    assert "rejects: 3 rows of micro-batch 7 of writer abcdef01 are half moved" in note
    (problem,) = late_problems([leaving], cannot)
    assert "rejects: still has 3 rows of micro-batch 7" in problem and "remove them" in problem


def test_it_is_a_problem_if_nobody_can_complete_it() -> None:
    (problem,) = late_problems([HALF], cannot)
    assert "events: lacks 3 rows of micro-batch 7" in problem and "is gone" in problem
    assert [*half_landed([HALF], cannot)] == []


@pytest.mark.parametrize("can_complete", [can, cannot])
def test_earlier_micro_batches_must_be_there(can_complete: Callable[[str, int], bool]) -> None:
    (problem,) = late_problems([LATE], can_complete)
    assert "events: lacks 2 micro-batches" in problem and "from micro-batch 5 on" in problem
    assert [*half_landed([LATE], can_complete)] == []


def test_offsets_of_several_truncations_are_counted_once() -> None:
    assert covered([]) == 0
    assert covered([(5, 10), (20, 21)]) == 6
    assert covered([(5, 10), (5, 10), (8, 12), (0, 3)]) == 10
    assert covered([(0, 10), (2, 4)]) == 10
