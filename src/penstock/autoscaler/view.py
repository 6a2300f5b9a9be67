"""What a policy sees when it decides, and what it decides. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from penstock.domain.lake.partition import Partition


@dataclass(frozen=True)
class View:
    """The group as it is: every figure in bytes as stored."""

    now_s: float
    # Since the plan changed.
    since_change_s: float
    speeds: Mapping[Partition, float]
    # The highest of each since `scale_in_s`: what comes and goes is not scaled in for.
    peaks: Mapping[Partition, float]
    # What is not landed yet; and what of it waits longer than a cycle takes.
    lag_bytes: Mapping[Partition, float]
    overdue_bytes: Mapping[Partition, float]
    current: Mapping[Partition, int]
    # What lanes can do, of those that were seen at their limit; and of any other.
    capacities: Mapping[int, float]
    capacity: float
    most_lanes: int

    def capacity_of(self, lane: int) -> float:
        return self.capacities.get(lane, self.capacity)

    @property
    def loads(self) -> dict[int, float]:
        """Lane → bytes/s written to its partitions."""
        found: dict[int, float] = {}
        for partition, lane in self.current.items():
            found[lane] = found.get(lane, 0.0) + self.speeds.get(partition, 0.0)
        return found


@dataclass(frozen=True)
class Caution:
    """Said once, as long as it is about the same."""

    about: str
    text: str


class Trigger(Enum):
    """What made a policy decide."""

    UNASSIGNED = "partition unassigned"
    EXCEEDED = "capacity exceeded"
    SCALE_IN = "scale in"
    UNEVEN = "uneven"
    RULE = "rule"  # of a scaler that looks every so often


@dataclass(frozen=True)
class Decision:
    """Another assignment, and why, in one sentence with its numbers."""

    assignment: Mapping[Partition, int]
    trigger: Trigger
    reason: str
    warnings: tuple[Caution, ...] = field(default=())


class Policy(Protocol):
    """Decides; None: everything stays as it is."""

    def decide(self, view: View) -> Decision | None: ...


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def rate_text(bytes_per_s: float) -> str:
    """As people read it."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.1f} {unit}/s"
    return f"{bytes_per_s:.0f} B/s"
