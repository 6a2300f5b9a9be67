"""The full factorial design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from penstock.domain.designs.design import Combination, Design


@dataclass(frozen=True, kw_only=True)
class FullDesign(Design):
    """Every combination."""

    kind = "full"

    def combinations(self, matrix: Mapping[str, Sequence[Any]], seed: int) -> list[Combination]:
        return [dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())]
