"""A figure that hardly changes up to a place, and a lot beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from penstock.domain.shapes.places import Place, axis_text, find, nowhere
from penstock.domain.shapes.shape import CurvePoint, Finding, Shape
from penstock.domain.value import Bound, Doc


@dataclass(frozen=True, kw_only=True)
class KneeShape(Shape):
    """Up to `at` no point is further than `before` from the first; from there to the last point
    the figure changes by `after` or more: upwards if `after` is positive, else downwards."""

    kind = "knee"
    at: Annotated[Place, Doc("the place where it bends")]
    before: Annotated[float, Bound(ge=0), Doc("largest change up to there, either way")]
    after: Annotated[float, Doc("least change from there to the end; negative: a fall")]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.after != 0, "after", "must not be 0: then there would be no knee")

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.at,)

    def check(self, points: Sequence[CurvePoint]) -> Finding:
        bend = find(points, self.at)
        if bend is None:
            return nowhere(self.figure, self.over, self.places, points)
        upto = [point.mean for point in points[: points.index(bend) + 1]]
        rest = points[-1].mean - bend.mean
        is_calm = max(abs(mean - upto[0]) for mean in upto) <= self.before
        has_bent = rest >= self.after if self.after > 0 else rest <= self.after
        holds = len(points) > len(upto) and is_calm and has_bent
        path = " → ".join(f"{point.mean:.4g}" for point in points)
        return Finding(
            holds=holds,
            sentence=f"{self.figure} {'has a' if holds else 'has no'} knee at {self.over} "
            f"{axis_text(bend.x)} (up to {self.before:g} before, {self.after:+g} after): {path}",
        )
