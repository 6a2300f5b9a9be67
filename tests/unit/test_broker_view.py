"""Rates from two views."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.domain.broker_view import (
    BrokerView,
    ProcessUse,
    RequestClass,
    RequestTimes,
    Times,
    rates,
)


def times(count: int) -> Times:
    return Times(count, 1.0, 0.5, 1.0, 2.0, 3.0, 4.0)


def view(at_s: float, messages: int, cpu_s: float, produced: int) -> BrokerView:
    request = RequestTimes(*[times(produced)] * 6)
    return BrokerView(
        broker=1,
        at_ns=int(at_s * 1e9),
        state="running",
        process=ProcessUse(cpu_s, 1, 1, 1, 0, 0),
        requests={RequestClass.PRODUCE: request},
        messages_in=messages,
        bytes_in=messages * 100,
        bytes_out=0,
        replication_bytes_in=0,
        under_replicated_partitions=0,
        leaders=1,
        partitions=1,
    )


def test_rates_are_differences_over_time() -> None:
    rate = rates(view(10, 1000, 5.0, 50), view(12, 3000, 6.0, 90))
    assert rate.messages_in_per_s == 1000
    assert rate.bytes_in_per_s == 100_000
    assert rate.cpu_cores == 0.5
    assert rate.requests_per_s[RequestClass.PRODUCE] == 20
    assert rate.requests_per_s[RequestClass.CONSUMER_FETCH] == 0


def test_a_restart_in_between_gives_no_negative_rate() -> None:
    assert rates(view(10, 1000, 5, 50), view(11, 300, 1, 5)).messages_in_per_s == 300


def test_views_must_be_of_one_broker_and_in_order() -> None:
    before, after = view(10, 0, 0, 0), view(11, 0, 0, 0)
    with pytest.raises(ValueError, match="in order"):
        rates(after, before)
    with pytest.raises(ValueError, match="one broker"):
        rates(before, replace(after, broker=2))
