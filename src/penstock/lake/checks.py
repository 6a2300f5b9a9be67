"""Checks that every reader can read the columns: valid UTF-8, years 1 to 9999. Pure.

Arrow writes any bytes as text and any number as a date; delta-rs, pandas and DuckDB then refuse the
whole file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from penstock.lake.rejection import Rejected, RejectKind

# The years 1 to 9999, as Spark and Python have them.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


def check(rows: pa.Table) -> None:
    """Raise `Rejected` if a cell would make the file unreadable. It does not name the row."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid as error:
        kind = RejectKind.NOT_UTF8 if "UTF8" in str(error) else RejectKind.UNREPRESENTABLE
        raise Rejected(kind, str(error)) from None
    for name, array in leaves(rows, pa.types.is_timestamp):
        _check_between(name, array.view(pa.int64()), FIRST_US, LAST_US)
    for name, array in leaves(rows, pa.types.is_date32):
        _check_between(name, array.view(pa.int32()), _FIRST_DAY, _LAST_DAY)


def leaves(
    rows: pa.Table, is_chosen: Callable[[pa.DataType], bool]
) -> Iterator[tuple[str, pa.Array]]:
    """Arrays of these types, at any depth, each with its path: `order.lines.[].price`."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if _holds(field.type, is_chosen):
            for chunk in column.chunks:
                yield from _leaves(field.name, chunk, is_chosen)


def _holds(kind: pa.DataType, is_chosen: Callable[[pa.DataType], bool]) -> bool:
    return is_chosen(kind) or any(
        _holds(kind.field(i).type, is_chosen) for i in range(kind.num_fields)
    )


def _leaves(
    path: str, array: pa.Array, is_chosen: Callable[[pa.DataType], bool]
) -> Iterator[tuple[str, pa.Array]]:
    kind = array.type
    if is_chosen(kind):
        yield path, array
    elif pa.types.is_struct(kind):
        for field, inner in zip(kind, array.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", inner, is_chosen)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.values", array.items, is_chosen)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.[]", array.flatten(), is_chosen)


def _check_between(name: str, numbers: pa.Array, first: int, last: int) -> None:
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is not None and not first <= ends["min"] <= ends["max"] <= last:
        odd = ends["min"] if ends["min"] < first else ends["max"]
        raise Rejected(RejectKind.UNREPRESENTABLE, f"{name}: {odd} is not in the years 1 to 9999")
