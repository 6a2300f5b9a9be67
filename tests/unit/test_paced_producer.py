"""Messages at given rates: neither lost between turns nor forgotten when a turn is late."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from penstock.domain.errors import PenstockError
from penstock.kafka.waiting import wait_until
from penstock.load import paced_producer
from penstock.load.paced_producer import Pace, PacedProducer


def test_fractions_of_a_message_add_up() -> None:
    pace, sent = Pace(), Counter[int]()
    for turn in range(1, 1001):
        sent.update(pace.due(turn / 100, {0: 250.0, 1: 3.3}))
    assert sent[0] == pytest.approx(2500, abs=1)
    assert sent[1] == pytest.approx(33, abs=1)


def test_a_late_turn_catches_up() -> None:
    pace = Pace()
    assert pace.due(0.5, {0: 10.0}) == {0: 5}
    assert pace.due(3.5, {0: 10.0}) == {0: 30}


def test_a_new_rate_holds_from_the_last_turn_on() -> None:
    pace = Pace()
    pace.due(1.0, {0: 10.0})
    assert pace.due(2.0, {0: 1000.0, 1: 4.0}) == {0: 1000, 1: 4}


class FakeProducer:
    """Keeps what it is given; `unsent` stay in its queue for ever."""

    unsent = 0

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.sent: list[tuple[int, str | None, int]] = []
        producers.append(self)

    def produce(self, topic: str, value: bytes, key: str | None, partition: int) -> None:
        self.sent.append((partition, key, len(value)))

    def poll(self, timeout_s: float) -> int:
        return 0

    def flush(self, timeout_s: float) -> int:
        return self.unsent


producers: list[FakeProducer] = []


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeProducer]:
    producers.clear()
    monkeypatch.setattr(paced_producer, "Producer", FakeProducer)
    return FakeProducer


def test_it_sends_at_the_rates_of_the_moment_until_there_are_none(
    fake: type[FakeProducer],
) -> None:
    asked_s: list[float] = []

    def rates_at(at_s: float) -> dict[int, float] | None:
        asked_s.append(at_s)
        return {0: 1000.0, 2: 100.0} if at_s < 0.3 else None

    PacedProducer({"linger.ms": 20}, "t", 10, keys=3).send(rates_at)
    [producer] = producers
    assert producer.config == {"linger.ms": 20}
    sent = Counter(partition for partition, _, _ in producer.sent)
    # What became due until the last turn that had rates.
    assert sent[0] == pytest.approx(1000 * asked_s[-2], abs=1)
    assert sent[2] == pytest.approx(100 * asked_s[-2], abs=1)
    assert {key for _, key, _ in producer.sent} == {"0", "1", "2"}
    assert {size for _, _, size in producer.sent} == {10}


def test_rates_may_change_while_it_sends_from_a_thread(fake: type[FakeProducer]) -> None:
    rates = {0: 1000.0}

    def has_sent(partition: int) -> bool:
        return any(sent[0] == partition for sent in producers[0].sent)

    with PacedProducer({}, "t", 10).sending(rates):
        wait_until(lambda: has_sent(0), timeout_s=30, what="the first rate")
        rates[0], rates[1] = 0.0, 1000.0
        wait_until(lambda: has_sent(1), timeout_s=30, what="the new rate")


def test_an_error_of_the_thread_is_raised_when_the_block_ends(
    fake: type[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "unsent", 2)
    with pytest.raises(PenstockError), PacedProducer({}, "t", 10).sending({0: 1.0}):
        pass


def test_messages_that_could_not_be_sent_are_an_error(
    fake: type[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "unsent", 2)
    with pytest.raises(PenstockError, match="2 messages could not be sent"):
        PacedProducer({}, "t", 10).send(lambda _: None)
