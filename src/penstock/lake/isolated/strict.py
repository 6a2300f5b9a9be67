"""Type checks that are stricter than Arrow's, which truncates 1.5 to an integer, a date or a
timestamp, makes 1.0 of True and a day of pandas' NaT, and accepts text for an array.

Arrow also decides by the first struct of a column what the keys of all of them are: after one with
bytes as keys, others with text become nulls. What a record decodes to must not depend on its
neighbours, so each struct is rebuilt with the keys of the schema.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa

# The largest number that rounds to a finite float32.
_MOST_FLOAT32 = 3.4028235677973366e38
Convert = Callable[[Any], Any]


def strict(kind: pa.DataType) -> Convert | None:
    """A converter for values of this type that are not None; None: Arrow is strict enough.

    The converter raises TypeError, ValueError or OverflowError.
    """
    if pa.types.is_integer(kind):
        return _integer
    if pa.types.is_float32(kind):
        return _float32
    if pa.types.is_float64(kind):
        return _float64
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_timestamp(kind):
        return _timestamp
    if pa.types.is_list(kind):
        return _list_of(strict(kind.value_type))
    if pa.types.is_struct(kind):
        return _struct_of({field.name: strict(field.type) for field in kind})
    return None


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool):
        raise TypeError("got a boolean instead of an integer")
    return operator.index(value)  # NumPy's integers, but no float


def _float64(value: Any) -> Any:
    if isinstance(value, bool):
        raise TypeError("got a boolean instead of a number")
    return value


def _float32(value: Any) -> Any:
    if isinstance(value, bool):
        raise TypeError("got a boolean instead of a number")
    if isinstance(value, (int, float)) and _MOST_FLOAT32 <= abs(value) < math.inf:
        raise OverflowError(f"{value} is too large for a float")
    return value


def _date(value: Any) -> Any:
    if type(value) is date:
        return value
    if isinstance(value, datetime):  # Arrow would drop its time
        raise TypeError(f"got {type(value).__name__} instead of a date")
    if isinstance(value, date):
        return value
    try:
        return _integer(value)
    except TypeError:
        what = type(value).__name__
        raise TypeError(f"got {what} instead of a date, or of days as an integer") from None


def _timestamp(value: Any) -> Any:
    if type(value) is datetime:
        return value
    if isinstance(value, datetime):
        if getattr(value, "nanosecond", 0) > 0:  # of pandas; Arrow would drop them
            raise ValueError("got nanoseconds, and a timestamp has microseconds")
        return value
    try:
        return _integer(value)
    except TypeError:
        what = type(value).__name__
        raise TypeError(
            f"got {what} instead of a datetime, or of microseconds as an integer"
        ) from None


def _list_of(convert: Convert | None) -> Convert:
    def convert_list(value: Any) -> list[Any]:
        if hasattr(value, "tolist"):  # NumPy's arrays
            value = value.tolist()
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise TypeError(f"got {type(value).__name__} instead of a list")
        if convert is None:
            return list(value)
        return [None if item is None else convert(item) for item in value]

    return convert_list


def _struct_of(fields: Mapping[str, Convert | None]) -> Convert:
    def convert_struct(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise TypeError(f"got {type(value).__name__} instead of a dict")
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"got a dict with the key {key!r}, which is not text")
        made = {}
        for name, convert in fields.items():
            inner = value.get(name)
            made[name] = inner if inner is None or convert is None else convert(inner)
        return made

    return convert_struct
