"""What a measurement gives: figures, distributions, warnings. Joined to the result of a point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.domain.metrics import Distribution, Estimate


@dataclass(frozen=True)
class Measured:
    """Figures by name, with their unit in it."""

    figures: Mapping[str, Estimate]
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def joined(self, other: Measured) -> Measured:
        return Measured(
            {**self.figures, **other.figures},
            {**self.distributions, **other.distributions},
            (*self.warnings, *other.warnings),
        )
