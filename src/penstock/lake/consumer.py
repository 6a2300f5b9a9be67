"""A lane's Kafka consumer. It stays open from micro-batch to micro-batch, with what it prefetched.

Partitions are assigned, not subscribed to: the plan decides who reads what. A consumer knows its
positions; if it continues from there, nothing is fetched again. If it begins elsewhere, Kafka
checks the leader epoch of the position (KIP-320), so that a rewritten log is noticed. While it
keeps a partition, its client repeats this check whenever the leader changes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.lake.order import Position, Range
from penstock.domain.lake.partition import Partition
from penstock.kafka import client_log
from penstock.kafka.waiting import holds_within
from penstock.lake.batch_prober import UNREADABLE, BatchProber
from penstock.lake.gathered import Gathered, Unreadable

_POLL_S = 0.1
_LEAST_FETCH_BYTES, _MOST_FETCH_BYTES = 1 << 16, 1 << 20
_MOST_TROUBLES = 5
# An assignment waits until unassigned partitions have stopped (milliseconds) and commits are
# answered.
_SEEK_S, _SEEK_PAUSE_S = 2.0, 0.002

# Codes as numbers, since `Message.error()` is compared for every message.
_END = KafkaError._PARTITION_EOF
# The client also reports a truncated log like this, since it must not reset the offset by itself.
_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)
_FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
)
_TRUNCATED = re.compile(r"truncation|no epoch found", re.IGNORECASE)
_BROKER_END = re.compile(r"end offset is (\d+)")


class LaneConsumer:
    """One consumer; used by one task at a time."""

    def __init__(
        self,
        config: Mapping[str, Any],
        lane_bytes: int,
        partitions: int,
        group: str = "penstock-lane",
    ) -> None:
        self._config = config
        fair = lane_bytes // max(1, partitions)
        try:
            self._consumer = Consumer(
                {
                    # So that the first fetches contain records of every partition: otherwise a lane
                    # that ends by bytes would read the same few partitions again and again.
                    "max.partition.fetch.bytes": min(
                        max(fair, _LEAST_FETCH_BYTES), _MOST_FETCH_BYTES
                    ),
                    "queued.max.messages.kbytes": max(1024, lane_bytes // 1000),
                    # With librdkafka's default of a second, a lane would wait for existing records.
                    "fetch.queue.backoff.ms": 5,
                    "fetch.error.backoff.ms": 50,
                    # A broker without new records answers after this time; until then the consumer
                    # cannot ask it for other partitions.
                    "fetch.wait.max.ms": 50,
                    # Otherwise a bit flip on a disk or a wire would be landed permanently.
                    "check.crcs": True,
                    **config,
                    "group.id": group,  # it must have one, and never joins it
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                },
                logger=client_log.log,
            )
        except KafkaException as error:
            raise client_log.refusal(error) from None
        self._positions: dict[Partition, int] = {}
        # Partitions that the client reads from before their position, because the leader epoch is
        # known only up to the last record, and no record followed it up to the position.
        self._early: dict[Partition, int] = {}
        # Partitions whose log was reported as truncated once.
        self._doubted: set[Partition] = set()

    def close(self) -> None:
        self._consumer.close()

    def commit(self, offsets: list[TopicPartition]) -> None:
        """Commit offsets to Kafka, for tools that show a group's lag."""
        self._consumer.commit(offsets=offsets, asynchronous=True)

    def gather(
        self, ranges: Mapping[Partition, Range], most_bytes: int, until_s: float
    ) -> Gathered:
        """Read until the ranges are complete, or there is enough, or `until_s` (monotonic).

        Enough is `most_bytes` of keys and values, or MEMORY_FACTOR times that in memory.
        """
        # Assign exactly these partitions, each at its start.
        kept = {p for p, r in ranges.items() if self._positions.get(p) == r.start}
        self._give_back([p for p in self._positions if p not in kept])
        late = self._assign({p: r.position for p, r in ranges.items() if p not in kept})
        gathered = Gathered(
            ends={partition: r.position for partition, r in ranges.items()},
            open_ends={p: r.end for p, r in ranges.items() if r.end > r.start and p not in late},
            kept_partitions=len(kept),
        )
        if late:
            named = ", ".join(map(str, sorted(late)[:3]))
            gathered.troubles[f"not assigned within {_SEEK_S:g} s: {named}"] = None
        poll, consume = self._consumer.poll, self._consumer.consume
        while gathered.open_ends and time.monotonic() < until_s:
            room = gathered.room(most_bytes)
            if room == 0:
                break
            first = poll(_POLL_S)
            if first is None:
                continue
            # With a timeout it would wait for `room` messages; without, it takes what is available.
            self._take([first, *consume(room, 0)], gathered)
        for partition, batch in gathered.unreadable.items():
            self._pass_over(partition, batch, gathered)
        return gathered

    # --- what is assigned --------------------------------------------------------------------------

    def _give_back(self, partitions: Collection[Partition]) -> None:
        if not partitions:
            return
        try:
            self._consumer.incremental_unassign([TopicPartition(*p) for p in partitions])
        except KafkaException as error:
            raise _unassignable(error) from None
        for partition in partitions:
            del self._positions[partition]
            self._early.pop(partition, None)
            self._doubted.discard(partition)

    def _assign(self, positions: Mapping[Partition, Position]) -> Collection[Partition]:
        """Assign at these positions, and have Kafka check each known leader epoch.

        Returns the partitions that could not be checked; they are unassigned again.
        """
        if not positions:
            return ()
        places = [TopicPartition(*p, at.checked_offset) for p, at in positions.items()]
        until_s = time.monotonic() + _SEEK_S
        try:
            self._consumer.incremental_assign(places)
            late = [
                p
                for p, at in positions.items()
                if at.leader_epoch is not None and not self._check_epoch(p, at, until_s)
            ]
        except KafkaException as error:
            raise _unassignable(error) from None
        self._positions |= {p: at.offset for p, at in positions.items()}
        self._early |= {
            p: at.offset for p, at in positions.items() if at.checked_offset < at.offset
        }
        self._give_back(late)
        return late

    def _check_epoch(self, partition: Partition, at: Position, until_s: float) -> bool:
        """Seek, since librdkafka checks the epoch then, but not when a partition is assigned.

        The answer comes later, as a message. False: the seek itself failed. A fetch may overtake
        the seek; if the log ends before the position, the client then reports an offset out of
        range instead, and the next order sees it by the log's end (`Truncations`). Do not assign
        at OFFSET_END to avoid that: librdkafka forgets a seek that meets its offset query.
        """
        place = TopicPartition(*partition, at.checked_offset, leader_epoch=at.leader_epoch)

        def seeks() -> bool:
            try:
                self._consumer.seek(place)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:
                    raise
                return False
            return True

        return holds_within(until_s - time.monotonic(), seeks, every_s=_SEEK_PAUSE_S)

    # --- what comes ----------------------------------------------------------------------------------

    def _take(self, messages: list[Message], gathered: Gathered) -> None:
        good = [m for m in messages if m.error() is None]
        bad = [m for m in messages if m.error() is not None] if len(good) < len(messages) else []
        unreadable = self._unreadable(bad)
        if unreadable:
            # The client skips some of these batches: what follows one is read again.
            good = [m for m in good if not _follows(m, unreadable)]
        if self._early:
            good = self._without_early(good, gathered)
        if good:
            self._keep(good, gathered)
        for partition, batch in unreadable.items():
            gathered.unreadable[partition] = batch
            gathered.open_ends.pop(partition, None)
        self._give_back(unreadable)
        # Errors come last, since they are about what follows: an end, a missing offset.
        for message in bad:
            self._note(message, gathered)

    def _unreadable(self, bad: list[Message]) -> dict[Partition, Unreadable]:
        """The batches of assigned partitions that the client cannot read."""
        batches: dict[Partition, Unreadable] = {}
        for message in bad:
            error = message.error()
            assert error is not None
            if error.code() in UNREADABLE and message.topic():
                partition, offset = _place(message)
                if partition in self._positions:
                    batches.setdefault(partition, Unreadable(offset, error.str()))
        return batches

    def _without_early(self, good: list[Message], gathered: Gathered) -> list[Message]:
        """Drop partitions that have a record where there was none: their log was rewritten."""
        others: list[Message] = []
        for message in good:
            partition, offset = _place(message)
            if partition in gathered.diverged:
                continue
            start = self._early.pop(partition, None)
            if start is not None and offset < start:
                self._diverge(partition, offset, gathered)
            else:
                others.append(message)
        return others

    def _keep(self, good: list[Message], gathered: Gathered) -> None:
        records = gathered.records
        before = len(records)
        size_bytes = records.add(good)
        gathered.count(len(good), size_bytes, records.headers[before:])
        names = zip(records.topics[before:], records.partitions[before:], strict=True)
        # In order within a partition, so the last one is the furthest.
        for name, message in dict(zip(names, good, strict=True)).items():
            partition, offset = Partition(*name), _place(message)[1]
            self._doubted.discard(partition)
            self._reach(partition, Position(offset + 1, message.leader_epoch()), gathered)

    def _reach(self, partition: Partition, position: Position, gathered: Gathered) -> None:
        self._positions[partition] = position.offset
        gathered.ends[partition] = position
        if position.offset >= gathered.open_ends.get(partition, 0):
            gathered.open_ends.pop(partition, None)

    def _note(self, message: Message, gathered: Gathered) -> None:
        error = message.error()
        assert error is not None
        topic, number, offset = message.topic(), message.partition(), message.offset()
        partition = Partition(topic or "", -1 if number is None else number)
        code = error.code()
        if code == _END:
            # Offsets without records (of transactions, or compacted away) may come last.
            if partition in self._positions and offset is not None:
                reached = gathered.ends[partition]
                if offset > reached.offset:
                    self._reach(partition, reached.after_gap(offset), gathered)
        elif code in _FORBIDDEN:
            raise BadInput(
                f"{partition.topic or 'the cluster'} may not be read: {error.str()}",
                "give the pipeline's user READ and DESCRIBE on the topic",
            )
        elif error.fatal():
            raise PenstockError(f"Kafka's client cannot continue: {error.str()}")
        elif partition not in gathered.unreadable:
            # The partition may have been unassigned since.
            if code in _OUT_OF_RANGE and partition in self._positions:
                self._leave(partition, error.str(), gathered)
            if len(gathered.troubles) < _MOST_TROUBLES:
                gathered.troubles[f"{error.name()}: {error.str()}"] = None

    def _leave(self, partition: Partition, why: str, gathered: Gathered) -> None:
        """Handle a partition that the client stopped reading because its offset does not exist."""
        position = gathered.ends[partition]
        if _TRUNCATED.search(why) is None:
            # Retention deleted it; the next order knows the new start.
            self._give_back([partition])
            gathered.open_ends.pop(partition, None)
        elif partition not in self._doubted:
            # Check once more, at the landed position: the client checked its own position, and a
            # late answer may belong to an earlier request. (If no epoch is known, as after a
            # recorded truncation, it must.)
            self._give_back([partition])
            if self._assign({partition: position}):
                gathered.open_ends.pop(partition, None)
            else:
                self._doubted.add(partition)
        else:
            end = _BROKER_END.search(why)
            # Without an end, the broker does not know the epoch: any of its records may differ.
            self._diverge(partition, int(end[1]) if end else 0, gathered)

    def _pass_over(self, partition: Partition, batch: Unreadable, gathered: Gathered) -> None:
        """Reject an unreadable batch as one record, and continue after it."""
        position = gathered.ends[partition]
        first = max(position.offset, batch.base_offset)
        try:
            following = self._prober.end_of_batch(partition, batch.base_offset, first)
        except (KafkaException, TimeoutError) as error:  # the next micro-batch tries again
            gathered.troubles[f"{partition} at offset {first}: {batch.why} ({error})"] = None
            return
        last = following - 1
        offsets = f"offset {first}" if last == first else f"offsets {first} to {last}"
        gathered.records.add_unreadable(partition, first, f"{offsets}: {batch.why}")
        # Without the epoch: to have it checked, the client would read the batch again.
        gathered.ends[partition] = Position(following)

    @cached_property
    def _prober(self) -> BatchProber:
        return BatchProber(self._config)

    def _diverge(self, partition: Partition, offset: int, gathered: Gathered) -> None:
        """Stop reading it; the next order stops the pipeline or records the range."""
        gathered.diverged[partition] = offset
        self._give_back([partition])
        gathered.open_ends.pop(partition, None)


def _follows(message: Message, unreadable: Mapping[Partition, Unreadable]) -> bool:
    partition, offset = _place(message)
    return partition in unreadable and offset >= unreadable[partition].base_offset


def _place(message: Message) -> tuple[Partition, int]:
    topic, number, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and number is not None and offset is not None
    return Partition(topic, number), offset


def _unassignable(error: KafkaException) -> PenstockError:
    return PenstockError(f"Kafka's client cannot assign partitions: {error}")
