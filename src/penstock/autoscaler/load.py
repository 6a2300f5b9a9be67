"""What the controller knows of the load: what is written, how far lanes are, what they can do. Pure."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping

from penstock.autoscaler.capacity import Capacities
from penstock.autoscaler.view import View
from penstock.domain.autoscaling import Answer, Autoscaling, Measurement
from penstock.domain.lake.partition import Partition

_CYCLES = 8
# Cycles that a record may wait for.
_GRACE = 2.0


class Load:
    """Give it measurements and answers; it gives views. Everything in bytes as stored."""

    def __init__(self, settings: Autoscaling) -> None:
        self.capacities = Capacities(settings.lane_bytes_per_s)
        self._scale_in_s = settings.scale_in_s
        self._measurement: Measurement | None = None
        self._positions: dict[str, int] = {}
        self._decoded: dict[str, float] = {}
        self._peaks: dict[Partition, deque[tuple[float, float]]] = {}
        # From landing to landing, of late.
        self._cycles_s: deque[float] = deque(maxlen=_CYCLES)

    @property
    def is_known(self) -> bool:
        return self._measurement is not None

    def on_measured(self, measurement: Measurement, now_s: float) -> None:
        self._measurement = measurement
        for name, speed in self._speeds().items():
            peaks = self._peaks.setdefault(name, deque())
            peaks.append((now_s, speed))
            while peaks[0][0] < now_s - self._scale_in_s:
                peaks.popleft()

    def on_answer(self, answer: Answer) -> None:
        self._positions |= answer.positions
        stored = self._bytes_per_record()
        self._cycles_s += [max(cycle.took_s for cycle in answer.cycles)] if answer.cycles else []
        for cycle in answer.cycles:
            offsets = sum(cycle.offsets.values())
            if offsets:
                self._decoded |= dict.fromkeys(cycle.offsets, cycle.size_bytes / offsets)
            self.capacities.add(cycle, stored)

    def view(
        self,
        now_s: float,
        *,
        since_change_s: float,
        current: Mapping[Partition, int],
        most_lanes: int,
    ) -> View:
        """Of partitions that are no more, nothing is in it."""
        speeds, lag = self._speeds(), self._lag_bytes()
        # What comes within a cycle waits for its end: nothing is late by that.
        usual_s = _GRACE * statistics.median(self._cycles_s or (0.0,))
        return View(
            now_s=now_s,
            since_change_s=since_change_s,
            speeds=speeds,
            peaks={p: max(s for _, s in seen) for p, seen in self._peaks.items() if seen},
            lag_bytes=lag,
            overdue_bytes={p: max(0.0, size - usual_s * speeds[p]) for p, size in lag.items()},
            current={p: lane for p, lane in current.items() if p in speeds},
            capacities=self.capacities.of_lanes(),
            capacity=self.capacities.usual,
            most_lanes=most_lanes,
        )

    def _bytes_per_record(self) -> dict[str, float]:
        """As stored, if the cluster tells; else as decoded."""
        found = dict(self._decoded)
        if self._measurement is not None:
            for name, speed in self._measurement.partitions.items():
                if speed.bytes_per_record is not None:
                    found[name] = speed.bytes_per_record
        return found

    def _speeds(self) -> dict[Partition, float]:
        if self._measurement is None:
            return {}
        stored = self._bytes_per_record()
        return {
            Partition.parse(name): speed.records_per_s * stored.get(name, 0.0)
            for name, speed in self._measurement.partitions.items()
        }

    def _lag_bytes(self) -> dict[Partition, float]:
        if self._measurement is None:
            return {}
        stored = self._bytes_per_record()
        return {
            Partition.parse(name): stored.get(name, 0.0) * max(0, speed.end - self._positions[name])
            for name, speed in self._measurement.partitions.items()
            if name in self._positions
        }
