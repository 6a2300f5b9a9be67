"""Actions that the controller requests, and events that it reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.autoscaler.core.policy import Trigger, View
from penstock.domain.autoscaling import Command, HostAnswer, SpeedMeasurement
from penstock.domain.lake.partition import Partition

# --- actions ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """A command to a host."""

    host: int
    command: Command


@dataclass(frozen=True)
class Start:
    """Start these hosts unless they run."""

    hosts: frozenset[int]


@dataclass(frozen=True)
class Retire:
    """End all hosts except these."""

    hosts: frozenset[int]


# --- events, for terminal, metrics and benches ----------------------------------------------------------


@dataclass(frozen=True)
class AutoscalerNotice:
    """A message for people."""

    text: str
    is_warning: bool = False


def warning(text: str) -> AutoscalerNotice:
    return AutoscalerNotice(text, is_warning=True)


@dataclass(frozen=True)
class LanesDecided:
    """A new plan, with its reason in one sentence with numbers."""

    at_s: float
    trigger: Trigger
    reason: str
    assignment: Mapping[Partition, int]
    lanes: int
    moves: int
    moved_bytes_per_s: float


@dataclass(frozen=True)
class LanesCommanded:
    """The commands of a decision were written to Kafka, `took_s` after its measurement."""

    took_s: float


@dataclass(frozen=True)
class LanesHandedOver:
    """All hosts hold what was decided, `took_s` after the decision."""

    took_s: float


@dataclass(frozen=True)
class HostStarted:
    """A host answered for the first time, `took_s` after it was started."""

    host: int
    took_s: float


@dataclass(frozen=True)
class GroupMeasured:
    """The state of the group, after every measurement."""

    measurement: SpeedMeasurement
    view: View
    # Host → seconds since its main thread last finished a turn.
    busy_s: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PartitionsUnread:
    """How many partitions cannot be read, and how many topics are left out."""

    stalled: int
    skipped: int


@dataclass(frozen=True)
class HostAnswered:
    """An answer of a host arrived."""

    answer: HostAnswer


AutoscalerEvent = (
    AutoscalerNotice
    | LanesDecided
    | LanesCommanded
    | LanesHandedOver
    | HostStarted
    | GroupMeasured
    | PartitionsUnread
    | HostAnswered
)
Action = Send | Start | Retire | AutoscalerEvent
