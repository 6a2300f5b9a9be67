"""Which values of a function its columns take, by the rules of docs/lake.md."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock.lake.arrow_types import arrow_schema
from penstock.lake.isolated.strict import strict

DAY = datetime.date(2020, 9, 13)
TIME = datetime.datetime(2020, 9, 13, 12, 26, 40, 5, tzinfo=datetime.UTC)
NANOSECOND = pd.Timestamp(TIME) + pd.Timedelta(1, unit="ns")


def made(kind: str, value: Any) -> Any:
    """What a column of this type gets. Raises as the converter or Arrow does."""
    column = arrow_schema({"x": kind}).field("x").type
    convert = strict(column)
    return pa.array([value if convert is None else convert(value)], column)[0].as_py()


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("timestamp", TIME, TIME),
        ("timestamp", TIME.replace(tzinfo=None), TIME),
        ("timestamp", TIME.astimezone(datetime.timezone(datetime.timedelta(hours=2))), TIME),
        ("timestamp", pd.Timestamp(TIME), TIME),
        ("timestamp", 1_600_000_000_000_005, TIME),
        ("timestamp", np.int64(1_600_000_000_000_005), TIME),
        ("date", DAY, DAY),
        ("date", 18_518, DAY),
        ("date", np.int32(18_518), DAY),
        ("double", 1.5, 1.5),
        ("double", np.float32(1.5), 1.5),
        ("double", 5, 5.0),
        ("double", np.int64(5), 5.0),
        ("double", math.inf, math.inf),
        ("float", 5, 5.0),
        ("array<timestamp>", [TIME], [TIME]),
        ("struct<d:date>", {"d": DAY}, {"d": DAY}),
    ],
)
def test_a_value_is_taken_as_it_is(kind: str, value: Any, expected: Any) -> None:
    assert made(kind, value) == expected


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("timestamp", 1_600_000_000.75, "got float instead of a datetime"),
        ("timestamp", 1_600_000_000.0, "got float instead of a datetime"),
        ("timestamp", math.nan, "got float"),
        ("timestamp", Decimal("1.5"), "got Decimal"),
        ("timestamp", True, "got bool"),
        ("timestamp", DAY, "got date instead of a datetime"),
        ("timestamp", "2020-09-13", "got str"),
        ("timestamp", np.array(1.5), "got ndarray"),
        ("timestamp", NANOSECOND, "nanoseconds"),
        ("timestamp", pd.NaT, "NaT"),
        ("date", 18518.9, "got float instead of a date"),
        ("date", 18518.0, "got float instead of a date"),
        ("date", np.float64(18518.9), "got float64"),
        ("date", Decimal("1.5"), "got Decimal"),
        ("date", True, "got bool"),
        ("date", np.True_, "got bool"),
        ("date", TIME, "got datetime instead of a date"),
        ("date", pd.NaT, "got NaTType instead of a date"),
        ("date", 10**10, "too large"),
        ("double", True, "got a boolean instead of a number"),
        ("double", np.True_, "Could not convert"),
        ("double", "1.5", "Could not convert"),
        ("double", 2**53 + 1, "outside of the range"),
        ("float", False, "got a boolean instead of a number"),
        ("array<double>", [1.5, True], "got a boolean"),
        ("array<timestamp>", [1.5], "got float"),
        ("struct<d:date>", {"d": 1.5}, "got float"),
    ],
)
def test_a_value_that_would_change_is_refused(kind: str, value: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError), match=words):
        made(kind, value)
