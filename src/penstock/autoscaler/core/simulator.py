"""Simulates a pipeline with an autoscaler, for sizes that do not fit on this machine.

The monitor's filter, the policy and the controller are the real ones; only the pipeline is
simulated. A micro-batch takes the records that had arrived when it began: every lane up to its
bytes, at its speed, in equal parts from its partitions. It is landed a fixed time after its slowest
lane is done. The pipeline's figures (`Rig`) are measured on a real one. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.autoscaler.core.actions import Action, LanesDecided, LanesHandedOver, Send
from penstock.autoscaler.core.controller import Controller
from penstock.autoscaler.core.write_speed import PERIOD_S, Sample, WriteSpeed
from penstock.domain.autoscaling import Autoscaling, Command, HostAnswer, SpeedMeasurement
from penstock.domain.lake.cycle import Cycles
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.plan import even_plan
from penstock.domain.lake.report import BatchReport, LandedRange, LaneReport

Array = npt.NDArray[np.float64]
# Number of records of a landed range whose age is sampled.
_POINTS = 10


@dataclass(frozen=True)
class Shift:
    """From this moment on, records/s of each partition."""

    at_s: float
    per_s: tuple[float, ...]


@dataclass(frozen=True)
class Rig:
    """Measured figures of a pipeline."""

    lane_limit_bytes_per_s: float
    lane_bytes: float
    record_bytes: float
    # Time of a micro-batch besides that of its slowest lane: fixed, and per lane.
    batch_s: float
    batch_s_per_lane: float = 0.0
    # At the beginning.
    lanes: int = 1


@dataclass(frozen=True)
class Simulated:
    """The result of a simulation."""

    p50_s: float
    p99_s: float
    lane_s: float
    # Records that were not landed at the end.
    left: float
    decisions: tuple[LanesDecided, ...]
    hand_over_s: tuple[float, ...]


def simulate(
    settings: Autoscaling,
    shifts: Sequence[Shift],
    seconds: float,
    rig: Rig,
    drain_s: float = 0.0,
    lead_s: float = 0.0,
) -> Simulated:
    """Records arrive by `shifts` for `seconds`, then none; those not landed `drain_s` later get
    their age at that time. The first `lead_s` do not count."""
    world = _World(settings, shifts, seconds, rig, lead_s)
    now_s, measured_s = 0.0, 0.0
    while now_s < seconds + drain_s and not world.is_done(now_s):
        ends_s = world.begin_batch(now_s)
        while measured_s <= ends_s:
            world.measure(measured_s)
            measured_s += PERIOD_S
        world.end_batch(now_s, ends_s)
        now_s = ends_s
    return world.outcome(now_s)


class _World:
    def __init__(
        self,
        settings: Autoscaling,
        shifts: Sequence[Shift],
        seconds: float,
        rig: Rig,
        lead_s: float,
    ) -> None:
        self._rig, self._seconds, self._lead_s = rig, seconds, lead_s
        self._names = [Partition("t", n) for n in range(len(shifts[0].per_s))]
        self._number = {str(name): n for n, name in enumerate(self._names)}
        # Records that arrived in each partition, at the times of shifts; linear in between.
        self._times = np.array([*(s.at_s for s in shifts), seconds])
        rates = np.array([s.per_s for s in shifts])
        steps = np.diff(self._times)[:, None] * rates
        self._arrived = np.vstack([np.zeros(len(self._names)), np.cumsum(steps, axis=0)])
        self._reached = np.zeros(len(self._names))
        self._speeds = [WriteSpeed() for _ in self._names]
        self._it = Controller(settings, settings.policy.decider(settings), lambda _: 0, 0.0)
        every = even_plan(rig.lanes, self._names).lanes
        held = {n: partitions for n, partitions in enumerate(every) if partitions}
        self._plan = self._coming = Command(version=-1, lanes=held)
        # Of the current micro-batch: where partitions ended when it began, and what it takes.
        self._ends: Array = np.zeros(0)
        self._takes: Array = np.zeros(0)
        self._cycles = Cycles()
        self._ages: list[Array] = []
        self._weights: list[Array] = []
        self._lane_s = 0.0
        self._decisions: list[LanesDecided] = []
        self._hand_over_s: list[float] = []
        self._do(self._it.on_hosts([0], 0.0))
        self._do(self._it.on_answer(HostAnswer(host=0, lanes=self._plan.lanes), 0.0))

    def _arrived_by(self, now_s: float) -> Array:
        arrived = np.array([np.interp(now_s, self._times, column) for column in self._arrived.T])
        whole: Array = np.floor(arrived)
        return whole

    def is_done(self, now_s: float) -> bool:
        return now_s > self._seconds and bool((self._reached >= self._arrived_by(now_s)).all())

    # --- the autoscaler ------------------------------------------------------------------------------

    def measure(self, now_s: float) -> None:
        speeds = {}
        for name, speed, end in zip(
            self._names, self._speeds, self._arrived_by(now_s), strict=True
        ):
            size_bytes = int(end * self._rig.record_bytes)
            speed.add(Sample(now_s, 0, int(end), size_bytes))
            if (measured := speed.speed) is not None:
                speeds[str(name)] = measured
        if speeds:
            self._do(self._it.on_measured(SpeedMeasurement(at_ms=0, partitions=speeds), now_s))
        self._do(self._it.on_tick(now_s))

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(_, Command(verb="hold") as command):
                    self._coming = command
                case LanesDecided():
                    self._decisions.append(action)
                case LanesHandedOver():
                    self._hand_over_s.append(action.took_s)

    # --- the pipeline --------------------------------------------------------------------------------

    def begin_batch(self, now_s: float) -> float:
        """Begin a micro-batch; returns when it ends."""
        self._plan = self._coming
        self._ends = self._arrived_by(now_s)
        waiting = self._ends - self._reached
        self._takes = np.zeros(len(waiting))
        slowest_s = 0.0
        for held in self._plan.lanes.values():
            numbers = [self._number[name] for name in held]
            most = self._rig.lane_bytes / self._rig.record_bytes
            takes = equal_parts(waiting[numbers], most)
            self._takes[numbers] = takes
            took_s = takes.sum() * self._rig.record_bytes / self._rig.lane_limit_bytes_per_s
            slowest_s = max(slowest_s, took_s)
        fixed_s = self._rig.batch_s + self._rig.batch_s_per_lane * len(self._plan.lanes)
        return now_s + fixed_s + slowest_s

    def end_batch(self, began_s: float, now_s: float) -> None:
        report = self._report()
        for number in np.flatnonzero(self._takes).tolist():
            self._note(number, self._takes[number], now_s)
        self._reached += self._takes
        counted_s = min(now_s, self._seconds) - max(began_s, self._lead_s)
        self._lane_s += len(self._plan.lanes) * max(0.0, counted_s)
        answer = HostAnswer(
            host=0,
            version=self._plan.version,
            lanes=self._plan.lanes,
            positions={str(n): int(at) for n, at in zip(self._names, self._reached, strict=True)},
            cycles=self._cycles.landed(report, now_s, round(1000 * now_s)),
        )
        self._do(self._it.on_answer(answer, now_s))

    def _report(self) -> BatchReport:
        """What the lanes with work would report of the current micro-batch."""
        starts, ends = self._reached.astype(int), self._ends.astype(int)
        takes = self._takes.astype(int)
        lanes = []
        for lane, held in self._plan.lanes.items():
            ranges = tuple(
                LandedRange(
                    topic=self._names[n].topic,
                    partition=self._names[n].number,
                    start=int(starts[n]),
                    end=int(starts[n] + takes[n]),
                    known_end=int(ends[n]),
                    lost_from=int(starts[n]),
                    size_bytes=round(takes[n] * self._rig.record_bytes),
                )
                for n in map(self._number.__getitem__, held)
                if ends[n] > starts[n]
            )
            if ranges:
                lanes.append(LaneReport(batch=0, lane=lane, ranges=ranges))
        return BatchReport(batch=0, lanes=tuple(lanes))

    def _note(self, number: int, records: float, now_s: float) -> None:
        """Add the ages of the next records of a partition."""
        points = self._reached[number] + (np.arange(_POINTS) + 0.5) / _POINTS * records
        column = self._arrived[:, number]
        # While nothing arrives the line is level, and no record falls there.
        came_s = np.interp(points, column, self._times)
        self._ages.append(now_s - came_s)
        self._weights.append((came_s >= self._lead_s) * (records / _POINTS))

    def outcome(self, now_s: float) -> Simulated:
        left = self._arrived_by(now_s) - self._reached
        for number in np.flatnonzero(left).tolist():
            self._note(number, left[number], now_s)
        ages, weights = np.concatenate(self._ages), np.concatenate(self._weights)
        order = np.argsort(ages)
        share = np.cumsum(weights[order]) / weights.sum()
        p50, p99 = (float(ages[order][np.searchsorted(share, p)]) for p in (0.5, 0.99))
        return Simulated(
            p50_s=p50,
            p99_s=p99,
            lane_s=self._lane_s,
            left=float(left.sum()),
            decisions=tuple(self._decisions),
            hand_over_s=tuple(self._hand_over_s),
        )


def equal_parts(waiting: Array, most: float) -> Array:
    """The same amount from each until all are empty, or `most` in total."""
    if waiting.sum() <= most:
        return waiting.copy()
    level, left, among = 0.0, most, np.sort(waiting)
    for n, size in enumerate(among):
        step = (size - level) * (len(among) - n)
        if step >= left:
            level += left / (len(among) - n)
            break
        level, left = size, left - step
    return np.floor(np.minimum(waiting, level))
