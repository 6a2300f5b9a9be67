"""Repeats that differ by more than their own intervals allow: then no mean of them is a figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.report import formatting
from penstock.report.figures import LOST_SHARE, MEAN_LATENCY, P50_LATENCY, P99_LATENCY, THROUGHPUT
from penstock.report.reported_run import Side
from penstock.stats import batch_means

_LOOKED_AT = (MEAN_LATENCY, P50_LATENCY, P99_LATENCY, THROUGHPUT, LOST_SHARE)


@dataclass(frozen=True)
class RepeatRange:
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
        smallest = formatting.bare(self.smallest, self.unit)
        return f"{self.title} {smallest} to {formatting.quantity(self.largest, self.unit)}"


@dataclass(frozen=True)
class Disagreement:
    """The figures of one side in which its repeats disagree."""

    label: str
    repeats: int
    ranges: tuple[RepeatRange, ...]
    sentence: str


def disagreements(sides: Sequence[Side]) -> tuple[Disagreement, ...]:
    """One for each side whose repeats disagree. Times are those of steady runs."""
    disagreeing = []
    repeated = [side for side in sides if not side.problems and len(side.used) > 1]
    for side in repeated:
        ranges = tuple(_ranges(side, len(repeated)))
        if ranges:
            sentence = (
                f"The {len(side.used)} repeats of {side.label} disagree by more than their own "
                f"intervals allow: {', '.join(figure.text for figure in ranges)}."
            )
            disagreeing.append(Disagreement(side.label, len(side.used), ranges, sentence))
    return tuple(disagreeing)


def _ranges(side: Side, cells: int) -> Iterator[RepeatRange]:
    for figure in _LOOKED_AT:
        spread = batch_means.disagreement(side.estimates(figure), cells)
        if spread is not None:
            named = (figure.name, figure.title, figure.unit)
            yield RepeatRange(*named, spread.smallest, spread.largest, spread.p_value)
