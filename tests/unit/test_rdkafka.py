"""librdkafka's batch interface without any broker: what is handed over comes back when purged."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from time import monotonic_ns

import numpy as np
import pytest
from confluent_kafka import KafkaError

from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.workload import Payload
from penstock.load import rdkafka
from penstock.load.payload_buffer import PayloadBuffer
from penstock.load.rdkafka import PURGED, QUEUE_FULL, Client, Reports

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 150_000}


@pytest.fixture
def client() -> Iterator[Client]:
    new_client = Client(NOBODY, "topic")
    yield new_client
    new_client.purge()
    new_client.close()


@pytest.fixture
def messages() -> PayloadBuffer:
    return PayloadBuffer(Payload(size_bytes=50), 10, 0, Random(1))


def _hand_over(client: Client, messages: PayloadBuffer, count: int) -> int:
    taken = 0
    for first in range(0, count, messages.window):
        messages.prepare(first)
        taken += client.hand_over(messages.address(first), min(messages.window, count - first))
    return taken


def _reports(client: Client, count: int) -> list[Reports]:
    reports: list[Reports] = []
    until = time.monotonic() + 20
    while sum(len(r.tags) for r in reports) < count and time.monotonic() < until:
        client.wait(monotonic_ns() + 50_000_000)
        reports += client.serve(force=True)
    return reports


# More than are read with one pass, so that one event is read in several.
@pytest.mark.parametrize("count", [1, 700, 140_000])
def test_every_message_is_reported_by_its_tag(
    client: Client, messages: PayloadBuffer, count: int
) -> None:
    assert _hand_over(client, messages, count) == count
    before = monotonic_ns()
    client.purge()
    reports = _reports(client, count)
    tags = np.concatenate([r.tags for r in reports])
    assert sorted(tags.tolist()) == list(range(count))
    assert set(np.concatenate([r.errors for r in reports]).tolist()) <= set(PURGED)
    times = np.concatenate([r.at_ns for r in reports])
    assert times.min() >= before
    assert times.max() <= monotonic_ns()


def test_a_full_queue_accepts_the_first_and_reports_the_rest(messages: PayloadBuffer) -> None:
    client = Client({**NOBODY, "queue.buffering.max.messages": 100}, "topic")
    try:
        messages.prepare(0)
        assert client.hand_over(messages.address(0), 300) == 100
        errors = messages.array["err"][:300]
        assert (errors[:100] == 0).all()
        assert (errors[100:] == QUEUE_FULL).all()
    finally:
        client.purge()
        client.close()


def test_a_message_that_is_too_large_is_refused_alone(messages: PayloadBuffer) -> None:
    large = PayloadBuffer(Payload(size_bytes=5000), None, 0, Random(1))
    client = Client({**NOBODY, "message.max.bytes": 2000}, "topic")
    try:
        large.prepare(0)
        assert client.hand_over(large.address(0), 3) == 0
        names = {rdkafka.error_name(int(code)) for code in large.array["err"][:3]}
        assert names == {"MSG_SIZE_TOO_LARGE"}
        messages.prepare(0)
        assert client.hand_over(messages.address(0), 3) == 3
    finally:
        client.purge()
        client.close()


def test_waiting_ends_when_there_is_something_to_hear(
    client: Client, messages: PayloadBuffer
) -> None:
    _hand_over(client, messages, 1)
    client.purge()
    began = time.monotonic()
    while not client.serve(force=True):
        client.wait(monotonic_ns() + 60_000_000_000)
    assert time.monotonic() - began < 30


def test_waiting_lasts_until_the_time_asked_for(client: Client) -> None:
    until = monotonic_ns() + 20_000_000
    while monotonic_ns() < until:  # log lines of a client that finds no broker wake it too
        client.serve()
        client.wait(until)
    assert monotonic_ns() >= until


def test_an_unreachable_topic_is_named(client: Client) -> None:
    with pytest.raises(TestbedError, match="topic topic cannot be reached"):
        client.partitions(0.5)


def test_names_of_errors_are_those_of_confluent_kafka() -> None:
    for code in (KafkaError._MSG_TIMED_OUT, KafkaError.NOT_LEADER_FOR_PARTITION, QUEUE_FULL):
        assert rdkafka.error_name(code) == KafkaError(code).name()
    assert [KafkaError(code).name() for code in PURGED] == ["_PURGE_QUEUE", "_PURGE_INFLIGHT"]


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"linger.msec": 1}, "linger.msec"),
        ({"acks": "most"}, "acks"),
        ({"enable.idempotence": True, "acks": "1"}, "acks"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_named(
    config: dict[str, object], named: str
) -> None:
    with pytest.raises(BadInput, match=named):
        rdkafka.check_config(config)
        Client({**NOBODY, **config}, "topic")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("linger.msec", "linger.ms"), ("fetch.min.byte", "fetch.min.bytes"), ("ack", "acks")],
)
def test_a_property_that_is_none_comes_with_the_one_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(BadInput, match=f"consumers.settings.{name}: .*no such.*\n.*'{meant}'"):
        rdkafka.check_config({name: 1}, "consumers.settings")


def test_truth_values_are_spelled_as_librdkafka_wants_them() -> None:
    rdkafka.check_config({"enable.idempotence": True, "socket.keepalive.enable": False})
