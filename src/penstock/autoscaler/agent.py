"""The agent of a Spark pipeline: it takes plans from the autoscaler and reports its lanes' cycles.

A plan is acknowledged when a micro-batch was landed with it: then no lane uses the old one. While
there is nothing to land, it is acknowledged soon after it was written to the checkpoint.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from confluent_kafka import KafkaException
from py4j.protocol import Py4JError

from penstock.autoscaler.channel import HEARTBEAT_S, HostLink
from penstock.domain.autoscaling import Command, HostAnswer
from penstock.domain.errors import PenstockError
from penstock.domain.lake.cycle import Cycles, LaneCycle
from penstock.domain.lake.plan import Plan
from penstock.domain.lake.report import LaneReport
from penstock.lake.checkpoint import Checkpoint
from penstock.lake.executors import Executors
from penstock.lake.landing import Landed

_LOOK_S = 0.05
_PAUSE_S = 1.0
# If no micro-batch ends for this much longer than one takes, there is nothing to land.
_IDLE_S = 1.5
_START_S = 60.0
_TIDY_S = 5.0
# A cluster that did not provide enough executors is not asked for more for this time.
_SCARCE_S = 300.0


class Agent:
    """Runs beside the query, in its own thread."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        link: HostLink,
        executors: Executors,
        cycle_s: float,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._checkpoint, self._link = checkpoint, link
        self._executors, self._warn = executors, warn
        self._idle_s = cycle_s + _IDLE_S
        # Each with its time by the monotonic clock.
        self._landed: deque[tuple[Landed, float]] = deque()
        self._lane_cycles = Cycles()
        self._positions: dict[str, int] = {}
        self._plan = checkpoint.plan()
        # What lanes hold as far as known: by an acknowledged plan, or by their reports.
        self._holds = _lanes(self._plan)
        self._acknowledged = self._plan.version if self._plan else -1
        self._written_s = float("-inf")
        self._landed_s = float("-inf")
        self._answered_s = float("-inf")
        self._tidied_s = float("-inf")
        # A plan that waits for executors, and since when; and, if the cluster provided too few, how
        # many lanes it can run, and when that was.
        self._coming: Plan | None = None
        self._coming_s = float("-inf")
        self._scarce: tuple[int, float] | None = None
        # Whether the last micro-batch left a backlog, in any lane: then the next one begins at once.
        self._is_behind = False
        # The last landed micro-batch, and since when the next one runs. One without a report is
        # repeated when the pipeline restarts.
        self._landed_batch = checkpoint.newest_report
        self._busy_since_s: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autoscaler-agent", daemon=True)

    def start(self) -> None:
        """Commands sent while the pipeline was down apply from its first micro-batch on."""
        if self._plan is not None:
            self._executors.ask_for(_busy(self._plan))
        if (last := self._link.past()) is not None:
            self._hold(last)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._link.close()

    def tell(self, landed: Landed) -> None:
        """The query calls this for every landed micro-batch."""
        self._landed.append((landed, time.monotonic()))

    def _run(self) -> None:
        is_warned = False
        while not self._ended.is_set():
            try:
                self._turn()
                is_warned = False
            except (PenstockError, KafkaException, Py4JError, OSError, ValueError) as error:
                if not is_warned:
                    self._warn(f"the pipeline continues with its last plan: {error}")
                is_warned = True
                self._ended.wait(_PAUSE_S)

    def _turn(self) -> None:
        command = self._link.command(_LOOK_S)
        if command is not None and command.verb == "hold":
            self._hold(command)
        self._start_plan()
        cycles = self._cycles()
        is_new = self._acknowledge_if_idle()
        is_quiet = time.monotonic() - self._answered_s > HEARTBEAT_S
        self._tidy()
        if cycles or is_new or is_quiet or (command and command.verb == "tell"):
            self._answer(cycles)

    # --- plans ---------------------------------------------------------------------------------------

    def _hold(self, command: Command) -> None:
        """Take a plan. It is written to the checkpoint when there are executors for its lanes."""
        newest = self._coming or self._plan
        if newest is not None and command.version <= newest.version:
            return
        count = max(command.lanes, default=-1) + 1
        lanes = tuple(command.lanes.get(lane, ()) for lane in range(count)) or ((),)
        if self._coming is None:  # a newer plan does not restart the waiting time
            self._coming_s = time.monotonic()
        self._coming = Plan(version=command.version, lanes=lanes)
        self._executors.ask_for(_busy(self._coming))

    def _start_plan(self) -> None:
        if self._coming is None:
            return
        needed, available = _busy(self._coming), self._executors.lanes
        if available < needed:
            if time.monotonic() - self._coming_s < _START_S:
                return
            self._scarce = max(1, available), time.monotonic()
            self._warn(f"{needed} lanes are needed, but the cluster provides {available}")
        self._checkpoint.write_plan(self._coming)  # may fail; the next turn tries again
        self._plan, self._coming = self._coming, None
        self._written_s = time.monotonic()

    def _acknowledge_if_idle(self) -> bool:
        """Whether the plan was acknowledged just now because there is nothing to land."""
        if self._plan is None or self._acknowledged >= self._plan.version:
            return False
        now_s = time.monotonic()
        is_idle = min(now_s - self._written_s, now_s - self._landed_s) > self._idle_s
        if is_idle:
            self._acknowledge(self._plan)
        return is_idle

    def _acknowledge(self, plan: Plan) -> None:
        self._acknowledged, self._holds = plan.version, _lanes(plan)

    def _tidy(self) -> None:
        """Release executors that arrived when they were not needed any more."""
        is_settled = self._plan is not None and self._acknowledged == self._plan.version
        if is_settled and time.monotonic() - self._tidied_s > _TIDY_S:
            self._tidied_s = time.monotonic()
            self._executors.give_back(self._busy_lanes)

    @property
    def _busy_lanes(self) -> int:
        """Number of lanes that are in use, or about to be."""
        return max(_busy(plan) for plan in (self._plan, self._coming) if plan is not None)

    @property
    def _most_lanes(self) -> int | None:
        """A cluster that had too few executors may have more after a while."""
        if self._scarce is None or time.monotonic() - self._scarce[1] > _SCARCE_S:
            return self._executors.most_lanes
        return self._scarce[0]

    # --- what lanes did ------------------------------------------------------------------------------

    def _cycles(self) -> list[LaneCycle]:
        cycles: list[LaneCycle] = []
        while self._landed:
            landed, at_s = self._landed.popleft()
            self._landed_s = time.monotonic()
            self._landed_batch, self._busy_since_s = landed.report.batch, None
            for lane in landed.report.lanes:
                if self._plan is None:
                    self._saw(lane)
                elif lane.plan == self._plan.version > self._acknowledged:
                    self._acknowledge(self._plan)
                    self._executors.give_back(self._busy_lanes)
                self._positions |= {str(r.name): r.end for r in lane.ranges}
            cycles += self._lane_cycles.landed(landed.report, at_s, landed.at_ms)
            self._is_behind = landed.report.is_behind
        return cycles

    def _saw(self, lane: LaneReport) -> None:
        """Without a plan, a lane holds the partitions that it has read."""
        names = {str(r.name) for r in lane.ranges}
        others = {n: tuple(p for p in held if p not in names) for n, held in self._holds.items()}
        own = tuple(sorted(names.union(others.pop(lane.lane, ()))))
        self._holds = {n: held for n, held in {**others, lane.lane: own}.items() if held}

    def _busy_s(self) -> float:
        """For how long a micro-batch has been running, or should have been: its order exists, or
        the last one left a backlog, after which the next begins at once."""
        if not self._is_behind and self._checkpoint.newest_order <= self._landed_batch:
            self._busy_since_s = None
            return 0.0
        if self._busy_since_s is None:
            self._busy_since_s = time.monotonic()
        return time.monotonic() - self._busy_since_s

    def _answer(self, cycles: list[LaneCycle]) -> None:
        answer = HostAnswer(
            host=0,
            version=self._acknowledged,
            lanes=self._holds,
            positions=self._positions,
            cycles=tuple(cycles),
            most_lanes=self._most_lanes,
            busy_s=self._busy_s(),
            at_ms=round(time.time() * 1000),
        )
        self._link.answer(answer)
        self._answered_s = time.monotonic()


def _busy(plan: Plan) -> int:
    """Number of lanes that have partitions."""
    return sum(1 for held in plan.lanes if held)


def _lanes(plan: Plan | None) -> dict[int, tuple[str, ...]]:
    return {lane: held for lane, held in enumerate(plan.lanes if plan else ()) if held}
