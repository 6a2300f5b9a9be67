"""Admin requests to a cluster: topics, leaders, end offsets, replicas out of sync."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.value import FieldError
from penstock.kafka.client_log import log, reason, refusal
from penstock.kafka.waiting import wait_until

_REQUEST_S = 10.0


class Admin:
    """Admin client. `place` is the context in which clients must be made to reach the brokers."""

    def __init__(
        self,
        config: Mapping[str, Any],
        place: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._config = dict(config)
        self._place = place
        try:
            with place():  # a client's threads stay where it was made
                self._client = AdminClient({**config, "socket.timeout.ms": 5000}, logger=log)
        except KafkaException as error:
            raise refusal(error, "client.properties") from None

    def _brokers(self, timeout_s: float) -> Mapping[int, Any]:
        """Their metadata, by id; none without an answer."""
        with suppress(KafkaException):
            return self._client.list_topics(timeout=timeout_s).brokers
        return {}

    def broker_ids(self, timeout_s: float = 2.0) -> set[int]:
        """The brokers that are registered and not fenced."""
        return set(self._brokers(timeout_s))

    def broker_ports(self, timeout_s: float = 2.0) -> set[int]:
        """The ports at which clients reach these brokers."""
        return {int(broker.port) for broker in self._brokers(timeout_s).values()}

    def leader(self, topic: str, partition: int) -> int:
        partitions = self._partitions(topic)
        if partition not in partitions:
            raise TestbedError(f"partition {topic}-{partition} does not exist")
        return int(partitions[partition].leader)

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition → the broker that leads it; partitions without a leader are left out."""
        partitions = self._partitions(topic)
        return {number: int(p.leader) for number, p in partitions.items() if p.leader >= 0}

    def _partitions(self, topic: str) -> Mapping[int, Any]:
        """The metadata of a topic's partitions."""
        partitions: Mapping[int, Any] = {}

        def known() -> bool:
            nonlocal partitions
            try:
                metadata = self._client.list_topics(topic, timeout=_REQUEST_S).topics[topic]
            except KafkaException:  # no broker answers
                return False
            partitions = metadata.partitions if metadata.error is None else {}
            return bool(partitions)

        # Any broker may answer, and some learn of a new topic later than others.
        wait_until(known, timeout_s=10, what=f"topic {topic!r} to be known")
        return partitions

    def out_of_sync(self, timeout_s: float = 2.0, broker: int | None = None) -> list[str]:
        """Partitions without a leader or with a replica that is out of sync: 'topic-0: leader 1, 2 of 3 in
        sync'. With `broker`, only those where that one's replica is."""
        try:
            topics = self._client.list_topics(timeout=timeout_s).topics
        except KafkaException as error:
            return [f"no answer: {reason(error)}"]

        def lags(partition: Any) -> bool:
            missing = set(partition.replicas) - set(partition.isrs)
            return partition.leader < 0 or (bool(missing) if broker is None else broker in missing)

        return [
            f"{name}-{number}: leader {p.leader}, {len(p.isrs)} of {len(p.replicas)} in sync"
            for name, topic in topics.items()
            for number, p in topic.partitions.items()
            if lags(p)
        ]

    def create_topic(self, topic: TopicSpec, brokers: int, timeout_s: float = 30) -> None:
        """Create a topic; returns when every leader serves it and every replica is in sync."""
        try:
            topic.check_fits(brokers)
        except FieldError as error:
            raise BadInput(f"topic {topic.name}: {error}") from None
        new = NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication,
            config=topic.config_text(),
        )

        def in_service() -> bool:
            partitions = self._partitions(topic.name).values()
            complete = len(partitions) == topic.partitions and all(
                p.leader >= 0 and len(p.isrs) == topic.replication for p in partitions
            )
            try:
                # A leader may be the last broker to learn that it leads.
                return complete and bool(self.end_offsets(topic.name))
            except TestbedError:
                return False

        answered = threading.Event()

        def request() -> None:
            try:
                self._client.create_topics([new], request_timeout=_REQUEST_S)[topic.name].result()
            finally:
                answered.set()

        try:
            with ThreadPoolExecutor(1) as pool:  # where Ctrl-C does not interrupt the request
                pool.submit(request).result()
            wait_until(in_service, timeout_s=timeout_s, what=f"{topic.name} to be in service")
        except KafkaException as error:
            raise TestbedError(f"topic {topic.name} was not created: {reason(error)}") from None
        except BaseException:  # Ctrl-C too: a topic that no caller knows of must not stay
            # Sent at once, a deletion overtakes the creation in one of three tries.
            answered.wait(_REQUEST_S)
            with suppress(TestbedError):
                self.delete_topic(topic.name)
            raise

    def delete_topic(self, name: str) -> None:
        try:
            self._client.delete_topics([name], request_timeout=_REQUEST_S)[name].result()
        except KafkaException as error:
            raise TestbedError(f"topic {name} was not deleted: {reason(error)}") from None

    def delete_group(self, name: str) -> None:
        """Delete a group whose consumers have left, if it exists."""
        with suppress(KafkaException):
            self._client.delete_consumer_groups([name], request_timeout=_REQUEST_S)[name].result()

    def topics(self, timeout_s: float = 10.0) -> set[str]:
        """The names of all topics."""
        try:
            return set(self._client.list_topics(timeout=timeout_s).topics)
        except KafkaException as error:
            raise TestbedError(f"no broker listed its topics: {reason(error)}") from None

    def end_offsets(self, topic: str, only_led: bool = False) -> dict[int, int]:
        """The end of each partition: the offset that its next record will get.

        `only_led` leaves out partitions without a leader, which have no known end.
        """
        asked = {
            TopicPartition(topic, number): OffsetSpec.latest()
            for number, partition in self._partitions(topic).items()
            if partition.leader >= 0 or not only_led
        }
        answers = self._client.list_offsets(asked, request_timeout=_REQUEST_S) if asked else {}
        ends: dict[int, int] = {}
        for place, answer in answers.items():
            try:
                ends[place.partition] = int(answer.result().offset)
            except KafkaException as error:
                if not only_led:
                    what = f"the end offset of {topic}-{place.partition}"
                    raise TestbedError(f"{what} is not known: {reason(error)}") from None
        return ends

    def send(
        self, topic: str, partitions: int, messages: int, size_bytes: int, **settings: str | int
    ) -> None:
        """Send throw-away messages to every partition and wait until all are acknowledged."""
        failed: list[str] = []

        def report(error: Any, _message: object) -> None:
            if error is not None:
                failed.append(error.str())

        with self._place():
            producer = Producer({**self._config, "acks": "all", **settings}, logger=log)
        payload = bytes(size_bytes)
        try:
            for i in range(messages):
                producer.produce(topic, payload, partition=i % partitions, on_delivery=report)
                producer.poll(0)
            left = producer.flush(30)
        finally:
            # What is still in its queue could bring back a topic that is deleted next.
            producer.purge()
            producer.flush(_REQUEST_S)
        if failed or left:
            why = failed[0] if failed else "no answer within 30 s"
            raise TestbedError(f"{len(failed) + left} messages to {topic} failed: {why}")
