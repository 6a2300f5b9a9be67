"""A scenario: the file that describes a run or, with a `matrix`, a campaign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from penstock.domain.axis import number_or_text, text_of, untied
from penstock.domain.designs import Design
from penstock.domain.designs.full import FullDesign
from penstock.domain.run import RunSpec
from penstock.domain.shapes import CurvePoint, Shape
from penstock.domain.shapes.places import axis_text, find
from penstock.domain.value import Bound, Doc, FieldError

# Fields that cannot differ from cell to cell, with the way to get what is meant.
_NO_AXIS = {
    "seed": "cannot be an axis: use `repeats`, each of which has its own seed",
    "workload.arrivals.file": "cannot be an axis alone: give `workload.arrivals` whole values, "
    "such as {kind: recorded, file: monday.txt}",
}


@dataclass(frozen=True, kw_only=True)
class Scenario(RunSpec):
    """A run to execute; with a `matrix`, a campaign: one run per combination and repeat."""

    repeats: Annotated[int, Bound(ge=1, le=1000), Doc("runs per cell, each with its own seed")] = 1
    matrix: Annotated[
        Mapping[str, tuple[Any, ...]],
        Doc(
            "field → its values, such as settings.acks: ['1', all]; a combination is a cell. "
            "{value: 50, with: {field: 3}} changes other fields along with it"
        ),
    ] = field(default_factory=dict)
    design: Annotated[Design, Doc("which combinations of the matrix are run")] = field(
        default_factory=FullDesign
    )
    fresh_cluster: Annotated[
        Literal["when-needed", "per-cell"],
        Doc(
            "when-needed: cells with the same cluster spec share one; per-cell: every cell and "
            "repeat starts its own"
        ),
    ] = "when-needed"
    repeat_first: Annotated[
        bool,
        Doc("run the first cell of a matrix once more at the end, to detect drift"),
    ] = True
    expect: Annotated[tuple[Shape, ...], Doc("expected shapes of figures over the matrix")] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            self.existing is None or self.fresh_cluster != "per-cell",
            "fresh_cluster",
            "cannot be used with `existing`: Penstock starts no cluster there",
        )
        for path, values in self.matrix.items():
            self._check_axis(path, values)
        for i, shape in enumerate(self.expect):
            for path in (shape.over, *shape.where):
                if path not in self.matrix:
                    known = ", ".join(self.matrix) or "there is no matrix"
                    fix = f"is not an axis of the matrix ({known})"
                    raise FieldError(f"expect.{i}.over", path, fix)
            for path, place in (*shape.where.items(), *((shape.over, p) for p in shape.places)):
                axis = [CurvePoint(number_or_text(text_of(v)), ()) for v in self.matrix[path]]
                if find(axis, place) is None:
                    known = ", ".join(axis_text(point.x) for point in axis)
                    raise FieldError(f"expect.{i}", place, f"is not a value of {path} ({known})")

    @staticmethod
    def _check_axis(path: str, values: tuple[Any, ...]) -> None:
        where = f"matrix.{path}"
        if not values:
            raise FieldError(where, [], "must have at least one value")
        for changed in {path, *(other for v in values for other in untied(v)[1])}:
            if changed in _NO_AXIS:
                raise FieldError(where, changed, _NO_AXIS[changed])
        texts = [text_of(value) for value in values]
        if twice := next((text for text in texts if texts.count(text) > 1), None):
            raise FieldError(where, twice, "is the name of two values; names must differ")

    @property
    def limits_ms(self) -> tuple[float, ...]:
        """The latency limits that expected shapes use."""
        head = "violation_share."
        named = (shape.figure for shape in self.expect if shape.figure.startswith(head))
        return tuple(dict.fromkeys(float(name.removeprefix(head)) for name in named))
