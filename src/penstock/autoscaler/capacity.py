"""What a lane can do: bytes/s in cycles in which more was waiting than it took. Pure.

The median of its last eight saturated cycles, so that one slow write says little; until there is
one, that of the other lanes, or what was configured. What it did of late without being at its limit
is the least that it can do. In bytes as stored, the unit of write speeds.

A lane that claims several times what the others can do is not believed: it is taken for one of
them.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.domain.autoscaling import Cycle

_CYCLES = 8
# Others that it takes to doubt one, and how many times their median is beyond belief.
_OTHERS, _BEYOND = 2, 3.0


@dataclass
class _Lane:
    saturated: deque[float] = field(default_factory=lambda: deque(maxlen=_CYCLES))
    at_ease: deque[float] = field(default_factory=lambda: deque(maxlen=_CYCLES))

    @property
    def at_least(self) -> float:
        return max(self.at_ease, default=0.0)


class Capacities:
    """Of all lanes that were heard of."""

    def __init__(self, default_bytes_per_s: float) -> None:
        self._default = default_bytes_per_s
        self._lanes: dict[int, _Lane] = {}

    def add(self, cycle: Cycle, bytes_per_record: Mapping[str, float]) -> None:
        """`bytes_per_record` as stored; of a partition without one, its share as decoded."""
        offsets = sum(cycle.offsets.values())
        if cycle.took_s <= 0 or not offsets:
            return
        decoded = cycle.size_bytes / offsets
        stored = sum(n * bytes_per_record.get(p, decoded) for p, n in cycle.offsets.items())
        if stored <= 0:  # of empty records nothing can be learnt
            return
        lane = self._lanes.setdefault(cycle.lane, _Lane())
        speed = stored / cycle.took_s
        if cycle.is_saturated:
            lane.saturated.append(speed)
        else:
            lane.at_ease.append(speed)

    @property
    def usual(self) -> float:
        """Of a lane of which nothing is known."""
        known = self._measured()
        return statistics.median(known.values()) if known else self._default

    def of_lanes(self) -> dict[int, float]:
        """Of those that were measured, as far as they are believed."""
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
        """Those that are not believed."""
        believed = self.of_lanes()
        return tuple(lane for lane, s in self._measured().items() if believed[lane] < s)

    def _measured(self) -> dict[int, float]:
        return {
            number: statistics.median(lane.saturated)
            for number, lane in self._lanes.items()
            if lane.saturated
        }
