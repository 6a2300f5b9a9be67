"""Monitor and controller at work without Kafka: a controller that is replaced lets go of everything."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fake_topics import FakeTopics, Log

from penstock.autoscaler import loop as module
from penstock.autoscaler.channel import ControllerLink, HostLink, Superseded
from penstock.autoscaler.core.actions import (
    Action,
    AutoscalerEvent,
    AutoscalerNotice,
    LanesDecided,
    Retire,
    Send,
    Start,
)
from penstock.autoscaler.core.claim import Claimant
from penstock.autoscaler.group import Group
from penstock.autoscaler.loop import busy_limit_s, run_for_good
from penstock.domain.autoscaling import Command, HostAnswer, PartitionSpeed, SpeedMeasurement
from penstock.domain.errors import BadInput, TooManyRejects
from penstock.domain.lake.cycle import LaneCycle
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.value import FieldError
from penstock.kafka.waiting import wait_until
from penstock.lake.checkpoint import Checkpoint


class HostManager:
    """Whose hosts run as soon as they are started."""

    is_owner = True

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.lives: list[str] = []
        self.calls: list[str] = []

    def heard(self, answer: HostAnswer) -> None:
        self.running.add(answer.host)
        self.lives.append(answer.incarnation)

    def alive(self) -> Collection[int]:
        return set(self.running)

    def start(self, hosts: Collection[int]) -> None:
        self.calls.append(f"start {sorted(hosts)}")

    def retire(self, used: Collection[int]) -> None:
        self.calls.append(f"retire all but {sorted(used)}")

    def close(self) -> None: ...


class Monitor:
    """One partition, at a hundred bytes a second."""

    stalled: ClassVar[dict[Partition, float]] = {}
    skipped = ()

    def __init__(self, pipeline: Pipeline, config: object) -> None: ...

    def look(self) -> SpeedMeasurement | None:
        speed = PartitionSpeed(records_per_s=100.0, bytes_per_record=1.0, end=0)
        return SpeedMeasurement(at_ms=0, partitions={"t-0": speed})

    def knows(self, names: Iterable[str]) -> None:
        list(names)

    def new_problem(self) -> str | None:
        return None

    def close(self) -> None: ...


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    streams = (Stream(topics=("t",), table="t"),)
    return Pipeline(name="p", bootstrap_servers="x:1", streams=streams, lake=str(tmp_path / "lake"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Monitor", Monitor)
    monkeypatch.setattr(module, "PERIOD_S", 0.01)
    for name in ("_LOOK_S", "_PAUSE_S", "_LOOK_FOR_ID_S", "_LISTEN_S", "_CHECK_S", "_SURE_S"):
        monkeypatch.setattr(module, name, 0.01)


class Run:
    """`run_for_good` in a thread, and what came of it."""

    def __init__(
        self, group: Group, topics: FakeTopics, manager: HostManager, is_dry: bool
    ) -> None:
        self.told: list[AutoscalerEvent] = []
        self.error: Exception | None = None
        self.ended = threading.Event()
        self._what = group, topics, manager, is_dry
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        group, topics, manager, is_dry = self._what
        try:
            run_for_good(
                group, {}, topics, manager, ended=self.ended, tell=self.told.append, is_dry=is_dry
            )
        except Exception as error:
            self.error = error

    @property
    def warnings(self) -> list[str]:
        return [e.text for e in list(self.told) if isinstance(e, AutoscalerNotice) and e.is_warning]


@contextmanager
def running(
    group: Group, log: Log, manager: HostManager | None = None, is_dry: bool = False
) -> Iterator[Run]:
    it = Run(group, FakeTopics(log), manager or HostManager(), is_dry)
    it.thread.start()
    try:
        yield it
    finally:
        it.ended.set()
        it.thread.join(10)
        assert not it.thread.is_alive()


def awaits(what: str, is_so: Callable[[], bool]) -> None:
    wait_until(is_so, timeout_s=10, what=what, every_s=0.005)


def spark(pipeline: Pipeline) -> tuple[Group, str]:
    identity = Checkpoint(Path(pipeline.checkpoint_path)).open(pipeline)
    return Group(pipeline, is_plain=False), identity.id


def successor(log: Log, group: str) -> ControllerLink:
    link = ControllerLink(FakeTopics(log), group, Claimant("successor"))
    link.begin()
    return link


def has_begun(log: Log) -> bool:
    return any(type(m).__name__ == "Claim" for m in log.messages(0))


# --- a controller that was replaced ---------------------------------------------------------------------


def test_a_controller_that_lost_kafka_ends_if_another_one_began_meanwhile(
    pipeline: Pipeline,
) -> None:
    log = Log()
    group, own = spark(pipeline)
    with running(group, log) as it:
        awaits("it is the controller", lambda: has_begun(log))
        log.is_away = True
        awaits("it has noticed", lambda: bool(it.warnings))
        log.is_away = False
        # It may come back at any moment from here on; the first to notice must end.
        second = successor(log, own)
        awaits("it ends", lambda: not it.thread.is_alive())
        assert isinstance(it.error, Superseded)
        second.send([Send(0, Command(version=1))])


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [(FieldError("end", -1, "must be 0 or more"), True), (BadInput("x"), False)],
)
def test_a_figure_that_cannot_be_ends_no_controller_but_bad_input_does(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, error: Exception, goes_on: bool
) -> None:
    def fail(_: Monitor) -> SpeedMeasurement | None:
        raise error

    monkeypatch.setattr(Monitor, "look", fail)
    with running(spark(pipeline)[0], Log()) as it:
        awaits("it is met", lambda: bool(it.warnings or it.error))
        assert (it.error is None) == goes_on


def test_a_controller_that_lost_kafka_continues_if_not_replaced(pipeline: Pipeline) -> None:
    log = Log()
    group, own = spark(pipeline)
    with running(group, log) as it:
        awaits("it is the controller", lambda: has_begun(log))
        log.is_away = True
        awaits("it has noticed", lambda: bool(it.warnings))
        log.is_away = False
        host = HostLink(FakeTopics(log), 0, own)

        def is_commanded() -> bool:
            host.answer(HostAnswer(host=0))
            return any(m.term > 1 for m in log.messages(1))

        awaits("it commands", is_commanded)
    assert it.error is None


@pytest.mark.parametrize("action", [Start(frozenset({0})), Retire(frozenset())])
def test_a_controller_that_was_replaced_starts_and_ends_nobody(
    monkeypatch: pytest.MonkeyPatch, action: Action
) -> None:
    log, manager = Log(), HostManager()
    link = ControllerLink(FakeTopics(log), "own", Claimant("paused"))
    link.begin()
    monkeypatch.setattr(module, "_SURE_S", -1.0)
    module._execute([action], link, manager, print)
    assert len(manager.calls) == 1
    successor(log, "own")
    with pytest.raises(Superseded):
        module._execute([action], link, manager, print)
    assert len(manager.calls) == 1


def test_a_controller_that_was_replaced_ends_nobody_when_it_is_ended(pipeline: Pipeline) -> None:
    """SIGTERM, before it has found out by itself: what runs is the other one's."""
    log = Log()
    group, own = spark(pipeline)

    def ended() -> bool:
        successor(log, own)
        raise SystemExit(143)

    link = ControllerLink(FakeTopics(log), own, Claimant("paused"))
    with pytest.raises(Superseded):
        module.run(
            module.new_controller(group),
            Monitor(pipeline, {}),  # type: ignore[arg-type]
            link,
            HostManager(),
            is_over=ended,
            tell=print,
            speeds=None,
        )


