"""The topic of a run, on a cluster whose brokers learn of a deletion one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.kafka.connection import KafkaCluster
from penstock.runs import fresh_topic as module
from penstock.runs.fresh_topic import fresh_topic

TOPIC = TopicSpec(name="orders", partitions=2, replication=1)


@dataclass
class Brokers:
    """What each look at the topic shows: the ends of its partitions, or nothing if it is absent.

    The last view stays. It is cluster and admin in one.
    """

    views: list[dict[int, int] | None]
    made: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    after_creation: list[dict[int, int] | None] = field(default_factory=lambda: [{0: 0, 1: 0}])

    @property
    def admin(self) -> Brokers:
        return self

    def _look(self) -> dict[int, int] | None:
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]

    def topics(self) -> set[str]:
        return set() if self.views[0] is None and self._look() is None else {TOPIC.name}

    def end_offsets(self, _: str) -> dict[int, int]:
        ends = self._look()
        if ends is None:
            raise TestbedError("the end offset of orders-0 is not known")
        return ends

    def create_topic(self, topic: TopicSpec) -> None:
        self.made.append(topic.name)
        self.views = self.after_creation

    def delete_topic(self, name: str) -> None:
        self.deleted.append(name)
        self.views = [None]


def use(brokers: Brokers) -> bool:
    with fresh_topic(cast(KafkaCluster, brokers), TOPIC) as is_ours:
        return is_ours


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.3)


def test_it_is_made_and_removed() -> None:
    brokers = Brokers([None])
    assert use(brokers)
    assert brokers.made == brokers.deleted == ["orders"]


def test_somebodys_empty_topic_is_used_and_left_alone() -> None:
    brokers = Brokers([{0: 0, 1: 0}])
    assert not use(brokers)
    assert brokers.made == brokers.deleted == []


def test_somebodys_records_are_refused_and_left_alone() -> None:
    brokers = Brokers([{0: 5, 1: 7}])
    with pytest.raises(BadInput, match="topic orders has 12 records already"):
        use(brokers)
    assert brokers.made == brokers.deleted == []


def test_another_number_of_partitions_is_refused() -> None:
    with pytest.raises(BadInput, match="has 3 partitions; the scenario needs 2"):
        use(Brokers([{0: 0, 1: 0, 2: 0}]))


@pytest.mark.parametrize(
    "views",
    [
        pytest.param([{0: 5, 1: 7}, {0: 5, 1: 7}, None], id="shown by a broker that lags"),
        pytest.param([{0: 5, 1: 7}, None], id="gone between two requests"),
    ],
)
def test_the_topic_of_the_run_before_is_waited_for_to_go(views: list[Any]) -> None:
    brokers = Brokers(views)
    assert use(brokers)
    assert brokers.made == ["orders"]


def test_a_leader_that_still_serves_the_topic_of_the_run_before_is_waited_for() -> None:
    brokers = Brokers([None], after_creation=[{0: 5, 1: 0}, {0: 5, 1: 0}, {0: 0, 1: 0}])
    assert use(brokers)
    assert len(brokers.after_creation) == 1, "it began before the new topic was empty"


def test_a_new_topic_that_never_gets_empty_fails_the_run_and_is_removed() -> None:
    brokers = Brokers([None], after_creation=[{0: 5, 1: 0}])
    with pytest.raises(TestbedError, match="the new topic orders to be empty"):
        use(brokers)
    assert brokers.deleted == ["orders"]


def test_partitions_that_cannot_be_asked_are_not_called_records() -> None:
    brokers = Brokers([{0: 0, 1: 0}])

    def refuse(_: str) -> dict[int, int]:
        raise TestbedError("the end offset of orders-0 is not known: leader not available")

    brokers.end_offsets = refuse  # type: ignore[method-assign]
    with pytest.raises(TestbedError, match="leader not available"):
        use(brokers)
