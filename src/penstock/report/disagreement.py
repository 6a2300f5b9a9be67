"""Repeats that differ by more than their own intervals allow: then no mean of them is a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.measure import batch_means
from penstock.report import numbers
from penstock.report.figures import (
    LOST_SHARE,
    MEAN_LATENCY,
    P50_LATENCY,
    P99_LATENCY,
    THROUGHPUT,
    Figure,
)
from penstock.report.shown import Side

_LOOKED_AT = (MEAN_LATENCY, P50_LATENCY, P99_LATENCY, THROUGHPUT, LOST_SHARE)


@dataclass(frozen=True)
class Range:
    """One figure over the repeats of a side, from the smallest to the largest."""

    figure: str
    title: str
    unit: str
    smallest: float
    largest: float
    p_value: float  # how likely runs of one and the same thing differ that much

    @property
    def text(self) -> str:
        """mean latency 14 to 1,875 ms."""
        ends = numbers.bare(self.smallest, self.unit), numbers.quantity(self.largest, self.unit)
        return f"{self.title} {ends[0]} to {ends[1]}"


@dataclass(frozen=True)
class Disagreement:
    """The figures of one side in which its repeats disagree."""

    label: str
    repeats: int
    ranges: tuple[Range, ...]
    sentence: str


def disagreements(sides: Sequence[Side]) -> tuple[Disagreement, ...]:
    """One for each side whose repeats disagree. Times are those of steady runs."""
    found = []
    repeated = [side for side in sides if not side.problems and len(side.used) > 1]
    for side in repeated:
        looked_at = [_range(side, figure, len(repeated)) for figure in _LOOKED_AT]
        ranges = tuple(r for r in looked_at if r is not None)
        if ranges:
            found.append(Disagreement(side.label, len(side.used), ranges, _sentence(side, ranges)))
    return tuple(found)


def _range(side: Side, figure: Figure, cells: int) -> Range | None:
    found = batch_means.disagreement(side.estimates(figure), cells)
    if found is None:
        return None
    return Range(
        figure.name, figure.title, figure.unit, found.smallest, found.largest, found.p_value
    )


def _sentence(side: Side, ranges: Sequence[Range]) -> str:
    return (
        f"The {len(side.used)} repeats of {side.label} disagree by more than their own intervals "
        f"allow: {', '.join(each.text for each in ranges)}."
    )
