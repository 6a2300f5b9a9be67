"""A figure that falls, or rises, along the axis."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from penstock.domain.shapes.places import axis_text
from penstock.domain.shapes.shape import CurvePoint, Finding, Shape
from penstock.domain.value import Bound, Doc


@dataclass(frozen=True, kw_only=True)
class _Monotone(Shape, ABC):
    """From the first point to the last, by at least `by`, going back by at most `tolerance`."""

    by: Annotated[float, Bound(ge=0), Doc("least change from the first to the last point")] = 0.0
    tolerance: Annotated[
        float, Bound(ge=0), Doc("how far a point may lie on the wrong side of the one before")
    ] = 0.0

    def _judge(self, points: Sequence[CurvePoint], sign: int, verb: str) -> Finding:
        means = [point.mean for point in points]
        change = sign * (means[-1] - means[0])
        back = max((sign * (a - b) for a, b in pairwise(means)), default=0.0)
        holds = len(points) > 1 and change > 0 and change >= self.by and back <= self.tolerance
        path = " → ".join(f"{mean:.4g}" for mean in means)
        does = f"{verb}s" if holds else f"does not {verb}"
        enough = f" by at least {self.by:g}" if self.by else ""
        return Finding(
            holds=holds,
            sentence=f"{self.figure} {does}{enough} over {self.over} "
            f"{axis_text(points[0].x)} … {axis_text(points[-1].x)}: {path}",
        )


@dataclass(frozen=True, kw_only=True)
class FallsShape(_Monotone):
    """The figure gets smaller along the axis."""

    kind = "falls"

    def check(self, points: Sequence[CurvePoint]) -> Finding:
        return self._judge(points, -1, "fall")


@dataclass(frozen=True, kw_only=True)
class RisesShape(_Monotone):
    """The figure gets larger along the axis."""

    kind = "rises"

    def check(self, points: Sequence[CurvePoint]) -> Finding:
        return self._judge(points, 1, "rise")
