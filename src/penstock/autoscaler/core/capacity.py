"""Capacity of lanes: bytes/s in saturated cycles (`Cycles` has the rule). Pure.

It is the median of the last eight saturated cycles, so that one slow write matters little. Until
there is one, it is the median of the other lanes, or the configured value. What a lane did recently
below its limit is the least that it can do. In bytes as stored, the unit of write speeds.

A lane that reports several times the capacity of the others is not believed: it counts as one of
them.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.domain.lake.cycle import LaneCycle

_CYCLES = 8
# A lane is doubted if there are this many others and it exceeds this multiple of their median.
_OTHERS, _BEYOND = 2, 3.0


@dataclass
class _Lane:
    saturated: deque[float] = field(default_factory=lambda: deque(maxlen=_CYCLES))
    at_ease: deque[float] = field(default_factory=lambda: deque(maxlen=_CYCLES))

    @property
    def at_least(self) -> float:
        return max(self.at_ease, default=0.0)


class Capacities:
    """The capacities of all lanes."""

    def __init__(self, default_bytes_per_s: float) -> None:
        self._default = default_bytes_per_s
        self._lanes: dict[int, _Lane] = {}

    def add(self, cycle: LaneCycle, bytes_per_record: Mapping[str, float]) -> None:
        """`bytes_per_record` as stored; for a partition without one, the decoded size is used."""
        offsets = sum(cycle.offsets.values())
        if cycle.took_s <= 0 or not offsets:
            return
        decoded = cycle.size_bytes / offsets
        stored = sum(n * bytes_per_record.get(p, decoded) for p, n in cycle.offsets.items())
        if stored <= 0:  # empty records do not show a capacity
            return
        lane = self._lanes.setdefault(cycle.lane, _Lane())
        speed = stored / cycle.took_s
        if cycle.is_saturated:
            lane.saturated.append(speed)
        else:
            lane.at_ease.append(speed)

    @property
    def usual(self) -> float:
        """The capacity of a lane that was not measured yet."""
        known = self._measured()
        return statistics.median(known.values()) if known else self._default

    def of_lanes(self) -> dict[int, float]:
        """The capacities of measured lanes, corrected if they are doubted."""
        known = self._measured()
        believed = {}
        for lane, speed in known.items():
            others = [s for other, s in known.items() if other != lane]
            doubted = len(others) >= _OTHERS and speed > _BEYOND * statistics.median(others)
            believed[lane] = statistics.median(others) if doubted else speed
        for lane, seen in self._lanes.items():
            at_least = min(seen.at_least, _BEYOND * self.usual)
            if at_least > believed.get(lane, self.usual):
                believed[lane] = at_least
        return believed

    def doubted(self) -> tuple[int, ...]:
        """The lanes whose reports are not believed."""
        believed = self.of_lanes()
        return tuple(lane for lane, s in self._measured().items() if believed[lane] < s)

    def _measured(self) -> dict[int, float]:
        return {
            number: statistics.median(lane.saturated)
            for number, lane in self._lanes.items()
            if lane.saturated
        }
