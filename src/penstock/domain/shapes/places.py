"""Places on an axis, as shapes name them: which point of a campaign is at 20, or at `all`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.domain.shapes.shape import CurvePoint, Finding

# As a scenario writes a value of an axis.
Place = str | int | float | bool


def is_at(point: CurvePoint, place: Place) -> bool:
    """Whether the point is at that place. A cell's text has six digits, so numbers are compared so."""
    text = str(place).lower() if isinstance(place, bool) else str(place)
    if isinstance(point.x, str):
        return point.x == text
    try:
        return math.isclose(point.x, float(text), rel_tol=1e-5)
    except ValueError:
        return False


def find(points: Sequence[CurvePoint], place: Place) -> CurvePoint | None:
    return next((point for point in points if is_at(point, place)), None)


def nowhere(what: str, over: str, places: Sequence[Place], points: Sequence[CurvePoint]) -> Finding:
    """The finding for a shape that names places which the axis does not have."""
    named = ", ".join(str(place) for place in places if find(points, place) is None)
    known = ", ".join(axis_text(point.x) for point in points)
    return Finding(holds=False, sentence=f"{what}: {over} has no {named}, only {known}")


def axis_text(x: float | str) -> str:
    return x if isinstance(x, str) else f"{x:g}"
