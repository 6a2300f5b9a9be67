"""What the controller wants done, and what there is to tell of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.autoscaler.view import Trigger, View
from penstock.domain.autoscaling import Answer, Command, Measurement
from penstock.domain.lake.partition import Partition

# --- to be done ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """A command to a host."""

    host: int
    command: Command


@dataclass(frozen=True)
class Start:
    """These hosts are needed: see that they run."""

    hosts: frozenset[int]


@dataclass(frozen=True)
class Retire:
    """Only these hosts are used any more."""

    hosts: frozenset[int]


# --- to be told: by the terminal, by metrics, by whoever looks on ---------------------------------------


@dataclass(frozen=True)
class Tell:
    """Something that people want to know."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True)
class Decided:
    """Another plan, and why, in one sentence with its numbers."""

    at_s: float
    trigger: Trigger
    reason: str
    assignment: Mapping[Partition, int]
    lanes: int
    moves: int
    moved_bytes_per_s: float


@dataclass(frozen=True)
class Commanded:
    """What was decided is with Kafka, so long after the measurement that it was decided from."""

    took_s: float


@dataclass(frozen=True)
class HandedOver:
    """All hosts hold what was decided, so long after that."""

    took_s: float


@dataclass(frozen=True)
class Started:
    """A host was heard of for the first time, so long after it was started."""

    host: int
    took_s: float


@dataclass(frozen=True)
class Looked:
    """The group as it is, every time that it was measured."""

    measurement: Measurement
    view: View


@dataclass(frozen=True)
class Heard:
    """From a host."""

    answer: Answer


Event = Tell | Decided | Commanded | HandedOver | Started | Looked | Heard
Action = Send | Start | Retire | Event
