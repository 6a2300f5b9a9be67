"""The two topics of a pipeline's autoscaler: creates, checks and reads them.

`penstock.NAME.speeds` has the monitor's measurements. `penstock.NAME.group` has a partition per
host for commands to it, and partition 0 for answers to the controller (S2, 4.4.2) and for claims of
controllers. It is compacted: the last command to a host stays, and the host acts on it after a
restart. Keys contain the group, so one group's messages never replace those of another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from penstock import specs
from penstock.domain.autoscaling import Claim, HostAnswer, Message
from penstock.domain.errors import BadInput, PenstockError
from penstock.kafka import client_log
from penstock.kafka.client_log import reason
from penstock.kafka.waiting import holds_within

ANSWERS = 0
REQUEST_S = 10.0
_PAUSE_S = 2.0
_POLICY = "cleanup.policy"
_SOURCE = "message.json"
_UNHEARD = (
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
_AWAY = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)
_FORBIDDEN = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
Warn = Callable[[str], None]
# Returns the id of this process's group; None if it has none yet.
FindId = Callable[[], str | None]


class Unreachable(PenstockError):
    """No broker answers at the moment."""


class Topics:
    """The two topics of a pipeline; created if they are missing."""

    def __init__(self, name: str, config: Mapping[str, Any], most_hosts: int) -> None:
        self.speeds, self.group = f"penstock.{name}.speeds", f"penstock.{name}.group"
        self.name, self.hosts = name, most_hosts
        self.config = {k: v for k, v in config.items() if k != "isolation.level"}

    # --- at the start --------------------------------------------------------------------------------

    def prepare(self, group: FindId, warn: Warn = client_log.log.warning) -> None:
        """Refuse topics that another group uses, or that would lose commands; create missing ones.
        While no broker answers, it waits and warns."""
        is_warned = False
        while True:
            try:
                if self._is_there():
                    self.refuse_others(group)
                return self.make(warn)
            except Unreachable as error:
                why = error.message
            except KafkaException as error:
                why = reason(error)
                if error.args[0].code() not in (*_AWAY, *_UNHEARD):
                    raise PenstockError(
                        f"{self.group}: cannot be read: {why}",
                        "give the autoscaler's user READ and DESCRIBE on it",
                    ) from None
            if not is_warned:
                warn(f"no broker answers, so the autoscaler waits: {why}")
            is_warned = True
            # Without a limit, so not `wait_until`: the warning says what is awaited.
            time.sleep(_PAUSE_S)

    def refuse_others(self, group: FindId) -> None:
        """Raise if another group uses the topic: each would treat the other's hosts as its own."""
        messages = self.latest(ANSWERS)
        # Read afterwards: a pipeline that has just begun had its id before it wrote messages.
        own = group()
        if not (others := [message for message in messages if message.group != own]):
            return
        heard_ms = max((m.at_ms for m in others if isinstance(m, HostAnswer | Claim)), default=0)
        heard = datetime.fromtimestamp(heard_ms / 1000, UTC).isoformat(" ", "seconds")
        raise BadInput(
            f"{self.group}: another pipeline of the name {self.name}, with another lake, uses "
            f"this topic (group {others[0].group or 'without id'}, last heard of at {heard}; this "
            f"pipeline's group is {own or 'new'})",
            "give one of the two another `name`; if the other one or its checkpoint was removed, "
            f"delete the topics {self.group} and {self.speeds}",
        )

    def make(self, warn: Warn = client_log.log.warning) -> None:
        """Create missing topics; refuse a group topic that does not keep the last commands. Raises
        `KafkaException` if no broker answers."""
        try:
            self._make(warn)
        except KafkaException as error:
            if error.args[0].code() in _AWAY:
                raise
            raise PenstockError(
                f"the topics of the autoscaler cannot be created: {reason(error)}",
                "give its user CREATE (and ALTER, for more partitions), or create them: see "
                "docs/autoscaler.md",
            ) from None

    def _make(self, warn: Warn) -> None:
        kept = {_POLICY: "compact", "segment.ms": "600000"}
        brief = {"retention.ms": "600000", "segment.ms": "600000"}
        topics = [
            NewTopic(self.group, 1 + self.hosts, config=kept),
            NewTopic(self.speeds, 1, config=brief),
        ]
        # A user who may not create topics may still use existing ones.
        there = self._admin.list_topics(timeout=REQUEST_S).topics
        if self.group in there:
            self._check_policy(warn)
        if new := [topic for topic in topics if topic.topic not in there]:
            for answer in self._admin.create_topics(new, request_timeout=REQUEST_S).values():
                try:
                    answer.result()
                except KafkaException as error:  # another process may have created it
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        if self.group in there and self.count() < 1 + self.hosts:
            wider = NewPartitions(self.group, 1 + self.hosts)
            self._admin.create_partitions([wider])[self.group].result(REQUEST_S)
        # Brokers learn of it one after the other.
        holds_within(REQUEST_S, lambda: self.count() >= 1 + self.hosts, every_s=0.1)

    def _check_policy(self, warn: Warn) -> None:
        """Without compaction alone, retention deletes the last command to a host that has had no
        new one for a week, and the host starts without a plan."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.group)
        (asked,) = self._admin.describe_configs([resource], request_timeout=REQUEST_S).values()
        try:
            policy = asked.result()[_POLICY].value
        except KafkaException as error:
            if error.args[0].code() not in _FORBIDDEN:
                raise
            warn(f"{self.group}: whether it is compacted cannot be checked: {reason(error)}")
            return
        if policy != "compact":
            servers = self.config.get("bootstrap.servers", "HOST:PORT")
            raise BadInput(
                f"{self.group}: its {_POLICY} is {policy} and must be compact, or the last "
                "commands to hosts are deleted",
                f"kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics "
                f"--entity-name {self.group} --add-config {_POLICY}=compact",
            )

    def _is_there(self) -> bool:
        return self.group in self._admin.list_topics(timeout=REQUEST_S).topics

    def count(self) -> int:
        """Partitions of the group's topic; there may be more than present hosts need."""
        topic = self._admin.list_topics(self.group, timeout=REQUEST_S).topics[self.group]
        return len(topic.partitions)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self.config, logger=client_log.log)

    # --- clients -------------------------------------------------------------------------------------

    def producer(self, **more: Any) -> Producer:
        # Ten thousand partitions make a megabyte of JSON, compressed a tenth of that.
        own = {"linger.ms": 0, "message.max.bytes": 20_000_000, "compression.type": "zstd"}
        return Producer({**self.config, **own, **more}, logger=client_log.log)

    def reader(self, partition: int) -> Reader:
        """A reader of a partition of the group's topic, from its beginning."""
        return Reader(self.config, self.group, partition)

    def latest(self, partition: int) -> list[Message]:
        """The last message of every key that the partition of the group's topic has now."""
        with closing(self.reader(partition)) as reader:
            return list(parsed(reader.latest()))


