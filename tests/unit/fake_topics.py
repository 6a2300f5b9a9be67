"""The autoscaler's topics without Kafka: partitions, transactions and their fencing."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock import specs
from penstock.autoscaler.topics import Topics, Warn, parsed
from penstock.domain.autoscaling import Message


class Log:
    """What brokers keep of the group's topic, for everybody who uses it."""

    def __init__(self) -> None:
        self.partitions: dict[int, list[tuple[str, bytes]]] = defaultdict(list)
        # Transactional id → the epoch of its newest producer.
        self.epochs: dict[str, int] = {}
        self.is_away = False
        # Called once, just before a producer fences the others.
        self.before_init: Callable[[], None] | None = None

    def check(self) -> None:
        if self.is_away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker answers"))

    @property
    def size(self) -> int:
        return sum(len(written) for written in self.partitions.values())

    def write(self, partition: int, key: str, message: Message) -> None:
        self.partitions[partition].append((key, specs.dump_json_line(message).encode()))

    def messages(self, partition: int) -> list[Message]:
        return list(parsed(text for _, text in self.partitions[partition]))


class FakeProducer:
    def __init__(self, log: Log, transactional_id: str | None) -> None:
        self._log, self._id, self._epoch = log, transactional_id, 0
        self._open: list[tuple[int, str, bytes]] | None = None

    def init_transactions(self, timeout_s: float) -> None:
        self._log.check()
        assert self._id is not None
        hook, self._log.before_init = self._log.before_init, None
        if hook is not None:
            hook()
        self._epoch = self._log.epochs[self._id] = self._log.epochs.get(self._id, 0) + 1

    def begin_transaction(self) -> None:
        self._open = []

    def produce(self, topic: str, text: str, *, key: str, partition: int = 0) -> None:
        message = partition, key, text.encode()
        if not topic.endswith(".group"):
            return  # nobody reads the other one
        if self._open is None:
            self._append(*message)
        else:
            self._open.append(message)

    def commit_transaction(self, timeout_s: float) -> None:
        assert self._id is not None and self._open is not None
        # Kafka does not look at a transaction without messages.
        if self._open:
            self._log.check()
            if self._epoch != self._log.epochs[self._id]:
                raise KafkaException(KafkaError(KafkaError._FENCED))
        for message in self._open:
            self._append(*message)
        self._open = None

    def _append(self, partition: int, key: str, text: bytes) -> None:
        self._log.partitions[partition].append((key, text))

    def poll(self, timeout_s: float) -> None: ...

    def flush(self, timeout_s: float) -> None: ...


class FakeReader:
    def __init__(self, log: Log, partition: int) -> None:
        self._log, self._partition, self._at = log, partition, 0

    def poll(self, timeout_s: float) -> bytes | None:
        written = self._log.partitions[self._partition]
        if self._at >= len(written):
            time.sleep(min(timeout_s, 0.005))
            return None
        self._at += 1
        return written[self._at - 1][1]

    def latest(self) -> list[bytes]:
        self._log.check()
        last: dict[str, bytes] = {}
        for key, text in self._log.partitions[self._partition]:
            last.pop(key, None)
            last[key] = text
        self._at = len(self._log.partitions[self._partition])
        return list(last.values())

    def close(self) -> None: ...


class FakeTopics(Topics):
    """Of the pipeline `p` with three hosts."""

    def __init__(self, log: Log) -> None:
        super().__init__("p", {}, 3)
        self._log = log

    def make(self, warn: Warn = print) -> None:
        self._log.check()

    def count(self) -> int:
        return 1 + self.hosts

    def _is_there(self) -> bool:
        return True

    def producer(self, **more: Any) -> Any:
        return FakeProducer(self._log, more.get("transactional.id"))

    def reader(self, partition: int) -> Any:
        self._log.check()
        return FakeReader(self._log, partition)
