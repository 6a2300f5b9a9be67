"""What one measurement of a point gives: figures, distributions, warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.domain.metrics import Distribution, Estimate


@dataclass(frozen=True)
class PointFigures:
    """What one measurement of a point gives. Figures have their unit in their name."""

    figures: Mapping[str, Estimate]
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def joined(self, other: PointFigures) -> PointFigures:
        return PointFigures(
            {**self.figures, **other.figures},
            {**self.distributions, **other.distributions},
            (*self.warnings, *other.warnings),
        )
