"""A lane's Kafka consumer: it stays open from micro-batch to micro-batch, with what it prefetched.

Partitions are assigned, not subscribed to: who reads what is the plan's business. A consumer knows
where it stands; if it is asked to go on from there, nothing is fetched anew.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.lake.order import Range
from penstock.domain.lake.partition import Partition
from penstock.pipeline.lake import client
from penstock.pipeline.lake.records import Records

_POLL_S = 0.1
# Taken from the client at a time.
_MOST = 5000
_LEAST_FETCH_BYTES, _MOST_FETCH_BYTES = 1 << 16, 1 << 20
_MOST_TROUBLES = 5

# Codes as numbers, for `Message.error()` is compared for every message.
_END = KafkaError._PARTITION_EOF
_OUT_OF_RANGE = KafkaError._AUTO_OFFSET_RESET
_UNREADABLE = (
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError.INVALID_MSG,
)
_FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
)


@dataclass
class Gathered:
    """What one gathering brought."""

    records: Records = field(default_factory=Records)
    # How far each partition was read: the offset to go on from.
    ends: dict[Partition, int] = field(default_factory=dict)
    size_bytes: int = 0
    kept_partitions: int = 0
    is_saturated: bool = False
    troubles: dict[str, None] = field(default_factory=dict)


class LaneConsumer:
    """One consumer; used by one task at a time."""

    def __init__(
        self,
        config: Mapping[str, Any],
        lane_bytes: int,
        partitions: int,
        group: str = "penstock-lane",
    ) -> None:
        fair = lane_bytes // max(1, partitions)
        try:
            self._consumer = Consumer(
                {
                    # So that the first answers hold something of every partition: a lane that ends
                    # by bytes would otherwise read the same few again and again.
                    "max.partition.fetch.bytes": min(
                        max(fair, _LEAST_FETCH_BYTES), _MOST_FETCH_BYTES
                    ),
                    "queued.max.messages.kbytes": max(1024, lane_bytes // 1000),
                    # Librdkafka's second would leave a lane waiting for what is there already.
                    "fetch.queue.backoff.ms": 5,
                    "fetch.error.backoff.ms": 50,
                    # A broker that is asked for what is not there yet answers after this; until
                    # then the consumer cannot ask it for anything else.
                    "fetch.wait.max.ms": 50,
                    **config,
                    "group.id": group,  # it must have one, and never joins it
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                },
                logger=client.log,
            )
        except KafkaException as error:
            raise client.refusal(error) from None
        self._positions: dict[Partition, int] = {}

    def close(self) -> None:
        self._consumer.close()

    def commit(self, offsets: list[TopicPartition]) -> None:
        """Tell Kafka, for those who look at a group's lag."""
        self._consumer.commit(offsets=offsets, asynchronous=True)

    def gather(
        self, wanted: Mapping[Partition, Range], most_bytes: int, until_s: float
    ) -> Gathered:
        """Read until all that was ordered is here, or it is enough, or `until_s` (monotonic)."""
        found = Gathered(kept_partitions=self._take_up(wanted))
        found.ends = {partition: r.start for partition, r in wanted.items()}
        open_ends = {partition: r.end for partition, r in wanted.items() if r.end > r.start}
        poll, consume = self._consumer.poll, self._consumer.consume
        while open_ends and time.monotonic() < until_s:
            if found.size_bytes >= most_bytes:
                found.is_saturated = True
                break
            first = poll(_POLL_S)
            if first is None:
                continue
            # With a timeout it would wait until it has as many; without, it takes what is there.
            self._take([first, *consume(self._room(found, most_bytes), 0)], found, open_ends)
        return found

    @staticmethod
    def _room(found: Gathered, most_bytes: int) -> int:
        """How many more may be taken at once, by the size of those that came so far."""
        count = len(found.records)
        if not count:
            return 100
        mean = max(1.0, found.size_bytes / count)
        return max(1, min(_MOST, int((most_bytes - found.size_bytes) / mean)))

    def _take_up(self, wanted: Mapping[Partition, Range]) -> int:
        """Hold exactly these, each at its start; says how many were there already."""
        kept = {p for p, r in wanted.items() if self._positions.get(p) == r.start}
        try:
            if dropped := [TopicPartition(*p) for p in self._positions if p not in kept]:
                self._consumer.incremental_unassign(dropped)
            if added := [TopicPartition(*p, r.start) for p, r in wanted.items() if p not in kept]:
                self._consumer.incremental_assign(added)
        except KafkaException as error:
            raise PenstockError(f"Kafka's client cannot be assigned: {error}") from None
        self._positions = {p: r.start for p, r in wanted.items()}
        return len(kept)

    def _take(
        self, messages: list[Message], found: Gathered, open_ends: dict[Partition, int]
    ) -> None:
        good = [m for m in messages if m.error() is None]
        if good:
            self._keep(good, found, open_ends)
        # Afterwards, for they are about what follows: an end, an offset that is not there.
        if len(good) < len(messages):
            for message in messages:
                if message.error() is not None:
                    self._note(message, found, open_ends)

    def _keep(self, good: list[Message], found: Gathered, open_ends: dict[Partition, int]) -> None:
        before = len(found.records)
        found.size_bytes += found.records.add(good)
        records = found.records
        names = zip(records.topics[before:], records.partitions[before:], strict=True)
        # In order within a partition, so the last one is the furthest.
        for name, offset in dict(zip(names, records.offsets[before:], strict=True)).items():
            self._reach(Partition(*name), offset + 1, found, open_ends)

    def _reach(
        self, partition: Partition, offset: int, found: Gathered, open_ends: dict[Partition, int]
    ) -> None:
        self._positions[partition] = found.ends[partition] = offset
        if offset >= open_ends.get(partition, 0):
            open_ends.pop(partition, None)

    def _note(self, message: Message, found: Gathered, open_ends: dict[Partition, int]) -> None:
        error = message.error()
        assert error is not None
        topic, number, offset = message.topic(), message.partition(), message.offset()
        partition = Partition(topic or "", -1 if number is None else number)
        code = error.code()
        if code == _END:
            # Offsets without records (of transactions, or compacted away) may come last.
            if partition in found.ends and offset is not None and offset > found.ends[partition]:
                self._reach(partition, offset, found, open_ends)
        elif code in _FORBIDDEN:
            raise BadInput(
                f"{partition.topic or 'the cluster'} may not be read: {error.str()}",
                "give the pipeline's user READ and DESCRIBE on the topic",
            )
        elif code in _UNREADABLE or error.fatal():
            # The client would go on behind it, and its records would pass for a gap.
            raise PenstockError(
                f"{partition} at offset {offset}: {error.str()}",
                "Kafka's client cannot read it; repair the topic or its client",
            )
        else:
            # It may be about a partition that was given back since.
            if code == _OUT_OF_RANGE and partition in self._positions:
                # Deleted meanwhile; the next order knows where it begins now.
                self._positions.pop(partition, None)
                self._consumer.incremental_unassign([TopicPartition(*partition)])
                open_ends.pop(partition, None)
            if len(found.troubles) < _MOST_TROUBLES:
                found.troubles[f"{error.name()}: {error.str()}"] = None
