"""The pipeline as a host of the autoscaler: it takes plans, and tells how its lanes do.

A plan is acknowledged when a micro-batch was landed by it: then nobody reads by the old one. While
there is nothing to land, it is acknowledged as soon as it is written down.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from confluent_kafka import KafkaException
from py4j.protocol import Py4JError

from penstock.autoscaler.channel import HEARTBEAT_S, HostLink
from penstock.domain.autoscaling import Answer, Command, Cycle
from penstock.domain.errors import PenstockError
from penstock.domain.lake.plan import Plan
from penstock.domain.lake.report import LaneReport
from penstock.pipeline.lake.executors import Executors
from penstock.pipeline.lake.landing import Landed
from penstock.pipeline.lake.memory import Memory

_LOOK_S = 0.05
_PAUSE_S = 1.0
# No micro-batch for so much longer than one takes: there is nothing to land.
_IDLE_S = 1.5
_START_S = 60.0
_TIDY_S = 5.0
# A cluster that did not give enough lanes is not asked for more for so long.
_SCARCE_S = 300.0


class Agent:
    """Runs beside the query, in a thread of its own."""

    def __init__(
        self,
        memory: Memory,
        link: HostLink,
        executors: Executors,
        cycle_s: float,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._memory, self._link, self._executors, self._warn = memory, link, executors, warn
        self._idle_s = cycle_s + _IDLE_S
        # Each with its time by a clock that nobody sets.
        self._landed: deque[tuple[Landed, float]] = deque()
        self._last_s: float | None = None
        self._positions: dict[str, int] = {}
        self._plan = memory.plan()
        # What lanes hold as far as is known: by an acknowledged plan, or as they were seen.
        self._holds = _lanes(self._plan)
        self._acknowledged = self._plan.version if self._plan else -1
        self._written_s = float("-inf")
        self._landed_s = float("-inf")
        self._answered_s = float("-inf")
        self._tidied_s = float("-inf")
        # A plan that waits for executors, since when; and what the cluster gave when it did not
        # give enough, and when.
        self._coming: Plan | None = None
        self._coming_s = float("-inf")
        self._scarce: tuple[int, float] | None = None
        self._was_behind = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autoscaler-agent", daemon=True)

    def start(self) -> None:
        """What was commanded while the pipeline was away holds from its first micro-batch on."""
        if self._plan is not None:
            self._executors.ask_for(_busy(self._plan))
        last = self._link.past()
        if last is not None:
            self._hold(last)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._link.close()

    def tell(self, landed: Landed) -> None:
        """A micro-batch is landed; called by the query."""
        self._landed.append((landed, time.monotonic()))

    def _run(self) -> None:
        is_warned = False
        while not self._ended.is_set():
            try:
                self._turn()
                is_warned = False
            except (PenstockError, KafkaException, Py4JError, OSError, ValueError) as error:
                if not is_warned:
                    self._warn(f"the pipeline goes on with its last plan: {error}")
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
        """It is written down as soon as there is something to run its lanes."""
        newest = self._coming or self._plan
        if newest is not None and command.version <= newest.version:
            return
        wanted = max(command.lanes, default=-1) + 1
        lanes = tuple(command.lanes.get(lane, ()) for lane in range(wanted)) or ((),)
        if self._coming is None:  # another one that it waits for does not make it wait anew
            self._coming_s = time.monotonic()
        self._coming = Plan(version=command.version, lanes=lanes)
        self._executors.ask_for(_busy(self._coming))

    def _start_plan(self) -> None:
        if self._coming is None:
            return
        wanted, there = _busy(self._coming), self._executors.lanes
        if there < wanted:
            if time.monotonic() - self._coming_s < _START_S:
                return
            self._scarce = max(1, there), time.monotonic()
            self._warn(f"{wanted} lanes are wanted, and the cluster gives {there}")
        self._memory.write_plan(self._coming)  # it may fail, and is tried again
        self._plan, self._coming = self._coming, None
        self._written_s = time.monotonic()

    def _acknowledge_if_idle(self) -> bool:
        """Whether the plan holds since a moment ago, as there is nothing to land."""
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
        """Executors that came when they were not needed any more."""
        is_settled = self._plan is not None and self._acknowledged == self._plan.version
        if is_settled and time.monotonic() - self._tidied_s > _TIDY_S:
            self._tidied_s = time.monotonic()
            self._executors.give_back(self._busy_lanes)

    @property
    def _busy_lanes(self) -> int:
        """That are in use, or about to be."""
        return max(_busy(plan) for plan in (self._plan, self._coming) if plan is not None)

    @property
    def _most_lanes(self) -> int | None:
        """What the cluster did not give it may give after a while."""
        if self._scarce is None or time.monotonic() - self._scarce[1] > _SCARCE_S:
            return self._executors.most_lanes
        return self._scarce[0]

    # --- what lanes did ------------------------------------------------------------------------------

    def _cycles(self) -> list[Cycle]:
        cycles = []
        while self._landed:
            one, at_s = self._landed.popleft()
            self._landed_s = time.monotonic()
            took_s = 0.0 if self._last_s is None else at_s - self._last_s
            self._last_s = at_s
            for lane in one.report.lanes:
                if self._plan is None:
                    self._saw(lane)
                elif lane.plan == self._plan.version > self._acknowledged:
                    self._acknowledge(self._plan)
                    self._executors.give_back(self._busy_lanes)
                self._positions |= {str(r.name): r.end for r in lane.ranges}
                cycles.append(Cycle.of(lane, one.at_ms, took_s, self._was_behind))
            self._was_behind = one.report.is_behind
        return cycles

    def _saw(self, lane: LaneReport) -> None:
        """Without a plan: what it has read is where it is."""
        names = {str(r.name) for r in lane.ranges}
        others = {n: tuple(p for p in held if p not in names) for n, held in self._holds.items()}
        own = tuple(sorted(names.union(others.pop(lane.lane, ()))))
        self._holds = {n: held for n, held in {**others, lane.lane: own}.items() if held}

    def _answer(self, cycles: list[Cycle]) -> None:
        self._link.answer(
            Answer(
                host=0,
                version=self._acknowledged,
                lanes=self._holds,
                positions=self._positions,
                cycles=tuple(cycles),
                most_lanes=self._most_lanes,
                at_ms=round(time.time() * 1000),
            )
        )
        self._answered_s = time.monotonic()


def _busy(plan: Plan) -> int:
    """Lanes that have something."""
    return sum(1 for held in plan.lanes if held)


def _lanes(plan: Plan | None) -> dict[int, tuple[str, ...]]:
    return {lane: held for lane, held in enumerate(plan.lanes if plan else ()) if held}
