"""Rates from two views."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.domain.broker_view import (
    BrokerCounters,
    BrokerView,
    KafkaHistogram,
    ProcessUse,
    RequestClass,
    RequestTimes,
    rates,
)


def times(count: int, mean_ms: float) -> KafkaHistogram:
    return KafkaHistogram(count, mean_ms, 0.5, 1.0, 2.0, 3.0, 4.0)


def view(
    at_s: float, messages: int, cpu_s: float, produced: int, mean_ms: float = 1.0
) -> BrokerView:
    idle = RequestTimes(*[times(0, 0)] * 6)
    own = BrokerCounters(
        requests={
            **dict.fromkeys(RequestClass, idle),
            RequestClass.PRODUCE: RequestTimes(*[times(produced, mean_ms)] * 6),
        },
        messages_in=messages,
        bytes_in=messages * 100,
        bytes_out=0,
        replication_bytes_in=0,
        under_replicated_partitions=0,
        leaders=1,
        partitions=1,
        collections=produced // 10,
        collection_ms=produced,
    )
    return BrokerView(
        broker=1,
        at_ns=int(at_s * 1e9),
        state="running",
        process=ProcessUse(cpu_s, 1, 1, 1, 0, 0),
        own=own,
    )


def test_rates_are_differences_over_time() -> None:
    rate = rates(view(10, 1000, 5.0, 50), view(12, 3000, 6.0, 90))
    assert rate is not None
    assert rate.messages_in_per_s == 1000
    assert rate.bytes_in_per_s == 100_000
    assert rate.cpu_cores == 0.5
    assert rate.requests[RequestClass.PRODUCE].per_s == 20
    assert rate.requests[RequestClass.CONSUMER_FETCH].per_s == 0
    assert (rate.collections_per_s, rate.collection_ms) == (2, 10)


def test_means_are_of_the_time_between() -> None:
    """100 requests of 500 ms at a cold start, then 100 of 2 ms: the interval shows 2 ms."""
    rate = rates(view(10, 0, 1, 100, 500.0), view(12, 0, 2, 200, 251.0))
    assert rate is not None
    assert rate.requests[RequestClass.PRODUCE].remote_ms == pytest.approx(2.0)
    assert rate.requests[RequestClass.CONSUMER_FETCH].remote_ms is None


def test_no_rate_across_a_restart_or_a_pause() -> None:
    before, after = view(10, 1000, 5, 50), view(11, 300, 1, 5)
    assert rates(before, after) is None
    assert rates(replace(before, own=None, state="paused"), view(11, 1000, 6, 50)) is None


def test_views_must_be_of_one_broker_and_in_order() -> None:
    before, after = view(10, 0, 0, 0), view(11, 0, 0, 0)
    with pytest.raises(ValueError, match="in order"):
        rates(after, before)
    with pytest.raises(ValueError, match="one broker"):
        rates(before, replace(after, broker=2))
