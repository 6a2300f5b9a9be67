"""What monitor, controller and hosts tell one another, through two topics of the cluster.

`penstock.NAME.speeds` has the monitor's measurements. `penstock.NAME.group` has a partition per
host for commands to it, and partition 0 for answers to the controller (S2, 4.4.2). It is compacted:
the last command to a host stays, and is what it acts on when it comes back.

The controller writes in transactions under one id, so of two controllers the older one is fenced by
Kafka itself: it can command nothing any more, and ends with that reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from penstock import specs
from penstock.autoscaler.actions import Send
from penstock.domain.autoscaling import Answer, Command, Measurement
from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.value import Value
from penstock.pipeline.lake import client

# A host is heard of at least so often.
HEARTBEAT_S = 2.0
T = TypeVar("T", bound=Value)
_REQUEST_S = 10.0
_PAUSE_S = 2.0
_ANSWERS = 0
_SOURCE = "message.json"
_UNHEARD = (
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
_AWAY = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)
_FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


class Superseded(PenstockError):
    """Another controller has begun."""


class Topics:
    """The two topics of a pipeline; made if they are not there."""

    def __init__(self, name: str, config: Mapping[str, Any], most_hosts: int) -> None:
        self.speeds, self.group = f"penstock.{name}.speeds", f"penstock.{name}.group"
        self.name, self.hosts = name, most_hosts
        self.config = {k: v for k, v in config.items() if k != "isolation.level"}

    def make(self, warn: Callable[[str], None] = client.log.warning) -> None:
        """Those that are not there. While no broker answers, it waits, and that is said."""
        is_warned = False
        while True:
            try:
                return self._make()
            except KafkaException as error:
                reason = error.args[0]
                if reason.code() not in _AWAY:
                    raise PenstockError(
                        f"the topics of the autoscaler cannot be made: {reason.str()}",
                        "give its user CREATE, or make them: see docs/autoscaler.md",
                    ) from None
                if not is_warned:
                    warn(f"no broker answers, so the autoscaler waits: {reason.str()}")
                is_warned = True
            time.sleep(_PAUSE_S)

    def _make(self) -> None:
        kept = {"cleanup.policy": "compact", "segment.ms": "600000"}
        brief = {"retention.ms": "600000", "segment.ms": "600000"}
        wanted = [
            NewTopic(self.group, 1 + self.hosts, config=kept),
            NewTopic(self.speeds, 1, config=brief),
        ]
        # Who may not create topics may still use those that somebody else made.
        there = self._admin.list_topics(timeout=_REQUEST_S).topics
        if new := [topic for topic in wanted if topic.topic not in there]:
            for answer in self._admin.create_topics(new, request_timeout=_REQUEST_S).values():
                try:
                    answer.result()
                except KafkaException as error:  # somebody else was quicker
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        if self.group in there and self.count() < 1 + self.hosts:
            wider = NewPartitions(self.group, 1 + self.hosts)
            self._admin.create_partitions([wider])[self.group].result(_REQUEST_S)
        # Brokers hear of it one after the other.
        deadline = time.monotonic() + _REQUEST_S
        while self.count() < 1 + self.hosts and time.monotonic() < deadline:
            time.sleep(0.1)

    def count(self) -> int:
        """Partitions of the group's topic: there may be more than hosts now."""
        found = self._admin.list_topics(self.group, timeout=_REQUEST_S).topics[self.group]
        return len(found.partitions)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self.config, logger=client.log)

    def producer(self, **more: Any) -> Producer:
        # Ten thousand partitions make a megabyte of JSON, and a tenth of that for brokers.
        own = {"linger.ms": 0, "message.max.bytes": 20_000_000, "compression.type": "zstd"}
        return Producer({**self.config, **own, **more}, logger=client.log)


