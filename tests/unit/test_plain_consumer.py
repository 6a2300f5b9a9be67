"""A plain consumer without Kafka and lake: what it says of itself while it works, or hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.autoscaler import consumer as module
from penstock.autoscaler.consumer import PlainConsumer, ending, joined
from penstock.autoscaler.group import consumers_path
from penstock.autoscaler.topics import Topics
from penstock.domain.autoscaling import Command, HostAnswer
from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.lake.order import LaneTask, Marks, Position
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.lake.report import BatchReport, LandedRange, LaneReport
from penstock.domain.value import FieldError
from penstock.kafka.brokers import BrokersUnavailable
from penstock.kafka.waiting import wait_until
from penstock.lake import lane
from penstock.lake.landing import Landed


class Link:
    group = "b" * 32

    def __init__(self, last: Command | None = None) -> None:
        self.last = last
        self.answers: list[HostAnswer] = []

    def past(self) -> Command | None:
        return self.last

    def command(self, timeout_s: float) -> Command | None:
        return None

    def answer(self, answer: HostAnswer) -> None:
        self.answers.append(answer)

    def close(self) -> None: ...


class Landing:
    class checkpoint:
        newest_report = -1


class Kafka:
    """A consumer and the brokers, as far as it is asked."""

    groups: ClassVar[list[str]] = []

    def __init__(self, *_: Any, group: str = "") -> None:
        self.groups.append(group)

    def close(self) -> None: ...


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    streams = (Stream(topics=("t",), table="t"),)
    return Pipeline(name="p", bootstrap_servers="x:1", streams=streams, lake=str(tmp_path))


@contextmanager
def serving(
    pipeline: Pipeline, link: Link, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PlainConsumer]:
    monkeypatch.setattr(module, "resumed", lambda *_: Landing)
    monkeypatch.setattr(module, "LaneConsumer", Kafka)
    monkeypatch.setattr(module, "Brokers", Kafka)
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.02)
    served = PlainConsumer(pipeline, {}, 1, link)  # type: ignore[arg-type]
    try:
        yield served
    finally:
        served.close()


def test_a_main_thread_that_hangs_shows_in_the_heartbeat(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, hangs = Link(), threading.Event()
    with serving(pipeline, link, monkeypatch) as served:

        def cycle() -> None:
            hangs.wait(10)

        monkeypatch.setattr(served, "_cycle", cycle)
        turn = threading.Thread(target=served.serve_once)
        turn.start()
        wait_until(
            lambda: link.answers[-1].busy_s > 0.3, timeout_s=5, what="that it has not come back"
        )
        hangs.set()
        turn.join()
        before = len(link.answers)
        wait_until(
            lambda: len(link.answers) > before + 1 and link.answers[-1].busy_s < 0.3,
            timeout_s=5,
            what="that it has finished its turn",
        )


def test_what_the_ledger_refuses_ends_it_and_its_next_life_begins_where_the_ledger_ends(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused, and others landed what it had read."""
    landed = {Partition("t", 0): 10}

    def refuse() -> None:
        raise PenstockError("another process has landed these records", "stop one of the two")

    def from_ledger(_: Pipeline, partitions: set[Partition]) -> dict[Partition, Position]:
        return {partition: Position(landed[partition]) for partition in partitions}

    monkeypatch.setattr(module, "reached", from_ledger)
    link = Link(Command(version=1, lanes={1: ("t-0",)}))
    with serving(pipeline, link, monkeypatch) as served:
        assert link.answers[-1].positions == {"t-0": 10}
        landed[Partition("t", 0)] = 25
        monkeypatch.setattr(served, "_cycle", refuse)
        with pytest.raises(PenstockError) as ended, ending(1):
            served.serve_once()
    assert ended.value.message == "consumer 1 ends: another process has landed these records"
    assert (ended.value.fix, ended.value.exit_code) == ("stop one of the two", 1)
    with serving(pipeline, link, monkeypatch):
        assert link.answers[-1].positions == {"t-0": 25}


