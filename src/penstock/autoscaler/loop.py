"""The main loop of the autoscaler: feeds events to the controller and carries out its actions."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaException

from penstock.autoscaler.channel import HEARTBEAT_S, ControllerLink, SpeedsLink, Superseded
from penstock.autoscaler.core.actions import (
    Action,
    AutoscalerEvent,
    GroupMeasured,
    HostAnswered,
    LanesCommanded,
    LanesDecided,
    Retire,
    Send,
    Start,
    warning,
)
from penstock.autoscaler.core.claim import Claimant
from penstock.autoscaler.core.controller import BUSY_S, Controller
from penstock.autoscaler.core.write_speed import PERIOD_S
from penstock.autoscaler.group import Group
from penstock.autoscaler.host_managers import HostManager, OnEvent, PipelineHosts
from penstock.autoscaler.monitor import Monitor
from penstock.autoscaler.plain_watch import PlainWatch
from penstock.autoscaler.topics import Topics
from penstock.domain.autoscaling import Command, HostAnswer
from penstock.domain.errors import BadInput, GroupStopped, PenstockError, TooManyRejects
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.value import FieldError
from penstock.kafka.brokers import BrokersUnavailable

# Errors that end a group of plain consumers until a person has decided.
_FINAL = (GroupStopped, TooManyRejects)
# A running host answers within this time.
_LISTEN_S = 1.5 * HEARTBEAT_S
_LOOK_S = 0.1
# How often a controller without commands checks whether another one has taken over; and the highest
# age of that check when it starts or ends a process. One that was paused (SIGSTOP) for longer
# checks first.
_CHECK_S = 10.0
_SURE_S = 3.0
_PAUSE_S = 5.0
# How often to check whether the pipeline has run and therefore has an id.
_LOOK_FOR_ID_S = 1.0
# A turn that takes this many times the configured time of a cycle hangs.
_CYCLES = 10


def new_controller(group: Group) -> Controller:
    settings = group.pipeline.autoscaling
    limit_s = busy_limit_s(group.pipeline)
    return Controller(
        settings, settings.policy.decider(settings), group.host_of, time.monotonic(), limit_s
    )


def busy_limit_s(pipeline: Pipeline) -> float:
    """How long one turn of a host may take: well above the configured time of a cycle."""
    sink = pipeline.lane_limit_bytes_per_s
    paced_s = 0.0 if sink is None else pipeline.lane_bytes / sink
    return max(BUSY_S, _CYCLES * max(pipeline.lane_seconds, paced_s))


def run(
    controller: Controller,
    monitor: Monitor,
    link: ControllerLink,
    manager: HostManager,
    *,
    is_over: Callable[[], bool],
    tell: OnEvent,
    speeds: SpeedsLink | None,
    landers: Collection[int] = (),
    watch: PlainWatch | None = None,
) -> None:
    """Run until `is_over`. If `link` is dry, decisions are reported but not sent. `landers`: hosts
    that the lake knows, even if the topic lost their messages. `watch`: for plain consumers, whose
    rejects and stalls nothing else reports; `TooManyRejects` ends them."""
    is_dry = link.is_dry
    past = link.begin()
    commands, answers = past.commands, past.answers
    controller.on_past(commands, answers, landers)
    for lanes in (*(c.lanes for c in commands.values()), *(a.lanes for a in answers.values())):
        monitor.knows(name for held in lanes.values() for name in held)
    next_look_s = time.monotonic()
    # When the first host is started: hosts of an earlier controller may still run.
    starts_s = time.monotonic() + (_LISTEN_S if controller.hosts else 0.0)
    pretended = {0} if is_dry else set()
    try:
        while not is_over():
            actions: list[Action] = []
            for answer in link.answers(_LOOK_S):
                if not controller.is_former(answer):
                    manager.heard(answer)
                    tell(HostAnswered(answer))
                    if watch is not None:
                        _tell_all(watch.on_answer(answer, time.monotonic()), tell)
                actions += controller.on_answer(answer, time.monotonic())
            if time.monotonic() >= starts_s and not is_dry:
                starts_s = math.inf
                actions.append(Start(frozenset({0})))
            # A dry run also decides without a pipeline.
            actions += controller.on_hosts({*manager.alive(), *pretended}, time.monotonic())
            if time.monotonic() >= next_look_s:
                next_look_s = time.monotonic() + PERIOD_S
                actions += _look(controller, monitor, speeds, tell)
                if watch is not None:
                    _tell_all(watch.on_look(monitor.stalled, monitor.skipped), tell)
            actions += controller.on_tick(time.monotonic())
            link.assure(_CHECK_S)
            if is_dry:
                pretended |= _pretend(actions, controller, tell)
            else:
                _execute(actions, link, manager, tell)
    except (KeyboardInterrupt, SystemExit, *_FINAL):  # Ctrl-C, SIGTERM
        if manager.is_owner and not is_dry:
            # Even without hosts: if another controller has taken over, `send` raises, and the
            # consumers belong to that one and must not be ended.
            with suppress(KafkaException):  # Kafka may be down, too
                link.send([Send(host, Command(verb="end")) for host in manager.alive()])
        raise
    finally:
        monitor.close()


def _tell_all(events: list[AutoscalerEvent], tell: OnEvent) -> None:
    for event in events:
        tell(event)


def _look(
    controller: Controller, monitor: Monitor, speeds: SpeedsLink | None, tell: OnEvent
) -> list[Action]:
    try:
        measurement = monitor.look()
    except BrokersUnavailable:
        return []  # the controller notices that its measurements are old
    if (problem := monitor.new_problem()) is not None:
        text = "the stored size of records is unknown: using decoded sizes"
        tell(warning(f"{text}: {problem}"))
    if measurement is None:
        return []
    if speeds is not None:
        speeds.tell(measurement)
    actions = controller.on_measured(measurement, time.monotonic())
    assert controller.seen is not None
    tell(GroupMeasured(measurement, controller.seen, controller.busy_s))
    return actions


def _execute(
    actions: list[Action], link: ControllerLink, manager: HostManager, tell: OnEvent
) -> None:
    for action in actions:
        if isinstance(action, AutoscalerEvent):
            tell(action)
    # Sent first: a superseded controller ends here, and starts or ends no process any more.
    if sends := [action for action in actions if isinstance(action, Send)]:
        link.send(sends)
    if any(isinstance(action, Start | Retire) for action in actions):
        link.assure(_SURE_S)
    for action in actions:
        if isinstance(action, Start):
            manager.start(action.hosts)
    for action in actions:
        if isinstance(action, LanesDecided):
            tell(LanesCommanded(time.monotonic() - action.at_s))
    for action in actions:
        if isinstance(action, Retire):
            manager.retire(action.hosts)


def _pretend(actions: list[Action], controller: Controller, tell: OnEvent) -> set[int]:
    """Pretend that every command is acted on at once; returns the hosts that would be started."""
    started: set[int] = set()
    for action in actions:
        if isinstance(action, AutoscalerEvent):
            tell(action)
        elif isinstance(action, Start):
            started |= action.hosts
        elif isinstance(action, Send) and action.command.verb != "end":
            command, host = action.command, controller.hosts[action.host]
            lanes = host.present if command.verb == "tell" else command.lanes
            answer = HostAnswer(
                host=action.host,
                version=command.version,
                lanes=lanes,
                # As if the running host had answered, if there is one.
                incarnation=host.incarnation or "",
            )
            started |= _pretend(controller.on_answer(answer, time.monotonic()), controller, tell)
    return started


def run_for_good(
    group: Group,
    config: Mapping[str, Any],
    topics: Topics,
    manager: HostManager,
    *,
    ended: threading.Event,
    tell: OnEvent,
    is_dry: bool = False,
) -> None:
    """`run`, restarted from the topics after errors, as when Kafka was unavailable for too long.
    Ends with `Superseded` if another controller takes over, also while Kafka was unavailable. A
    group of plain consumers ends with `TooManyRejects`, or with `GroupStopped` (lost offsets)."""

    def warn(text: str) -> None:
        tell(warning(text))

    monitor = Monitor(group.pipeline, config)
    claimant = Claimant(uuid.uuid4().hex)
    watch = PlainWatch(group.pipeline) if group.is_plain and not is_dry else None
    while not ended.is_set():
        try:
            own = group.id() if is_dry else _await_id(group, ended, warn)
            if own is None and not is_dry:
                return
            topics.make(warn)
            with closing(ControllerLink(topics, own, claimant, warn=warn, is_dry=is_dry)) as link:
                run(
                    new_controller(group),
                    monitor,
                    link,
                    manager,
                    is_over=partial(_is_over, ended, group, own),
                    tell=tell,
                    speeds=None if is_dry else SpeedsLink(topics),
                    landers=() if is_dry else group.landers(),
                    watch=watch,
                )
        except (PenstockError, KafkaException, OSError, ValueError) as error:
            # A FieldError is about a figure that was measured, and the next may be better.
            is_bad_input = isinstance(error, BadInput) and not isinstance(error, FieldError)
            if is_bad_input or isinstance(error, (Superseded, *_FINAL)):
                raise
            warn(f"the plan is unchanged: {error}")
            ended.wait(_PAUSE_S)


def _is_over(ended: threading.Event, group: Group, own: str | None) -> bool:
    """A dry run that began before the pipeline had an id starts over when it has one."""
    return ended.is_set() or (own is None and group.id() is not None)


def _await_id(group: Group, ended: threading.Event, warn: Callable[[str], None]) -> str | None:
    """Wait until the pipeline has an id; None if `ended` is set before."""
    is_warned = False
    while (own := group.id()) is None and not ended.is_set():
        if not is_warned:
            path = group.pipeline.checkpoint_path
            warn(f"{path}: waiting: no pipeline has run with this checkpoint yet")
        is_warned = True
        ended.wait(_LOOK_FOR_ID_S)
    return own


@contextmanager
def beside(
    pipeline: Pipeline, config: Mapping[str, Any], topics: Topics, tell: OnEvent
) -> Iterator[None]:
    """Monitor and controller of a Spark pipeline in a thread, beside the pipeline itself."""
    ended = threading.Event()

    def decide() -> None:
        group = Group(pipeline, is_plain=False)
        try:
            run_for_good(group, config, topics, PipelineHosts(), ended=ended, tell=tell)
        except PenstockError as error:  # the pipeline continues without it
            tell(warning(error.message))

    thread = threading.Thread(target=decide, name="autoscaler", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
