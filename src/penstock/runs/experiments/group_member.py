"""A process that is one member of a consumer group and reads as fast as it can.

It reads a topic that was filled before, again and again: with the end of a partition it goes back
to its beginning. So the group can be watched for as long as one likes with a small topic. It keeps
nothing, commits nothing, and tells when it was given partitions, lost them and first read them.

    → {"cluster": …, "topic": …, "settings": …, "ends": {partition: offset}}
    ← {"event": "ready"}
    → {"order": "join"}
    ← {"event": "seen", "events": [[at_ns, what, partitions], …]}     all so far, at every change
    → {"order": "leave"}
    ← {"event": "report", "at_ns": […], "records": […], "size_bytes": […], "fetches": …, …}
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from penstock.load.client_counters import Fetched, fetched
from penstock.load.client_main import Parent

_TALLY_EVERY_NS = 50_000_000
_STATISTICS_MS = 1_000
_AT_ONCE = 500
_POLL_S = 0.05


class Member:
    """Joins and reads until it is asked to leave, then leaves the group in order."""

    def __init__(self, parent: Parent) -> None:
        job = parent.job
        self._parent = parent
        self._topic = str(job["topic"])
        self._ends = {int(p): int(end) for p, end in job["ends"].items()}
        self._unread: set[int] = set()
        self._events: list[tuple[int, str, list[int]]] = []
        self._errors: set[str] = set()
        self._records = self._bytes = 0
        self._tallies: list[tuple[int, int, int]] = []
        self._fetched = Fetched()
        counted = {"statistics.interval.ms": _STATISTICS_MS, "stats_cb": self._counted}
        self._consumer = Consumer({**counted, **job["cluster"], **job["settings"]})
        self._consumer.list_topics(self._topic, timeout=30)  # connected before it joins

    def run(self) -> dict[str, Any]:
        self._say("joins", [])
        self._tally()
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._lost, on_lost=self._lost
        )
        while not (self._parent.has_ordered("leave") or self._parent.is_gone.is_set()):
            self._read()
        self._tally()
        self._say("leaves", [])
        self._consumer.close()
        at_ns, records, sizes = zip(*self._tallies, strict=True)
        return {
            "at_ns": at_ns,
            "records": records,
            "size_bytes": sizes,
            "fetches": self._fetched.answers,
            "fetched_messages": self._fetched.messages,
        }

    def _read(self) -> None:
        first: list[int] = []
        for message in self._consumer.consume(_AT_ONCE, timeout=_POLL_S):
            error = message.error()
            if error is not None:
                self._errors.add(error.name())
                continue
            partition, offset = int(message.partition() or 0), int(message.offset() or 0)
            self._records += 1
            self._bytes += len(message)
            if partition in self._unread:
                self._unread.discard(partition)
                first.append(partition)
            if offset + 1 >= self._ends[partition]:
                # It may have gone to somebody else, who begins at its beginning anyway.
                with suppress(KafkaException):
                    self._consumer.seek(TopicPartition(self._topic, partition, 0))
        if first:
            self._say("reads", first)
        if time.monotonic_ns() - self._tallies[-1][0] >= _TALLY_EVERY_NS:
            self._tally()

    def _tally(self) -> None:
        self._tallies.append((time.monotonic_ns(), self._records, self._bytes))

    def _counted(self, statistics: str) -> None:
        self._fetched = fetched(statistics)

    def _assigned(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        numbers = [p.partition for p in partitions]
        self._unread |= set(numbers)
        self._say("assigned", numbers)

    def _lost(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        numbers = [p.partition for p in partitions]
        self._unread -= set(numbers)
        self._say("revoked", numbers)

    def _say(self, what: str, partitions: list[int]) -> None:
        self._events.append((time.monotonic_ns(), what, partitions))
        self._parent.tell("seen", events=self._events, errors=sorted(self._errors))


def main() -> None:
    parent = Parent()
    member = Member(parent)
    parent.tell("ready")
    if parent.wait_for("join") is not None:
        parent.tell("report", **member.run())


if __name__ == "__main__":
    main()
