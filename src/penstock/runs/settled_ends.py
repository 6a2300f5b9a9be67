"""The ends of a topic's partitions once nothing is on its way to them any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import TestbedError
from penstock.kafka.connection import KafkaCluster
from penstock.kafka.waiting import holds_within

# TCP waits twice as long before each new try: 25 s before the eighth.
_TIMEOUT_S = 60.0
_EVERY_S = 0.25


@dataclass(frozen=True)
class SettledEnds:
    """End offset of each partition that has a leader, and what did not settle in time."""

    end_offsets: Mapping[int, int]
    leaderless: tuple[int, ...]
    unsent_bytes: int

    @property
    def warnings(self) -> tuple[str, ...]:
        if not self.unsent_bytes:
            return ()
        return (
            f"{self.unsent_bytes:,} bytes were still on their way to the brokers {_TIMEOUT_S:g} s "
            "after the producers had given up: the messages in them count as lost",
        )


def settled_ends(
    cluster: KafkaCluster,
    topic: TopicSpec,
    unsent_bytes: Callable[[], int],
    *,
    unread_bytes: Callable[[], int] = lambda: 0,
    quiet_s: float,
    timeout_s: float = _TIMEOUT_S,
) -> SettledEnds:
    """Wait until no socket holds bytes for the brokers, the ends have not moved for `quiet_s`, and the
    brokers have read what came.

    The quiet time is for what the brokers have and do not show yet: requests that they have not
    handled, and records above the high watermark. A partition without a leader, or a connection over
    which nothing comes through, is given up after `timeout_s`.
    """
    ends: dict[int, int] = {}
    left = 0
    since = time.monotonic()

    def is_settled() -> bool:
        nonlocal ends, left, since
        left = unsent_bytes()
        now = cluster.admin.end_offsets(topic.name, only_led=True)
        if left or now != ends:
            ends, since = now, time.monotonic()
        is_quiet = len(ends) == topic.partitions and time.monotonic() - since >= quiet_s
        return is_quiet and not unread_bytes()

    try:
        holds_within(timeout_s, is_settled, every_s=_EVERY_S)
    except TestbedError:  # no broker answers any more: what they said before holds
        if not ends:
            raise
    if not ends:
        raise TestbedError(f"no partition of {topic.name} has a leader: its end is not known")
    leaderless = tuple(p for p in range(topic.partitions) if p not in ends)
    return SettledEnds(ends, leaderless, left)