@pytest.mark.parametrize(
    ("partitions", "problem"),
    [
        (0, "there is no command topic penstock.p.group"),
        (2, "number: 1 must be below 1, the number of hosts"),
    ],
)
def test_a_consumer_that_no_controller_expects_is_refused(
    partitions: int, problem: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Topics, "count", lambda _: partitions)
    with pytest.raises(BadInput, match=problem), joined(pipeline, 1, print):
        pass


def test_it_serves_until_it_is_dismissed_or_ended(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, link, turns = threading.Event(), Link(), 0

    def cycle() -> None:
        nonlocal turns
        turns += 1
        if turns == 2:
            ended.set()

    with serving(pipeline, link, monkeypatch) as served:
        monkeypatch.setattr(served, "_cycle", cycle)
        served.serve(ended)
        assert turns == 2
        ended.clear()
        commands = [Command(verb="end")]
        monkeypatch.setattr(link, "command", lambda _: commands.pop() if commands else None)
        served.serve(ended)
    assert served.is_dismissed and turns == 2


def test_a_failed_consumer_keeps_its_exit_code() -> None:
    with pytest.raises(BadInput, match="consumer 3 ends: in use") as ended, ending(3):
        raise BadInput("in use")
    assert ended.value.exit_code == 2


def test_offsets_are_committed_under_a_name_of_its_own_group(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kafka.groups.clear()
    with serving(pipeline, Link(), monkeypatch):
        assert f"penstock.p.{Link.group}" in Kafka.groups


def test_the_number_of_a_consumer_is_added_to_every_kind_of_error() -> None:
    with pytest.raises(FieldError, match="consumer 3 ends: lanes: 0 must be 1 or more"), ending(3):
        raise FieldError("lanes", 0, "must be 1 or more")


class Backlog(Kafka):
    """Brokers with one partition, of which a cycle takes ten records."""

    high = 1000
    is_away = False

    def marks(self, partitions: set[Partition]) -> dict[Partition, Marks]:
        if self.is_away:
            raise BrokersUnavailable("no broker answers")
        return dict.fromkeys(partitions, Marks(0, self.high))

    def with_log_ends(self, marks: Mapping[Partition, Marks], _: Any) -> Mapping[Partition, Marks]:
        return marks

    def topic_ids(self, topics: list[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "id")

    def commit(self, _: Any) -> None: ...

    @classmethod
    def work(cls, task: LaneTask, *_: Any) -> LaneReport:
        ranges = [
            LandedRange(
                topic=p.topic,
                partition=p.number,
                start=r.start,
                end=min(r.start + 10, r.end),
                known_end=r.end,
                lost_from=r.start,
            )
            for p, r in task.ranges.items()
        ]
        return LaneReport(batch=task.batch, lane=task.lane, ranges=tuple(ranges))

    @staticmethod
    def land(batch: int, lanes: Callable[[], Sequence[LaneReport]]) -> Landed:
        return Landed(BatchReport(batch=batch, lanes=tuple(lanes())), 0.0, 0, False)


def test_a_cycle_counts_if_the_one_before_left_a_backlog_and_it_followed_at_once(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "reached", lambda *_: {})
    monkeypatch.setattr(module, "_IDLE_S", 0.0)
    monkeypatch.setattr(lane, "work", Backlog.work)
    monkeypatch.setattr(Landing, "land", Backlog.land, raising=False)
    consumers_path(pipeline).joinpath("topics").mkdir(parents=True)
    link = Link(Command(version=1, lanes={1: ("t-0",)}))

    def turn() -> list[bool]:
        before = len(link.answers)
        served.serve_once()
        return [c.is_saturated for answer in link.answers[before:] for c in answer.cycles]

    with serving(pipeline, link, monkeypatch) as served:
        brokers = Backlog()
        monkeypatch.setattr(served, "_brokers", brokers)
        monkeypatch.setattr(served, "_consumer", brokers)
        assert turn() == [False], "what was before is not known"
        assert turn() == [True]
        brokers.is_away = True
        assert turn() == []
        brokers.is_away = False
        assert turn() == [False], "it waited for the brokers"
        assert turn() == [True]
        brokers.high = 45
        assert turn() == [False], "it took all there was"
