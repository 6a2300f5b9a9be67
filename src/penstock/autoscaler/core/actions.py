"""Actions that the controller requests, and events that it reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.autoscaler.core.policy import Trigger, View
from penstock.domain.autoscaling import Answer, Command, Measurement
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
class Notice:
    """A message for people."""

    text: str
    is_warning: bool = False


def warning(text: str) -> Notice:
    return Notice(text, is_warning=True)


@dataclass(frozen=True)
class Decided:
    """A new plan, with its reason in one sentence with numbers."""

    at_s: float
    trigger: Trigger
    reason: str
    assignment: Mapping[Partition, int]
    lanes: int
    moves: int
    moved_bytes_per_s: float


@dataclass(frozen=True)
class Commanded:
    """The commands of a decision were written to Kafka, `took_s` after its measurement."""

    took_s: float


@dataclass(frozen=True)
class HandedOver:
    """All hosts hold what was decided, `took_s` after the decision."""

    took_s: float


@dataclass(frozen=True)
class Started:
    """A host answered for the first time, `took_s` after it was started."""

    host: int
    took_s: float


@dataclass(frozen=True)
class Measured:
    """The state of the group, after every measurement."""

    measurement: Measurement
    view: View
    # Host → seconds since its main thread last finished a turn.
    busy_s: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Unread:
    """How many partitions cannot be read, and how many topics are left out."""

    stalled: int
    skipped: int


@dataclass(frozen=True)
class Heard:
    """An answer of a host arrived."""

    answer: Answer


Event = Notice | Decided | Commanded | HandedOver | Started | Measured | Unread | Heard
Action = Send | Start | Retire | Event
