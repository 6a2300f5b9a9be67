"""What the source makes of the brokers' answers."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition

from penstock.domain.lake.order import Marks, Position
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.kafka import brokers as module
from penstock.kafka.brokers import Brokers, BrokersUnavailable

A, B = Partition("t", 0), Partition("t", 1)


def answer(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


class Admin:
    """Answers with an offset, or with an error code."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.ends: dict[tuple[str, int], int | KafkaError] = {}
        # Beyond open transactions.
        self.open_ends: dict[tuple[str, int], int] = {}
        self.topics: dict[str, int] = {}

    def list_offsets(
        self, places: dict[TopicPartition, Any], isolation_level: Any = None, **_: Any
    ) -> dict[Any, Future[Any]]:
        futures = {}
        is_open = isolation_level == IsolationLevel.READ_UNCOMMITTED
        for place in places:
            name = (place.topic, place.partition)
            end = self.open_ends.get(name, self.ends[name]) if is_open else self.ends[name]
            is_error = isinstance(end, KafkaError)
            futures[place] = answer(
                KafkaException(end) if is_error else SimpleNamespace(offset=end)
            )
        return futures

    def list_topics(self, **_: Any) -> Any:
        topics = {
            name: SimpleNamespace(error=None, partitions=range(count))
            for name, count in self.topics.items()
        }
        return SimpleNamespace(topics=topics)

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        return {name: answer(SimpleNamespace(topic_id=f"id of {name}")) for name in self.topics}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    client = Admin()
    monkeypatch.setattr(module, "AdminClient", lambda *_, **__: client)
    monkeypatch.setattr(module, "TopicCollection", lambda names: names)
    return client


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._TIMED_OUT,
    ],
)
def test_a_partition_whose_leader_changes_is_silent_and_the_others_answer(
    admin: Admin, code: int
) -> None:
    error = KafkaError(code)
    admin.ends = {A: error, B: 5}
    brokers = Brokers({})
    assert brokers.marks({A, B}) == {B: Marks(5, 5)}
    assert brokers.silent == {A: error.str()}
    admin.ends[A] = 7
    assert brokers.marks({A, B}) == {A: Marks(7, 7), B: Marks(5, 5)}
    assert brokers.silent == {}


def test_an_unknown_end_offset_is_not_used(admin: Admin) -> None:
    admin.ends = {A: -1, B: 5}
    brokers = Brokers({})
    assert brokers.marks({A, B}) == {B: Marks(5, 5)}
    assert "does not know" in brokers.silent[A]


def test_if_none_answers_kafka_is_away(admin: Admin) -> None:
    admin.ends = {A: KafkaError(KafkaError.LEADER_NOT_AVAILABLE)}
    with pytest.raises(BrokersUnavailable, match="Leader not available"):
        Brokers({}).marks({A})


def test_topics_of_kafka_and_of_the_autoscaler_are_skipped_and_known_to_be(admin: Admin) -> None:
    admin.topics = {"t": 2, "__consumer_offsets": 50, "penstock.p.speeds": 1, "other": 1}
    streams = (Stream(topics=("t", "^__.*", "^penstock"), table="x"),)
    pipeline = Pipeline(name="p", bootstrap_servers="x:1", streams=streams, lake="/lake")
    brokers = Brokers({})
    partitions, _ = brokers.discover(pipeline)
    assert partitions == {A, B}
    assert brokers.skipped == ("__consumer_offsets", "penstock.p.speeds")


def test_position_beyond_an_open_transaction_is_not_beyond_the_log(admin: Admin) -> None:
    admin.ends, admin.open_ends = {A: 50, B: 50}, {A: 120, B: 70}
    brokers = Brokers({})
    marks = brokers.marks({A, B})
    assert brokers.with_log_ends(marks, {A: Position(100), B: Position(50)}) == {
        A: Marks(120, 120),
        B: Marks(50, 50),
    }
    open_reader = Brokers({"isolation.level": "read_uncommitted"})
    assert open_reader.marks({A}) == {A: Marks(120, 120)}
