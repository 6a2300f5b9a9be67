"""Estimate of the load: write speeds, lag, and capacities of lanes. Pure."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping

from penstock.autoscaler.core.capacity import Capacities
from penstock.autoscaler.core.policy import View
from penstock.domain.autoscaling import Autoscaling, HostAnswer, PartitionSpeed, SpeedMeasurement
from penstock.domain.lake.partition import Partition

_CYCLES = 8
# A record may wait for this many cycles before it is overdue.
_GRACE = 2.0


class Load:
    """Takes measurements and answers; returns views. Everything in bytes as stored."""

    def __init__(self, settings: Autoscaling) -> None:
        self.capacities = Capacities(settings.lane_capacity_bytes_per_s)
        self._scale_in_s = settings.scale_in_s
        # Whether anything was measured yet.
        self.is_known = False
        self._partitions: Mapping[str, PartitionSpeed] = {}
        self._positions: dict[str, int] = {}
        self._decoded: dict[str, float] = {}
        self._peaks: dict[Partition, deque[tuple[float, float]]] = {}
        # Durations of the last cycles, from landing to landing.
        self._cycles_s: deque[float] = deque(maxlen=_CYCLES)

    def on_measured(self, measurement: SpeedMeasurement, now_s: float) -> None:
        self.is_known, self._partitions = True, measurement.partitions
        for name, speed in self._speeds().items():
            peaks = self._peaks.setdefault(name, deque())
            peaks.append((now_s, speed))
            while peaks[0][0] < now_s - self._scale_in_s:
                peaks.popleft()

    def on_answer(self, answer: HostAnswer) -> None:
        self._positions |= answer.positions
        stored = self._bytes_per_record()
        # Of the first cycle of a host, and the first after a rest, it is not known.
        if took_s := max((cycle.took_s for cycle in answer.cycles), default=0.0):
            self._cycles_s.append(took_s)
        for cycle in answer.cycles:
            if offsets := sum(cycle.offsets.values()):
                self._decoded |= dict.fromkeys(cycle.offsets, cycle.size_bytes / offsets)
            self.capacities.add(cycle, stored)

    def view(
        self,
        now_s: float,
        since_change_s: float,
        current: Mapping[Partition, int],
        most_lanes: int,
    ) -> View:
        """The view of the policy, without partitions that no longer exist."""
        speeds, lag = self._speeds(), self._lag_bytes()
        # Records that arrive during a cycle wait for its end, and are not overdue.
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
        """As stored, if the cluster reports it; otherwise as decoded."""
        sizes = {name: speed.bytes_per_record for name, speed in self._partitions.items()}
        return self._decoded | {name: size for name, size in sizes.items() if size is not None}

    def _speeds(self) -> dict[Partition, float]:
        stored = self._bytes_per_record()
        return {
            Partition.parse(name): speed.records_per_s * stored.get(name, 0.0)
            for name, speed in self._partitions.items()
        }

    def _lag_bytes(self) -> dict[Partition, float]:
        stored = self._bytes_per_record()
        return {
            Partition.parse(name): stored.get(name, 0.0) * max(0, speed.end - self._positions[name])
            for name, speed in self._partitions.items()
            if name in self._positions
        }
