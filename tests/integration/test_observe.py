"""The broker's own view against what was really sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.clients import consume_all, produce
from penstock.domain.broker_view import RequestClass, rates
from penstock.domain.cluster import TopicSpec
from penstock.domain.fault import Pause
from penstock.testbed.cluster import Cluster
from penstock.testbed.faults import strike
from penstock.testbed.observe import observe

pytestmark = pytest.mark.integration


def test_counters_tell_what_was_sent(cluster: Cluster, unique: Callable[[str], str]) -> None:
    topic = unique("counted")
    cluster.create_topic(TopicSpec(name=topic, partitions=3, replication=3))
    before = observe(cluster)
    assert produce(cluster, topic, 1500, size_bytes=200, acks="all") == []
    consume_all(cluster, topic, 1500)
    after = observe(cluster)

    def grown(field: str) -> int:
        return sum(getattr(after[b], field) - getattr(before[b], field) for b in after)

    assert grown("messages_in") >= 1500  # the consumer's commits are messages too
    assert 1500 * 200 < grown("bytes_in") < 1500 * 400
    # Two followers fetched what the leaders got.
    assert grown("replication_bytes_in") == pytest.approx(2 * grown("bytes_in"), rel=0.05)
    for request in RequestClass:
        assert sum(rates(before[b], after[b]).requests_per_s[request] for b in after) > 0


def test_acks_all_waits_for_followers_and_acks_1_does_not(
    cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("waiting")
    cluster.create_topic(TopicSpec(name=topic, replication=3))
    produce(cluster, topic, 200, acks="all")
    leader = cluster.admin.leader(topic, 0)
    produce_times = observe(cluster)[leader].requests[RequestClass.PRODUCE]
    assert produce_times.total.count > 0
    assert produce_times.remote.mean_ms > 0
    parts = (
        produce_times.queue,
        produce_times.local,
        produce_times.remote,
        produce_times.response_queue,
        produce_times.send,
    )
    # Kafka counts each part in whole milliseconds.
    assert sum(part.mean_ms for part in parts) == pytest.approx(
        produce_times.total.mean_ms, rel=0.2, abs=4
    )


def test_use_of_the_machine_is_seen(cluster: Cluster) -> None:
    for view in observe(cluster).values():
        assert view.state == "running"
        assert view.process is not None
        assert 50 < view.process.open_handles < 5000
        assert 100e6 < view.process.resident_bytes < 1e9
        assert view.process.disk_written_bytes > 0


def test_a_paused_broker_is_shown_as_such_and_nothing_hangs(cluster: Cluster) -> None:
    struck = strike(cluster, Pause(broker=3))
    try:
        views = observe(cluster)
        assert views[3].state == "paused"
        assert views[1].state == "running"
    finally:
        assert struck.undo is not None
        struck.undo()