class Reader:
    """Messages of one partition, from the beginning or from the end on."""

    def __init__(self, topics: Topics, topic: str, partition: int, from_end: bool = False) -> None:
        self._consumer = Consumer(
            {
                "fetch.wait.max.ms": 100,
                **topics.config,
                "group.id": "penstock-autoscaler",  # it must have one, and never joins it
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            },
            logger=client.log,
        )
        self._place = TopicPartition(topic, partition)
        low, high = self._marks()
        self._place.offset = high if from_end else low
        self._consumer.assign([self._place])

    def _marks(self) -> tuple[int, int]:
        """Of a topic that was just made, not every broker has heard yet."""
        deadline = time.monotonic() + _REQUEST_S
        while True:
            try:
                low, high = self._consumer.get_watermark_offsets(self._place, timeout=_REQUEST_S)
                return low, high
            except KafkaException as error:
                if error.args[0].code() not in _UNHEARD or time.monotonic() >= deadline:
                    raise
            time.sleep(0.1)

    def close(self) -> None:
        self._consumer.close()

    def poll(self, timeout_s: float) -> bytes | None:
        """The next message, if one comes."""
        deadline = time.monotonic() + timeout_s
        while (message := self._consumer.poll(max(0.0, deadline - time.monotonic()))) is not None:
            if message.error() is None:
                return message.value()
        return None

    def to_the_end(self) -> Iterator[bytes]:
        """All that is there now."""
        deadline = time.monotonic() + _REQUEST_S
        while time.monotonic() < deadline:
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                deadline = time.monotonic() + _REQUEST_S
                yield message.value() or b""
            elif error.code() == KafkaError._PARTITION_EOF:
                return
        raise PenstockError(f"{self._place.topic}: no broker answers", "check the cluster")


def _parsed(texts: Iterable[bytes], kind: type[T]) -> Iterator[T]:
    """What is none of ours, is left out."""
    for text in texts:
        try:
            yield specs.parse(text.decode(), kind, _SOURCE)
        except (BadInput, UnicodeDecodeError) as error:
            client.log.warning("a message that is none of ours: %s", error)


class ControllerLink:
    """The controller's end. `is_dry`: it only listens, and does not fence whoever commands."""

    def __init__(self, topics: Topics, is_dry: bool = False) -> None:
        self._topics = topics
        self._producer: Producer | None = None
        if not is_dry:
            own = {"transactional.id": f"penstock.{topics.name}.controller"}
            self._producer = topics.producer(**own)
            self._producer.init_transactions(_REQUEST_S)
        self._answers = Reader(topics, topics.group, _ANSWERS)

    def close(self) -> None:
        self._answers.close()

    def past(self) -> tuple[dict[int, Command], dict[int, Answer]]:
        """The last command to each host that ever had one, and the last answer of each; read
        before anything else is."""
        commands: dict[int, Command] = {}
        for host in range(self._topics.count() - 1):
            reader = Reader(self._topics, self._topics.group, 1 + host)
            for command in _parsed(reader.to_the_end(), Command):
                if command.verb == "hold":
                    commands[host] = command
            reader.close()
        answers = {one.host: one for one in _parsed(self._answers.to_the_end(), Answer)}
        return commands, answers

    def send(self, sends: Iterable[Send]) -> None:
        """All of them, or none. After an error nobody knows in which state it is: begin anew."""
        if self._producer is None:
            return
        try:
            self._producer.begin_transaction()
            for send in sends:
                self._producer.produce(
                    self._topics.group,
                    specs.dump_json_line(send.command),
                    key=send.command.verb,
                    partition=1 + send.host,
                )
            self._producer.commit_transaction(_REQUEST_S)
        except KafkaException as error:
            if error.args[0].code() not in _FENCED:
                raise
            raise Superseded(
                f"another controller of {self._topics.name} has begun",
                "let only one run; this one has stopped, and the plan holds",
            ) from None

    def answers(self, timeout_s: float) -> Iterator[Answer]:
        """Those that came; waits for the first one."""
        while (text := self._answers.poll(timeout_s)) is not None:
            yield from _parsed([text], Answer)
            timeout_s = 0.0


class HostLink:
    """A host's end."""

    def __init__(self, topics: Topics, host: int) -> None:
        self._topics, self._host = topics, host
        self._commands = Reader(topics, topics.group, 1 + host)
        self._producer = topics.producer(**{"enable.idempotence": True})

    def close(self) -> None:
        self._producer.flush(_REQUEST_S)
        self._commands.close()

    def past(self) -> Command | None:
        """The last command to hold; read before anything else is."""
        last = None
        for command in _parsed(self._commands.to_the_end(), Command):
            last = command if command.verb == "hold" else last
        return last

    def command(self, timeout_s: float) -> Command | None:
        text = self._commands.poll(timeout_s)
        return None if text is None else next(_parsed([text], Command), None)

    def answer(self, answer: Answer) -> None:
        self._producer.produce(
            self._topics.group,
            specs.dump_json_line(answer),
            key=str(self._host),
            partition=_ANSWERS,
        )
        self._producer.poll(0)


class SpeedsLink:
    """Measurements, for whoever wants to read them."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._producer = topics.producer()

    def tell(self, measurement: Measurement) -> None:
        self._producer.produce(
            self._topics.speeds, specs.dump_json_line(measurement), key=self._topics.name
        )
        self._producer.poll(0)
