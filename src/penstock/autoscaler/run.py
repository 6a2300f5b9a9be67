"""The thin host of monitor and controller: events in, actions out, until it is ended."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import KafkaException

from penstock.autoscaler.actions import (
    Action,
    Commanded,
    Decided,
    Event,
    Heard,
    Looked,
    Retire,
    Send,
    Start,
    Started,
    Tell,
)
from penstock.autoscaler.channel import HEARTBEAT_S, ControllerLink, SpeedsLink, Superseded, Topics
from penstock.autoscaler.controller import Controller
from penstock.autoscaler.monitor import Monitor
from penstock.autoscaler.policies import policy
from penstock.autoscaler.write_speed import PERIOD_S
from penstock.domain.autoscaling import Answer, Autoscaling, Command
from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.lake.pipeline import Pipeline
from penstock.pipeline.lake.brokers import Away

# A host that was not heard of for so long is taken for gone.
_SILENT_S = 15.0
# How a consumer ends that finds another one at work.
_IN_USE = BadInput.exit_code
# One that is at work is heard of within this.
_LISTEN_S = 1.5 * HEARTBEAT_S
_LOOK_S = 0.1
# How often a controller that has nothing to say finds out whether another one has begun.
_CHECK_S = 10.0
_PAUSE_S = 5.0


OnEvent = Callable[[Event], None]


class Keeper(Protocol):
    """Whoever starts and ends hosts."""

    # Hosts end when the autoscaler does.
    is_owner: bool

    def heard(self, answer: Answer) -> None: ...
    def alive(self) -> Collection[int]: ...
    def start(self, hosts: Collection[int]) -> None: ...
    def retire(self, used: Collection[int]) -> None: ...
    def close(self) -> None: ...


class PipelineKeeper:
    """Of a Spark pipeline, which somebody else runs: it is there if it is heard of."""

    is_owner = False

    def __init__(self) -> None:
        self._heard_s = float("-inf")

    def heard(self, answer: Answer) -> None:
        self._heard_s = time.monotonic()

    def alive(self) -> Collection[int]:
        return (0,) if time.monotonic() - self._heard_s < _SILENT_S else ()

    def start(self, hosts: Collection[int]) -> None:
        """That is for somebody else to do."""

    def retire(self, used: Collection[int]) -> None:
        """It is always used."""

    def close(self) -> None:
        """Nothing is ours."""


class ProcessKeeper:
    """Of plain consumers: each is a process, which is started and ended here.

    One of an earlier life of ours that is still at work is heard of, and is as good as our own; it
    is ended by command.
    """

    is_owner = True

    def __init__(self, file: Path, tell: OnEvent) -> None:
        self._file, self._tell = file, tell
        self._started_s: dict[int, float] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._heard_s: dict[int, float] = {}
        # Those that were told to end may still be heard of.
        self._dismissed: set[int] = set()

    def heard(self, answer: Answer) -> None:
        if answer.host in self._dismissed:
            return
        now_s = self._heard_s[answer.host] = time.monotonic()
        if (started_s := self._started_s.pop(answer.host, None)) is not None:
            self._tell(Started(answer.host, now_s - started_s))

    def alive(self) -> Collection[int]:
        """Those that say so: one that just begins would not answer yet."""
        for number in [n for n, process in self._processes.items() if process.poll() is not None]:
            if self._processes.pop(number).returncode != _IN_USE:
                self._heard_s.pop(number, None)
        now_s = time.monotonic()
        return [n for n, heard_s in self._heard_s.items() if now_s - heard_s < _SILENT_S]

    def start(self, hosts: Collection[int]) -> None:
        for number in set(hosts) - set(self.alive()) - self._processes.keys():
            what = ["autoscaler", "consumer", str(self._file), "--number", str(number)]
            self._dismissed.discard(number)
            self._started_s[number] = time.monotonic()
            try:
                self._processes[number] = subprocess.Popen(
                    [sys.executable, "-m", "penstock.cli.main", *what]
                )
            except OSError as error:  # of memory or processes there are too few: it is tried again
                text = f"consumer {number} cannot be started: {error.strerror}"
                self._tell(Tell(text, is_warning=True))

    def retire(self, used: Collection[int]) -> None:
        """The others hold nothing any more, so they may be ended at once."""
        surplus = {n: process for n, process in self._processes.items() if n not in used}
        self._dismissed |= {n for n in (*self._heard_s, *surplus) if n not in used}
        for process in surplus.values():
            process.terminate()
        for number, process in surplus.items():
            end(process)
            del self._processes[number]
        self._heard_s = {n: at_s for n, at_s in self._heard_s.items() if n in used}

    def close(self) -> None:
        self.retire(())


def end(process: subprocess.Popen[bytes], within_s: float = 30.0) -> None:
    """A consumer finishes its cycle first."""
    process.terminate()
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def new_controller(settings: Autoscaling, is_host_per_lane: bool) -> Controller:
    def host_of(lane: int) -> int:
        return lane if is_host_per_lane else 0

    return Controller(settings, policy(settings), host_of, time.monotonic())


def run(
    controller: Controller,
    monitor: Monitor,
    topics: Topics,
    keeper: Keeper,
    *,
    ended: threading.Event,
    tell: OnEvent,
    is_dry: bool = False,
) -> None:
    """`is_dry`: decisions are told, and nobody is commanded."""
    link = ControllerLink(topics, is_dry)
    speeds = SpeedsLink(topics)
    commands, answers = link.past()
    controller.on_past(commands, answers)
    for lanes in (*(c.lanes for c in commands.values()), *(a.lanes for a in answers.values())):
        monitor.knows(name for held in lanes.values() for name in held)
    next_look_s, next_check_s = time.monotonic(), time.monotonic() + _CHECK_S
    # The first one; of an earlier life, some may still be at work.
    starts_s = time.monotonic() + (_LISTEN_S if commands else 0.0)
    pretended = {0} if is_dry else set()
    try:
        while not ended.is_set():
            actions: list[Action] = []
            for answer in link.answers(_LOOK_S):
                keeper.heard(answer)
                tell(Heard(answer))
                actions += controller.on_answer(answer, time.monotonic())
            if time.monotonic() >= starts_s and not is_dry:
                starts_s = math.inf
                keeper.start([0])
            # What would be done, it says without a pipeline, too.
            actions += controller.on_hosts({*keeper.alive(), *pretended}, time.monotonic())
            if time.monotonic() >= next_look_s:
                next_look_s = time.monotonic() + PERIOD_S
                actions += _look(controller, monitor, speeds, tell)
            actions += controller.on_tick(time.monotonic())
            if time.monotonic() >= next_check_s and not is_dry:
                next_check_s = time.monotonic() + _CHECK_S
                actions.append(Send(0, Command(verb="tell")))
            if is_dry:
                pretended |= _pretend(actions, controller, tell)
            else:
                _carry_out(actions, link, keeper, tell)
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
        if keeper.is_owner and not is_dry:
            with suppress(KafkaException):  # it may be ended because Kafka is
                link.send([Send(host, Command(verb="end")) for host in keeper.alive()])
        raise
    finally:
        link.close()
        monitor.close()


def _look(
    controller: Controller, monitor: Monitor, speeds: SpeedsLink, tell: OnEvent
) -> list[Action]:
    try:
        measurement = monitor.look()
    except Away:
        return []  # the controller notices that what it knows is old
    if (problem := monitor.new_problem()) is not None:
        text = f"how large records are stored is not known, so decoded bytes count: {problem}"
        tell(Tell(text, is_warning=True))
    if measurement is None:
        return []
    speeds.tell(measurement)
    actions = controller.on_measured(measurement, time.monotonic())
    assert controller.seen is not None
    tell(Looked(measurement, controller.seen))
    return actions


def _carry_out(actions: list[Action], link: ControllerLink, keeper: Keeper, tell: OnEvent) -> None:
    for action in actions:
        if isinstance(action, Event):
            tell(action)
    # First, as one that is superseded ends here, and starts nobody any more.
    if sends := [action for action in actions if isinstance(action, Send)]:
        link.send(sends)
    for action in actions:
        if isinstance(action, Start):
            keeper.start(action.hosts)
    for action in actions:
        if isinstance(action, Decided):
            tell(Commanded(time.monotonic() - action.at_s))
    for action in actions:
        if isinstance(action, Retire):
            keeper.retire(action.hosts)


def _pretend(actions: list[Action], controller: Controller, tell: OnEvent) -> set[int]:
    """As if every command were acted on at once; gives the hosts that would be started."""
    started: set[int] = set()
    for action in actions:
        if isinstance(action, Event):
            tell(action)
        elif isinstance(action, Start):
            started |= action.hosts
        elif isinstance(action, Send) and action.command.verb != "end":
            command = action.command
            told = (
                controller.hosts[action.host].present if command.verb == "tell" else command.lanes
            )
            answer = Answer(host=action.host, version=command.version, lanes=told)
            started |= _pretend(controller.on_answer(answer, time.monotonic()), controller, tell)
    return started


def run_for_good(
    pipeline: Pipeline,
    config: Mapping[str, Any],
    topics: Topics,
    keeper: Keeper,
    *,
    is_host_per_lane: bool,
    ended: threading.Event,
    tell: OnEvent,
    is_dry: bool = False,
) -> None:
    """`run`, begun anew from what the topics say whenever Kafka was away too long. Ends with
    `Superseded` if another controller begins."""
    monitor = Monitor(pipeline, config)
    while not ended.is_set():
        controller = new_controller(pipeline.autoscaling, is_host_per_lane)
        try:
            run(controller, monitor, topics, keeper, ended=ended, tell=tell, is_dry=is_dry)
        except (Superseded, BadInput):
            raise
        except (PenstockError, KafkaException, OSError, ValueError) as error:
            tell(Tell(f"the plan stays as it is: {error}", is_warning=True))
            ended.wait(_PAUSE_S)


class Pilot:
    """Monitor and controller of a Spark pipeline in a thread, beside the pipeline itself."""

    def __init__(
        self,
        pipeline: Pipeline,
        config: Mapping[str, Any],
        topics: Topics,
        tell: OnEvent,
    ) -> None:
        self._what = pipeline, config, topics, PipelineKeeper()
        self._tell = tell
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autoscaler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            run_for_good(*self._what, is_host_per_lane=False, ended=self._ended, tell=self._tell)
        except PenstockError as error:  # the pipeline goes on without it
            self._tell(Tell(error.message, is_warning=True))