def test_an_earlier_life_of_a_host_does_not_pass_for_one_that_runs(pipeline: Pipeline) -> None:
    log, manager = Log(), HostManager()
    group, own = spark(pipeline)
    old, new = (HostLink(FakeTopics(log), 0, own) for _ in range(2))
    with running(group, log, manager) as it:
        awaits("it is the controller", lambda: has_begun(log))
        for one in (old, new, old, old):
            one.answer(HostAnswer(host=0))
        awaits("it is told", lambda: any("earlier process" in w for w in it.warnings))
        new.answer(HostAnswer(host=0))
        awaits("all were read", lambda: len(manager.lives) == 3)
    first, second, third = manager.lives
    assert first != second == third


def test_plain_consumers_that_reject_too_much_are_warned_of_and_then_all_are_ended(
    pipeline: Pipeline,
) -> None:
    log, manager = Log(), HostManager()
    group = Group(replace(pipeline, rejects_stop_share=0.5), is_plain=True)
    own = group.make_id()
    hosts = [HostLink(FakeTopics(log), number, own) for number in range(2)]
    with running(group, log, manager) as it:
        awaits("it is the controller", lambda: has_begun(log))
        for rejected in (20, 600):
            for number, host in enumerate(hosts):
                cycle = LaneCycle(
                    lane=number,
                    took_s=1.0,
                    is_saturated=False,
                    size_bytes=1,
                    records=600 if number else 0,
                    rejects={"not-json": rejected} if number else {},
                )
                host.answer(HostAnswer(host=number, cycles=(cycle,)))
            if rejected == 20:
                awaits("a second host", lambda: 1 in manager.running)
        it.thread.join(10)
    assert isinstance(it.error, TooManyRejects)
    assert it.error.message.startswith("620 of the 1,200 records of the last minute were rejected")
    warnings = [w for w in it.warnings if "records of the last minute were rejected" in w]
    assert len(warnings) == 1
    for host in hosts:
        verbs = []
        while (command := host.command(0.0)) is not None:
            verbs.append(command.verb)
        assert "end" in verbs


