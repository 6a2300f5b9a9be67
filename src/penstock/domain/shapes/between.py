"""A figure that stays between two limits, or on one side of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from penstock.domain.shapes.limits import Limits
from penstock.domain.shapes.places import Place, axis_text, find, nowhere
from penstock.domain.shapes.shape import CurvePoint, Finding, Shape
from penstock.domain.value import Doc


@dataclass(frozen=True, kw_only=True)
class BetweenShape(Limits, Shape):
    """The figure is within its limits at every named place."""

    kind = "between"
    at: Annotated[tuple[Place, ...], Doc("places on the axis; all of it if absent")] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        return self.at

    def check(self, points: Sequence[CurvePoint]) -> Finding:
        judged = list(points)
        if self.at:
            chosen = [point for place in self.at if (point := find(points, place)) is not None]
            if len(chosen) < len(self.at):
                return nowhere(self.figure, self.over, self.places, points)
            judged = chosen
        holds = bool(judged) and all(self.allow(point.mean) for point in judged)
        values = ", ".join(f"{point.mean:.4g}" for point in judged)
        places = ", ".join(axis_text(point.x) for point in judged)
        return Finding(
            holds=holds,
            sentence=f"{self.figure} {'is' if holds else 'is not'} {self.expectation} "
            f"at {self.over} {places}: {values}",
        )