class Reader:
    """Messages of one partition, from its beginning on."""

    def __init__(self, config: Mapping[str, Any], topic: str, partition: int) -> None:
        self._consumer = Consumer(
            {
                "fetch.wait.max.ms": 100,
                **config,
                "group.id": "penstock-autoscaler",  # it must have one, and never joins it
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            },
            logger=client_log.log,
        )
        self._place = TopicPartition(topic, partition)
        self._place.offset, _ = self._marks()
        self._consumer.assign([self._place])

    def _marks(self) -> tuple[int, int]:
        """Begin and end offsets. Waits, since not every broker knows a new topic at once; raises
        Kafka's own error if it stays unknown, by which callers tell what to do."""
        marks: list[tuple[int, int]] = []

        def are_known() -> bool:
            try:
                marks.append(self._consumer.get_watermark_offsets(self._place, timeout=REQUEST_S))
            except KafkaException as error:
                if error.args[0].code() in _UNHEARD:
                    return False
                raise
            return True

        if not holds_within(REQUEST_S, are_known, every_s=0.1):
            return self._consumer.get_watermark_offsets(self._place, timeout=REQUEST_S)
        return marks[0]

    def close(self) -> None:
        self._consumer.close()

    def poll(self, timeout_s: float) -> bytes | None:
        """The next message, or None if none arrives in time."""
        deadline = time.monotonic() + timeout_s
        while (message := self._consumer.poll(max(0.0, deadline - time.monotonic()))) is not None:
            if message.error() is None:
                return message.value() or b""
        return None

    def latest(self) -> list[bytes]:
        """The last message of every key that the partition has now, in the order in which they were
        written. Call it once, and before `poll`: Kafka's client reports the end only once."""
        last: dict[bytes | str | None, bytes] = {}
        for key, value in self._to_the_end():
            last.pop(key, None)
            if value is not None:
                last[key] = value
        return list(last.values())

    def _to_the_end(self) -> Iterator[tuple[bytes | str | None, bytes | None]]:
        deadline = time.monotonic() + REQUEST_S
        while time.monotonic() < deadline:
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                deadline = time.monotonic() + REQUEST_S
                yield message.key(), message.value()
            elif error.code() == KafkaError._PARTITION_EOF:
                return
        raise Unreachable(f"{self._place.topic}: no broker answers", "check the cluster")


def parsed(texts: Iterable[bytes]) -> Iterator[Message]:
    """Skips texts that are not a message of a group."""
    for text in texts:
        try:
            yield specs.parse(text.decode(), Message, _SOURCE)
        except (BadInput, UnicodeDecodeError) as error:
            client_log.log.warning("skipped, since it is not a message of a group: %s", error)
