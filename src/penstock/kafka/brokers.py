"""Queries to the brokers: which partitions a pipeline reads, and where each begins and ends."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from penstock.domain.errors import BadInput
from penstock.domain.lake.order import Marks, Position
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline
from penstock.kafka import client_log

_REQUEST_S = 10.0
# Kafka's topics, and the autoscaler's, are never landed.
_OWN = re.compile(r"__|penstock\..+\.(speeds|group)$")


class BrokersUnavailable(Exception):
    """No broker answers at the moment."""


class Brokers:
    """Read-only queries."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._refusal = ""
        # Topics that the pipeline's streams name or match, but that are never landed.
        self.skipped: tuple[str, ...] = ()
        # Partitions that the last call of `marks` got no answer for → why.
        self.silent: dict[Partition, str] = {}
        own = {name: value for name, value in config.items() if name != "isolation.level"}
        own["error_cb"] = self._on_error
        try:
            self._client = AdminClient(own, logger=client_log.log)
        except KafkaException as error:
            raise client_log.refusal(error) from None
        is_open = config.get("isolation.level") == "read_uncommitted"
        self._isolation = (
            IsolationLevel.READ_UNCOMMITTED if is_open else IsolationLevel.READ_COMMITTED
        )

    def discover(
        self, pipeline: Pipeline, known: Collection[str] = ()
    ) -> tuple[set[Partition], dict[str, str]]:
        """The partitions that the pipeline's streams take, and each topic's id.

        A topic that is named must exist, unless it is `known`: it existed, and may come back.
        """
        try:
            topics = self._client.list_topics(timeout=_REQUEST_S).topics
        except KafkaException as error:
            raise self._away(error) from None
        named = {t for s in pipeline.streams for t in s.topics if not t.startswith("^")}
        if missing := sorted(named.difference(topics, known)):
            raise BadInput(
                f"topic {', '.join(missing)} does not exist, or the user may not see it",
                "create it, correct `topics`, or give the pipeline's user DESCRIBE on it",
            )
        fitting = [t for t in topics if pipeline.stream_of(t) is not None]
        self.skipped = tuple(sorted(t for t in fitting if _OWN.match(t)))
        taken = [t for t in fitting if not _OWN.match(t)]
        partitions: set[Partition] = set()
        for topic in taken:
            problem = topics[topic].error
            if problem is not None and problem.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise BadInput(
                    f"the topic {topic} may not be read: {problem.str()}",
                    "give the pipeline's user READ and DESCRIBE on it",
                )
            partitions |= {Partition(topic, number) for number in topics[topic].partitions}
        return partitions, self.topic_ids(taken)

    def topic_ids(self, topics: list[str]) -> dict[str, str]:
        """The ids of those topics that exist."""
        if not topics:
            return {}
        answers = self._client.describe_topics(TopicCollection(topics), request_timeout=_REQUEST_S)
        ids: dict[str, str] = {}
        for topic, answer in answers.items():
            try:
                ids[topic] = str(answer.result().topic_id)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._away(error) from None
        return ids

    def marks(self, partitions: Collection[Partition]) -> dict[Partition, Marks]:
        """First and end offsets of partitions that have a leader; the others are in `silent`.

        Raises `BrokersUnavailable` if none answers. During an election a partition may have no
        leader, one that does not know its end yet, or one of another epoch than the client knows.
        All of these are temporary.
        """
        self.silent = {}
        return self._marks(partitions, self._isolation)

    def with_log_ends(
        self, marks: Mapping[Partition, Marks], positions: Mapping[Partition, Position]
    ) -> dict[Partition, Marks]:
        """The marks; of partitions that end before their position, with the end of the whole log.

        Under read_committed a partition ends where the oldest open transaction begins. A position
        beyond that, of a time when the pipeline read uncommitted records, does not mean that the
        log was truncated.
        """
        short = [
            p for p, mark in marks.items() if p in positions and mark.high < positions[p].offset
        ]
        if not short or self._isolation == IsolationLevel.READ_UNCOMMITTED:
            return dict(marks)
        return {**marks, **self._marks(short, IsolationLevel.READ_UNCOMMITTED)}

    def _marks(
        self, partitions: Collection[Partition], isolation: IsolationLevel
    ) -> dict[Partition, Marks]:
        if not partitions:
            return {}
        low: dict[Partition, int] = {}
        high: dict[Partition, int] = {}
        for into, spec in ((low, OffsetSpec.earliest()), (high, OffsetSpec.latest())):
            answers = self._client.list_offsets(
                {TopicPartition(*p): spec for p in partitions},
                isolation_level=isolation,
                request_timeout=_REQUEST_S,
            )
            for place, answer in answers.items():
                partition = Partition(place.topic, place.partition)
                try:
                    offset = int(answer.result().offset)
                except KafkaException as error:
                    self.silent[partition] = client_log.reason(error)
                    continue
                # While the leader changes, the offset may be "unknown", a negative number.
                if offset >= 0:
                    into[partition] = offset
                else:
                    self.silent[partition] = "its leader does not know the end offset yet"
        marks = {p: Marks(low[p], high[p]) for p in partitions if p in low and p in high}
        if not marks:
            partition, why = min(self.silent.items())
            raise BrokersUnavailable(f"{partition}: {why}")
        return marks

    def _away(self, error: KafkaException) -> BrokersUnavailable:
        """The exception to raise; a cluster that refuses the user is reported at once."""
        self._client.poll(0)  # so that `_on_error` is called
        if self._refusal:
            raise BadInput(
                f"authentication or TLS handshake failed: {self._refusal}",
                "check user, password and certificates in client_properties",
            )
        return BrokersUnavailable(client_log.reason(error))

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._refusal = error.str()
