"""Two places of an axis compared with each other. The kinds are `ratio` and `difference`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from penstock.domain.shapes.limits import Limits
from penstock.domain.shapes.places import Place, axis_text, find, nowhere
from penstock.domain.shapes.shape import CurvePoint, Finding, Shape
from penstock.domain.value import Doc


@dataclass(frozen=True, kw_only=True)
class Pair(Limits, Shape, ABC):
    """The figure at `of`, seen from the figure at `to`; both may be words, such as acks."""

    of: Annotated[Place, Doc("the place that is judged")]
    to: Annotated[Place, Doc("the place it is compared with")]

    @abstractmethod
    def _compare(self, first: float, second: float) -> tuple[float | None, str]:
        """The number that the limits are for (None: there is none), and its words."""

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.of, self.to)

    def check(self, points: Sequence[CurvePoint]) -> Finding:
        first, second = find(points, self.of), find(points, self.to)
        if first is None or second is None:
            return nowhere(self.figure, self.over, self.places, points)
        number, words = self._compare(first.mean, second.mean)
        holds = number is not None and self.allow(number)
        return Finding(
            holds=holds,
            sentence=f"{self.figure} at {self.over} {axis_text(first.x)} {words} {axis_text(second.x)} "
            f"({first.mean:.4g} against {second.mean:.4g}), {'as' if holds else 'not'} "
            f"expected: {self.expectation}",
        )
