"""The time of a run as the analysis cuts it: slices, blocks of slices, and the brokers' clock.

Plain numbers of one run, made on the driver and joined to every message as columns. They are data
and not constants in the code that Spark compiles, so that code is compiled once for all runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from penstock.domain.run import ClockAnchor, Run

SECOND_NS = 1_000_000_000
# Batch means are at their best with one to three hundred slices.
_LEAST_SLICES = 128
MOST_SLICES = 240
# A slice is a second or a part of one: a second is made of whole slices. 10⁹ = 2⁹ · 5⁹.
_MOST_PER_SECOND = 512
# Of the histograms of a latency's parts: fewer, since each costs a hundred rows of the summary.
_MOST_BLOCKS = 32
# A wall clock that is kept by NTP drifts by less; more, and somebody set it during the run.
MOST_DRIFT_NS = 5_000_000


@dataclass(frozen=True)
class Timeline:
    """The measured time of a run, cut into slices of equal length; the last may be shorter."""

    from_ns: int
    to_ns: int
    slice_ns: int

    @classmethod
    def of(cls, run: Run, last_intended_ns: int | None) -> Timeline:
        """Of an interrupted run: until the last message that it wrote down."""
        to_ns = run.measured_to_ns
        if run.status == "interrupted" and last_intended_ns is not None:
            to_ns = min(to_ns, last_intended_ns + 1)
        to_ns = max(to_ns, run.measured_from_ns)
        per_second = 1
        seconds = (to_ns - run.measured_from_ns) / SECOND_NS
        while per_second < _MOST_PER_SECOND and per_second * seconds < _LEAST_SLICES:
            per_second *= 2
        return cls(run.measured_from_ns, to_ns, SECOND_NS // per_second)

    @property
    def seconds(self) -> float:
        return (self.to_ns - self.from_ns) / SECOND_NS

    @property
    def slices(self) -> int:
        return math.ceil((self.to_ns - self.from_ns) / self.slice_ns)

    @property
    def slices_per_second(self) -> int:
        return SECOND_NS // self.slice_ns

    @property
    def slices_per_block(self) -> int:
        return max(1, math.ceil(self.slices / _MOST_BLOCKS))

    @property
    def slices_per_batch(self) -> int:
        """How many slices are put together for the intervals of a long run."""
        return max(1, math.ceil(self.slices / MOST_SLICES))


@dataclass(frozen=True)
class WallClock:
    """Wall clock → our clock: monotonic = monotonic_ns + (wall - wall_ns) · rate."""

    wall_ns: int
    monotonic_ns: int
    rate: float

    @classmethod
    def of(cls, anchors: tuple[ClockAnchor, ...]) -> WallClock | None:
        """None if there is no anchor, or the wall clock was set between two of them."""
        if not anchors or abs(moved_ns(anchors)) > MOST_DRIFT_NS:
            return None
        first, last = anchors[0], anchors[-1]
        wall_ns = last.wall_ns - first.wall_ns
        rate = (last.monotonic_ns - first.monotonic_ns) / wall_ns if wall_ns > 0 else 1.0
        return cls(first.wall_ns, first.monotonic_ns, rate)


def moved_ns(anchors: tuple[ClockAnchor, ...]) -> int:
    """How far the wall clock moved against ours between any two anchors, at most."""
    offsets = [a.wall_ns - a.monotonic_ns for a in anchors]
    steps = [later - earlier for earlier, later in pairwise(offsets)]
    return max((*steps, sum(steps)), key=abs, default=0)
