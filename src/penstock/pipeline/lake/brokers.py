"""What the source asks the brokers: which partitions there are, and where each begins and ends."""

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
from penstock.domain.lake.order import Marks
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline
from penstock.pipeline.lake import client

_REQUEST_S = 10.0
# Kafka's topics, and the autoscaler's: no pattern means these.
_OWN = re.compile(r"__|penstock\..+\.(speeds|group)$")


class Away(Exception):
    """No broker answers just now."""


class Brokers:
    """Questions only."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._refusal = ""
        own = {name: value for name, value in config.items() if name != "isolation.level"}
        own["error_cb"] = self._told
        try:
            self._client = AdminClient(own, logger=client.log)
        except KafkaException as error:
            raise client.refusal(error) from None
        is_open = config.get("isolation.level") == "read_uncommitted"
        self._isolation = (
            IsolationLevel.READ_UNCOMMITTED if is_open else IsolationLevel.READ_COMMITTED
        )

    def discover(
        self, pipeline: Pipeline, known: Collection[str] = ()
    ) -> tuple[set[Partition], dict[str, str]]:
        """The partitions that the pipeline's streams take, and each topic's id.

        A topic that is named must be there, unless it is `known`: it was, and may come back.
        """
        try:
            found = self._client.list_topics(timeout=_REQUEST_S).topics
        except KafkaException as error:
            raise self._away(error) from None
        named = {t for s in pipeline.streams for t in s.topics if not t.startswith("^")}
        if missing := sorted(named.difference(found, known)):
            raise BadInput(
                f"there is no topic {', '.join(missing)}, or no permission to see it",
                "create it, correct `topics`, or give the pipeline's user DESCRIBE on it",
            )
        taken = [t for t in found if pipeline.stream_of(t) is not None and not _OWN.match(t)]
        partitions: set[Partition] = set()
        for topic in taken:
            problem = found[topic].error
            if problem is not None and problem.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise BadInput(
                    f"the topic {topic} may not be read: {problem.str()}",
                    "give the pipeline's user READ and DESCRIBE on it",
                )
            partitions |= {Partition(topic, number) for number in found[topic].partitions}
        return partitions, self.topic_ids(taken)

    def topic_ids(self, topics: list[str]) -> dict[str, str]:
        """Of those that are there."""
        if not topics:
            return {}
        asked = self._client.describe_topics(TopicCollection(topics), request_timeout=_REQUEST_S)
        found: dict[str, str] = {}
        for topic, answer in asked.items():
            try:
                found[topic] = str(answer.result().topic_id)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._away(error) from None
        return found

    def marks(self, partitions: Collection[Partition]) -> dict[Partition, Marks]:
        """Of those that have a leader. `Away` if none answers."""
        if not partitions:
            return {}
        low: dict[Partition, int] = {}
        high: dict[Partition, int] = {}
        problem = "no partition has a leader"
        for into, spec in ((low, OffsetSpec.earliest()), (high, OffsetSpec.latest())):
            asked = self._client.list_offsets(
                {TopicPartition(*p): spec for p in partitions},
                isolation_level=self._isolation,
                request_timeout=_REQUEST_S,
            )
            for place, answer in asked.items():
                try:
                    offset = int(answer.result().offset)
                except KafkaException as error:
                    problem = error.args[0].str()
                    continue
                # While its leader changes it may be "unknown", which is a negative number.
                if offset >= 0:
                    into[Partition(place.topic, place.partition)] = offset
        marks = {p: Marks(low[p], high[p]) for p in partitions if p in low and p in high}
        if not marks:
            raise Away(problem)
        return marks

    def _away(self, error: KafkaException) -> Away:
        """What to raise; a cluster that refuses us will do so again, and is said at once."""
        self._client.poll(0)  # so that `_told` is called
        if self._refusal:
            raise BadInput(
                f"the cluster refuses the pipeline: {self._refusal}",
                "check user, password and certificates in client_properties",
            )
        return Away(error.args[0].str())

    def _told(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._refusal = error.str()
