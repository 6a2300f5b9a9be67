"""By how much the figure at one place exceeds the figure at another."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.domain.shapes.pair import Pair


@dataclass(frozen=True, kw_only=True)
class DifferenceShape(Pair):
    """figure(of) - figure(to) is within the limits; negative where `of` has less."""

    kind = "difference"

    def _compare(self, first: float, second: float) -> tuple[float | None, str]:
        return first - second, f"is {first - second:+.4g} from that at"
