"""How fast one consumer reads that is behind: a topic is filled, then read over and over."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import TestbedError
from penstock.domain.progress import Progress, silent
from penstock.kafka.connection import KafkaCluster
from penstock.kafka.waiting import wait_until
from penstock.runs.experiments import group_member
from penstock.runs.experiments.clients import START_S, clients
from penstock.runs.experiments.window import Tally, throughput
from penstock.runs.fresh_topic import fresh_topic

# Enough that going back to the beginning is rare, little enough to be written in seconds.
_MOST_BYTES, _MOST_MESSAGES = 120_000_000, 400_000
# In pieces that the client's queue has room for.
_PIECE_BYTES, _PIECE_MESSAGES = 30_000_000, 50_000
_WARM_UP_S, _MEASURED_S = 2.0, 5.0
_FULL_BATCH_MS = 500


@dataclass(frozen=True)
class CatchUp:
    """A topic, its batches, and how it is read."""

    message_bytes: int
    batch_messages: int
    partitions: int
    replication: int = 1
    # Properties of the consumer.
    settings: Mapping[str, int | str | bool] | None = None

    @property
    def name(self) -> str:
        more = "".join(f"-{value}" for value in (self.settings or {}).values())
        return f"read-{self.message_bytes}-{self.batch_messages}-{self.partitions}{more}"


@dataclass(frozen=True)
class CaughtUp:
    """What the consumer did."""

    messages_per_s: float
    # Mean per answer of a broker.
    fetch_messages: float


def catch_up(
    cluster: KafkaCluster, what: CatchUp, directory: Path, on_progress: Progress = silent
) -> CaughtUp:
    """Fill a topic and read it. Leaves neither topic nor group behind."""
    unique = f"penstock-{what.name}-{secrets.token_hex(4)}"
    topic = TopicSpec(name=unique, partitions=what.partitions, replication=what.replication)
    with fresh_topic(cluster, topic):
        on_progress(f"filling a topic: messages of {what.message_bytes} B")
        _fill(cluster, what, unique)
        on_progress(f"reading for {_WARM_UP_S + _MEASURED_S:g} s")
        try:
            return _read(cluster, what, unique, directory)
        finally:
            cluster.admin.delete_group(unique)


def _fill(cluster: KafkaCluster, what: CatchUp, topic: str) -> None:
    """Batches of just so many messages, as many in every partition."""
    messages = min(_MOST_BYTES // what.message_bytes, _MOST_MESSAGES)
    round_of = what.batch_messages * what.partitions
    piece = max(1, min(_PIECE_BYTES // what.message_bytes, _PIECE_MESSAGES) // round_of) * round_of
    for _ in range(max(1, round(messages / piece))):
        cluster.admin.send(
            topic,
            what.partitions,
            piece,
            size_bytes=what.message_bytes,
            **{
                "batch.num.messages": what.batch_messages,
                "batch.size": 1_000_000,
                "linger.ms": _FULL_BATCH_MS,
                "max.in.flight": 1_000,
            },
        )


def _read(cluster: KafkaCluster, what: CatchUp, topic: str, directory: Path) -> CaughtUp:
    ends = cluster.admin.end_offsets(topic)
    settings = {
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        # At the end of a partition it starts over at once.
        "fetch.wait.max.ms": 10,
        **(what.settings or {}),
    }
    with clients(cluster, directory) as processes:
        member = processes.start(
            group_member.__name__, "consumer", 0, topic=topic, settings=settings, ends=ends
        )
        processes.wait_for("ready", START_S)
        member.order("join")

        def is_reading() -> bool:
            processes.check()
            events = (member.said("seen") or {}).get("events", ())
            read = {p for _, kind, partitions in events if kind == "reads" for p in partitions}
            return len(read) == what.partitions

        wait_until(is_reading, timeout_s=START_S, what="every partition to be read", every_s=0.05)
        from_ns = time.monotonic_ns() + round(_WARM_UP_S * 1e9)
        to_ns = from_ns + round(_MEASURED_S * 1e9)
        wait_until(
            lambda: time.monotonic_ns() >= to_ns,
            timeout_s=_WARM_UP_S + _MEASURED_S + START_S,
            what="the consumer to read",
        )
        member.order("leave")
        processes.wait_for("report", START_S)
        report = member.said("report") or {}
    done = throughput([Tally.of(report)], from_ns, to_ns)
    if not report["fetches"]:
        raise TestbedError("the consumer did not count its fetches", "measure for longer")
    return CaughtUp(done.records_per_s.value, report["fetched_messages"] / report["fetches"])
