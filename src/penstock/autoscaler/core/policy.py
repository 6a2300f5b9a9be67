"""What a policy decides by (`View`), what it decides (`Decision`), and the policy at work. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from penstock.domain.lake.partition import Partition


@dataclass(frozen=True)
class View:
    """The present state of the group. All figures in bytes as stored."""

    now_s: float
    # Time since the plan changed.
    since_change_s: float
    speeds: Mapping[Partition, float]
    # The highest speed of each within `scale_in_s`: lanes are not removed during a short low.
    peaks: Mapping[Partition, float]
    # Bytes that are not landed yet; and those of them that have waited longer than a cycle takes.
    lag_bytes: Mapping[Partition, float]
    overdue_bytes: Mapping[Partition, float]
    current: Mapping[Partition, int]
    # Capacities of lanes that have reached their limit; and that of any other lane.
    capacities: Mapping[int, float]
    capacity: float
    most_lanes: int

    def capacity_of(self, lane: int) -> float:
        return self.capacities.get(lane, self.capacity)

    @property
    def loads(self) -> dict[int, float]:
        """Lane → bytes/s written to its partitions."""
        loads: dict[int, float] = {}
        for partition, lane in self.current.items():
            loads[lane] = loads.get(lane, 0.0) + self.speeds.get(partition, 0.0)
        return loads


@dataclass(frozen=True)
class Caution:
    """A warning; repeated only if it is about something else."""

    about: str
    text: str


class Trigger(Enum):
    """What made a policy decide."""

    UNASSIGNED = "partition unassigned"
    EXCEEDED = "capacity exceeded"
    SCALE_IN = "scale in"
    UNEVEN = "uneven"
    RULE = "rule"  # of a scaler that checks periodically


@dataclass(frozen=True)
class Decision:
    """A new assignment, with its reason in one sentence with numbers."""

    assignment: Mapping[Partition, int]
    trigger: Trigger
    reason: str
    warnings: tuple[Caution, ...] = field(default=())


class Decider(Protocol):
    """A policy at work: it may remember what it saw and decided."""

    def decide(self, view: View) -> Decision | None:
        """None: everything stays as it is."""


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def rate_text(bytes_per_s: float) -> str:
    """Bytes/s as text with a unit."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.1f} {unit}/s"
    return f"{bytes_per_s:.0f} B/s"
