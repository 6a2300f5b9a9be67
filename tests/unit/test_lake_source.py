"""Where orders come from: brokers that are silent, logs that were cut, orders of an earlier life."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.domain.errors import PenstockError
from penstock.domain.lake.order import Marks, Order, Range
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.lake.report import BatchReport, LandedRange, LaneReport
from penstock.kafka.brokers import BrokersUnavailable
from penstock.lake import source
from penstock.lake.checkpoint import Blocker, Checkpoint
from penstock.lake.source import LaneJob, OrderBook

A, B, U = Partition("t", 0), Partition("t", 1), Partition("u", 0)


class Cluster:
    """Brokers that say what they are told to say."""

    def __init__(self) -> None:
        self.ids = {"t": "one"}
        self.all = {A: Marks(0, 10), B: Marks(0, 10)}
        self.silent: dict[Partition, str] = {}
        self.skipped: tuple[str, ...] = ()
        self.is_away = False

    def discover(self, pipeline: Pipeline, *_: Any) -> tuple[set[Partition], dict[str, str]]:
        taken = [topic for topic in self.ids if pipeline.stream_of(topic) is not None]
        return {p for p in self.all if p.topic in taken}, self.topic_ids(taken)

    def with_log_ends(self, marks: dict[Partition, Marks], _: Any) -> dict[Partition, Marks]:
        return marks

    def topic_ids(self, topics: list[str]) -> dict[str, str]:
        return {topic: id_ for topic, id_ in self.ids.items() if topic in topics}

    def marks(self, partitions: Any) -> dict[Partition, Marks]:
        if self.is_away:
            raise BrokersUnavailable("no broker answers")
        marks = {p: self.all[p] for p in partitions if p in self.all and p not in self.silent}
        if partitions and not marks:
            raise BrokersUnavailable("none of them answers")
        return marks


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    fake_cluster = Cluster()
    monkeypatch.setattr(source, "Brokers", lambda _: fake_cluster)
    monkeypatch.setattr(source, "_PAUSE_S", 0.0)
    return fake_cluster


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Both clocks stand still until they are moved."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    (tmp_path / "reports").mkdir()
    return Checkpoint(tmp_path)


def book(checkpoint: Checkpoint, *, topics: tuple[str, ...] = ("t",), **fields: Any) -> OrderBook:
    pipeline = Pipeline(
        name="p",
        bootstrap_servers="x:1",
        streams=(Stream(topics=topics, table="t"),),
        lake=str(checkpoint.path),
        every_s=0,
        discover_s=1,
        **fields,
    )
    return OrderBook(LaneJob(pipeline, {}, checkpoint, "id"))


def landed(order: Order, checkpoint: Checkpoint, **odd: Any) -> None:
    """Every range was read to its end; `odd` describes what differs in t-0."""
    ranges = tuple(
        LandedRange(
            topic=p.topic,
            partition=p.number,
            start=r.start,
            end=r.end,
            known_end=r.end,
            lost_from=r.lost_from,
            **{
                "leader_epoch": 1,
                "truncated_from": r.truncated_from,
                **(odd if p == A else {}),
            },
        )
        for p, r in order.ranges.items()
        if r.has_work
    )
    lane = LaneReport(batch=order.number, lane=0, ranges=ranges)
    checkpoint.write_report(BatchReport(batch=order.number, lanes=(lane,)))


def told(checkpoint: Checkpoint) -> Blocker:
    blocker = checkpoint.blocker()
    assert blocker is not None
    return blocker


# --- logs that were cut ------------------------------------------------------------------------------


def test_a_log_that_is_short_for_a_moment_is_waited_for(
    cluster: Cluster, clock: list[float], checkpoint: Checkpoint
) -> None:
    orders = book(checkpoint)
    first = orders.after(Order())
    landed(first, checkpoint)
    cluster.all[A] = Marks(0, 6)
    assert orders.after(first) == first
    clock[0] += 2
    cluster.all[A] = Marks(0, 12)
    assert orders.after(first).ranges[A] == Range(10, 12, 10, 1)


def test_a_log_that_stays_short_stops_it(
    cluster: Cluster, clock: list[float], checkpoint: Checkpoint
) -> None:
    orders = book(checkpoint)
    first = orders.after(Order())
    landed(first, checkpoint)
    cluster.all[A] = Marks(0, 6)
    assert orders.after(first) == first
    clock[0] += 6
    with pytest.raises(PenstockError, match=r"t-0: \[6, 10\) was landed and is no longer"):
        orders.after(first)
    assert told(checkpoint).is_final


def test_a_pipeline_that_lands_what_is_there_does_not_end_before_it_is_sure(
    cluster: Cluster, clock: list[float], checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = book(checkpoint)
    first = orders.after(Order())
    landed(first, checkpoint)
    cluster.all[A] = Marks(0, 6)
    orders.only_what_is_there()
    waits: list[Blocker] = []

    def wait(_: float) -> None:
        waits.append(told(checkpoint))
        clock[0] += 3

    monkeypatch.setattr(time, "sleep", wait)
    with pytest.raises(PenstockError, match="the log was truncated"):
        orders.after(first)
    assert [w.message for w in waits] == ["waiting for Kafka: t-0 ends before its position, 10"] * 2


def test_a_truncation_is_recorded_and_the_partition_read_on_when_it_has_grown(
    cluster: Cluster, clock: list[float], checkpoint: Checkpoint
) -> None:
    orders = book(checkpoint, lost_offsets="continue")
    first = orders.after(Order())
    landed(first, checkpoint, diverged_at=6)
    cluster.all = {A: Marks(0, 8), B: Marks(0, 12)}
    second = orders.after(first)
    assert second.ranges[A] == Range(10, 10, 10, truncated_from=6)
    assert "t-0 was truncated at offset 6" in told(checkpoint).message
    assert (told(checkpoint).stalled_partitions, told(checkpoint).is_final) == (1, False)
    landed(second, checkpoint)
    cluster.all[A] = Marks(0, 30)
    # In another life.
    third = book(checkpoint, lost_offsets="continue").after(second)
    assert third.ranges[A] == Range(10, 30, 10, truncated_from=6)
    landed(third, checkpoint)
    cluster.all[A] = Marks(0, 40)
    fourth = orders.after(third)
    assert fourth.ranges[A] == Range(30, 40, 30, 1)
    assert checkpoint.blocker() is None


# --- orders of an earlier life -----------------------------------------------------------------------


def test_an_order_of_an_earlier_life_is_checked_before_lanes_carry_it_out(
    cluster: Cluster, checkpoint: Checkpoint
) -> None:
    order = book(checkpoint).after(Order())
    cluster.ids = {"t": "another"}
    with pytest.raises(PenstockError, match="deleted and created again"):
        book(checkpoint).tasks(order)
    assert told(checkpoint).is_final
    cluster.ids = {"t": "one"}
    cluster.all[A] = Marks(4, 10)
    with pytest.raises(PenstockError, match="offsets 0 to 3 were deleted"):
        book(checkpoint).tasks(order)
    tasks = book(checkpoint, lost_offsets="continue", lanes=1).tasks(order)
    assert [task.ranges for task in tasks] == [{A: Range(4, 10, 0), B: Range(0, 10, 0)}]


def test_one_that_was_reported_is_not(cluster: Cluster, checkpoint: Checkpoint) -> None:
    order = book(checkpoint).after(Order())
    landed(order, checkpoint)
    cluster.is_away = True
    assert book(checkpoint).tasks(order)


def test_a_repeated_order_waits_for_kafka_unless_it_is_to_stop(
    cluster: Cluster, checkpoint: Checkpoint
) -> None:
    order = book(checkpoint).after(Order())
    cluster.is_away = True
    checkpoint.ask_to_stop(True)
    with pytest.raises(PenstockError, match="micro-batch 0 was not repeated"):
        book(checkpoint).tasks(order)
    assert told(checkpoint).message == "waiting for Kafka: no broker answers"


def test_an_order_that_was_just_made_is_not_checked_again(
    cluster: Cluster, checkpoint: Checkpoint
) -> None:
    orders = book(checkpoint)
    order = orders.after(Order())
    cluster.is_away = True
    assert orders.tasks(order)


def order_for_u(u: Range) -> Order:
    """Of an earlier life, with work in u only."""
    return Order(5, {A: Range(10, 10, 10, 1), U: u}, {"t": "one", "u": "two"})


def test_a_repeated_order_waits_for_no_topic_that_is_gone(
    cluster: Cluster, clock: list[float], checkpoint: Checkpoint
) -> None:
    order = order_for_u(Range(3, 10, 3, 7))
    orders = book(checkpoint, topics=("t", "u"))
    assert orders.tasks(order) == []
    assert told(checkpoint).message == "the topic u no longer exists"
    checkpoint.write_report(BatchReport(batch=5))
    cluster.all[A] = Marks(0, 20)
    sixth = orders.after(order)
    assert (sixth.ranges[A], sixth.ranges[U]) == (Range(10, 20, 10, 1), Range(3, 3, 3, 7))
    # It was only away, as after a broker's disk was.
    landed(sixth, checkpoint)
    cluster.ids["u"], cluster.all[U] = "two", Marks(0, 12)
    clock[0] += 6
    assert orders.after(sixth).ranges[U] == Range(3, 12, 3, 7)
    # Or it is another one.
    cluster.ids["u"] = "three"
    clock[0] += 6
    with pytest.raises(PenstockError, match="the topic u was deleted and created again"):
        orders.after(sixth)


def test_a_repeated_order_waits_for_no_partition_without_a_leader(
    cluster: Cluster, clock: list[float], checkpoint: Checkpoint
) -> None:
    order = Order(5, {A: Range(0, 10, 0), B: Range(10, 10, 10)}, {"t": "one"})
    cluster.silent = {A: "Broker: Leader not available"}
    orders = book(checkpoint)
    assert orders.tasks(order) == []
    checkpoint.write_report(BatchReport(batch=5))
    clock[0] += 6
    assert orders.after(order) == order
    assert told(checkpoint).message.startswith("t-0 cannot be read since ")
    cluster.silent = {}
    assert orders.after(order).ranges[A] == Range(0, 10, 0)


def test_the_rest_of_a_repeated_order_is_carried_out(
    cluster: Cluster, checkpoint: Checkpoint
) -> None:
    order = Order(5, {A: Range(0, 10, 0), B: Range(4, 10, 4)}, {"t": "one"})
    cluster.silent = {A: "Broker: Leader not available"}
    assert [task.ranges for task in book(checkpoint).tasks(order)] == [{B: Range(4, 10, 4)}]


def test_what_a_range_had_lost_is_still_to_be_recorded_if_it_is_left_out(
    cluster: Cluster, checkpoint: Checkpoint
) -> None:
    """The ledger ends where the lost records begin."""
    order = Order(5, {A: Range(4, 10, 1), B: Range(10, 10, 10)}, {"t": "one"})
    cluster.all[A] = Marks(6, 12)
    cluster.silent = {A: "Broker: Leader not available"}
    orders = book(checkpoint, lost_offsets="continue")
    assert orders.tasks(order) == []
    checkpoint.write_report(BatchReport(batch=5))
    cluster.silent = {}
    assert orders.after(order).ranges[A] == Range(6, 12, 1)


@pytest.mark.parametrize("id_", ["two", "three"])
def test_a_repeated_order_drops_topics_not_in_the_file(
    cluster: Cluster, checkpoint: Checkpoint, id_: str
) -> None:
    order = replace(order_for_u(Range(3, 10, 3)), ranges={A: Range(0, 9, 0), U: Range(3, 10, 3)})
    cluster.ids["u"], cluster.all[U] = id_, Marks(0, 12)
    orders = book(checkpoint)
    assert [task.ranges for task in orders.tasks(order)] == [{A: Range(0, 9, 0)}]
    assert checkpoint.blocker() is None
    checkpoint.write_report(BatchReport(batch=5))
    sixth = orders.after(order)
    assert sixth.ranges[U] == Range(3, 3, 3)
    assert checkpoint.blocker() is None
    # Back in the file, it goes on where it was, unless it is another topic.
    landed(sixth, checkpoint)
    again = book(checkpoint, topics=("t", "u"))
    if id_ == "two":
        assert again.after(sixth).ranges[U] == Range(3, 12, 3)
    else:
        with pytest.raises(PenstockError, match="the topic u was deleted and created again"):
            again.after(sixth)


# --- stalls ------------------------------------------------------------------------------------------


def test_a_stalled_partition_is_reported_and_others_continue(
    cluster: Cluster, clock: list[float], checkpoint: Checkpoint
) -> None:
    orders = book(checkpoint)
    first = orders.after(Order())
    landed(first, checkpoint)
    cluster.silent = {A: "Broker: Leader not available"}
    assert orders.after(first) == first
    assert checkpoint.blocker() is None
    clock[0] += 6
    cluster.all[B] = Marks(0, 20)
    second = orders.after(first)
    assert second.ranges[B] == Range(10, 20, 10, 1)
    blocker = told(checkpoint)
    assert blocker.message.startswith("t-0 cannot be read since ")
    assert blocker.message.endswith("Broker: Leader not available")
    assert (blocker.stalled_partitions, blocker.is_final) == (1, False)
    landed(second, checkpoint)
    cluster.silent = {}
    orders.after(second)
    assert checkpoint.blocker() is None


def test_skipped_topics_are_reported(cluster: Cluster, checkpoint: Checkpoint) -> None:
    cluster.skipped = ("__consumer_offsets",)
    book(checkpoint).after(Order())
    assert told(checkpoint) == Blocker(skipped_topics=("__consumer_offsets",))
