"""The broker's own view against what was really sent."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable
from typing import Any

import pytest
from clients import consume_all, produce

from penstock.domain.broker_view import (
    BrokerRates,
    BrokerView,
    RequestClass,
    RequestRates,
    rates,
)
from penstock.domain.cluster import TopicSpec
from penstock.testbed import agent, lease
from penstock.testbed.cluster import Cluster
from penstock.testbed.faults.pause import Pause
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
        return sum(getattr(after[b].own, field) - getattr(before[b].own, field) for b in after)

    assert grown("messages_in") >= 1500  # the consumer's commits are messages too
    assert 1500 * 200 < grown("bytes_in") < 1500 * 400
    # Two followers fetched what the leaders got.
    assert grown("replication_bytes_in") == pytest.approx(2 * grown("bytes_in"), rel=0.05)
    for request in RequestClass:
        assert any(_rates(before[b], after[b]).requests[request].per_s > 0 for b in after)


def _rates(before: BrokerView, after: BrokerView) -> BrokerRates:
    per_second = rates(before, after)
    assert per_second is not None
    return per_second


def test_acks_all_waits_for_followers_and_acks_1_does_not(
    cluster: Cluster, unique: Callable[[str], str]
) -> None:
    topic = unique("waiting")
    cluster.create_topic(TopicSpec(name=topic, replication=3))
    leader = cluster.admin.leader(topic, 0)

    def waited_ms(acks: str) -> RequestRates:
        before = observe(cluster)[leader]
        alone: dict[str, Any] = {"batch.num.messages": 1}
        assert produce(cluster, topic, 300, acks=acks, **alone) == []
        return _rates(before, observe(cluster)[leader]).requests[RequestClass.PRODUCE]

    one, every = waited_ms("1"), waited_ms("all")
    assert one.remote_ms == pytest.approx(0, abs=1e-9)  # a difference of two sums
    assert every.remote_ms is not None
    assert every.remote_ms > 0
    parts = (
        every.queue_ms,
        every.local_ms,
        every.remote_ms,
        every.response_queue_ms,
        every.send_ms,
    )
    # Kafka counts each part in whole milliseconds, so five of them may differ by as many.
    assert sum(part or 0 for part in parts) == pytest.approx(every.total_ms, rel=0.2, abs=5)


def test_use_of_the_machine_is_seen(cluster: Cluster) -> None:
    for view in observe(cluster).values():
        assert view.state == "running"
        assert view.process is not None
        assert 50 < view.process.open_handles < 5000
        assert 100e6 < view.process.resident_bytes < 1e9
        assert view.process.disk_written_bytes > 0


def test_garbage_collections_are_counted(cluster: Cluster) -> None:
    for view in observe(cluster).values():
        assert view.own is not None
        # Its start alone fills the young generation several times.
        assert view.own.collections > 0 and view.own.collection_ms > 0
        assert 10_000_000 < view.own.young_bytes < 1_000_000_000


def test_brokers_can_be_made_to_collect_garbage(cluster: Cluster) -> None:
    mbean = "java.lang:name=MarkSweepCompact,type=GarbageCollector"

    def full_collections() -> dict[int, int]:
        counts = {}
        for broker in cluster.broker_ids:
            process = cluster.process(broker)
            with cluster.inside(process.node.host):
                answers = agent.read(process.directory, [(mbean, ["CollectionCount"])], 10)
            assert answers is not None
            counts[broker] = int(answers[mbean]["CollectionCount"])
        return counts

    before = full_collections()
    cluster.collect_garbage()
    after = full_collections()
    assert all(after[broker] > before[broker] for broker in before)


def test_a_paused_broker_is_shown_as_such_and_nothing_hangs(cluster: Cluster) -> None:
    struck = Pause(broker=3).strike(cluster)
    try:
        views = observe(cluster)
        assert views[3].state == "paused"
        assert views[3].own is None
        assert views[1].state == "running"
    finally:
        assert struck.undo is not None
        struck.undo()


def test_the_agent_lets_nobody_in_and_runs_nothing(cluster: Cluster) -> None:
    process = cluster.process(1)
    config = dict(
        line.split("=", 1)
        for line in (process.directory / agent.CONFIG_FILE).read_text().splitlines()
    )
    login = base64.b64encode(f"{config['user']}:{config['password']}".encode()).decode()
    mbean = "java.lang:type=Threading"
    order = {"type": "exec", "mbean": mbean, "operation": "resetPeakThreadCount"}

    def ask(headers: dict[str, str]) -> tuple[int, bytes]:
        with cluster.inside(process.node.host):
            connection = http.client.HTTPConnection("127.0.0.1", process.node.agent_port)
            connection.request("POST", "/jolokia/", json.dumps(order), headers)
            response = connection.getresponse()
            return response.status, response.read()

    assert ask({})[0] == 401
    status, body = ask({"Authorization": f"Basic {login}"})
    assert status == 200
    assert json.loads(body)["status"] == 403
    for process_of in lease.processes(cluster.lease):
        assert config["password"] not in " ".join(process_of.cmdline())
