"""librdkafka's statistics (its STATISTICS.md) as counters."""

from __future__ import annotations

import json
from dataclasses import dataclass

from penstock.domain.run import ClientCounters


def counters(statistics: bytes | None) -> ClientCounters | None:
    """Those of the last statistics; None if the client has not given any yet."""
    if statistics is None:
        return None
    given = json.loads(statistics)
    brokers = given["brokers"].values()
    round_trips = sum(b["rtt"]["cnt"] for b in brokers)
    total_us = sum(b["rtt"]["cnt"] * b["rtt"]["avg"] for b in brokers)
    return ClientCounters(
        messages=given["txmsgs"],
        message_bytes=given["txmsg_bytes"],
        requests=sum(b["req"].get("Produce", 0) for b in brokers),
        sent_bytes=given["tx_bytes"],
        received_bytes=given["rx_bytes"],
        round_trip_ms=total_us / round_trips / 1000 if round_trips else None,
    )


@dataclass(frozen=True)
class Fetched:
    """What a consumer has fetched since it started."""

    answers: int = 0
    messages: int = 0


def fetched(statistics: str | bytes) -> Fetched:
    """By a consumer's statistics."""
    given = json.loads(statistics)
    return Fetched(
        answers=sum(b["req"].get("Fetch", 0) for b in given["brokers"].values()),
        messages=given["rxmsgs"],
    )
