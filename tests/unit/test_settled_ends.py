"""The ends of a topic: not before everything that was sent has arrived."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest

from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import TestbedError
from penstock.kafka.connection import KafkaCluster
from penstock.runs import settled_ends as module
from penstock.runs.settled_ends import SettledEnds, settled_ends

TOPIC = TopicSpec(name="orders", partitions=2, replication=1)


@dataclass
class Look:
    """What one look at the cluster shows."""

    ends: dict[int, int]
    unsent: int = 0


class Brokers:
    """Cluster and admin in one. The last look stays."""

    def __init__(self, *looks: Look | TestbedError) -> None:
        self._looks = list(looks)

    @property
    def admin(self) -> Brokers:
        return self

    def unsent_bytes(self) -> int:
        first = self._looks[0]
        return first.unsent if isinstance(first, Look) else 0

    def end_offsets(self, _: str, only_led: bool) -> dict[int, int]:
        assert only_led
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if isinstance(look, TestbedError):
            raise look
        return look.ends


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Time passes by sleeping only."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", sleep)
    yield


def settled(brokers: Brokers, **more: Any) -> SettledEnds:
    cluster = cast(KafkaCluster, brokers)
    return settled_ends(cluster, TOPIC, brokers.unsent_bytes, **{"quiet_s": 1.0, **more})


def test_ends_that_move_are_not_taken() -> None:
    brokers = Brokers(Look({0: 1, 1: 0}), Look({0: 2, 1: 0}), Look({0: 2, 1: 5}))
    assert settled(brokers) == SettledEnds({0: 2, 1: 5}, (), 0)


def test_a_retransmission_that_takes_longer_than_the_quiet_time_is_waited_for() -> None:
    waiting = [Look({0: 7, 1: 3}, unsent=700)] * 40  # 10 s
    brokers = Brokers(*waiting, Look({0: 7, 1: 3}), Look({0: 9, 1: 3}))
    result = settled(brokers)
    assert result.end_offsets == {0: 9, 1: 3}
    assert result.warnings == ()


def test_bytes_that_never_arrive_are_given_up_and_reported() -> None:
    result = settled(Brokers(Look({0: 7, 1: 3}, unsent=1400)))
    assert result.end_offsets == {0: 7, 1: 3}
    assert "1,400 bytes were still on their way" in result.warnings[0]


def test_a_partition_without_leader_is_named() -> None:
    assert settled(Brokers(Look({1: 3}))) == SettledEnds({1: 3}, (0,), 0)


def test_brokers_that_stop_answering_leave_their_last_ends() -> None:
    gone = TestbedError("no broker answers")
    assert settled(Brokers(Look({0: 7, 1: 3}), gone)).end_offsets == {0: 7, 1: 3}
    with pytest.raises(TestbedError, match="no broker answers"):
        settled(Brokers(gone))
    with pytest.raises(TestbedError, match="no partition of orders has a leader"):
        settled(Brokers(Look({})))


def test_the_limit_is_longer_than_tcp_waits_before_its_eighth_try() -> None:
    assert sum(0.2 * 2**n for n in range(8)) < module._TIMEOUT_S


def test_what_brokers_have_not_read_is_waited_for() -> None:
    unread = [300, 300, 0]
    late = [Look({0: 7, 1: 3})] * 6  # quiet after 1 s, with bytes that nobody has read
    brokers = Brokers(*late, Look({0: 9, 1: 3}))
    found = settled(brokers, unread_bytes=lambda: unread.pop(0) if unread else 0)
    assert found.end_offsets == {0: 9, 1: 3}
