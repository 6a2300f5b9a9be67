"""How many times the figure at one place is the figure at another."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.domain.shapes.pair import Pair


@dataclass(frozen=True, kw_only=True)
class RatioShape(Pair):
    """figure(of) / figure(to) is within the limits. Use `difference` where both may be 0."""

    kind = "ratio"

    def _compare(self, first: float, second: float) -> tuple[float | None, str]:
        if not second:
            return None, "has no ratio to that of 0 at"
        return first / second, f"is {first / second:.4g} times that at"
