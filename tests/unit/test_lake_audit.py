"""The audit's judgement on what Spark counted. On real tables: tests/integration/test_lake.py."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from penstock.pipeline.lake.audit import Held, Read, Said, row_problems

READ = Read("t", 0, first=5, end=15, rows=10, ignored=0, gaps=0, lost=0)
SAID = Said("events", "t", 0, rows=10, offset_sum=Decimal(sum(range(5, 15))), version=3)
HELD = Held("events", "t", 0, 10, 10, SAID.offset_sum, least=5, most=14, first_doubled=None)


def test_what_the_tables_hold_is_what_the_ledger_says() -> None:
    assert [*row_problems([READ], [SAID], [HELD])] == []
    assert [*row_problems([], [], [])] == []


@pytest.mark.parametrize(
    ("held", "problem"),
    [
        (replace(HELD, rows=9, distinct_rows=9), "1 rows of t-0 are missing of the 10"),
        (replace(HELD, rows=11, first_doubled=7), "1 rows of t-0 are there more than once"),
        (replace(HELD, rows=12, distinct_rows=12), "holds 2 rows of t-0 that are not in the"),
        (replace(HELD, offset_sum=Decimal(1)), "rows of t-0 are not those in the ledger"),
        (replace(HELD, most=15), "rows of t-0 are not those in the ledger"),
        (replace(HELD, least=4), "rows of t-0 are not those in the ledger"),
    ],
)
def test_every_way_to_be_wrong_is_said(held: Held, problem: str) -> None:
    (said,) = row_problems([READ], [SAID], [held])
    assert problem in said
    assert said.startswith("events: ")


def test_a_row_doubled_does_not_hide_one_that_is_missing() -> None:
    held = replace(HELD, rows=10, distinct_rows=9, first_doubled=7)
    doubled, missing = row_problems([READ], [SAID], [held])
    assert "more than once" in doubled
    assert "missing" in missing


def test_a_table_that_lacks_a_partition_and_one_that_nobody_wrote() -> None:
    (missing,) = row_problems([READ], [SAID], [])
    assert "10 rows of t-0 are missing" in missing
    stray = replace(HELD, table="rejects")
    (strays,) = row_problems([READ], [SAID], [HELD, stray])
    assert "holds 10 rows" in strays
