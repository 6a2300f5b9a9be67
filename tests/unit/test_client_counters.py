"""librdkafka's statistics as counters."""

from __future__ import annotations

import json

import pytest

from penstock.load.client_counters import counters

STATISTICS = {
    "txmsgs": 1000,
    "txmsg_bytes": 208_000,
    "tx_bytes": 227_368,
    "rx_bytes": 5_924,
    "brokers": {
        "one": {"req": {"Produce": 60, "Metadata": 1}, "rtt": {"avg": 2_000, "cnt": 30}},
        "two": {"req": {"Produce": 40}, "rtt": {"avg": 5_000, "cnt": 10}},
        "bootstrap": {"req": {}, "rtt": {"avg": 0, "cnt": 0}},
    },
}


def test_counters_of_all_brokers_are_added_up() -> None:
    counted = counters(json.dumps(STATISTICS).encode())
    assert counted is not None
    assert (counted.messages, counted.requests, counted.sent_bytes) == (1000, 100, 227_368)
    assert (counted.message_bytes, counted.received_bytes) == (208_000, 5_924)
    assert counted.round_trip_ms == pytest.approx((30 * 2 + 10 * 5) / 40)


def test_without_answers_there_is_no_round_trip() -> None:
    brokers = {"one": {"req": {"Produce": 3}, "rtt": {"avg": 0, "cnt": 0}}}
    counted = counters(json.dumps({**STATISTICS, "brokers": brokers}).encode())
    assert counted is not None and counted.round_trip_ms is None
    assert counters(None) is None
