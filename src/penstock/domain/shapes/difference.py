"""By how much the figure at one place exceeds the figure at another."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.domain.shapes.pair import Pair


@dataclass(frozen=True, kw_only=True)
class Difference(Pair):
    """figure(of) - figure(to) lies within the limits; negative where `of` has less."""

    kind = "difference"

    def _compare(self, one: float, other: float) -> tuple[float | None, str]:
        return one - other, f"is {one - other:+.4g} from that at"
