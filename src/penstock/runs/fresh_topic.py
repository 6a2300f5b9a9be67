"""The topic of a run: empty when the run begins, and removed afterwards if the run made it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import BadInput, PenstockError, TestbedError
from penstock.kafka.connection import KafkaCluster
from penstock.kafka.waiting import wait_until

log = logging.getLogger(__name__)

# Brokers learn of a deletion one by one. Within this time a busy one has.
_PATIENCE_S = 10.0


class _NotEmpty(TestbedError):
    pass


@contextmanager
def fresh_topic(cluster: KafkaCluster, topic: TopicSpec) -> Iterator[bool]:
    """Provide the topic; yields whether the run made it."""
    if _is_there(cluster, topic):
        yield False
        return
    # With it the broker stamps the time of the append, which splits produce from fetch.
    config = {"message.timestamp.type": "LogAppendTime", **topic.config}
    is_ours = True
    try:
        try:
            cluster.create_topic(replace(topic, config=config))
        except PenstockError:  # somebody else made it meanwhile, or nobody could
            is_ours = False
            raise
        # A leader that has not heard yet that the topic before was deleted still serves that one.
        wait_until(
            lambda: _records(cluster, topic) == 0,
            timeout_s=_PATIENCE_S,
            what=f"the new topic {topic.name} to be empty",
        )
        yield True
    finally:  # also if Ctrl-C came while it was being made
        if is_ours:
            _remove(cluster, topic.name)


def _is_there(cluster: KafkaCluster, topic: TopicSpec) -> bool:
    """Whether the topic exists already; it must be empty.

    One with records may be that of the run before, of which a broker does not know yet that it was
    deleted: a topic that goes away by itself counts as absent.
    """
    records: int | None = None

    def is_usable() -> bool:
        nonlocal records
        records = _records(cluster, topic)
        return not records

    try:
        wait_until(
            is_usable, timeout_s=_PATIENCE_S, what=f"{topic.name} to be empty", error=_NotEmpty
        )
    except _NotEmpty:
        raise BadInput(
            f"topic {topic.name} has {records} records already, which would be counted",
            "use another `topic.name`, or delete that topic",
        ) from None
    if records is None:
        return False
    partitions = len(cluster.admin.end_offsets(topic.name))
    if partitions != topic.partitions:
        raise BadInput(
            f"topic {topic.name} has {partitions} partitions; the scenario needs {topic.partitions}",
            "change `topic.partitions`, or use another `topic.name`",
        )
    return True


def _records(cluster: KafkaCluster, topic: TopicSpec) -> int | None:
    """How many records were ever written to the topic; 0 if the topic does not exist."""
    if topic.name not in cluster.admin.topics():
        return None
    try:
        return sum(cluster.admin.end_offsets(topic.name).values())
    except TestbedError:
        if topic.name not in cluster.admin.topics():  # it went away meanwhile
            return None
        raise


def _remove(cluster: KafkaCluster, topic: str) -> None:
    try:
        cluster.admin.delete_topic(topic)
        wait_until(
            lambda: topic not in cluster.admin.topics(),
            timeout_s=30,
            what=f"{topic} to be deleted",
        )
    except TestbedError as error:
        # A testbed with a dead broker ends soon; a cluster of the user's own keeps the topic.
        if not cluster.is_temporary:
            log.warning("topic %s stays on the cluster, delete it: %s", topic, error.message)
