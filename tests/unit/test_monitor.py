"""The monitor, without a cluster: topics that go, and brokers that are slow to answer."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from penstock.autoscaler import monitor as monitors
from penstock.autoscaler.monitor import Monitor
from penstock.domain.lake.order import Marks
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.kafka.brokers import BrokersUnavailable

A, B = Partition("a", 0), Partition("b", 0)
PIPELINE = Pipeline(
    name="p",
    bootstrap_servers="nowhere:1",
    streams=(Stream(topics=("a", "b"), table="t"),),
    lake="/lake",
    discover_s=0.001,
)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s


class Brokers:
    """As many partitions as are left; each answer takes a while, and finds ten records more."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.partitions, self.takes_s = clock, {A, B}, 0.0
        self.known: set[str] = set()
        self.silent: dict[Partition, str] = {}
        self.skipped: tuple[str, ...] = ()
        self.is_away = False

    def discover(
        self, pipeline: Pipeline, known: Collection[str] = ()
    ) -> tuple[set[Partition], dict[str, str]]:
        self.known = set(known)
        return set(self.partitions), {}

    def marks(self, partitions: Collection[Partition]) -> dict[Partition, Marks]:
        self.clock.now_s += self.takes_s
        if self.is_away:
            raise BrokersUnavailable("nobody answers")
        return {p: Marks(0, int(20 * self.clock.now_s)) for p in partitions if p not in self.silent}


class NoSizes:
    problem = None

    def of(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        return {}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> tuple[Monitor, Brokers, Clock]:
    clock = Clock()
    brokers = Brokers(clock)
    monkeypatch.setattr(monitors, "time", clock)
    monkeypatch.setattr(monitors, "Brokers", lambda _: brokers)
    monkeypatch.setattr(monitors, "LogSizes", lambda _: NoSizes())
    return Monitor(PIPELINE, {}), brokers, clock


def test_a_topic_that_was_deleted_is_left_out_and_stays_known(
    world: tuple[Monitor, Brokers, Clock],
) -> None:
    monitor, brokers, clock = world
    monitor.knows(["c-7"])  # of an earlier life
    for _ in range(3):
        clock.now_s += 0.5
        monitor.look()
    brokers.partitions = {A}
    for _ in range(3):
        clock.now_s += 0.5
        measurement = monitor.look()
    assert measurement is not None and measurement.partitions.keys() == {"a-0"}
    assert brokers.known == {"a", "b", "c"}


def test_brokers_that_are_slow_are_believed_less_often(
    world: tuple[Monitor, Brokers, Clock],
) -> None:
    monitor, brokers, clock = world
    brokers.takes_s = 0.8  # longer than the time between two looks
    measurements = []
    for _ in range(20):
        clock.now_s += 0.5
        measurements.append(monitor.look())
    known = [one for one in measurements if one is not None]
    assert 2 <= len(known) < 8
    assert known[-1].partitions["a-0"].records_per_s == pytest.approx(20, rel=0.05)


def test_partitions_that_do_not_answer_for_long_are_stalled(
    world: tuple[Monitor, Brokers, Clock],
) -> None:
    monitor, brokers, clock = world
    monitor.look()
    brokers.silent = {B: "no leader"}
    since_s = clock.now_s
    for _ in range(9):
        monitor.look()
        clock.now_s += 0.5
    assert monitor.stalled == {}  # an election takes a moment
    clock.now_s += 0.5
    monitor.look()
    assert monitor.stalled == {B: since_s}
    brokers.is_away = True
    for _ in range(11):
        with pytest.raises(BrokersUnavailable):
            monitor.look()
        clock.now_s += 0.5
    assert monitor.stalled.keys() == {A, B}
    brokers.is_away, brokers.silent = False, {}
    monitor.look()
    assert monitor.stalled == {}
