"""The star: one axis at a time, a screen for which axes matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.domain.designs.design import Combination, Design


@dataclass(frozen=True, kw_only=True)
class StarDesign(Design):
    """The first value of every axis, then each axis through its other values alone: far fewer cells
    than all combinations. It shows which axes matter, and not how they act together."""

    kind = "star"

    def combinations(self, matrix: Mapping[str, Sequence[Any]], seed: int) -> list[Combination]:
        base = {axis: values[0] for axis, values in matrix.items()}
        others = [{**base, axis: value} for axis, values in matrix.items() for value in values[1:]]
        return [base, *others]
