"""How many times the figure at one place is the figure at another."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.domain.shapes.pair import Pair


@dataclass(frozen=True, kw_only=True)
class Ratio(Pair):
    """figure(of) / figure(to) lies within the limits. Where both may be 0: use `difference`."""

    kind = "ratio"

    def _compare(self, one: float, other: float) -> tuple[float | None, str]:
        if not other:
            return None, "has no ratio to that of 0 at"
        return one / other, f"is {one / other:.4g} times that at"
