"""Words of the autoscaler: its settings, and what its parts tell one another through topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from penstock.domain.lake.partition import Partition
from penstock.domain.lake.report import LaneReport
from penstock.domain.value import Bound, Doc, FieldError, Value


@dataclass(frozen=True, kw_only=True)
class Autoscaling(Value):
    """How lanes follow the write speed. Every share is of what a lane can do, which is measured."""

    policy: Annotated[str, Doc("who decides: packing, or one that it is compared with")] = "packing"
    algorithm: Annotated[str, Doc("of the policy `packing`: KEEP, BFD, MWF, …")] = "KEEP"
    lane_worth: Annotated[
        float | None,
        Bound(ge=0),
        Doc(
            "of KEEP: what may be moved to save a lane, in lanes full of load, for every percent of "
            "lanes above the fewest; none: anything, as a move costs next to nothing"
        ),
    ] = None
    lanes: Annotated[
        int | None, Bound(ge=1, le=1000), Doc("as many, always: partitions are only balanced")
    ] = None
    most_lanes: Annotated[int, Bound(ge=1, le=1000), Doc("never more than these")] = 16
    lane_bytes_per_s: Annotated[
        float,
        Bound(gt=0),
        Doc("what a lane can do until one was seen at its limit; see `penstock pipeline capacity`"),
    ] = 5_000_000
    plan_at: Annotated[
        float, Bound(gt=0, le=1), Doc("lanes are filled up to this share of what they can do")
    ] = 0.75
    headroom: Annotated[
        float, Bound(ge=0, le=10), Doc("a lane is too full with this share more than that")
    ] = 0.25
    scale_in_s: Annotated[
        float, Bound(gt=0), Doc("after so long without a change: would fewer lanes do?")
    ] = 60.0
    drain_s: Annotated[
        float, Bound(gt=0), Doc("what is waiting shall be read within this, beside what comes")
    ] = 30.0
    answer_s: Annotated[
        float, Bound(gt=0), Doc("a command that is not acknowledged within this is sent again")
    ] = 10.0
    stale_s: Annotated[
        float, Bound(gt=0), Doc("write speeds older than this say nothing; the plan stays")
    ] = 10.0

    @property
    def exceeded_at(self) -> float:
        """The share of what a lane can do above which partitions move."""
        return self.plan_at * (1 + self.headroom)


# --- the monitor tells ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PartitionSpeed(Value):
    """How fast a partition is written to."""

    records_per_s: float
    bytes_per_record: Annotated[
        float | None, Doc("as stored; none if the cluster does not tell the size of its logs")
    ] = None
    end: Annotated[int, Doc("the offset after its last record")]


@dataclass(frozen=True, kw_only=True)
class Measurement(Value):
    """All partitions of a pipeline, at one moment."""

    at_ms: Annotated[int, Doc("when, in Unix time")]
    partitions: Mapping[str, PartitionSpeed] = field(default_factory=dict)


# --- controller and hosts tell each other -----------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Command(Value):
    """To a host. It holds for good, and may come twice: it says what to hold, not what to change."""

    verb: Annotated[
        Literal["hold", "tell", "end"],
        Doc("hold exactly these; only tell what you hold; or end after this cycle"),
    ] = "hold"
    version: Annotated[int, Doc("counts up; of two, the higher one counts")] = 0
    lanes: Annotated[
        Mapping[int, tuple[str, ...]], Doc("lane → its partitions; other lanes of the host: none")
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_names(self.lanes)


@dataclass(frozen=True, kw_only=True)
class Cycle(Value):
    """One lane from one micro-batch to the next."""

    lane: int
    took_s: Annotated[float, Doc("from the end of the one before")]
    is_saturated: Annotated[bool, Doc("more was waiting than it took; idle cycles say nothing")]
    size_bytes: Annotated[int, Doc("of keys and values")]
    offsets: Annotated[Mapping[str, int], Doc("partition → offsets that it went ahead")] = field(
        default_factory=dict
    )
    oldest_s: Annotated[
        float | None, Doc("age of its oldest record when it could be read in the lake")
    ] = None

    @classmethod
    def of(cls, report: LaneReport, landed_ms: int, took_s: float, was_behind: bool) -> Cycle:
        """Saturated if it did not wait before it, and ended by bytes or by time."""
        ages_s = report.ages_s(landed_ms)
        is_behind = any(r.lag for r in report.ranges)
        return cls(
            lane=report.lane,
            took_s=took_s,
            is_saturated=was_behind and is_behind and not report.troubles,
            size_bytes=report.size_bytes,
            offsets={str(r.name): r.end - r.start for r in report.ranges},
            oldest_s=ages_s[0] if ages_s else None,
        )


@dataclass(frozen=True, kw_only=True)
class Answer(Value):
    """From a host: what it holds now, how far each partition is, and how its lanes did."""

    host: int
    version: Annotated[int, Doc("of the command that it acts on; -1: of none")] = -1
    lanes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    positions: Annotated[Mapping[str, int], Doc("partition → the offset it goes on from")] = field(
        default_factory=dict
    )
    cycles: tuple[Cycle, ...] = ()
    most_lanes: Annotated[int | None, Doc("more it cannot have just now")] = None
    at_ms: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_names({**self.lanes, -1: tuple(self.positions)})


def _check_names(lanes: Mapping[int, tuple[str, ...]]) -> None:
    for lane, held in lanes.items():
        for name in held:
            try:
                Partition.parse(name)
            except ValueError as error:
                raise FieldError(f"lanes.{lane}", name, str(error)) from None
