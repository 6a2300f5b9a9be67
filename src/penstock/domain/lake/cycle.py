"""Cycles of lanes: how long each took, and whether it shows what its lane can do. Pure.

The one rule of `penstock pipeline capacity`, of the autoscaler and of its simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from penstock.domain.lake.report import BatchReport, LaneReport
from penstock.domain.value import Doc, Value


@dataclass(frozen=True, kw_only=True)
class LaneCycle(Value):
    """One lane from one micro-batch to the next."""

    checks_types = False  # there are many

    lane: int
    took_s: Annotated[
        float,
        Doc("from landing to landing; 0: of the first one, and after a rest, it is not known"),
    ]
    is_saturated: Annotated[
        bool, Doc("see `Cycles`; the others show what came, or less than the lane can do")
    ]
    size_bytes: Annotated[int, Doc("of keys and values")]
    offsets: Annotated[Mapping[str, int], Doc("partition → number of offsets read")] = field(
        default_factory=dict
    )
    oldest_s: Annotated[
        float | None, Doc("age of its oldest record when it became readable in the lake")
    ] = None
    records: int = 0
    rejects: Annotated[Mapping[str, int], Doc("kind of reason → records rejected for it")] = field(
        default_factory=dict
    )

    @property
    def bytes_per_s(self) -> float:
        """Of keys and values; 0 where the time is not known."""
        return self.size_bytes / self.took_s if self.took_s else 0.0


@dataclass
class Cycles:
    """Makes the cycles of a host's lanes from its micro-batches. The clock is passed in.

    A lane is behind if its part of a micro-batch ended before the end that was known when the
    micro-batch began: more was waiting than it took. Its cycle is saturated if it was behind in the
    micro-batch before and is behind in this one, by its own reports, and had no troubles:

    - A lane that was not behind before may have waited for producers, and it begins with nothing
      prefetched, even if the next micro-batch begins at once because another lane was behind.
    - A lane that is not behind at the end took all there was: that is the speed of producers.
    - Troubles (a broker that is away, records that the decoder hangs on) may have cost time that
      the lane does not need otherwise.

    So neither the first cycle of a host is saturated, nor that of a lane without work in the
    micro-batch before, nor that of a lane which was not behind and has just been given partitions
    with a backlog: it looks their offsets up and has prefetched nothing of them, so it shows less
    than the lane can do. The next one counts. A lane that was behind, and is behind with other
    partitions after a move, counts at once: it did not idle.
    """

    _landed_s: float | None = None
    _behind: frozenset[int] = frozenset()

    def landed(self, report: BatchReport, at_s: float, at_ms: int) -> tuple[LaneCycle, ...]:
        """The cycles of the lanes of a micro-batch, in their order. It was landed at `at_s` by the
        monotonic clock, which is `at_ms` in Unix time."""
        took_s = 0.0 if self._landed_s is None else at_s - self._landed_s
        cycles = tuple(self._cycle(lane, took_s, at_ms) for lane in report.lanes)
        self._landed_s = at_s
        self._behind = frozenset(lane.lane for lane in report.lanes if lane.is_behind)
        return cycles

    def rested(self) -> None:
        """The host did not continue at once: there was nothing to read, or no broker answered. So the
        next cycle begins like a first one. (On Spark the next micro-batch tells of an outage by the
        troubles of its lanes.)"""
        self._landed_s, self._behind = None, frozenset()

    def _cycle(self, report: LaneReport, took_s: float, at_ms: int) -> LaneCycle:
        was_behind = report.lane in self._behind
        ages_s = report.ages_s(at_ms)
        return LaneCycle(
            lane=report.lane,
            took_s=took_s,
            is_saturated=was_behind and report.is_behind and not report.troubles,
            size_bytes=report.size_bytes,
            offsets={str(r.name): r.end - r.start for r in report.ranges},
            oldest_s=ages_s[0] if ages_s else None,
            records=report.records,
            rejects=report.rejects,
        )
