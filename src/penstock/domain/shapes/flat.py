"""A figure that does not change along the axis, or along a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from penstock.domain.shapes.places import Place, axis_text, is_at, nowhere
from penstock.domain.shapes.shape import CurvePoint, Finding, Shape
from penstock.domain.value import Bound, Doc


@dataclass(frozen=True, kw_only=True)
class FlatShape(Shape):
    """Every point differs from the mean of all by at most `within` times that mean."""

    kind = "flat"
    within: Annotated[float, Bound(gt=0, lt=1), Doc("share of the mean, such as 0.1")]
    first: Annotated[Place | None, Doc("where the flat part begins; at the first point")] = None
    last: Annotated[Place | None, Doc("where it ends; at the last point")] = None

    @property
    def places(self) -> tuple[Place, ...]:
        return tuple(place for place in (self.first, self.last) if place is not None)

    def check(self, points: Sequence[CurvePoint]) -> Finding:
        begins = _index(points, self.first, 0)
        closes = _index(points, self.last, len(points) - 1)
        if begins is None or closes is None:
            return nowhere(self.figure, self.over, self.places, points)
        part = points[begins : closes + 1]
        means = [point.mean for point in part]
        if len(means) < 2:
            there = f"{self.over} {axis_text(points[begins].x)}"
            return Finding(
                holds=False,
                sentence=f"{self.figure}: a flat part needs at least two points, not {there}",
            )
        centre = sum(means) / len(means)
        worst = max(abs(mean - centre) for mean in means)
        holds = worst <= self.within * abs(centre)
        path = " → ".join(f"{mean:.4g}" for mean in means)
        return Finding(
            holds=holds,
            sentence=f"{self.figure} is {'' if holds else 'not '}flat within {self.within:.0%} "
            f"over {self.over} {axis_text(part[0].x)} … {axis_text(part[-1].x)}: {path}",
        )


def _index(points: Sequence[CurvePoint], place: Place | None, otherwise: int) -> int | None:
    if place is None:
        return otherwise
    return next((i for i, point in enumerate(points) if is_at(point, place)), None)