# --- groups ---------------------------------------------------------------------------------------------


def test_it_waits_for_a_pipeline_that_has_not_run_yet(pipeline: Pipeline) -> None:
    log = Log()
    with running(Group(pipeline, is_plain=False), log) as it:
        awaits("it says so", lambda: bool(it.warnings))
        assert it.warnings[0].endswith("waiting: no pipeline has run with this checkpoint yet")
        assert log.size == 0
        _, own = spark(pipeline)
        awaits("it is the controller", lambda: has_begun(log))
        assert {m.group for m in log.messages(0)} == {own}
    assert len(it.warnings) == 1


def test_it_can_be_ended_while_it_waits(pipeline: Pipeline) -> None:
    with running(Group(pipeline, is_plain=False), Log()) as it:
        awaits("it says so", lambda: bool(it.warnings))
    assert it.error is None


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_dry_run_writes_nothing_to_topics_or_lake(
    pipeline: Pipeline, tmp_path: Path, is_plain: bool
) -> None:
    log, manager = Log(), HostManager()
    with running(Group(pipeline, is_plain), log, manager, is_dry=True) as it:
        awaits("it decides", lambda: any(isinstance(e, LanesDecided) for e in list(it.told)))
    assert (log.size, manager.calls, list(tmp_path.iterdir())) == (0, [], [])


def test_a_dry_run_that_began_before_the_pipeline_hears_of_it(pipeline: Pipeline) -> None:
    log, manager = Log(), HostManager()
    with running(Group(pipeline, is_plain=False), log, manager, is_dry=True) as it:
        awaits("it has begun", lambda: bool(it.told))
        _, own = spark(pipeline)
        host = HostLink(FakeTopics(log), 0, own)

        def is_heard() -> bool:
            host.answer(HostAnswer(host=0, lanes={0: ("t-0",)}))
            return 0 in manager.running

        awaits("it hears of it", is_heard)


def test_consumers_that_the_lake_knows_are_started_to_be_asked(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(pipeline, autoscaling=replace(pipeline.autoscaling, answer_s=0.05))
    group = Group(spec, is_plain=True)
    group.make_id()
    reports = Path(spec.checkpoint_path) / "consumers/2/reports"
    reports.mkdir(parents=True)
    (reports / "0.json").touch()
    log, manager = Log(), HostManager()
    with running(group, log, manager):
        awaits("it is started", lambda: any("2" in call for call in list(manager.calls)))


# --- how long a turn may take -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "limit_s"),
    [
        ({}, 60.0),
        ({"lane_seconds": 30.0}, 300.0),
        # A lane that is held back to spare its sink sleeps for as long.
        ({"lane_bytes": 1_000_000, "lane_limit_bytes_per_s": 10_000.0}, 1000.0),
    ],
)
def test_a_turn_may_take_many_times_what_a_cycle_takes(
    pipeline: Pipeline, fields: dict[str, Any], limit_s: float
) -> None:
    assert busy_limit_s(replace(pipeline, **fields)) == limit_s
