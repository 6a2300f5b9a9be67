"""The load on the real cluster: what its traces say adds up, and nothing of it stays behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient

from penstock import specs
from penstock.domain.arrivals import ConstantArrivals, PoissonArrivals
from penstock.domain.cluster import TopicSpec
from penstock.domain.consumers import Consumers
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.settings import ProducerSettings
from penstock.domain.sizes import UniformSizes
from penstock.domain.trace import TRACES, message_id
from penstock.domain.workload import Payload, Workload
from penstock.kafka.connection import ExistingCluster
from penstock.kafka.waiting import wait_until
from penstock.load.contents.telemetry import TelemetryContent
from penstock.load.journal import recover
from penstock.load.load import Load
from penstock.load.plan import LoadPlan
from penstock.testbed.cluster import Cluster
from penstock.testbed.faults.pause import Pause

pytestmark = pytest.mark.integration

PARTITIONS = 3


@pytest.fixture
def topic(cluster: Cluster, unique: Callable[[str], str]) -> str:
    name = unique("load")
    cluster.create_topic(
        TopicSpec(
            name=name,
            partitions=PARTITIONS,
            replication=3,
            config={"message.timestamp.type": "LogAppendTime"},
        )
    )
    return name


def _plan(topic: str, **changes: Any) -> LoadPlan:
    workload = Workload(arrivals=PoissonArrivals(rate_per_s=200), duration_s=1)
    return LoadPlan(
        **{
            "topic": topic,
            "workload": workload,
            "settings": _settings(),
            "consumers": Consumers(),
            "warm_up_s": 1.0,
            "seed": 1,
            "watch_visibility": False,
            "partitions": PARTITIONS,
            **changes,
        }
    )


def _settings(**properties: Any) -> ProducerSettings:
    return specs.parse({"acks": "all", "linger.ms": 2, **properties}, ProducerSettings)


def _carry_out(cluster: Cluster, plan: LoadPlan, directory: Path) -> Load:
    with Load(cluster, plan, directory) as load:
        load.start()
        load.wait()
        assert load.drain(cluster.admin.end_offsets(plan.topic), patience_s=60) == ()
    return load


def _read(directory: Path, trace: str) -> pd.DataFrame:
    return pq.read_table(directory / trace).to_pandas()


def _left_running(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid)]


def test_what_the_traces_say_adds_up(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """Two producers, two consumers and the watcher, without any fault."""
    workload = Workload(
        arrivals=PoissonArrivals(rate_per_s=200),
        payload=Payload(
            content=TelemetryContent(), sizes=UniformSizes(min_bytes=50, max_bytes=500)
        ),
        producers=2,
        keys=100,
        duration_s=3,
    )
    plan = _plan(
        topic,
        workload=workload,
        settings=_settings(**{"statistics.interval.ms": 500}),
        consumers=Consumers(count=2),
        watch_visibility=True,
    )
    wall_ns = time.time_ns() - time.monotonic_ns()
    load = _carry_out(cluster, plan, tmp_path)
    assert load.measured_from_ns == load.begins_ns + 1_000_000_000
    assert load.measured_to_ns == load.measured_from_ns + 3_000_000_000

    sent, received, seen, requests = (_read(tmp_path, trace) for trace in TRACES)
    ends = cluster.admin.end_offsets(topic)
    assert len(sent) == sum(r.scheduled for r in load.producers) == sum(ends.values())
    assert len(received) == len(seen) == sum(c.received for c in load.consumers) == len(sent)
    assert len(sent) > 1000
    assert sent.id.is_unique
    assert set(sent.id) == set(received.id)
    assert sorted(sent.id)[-1] >= message_id(1, 0)
    assert (sent.outcome == "acknowledged").all()
    assert {r.acknowledged for r in load.producers} == {r.scheduled for r in load.producers}

    both = sent.merge(received, on="id", suffixes=("", "_read"))
    assert (both.partition == both.partition_read).all()
    assert (both.offset == both.offset_read).all()
    assert (both.size_bytes == both.size_bytes_read).all()
    assert both.size_bytes.between(50, 500).all()
    assert (both.intended_ns <= both.sent_ns).all()
    assert (both.sent_ns <= both.reported_ns).all()
    assert (both.sent_ns <= both.received_ns).all()
    assert both.intended_ns.between(load.begins_ns, load.measured_to_ns).all()
    # The broker's clock is the machine's, in whole milliseconds.
    appended_ns = both.appended_ms * 1_000_000 - wall_ns
    assert (appended_ns + 2_000_000 >= both.sent_ns).all()
    assert (appended_ns - 2_000_000 <= both.received_ns).all()
    # A reader on the doorstep sees each record, after it was sent.
    watched = both.merge(seen, on=["partition", "offset"])
    assert len(watched) == len(both)
    assert (watched.seen_ns >= watched.sent_ns).all()

    assert (sent.tries == 1).all()
    assert requests.messages.sum() == len(sent)
    assert set(received.consumer) == {0, 1}
    for report in load.consumers:
        assert report.first_assigned_ns is not None
        assert report.first_assigned_ns < load.begins_ns
        assert report.errors == ()
    for producer in load.producers:
        counted = producer.counters  # as of up to half a second before the end
        assert counted is not None
        assert 0.5 * producer.sent < counted.messages <= producer.sent
        assert 0 < counted.requests <= counted.messages
        assert counted.sent_bytes > counted.message_bytes > 50 * counted.messages
        assert counted.round_trip_ms is not None and counted.round_trip_ms > 0


def test_a_key_always_goes_to_the_same_partition(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    workload = Workload(arrivals=ConstantArrivals(rate_per_s=300), keys=1, duration_s=1)
    _carry_out(cluster, _plan(topic, workload=workload), tmp_path)
    assert _read(tmp_path, "sent").partition.nunique() == 1


def test_a_closed_loop_waits_for_each_answer(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    workload = Workload(arrivals=ConstantArrivals(rate_per_s=100_000), loop="closed", duration_s=1)
    load = _carry_out(cluster, _plan(topic, workload=workload, warm_up_s=0.0), tmp_path)
    sent = _read(tmp_path, "sent").sort_values("id")
    (report,) = load.producers
    assert 0 < report.sent == report.acknowledged == len(sent) < 100_000
    assert sent.intended_ns.equals(sent.sent_ns)
    assert (sent.sent_ns.to_numpy()[1:] >= sent.reported_ns.to_numpy()[:-1]).all()


def test_tries_are_counted_when_a_broker_freezes(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    workload = Workload(arrivals=ConstantArrivals(rate_per_s=200), duration_s=6)
    settings = _settings(**{"acks": "1", "socket.timeout.ms": 1000, "request.timeout.ms": 500})
    plan = _plan(topic, workload=workload, settings=settings, warm_up_s=0.0)
    with Load(cluster, plan, tmp_path) as load:
        load.start()
        load.wait(until_ns=load.begins_ns + 1_000_000_000)
        # Frozen for less than its session with the controller lasts: it stays the leader.
        struck = Pause(broker=cluster.admin.leader(topic, 0)).strike(cluster)
        load.wait(until_ns=load.begins_ns + 3_500_000_000)
        assert struck.undo is not None
        struck.undo()
        load.wait()
        assert load.drain(cluster.admin.end_offsets(topic), patience_s=60) == ()
    sent, requests = _read(tmp_path, "sent"), _read(tmp_path, "requests")
    assert sent.tries.notna().all()
    assert (sent.tries > 1).any()
    assert load.producers[0].retries > 0
    # Two ways to count the same: by message and by request.
    assert sent.tries.sum() == requests.messages.sum()
    by_partition = sent.groupby("partition").tries.sum().to_dict()
    assert by_partition == requests.groupby("partition").messages.sum().to_dict()
    cluster.wait_ready(probe=False)


def test_signals_follow_the_load(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    progress: list[str] = []
    with Load(cluster, _plan(topic), tmp_path, on_progress=progress.append) as load:
        load.start()
        assert {"producer-1", "consumer-1"} == set(load.clients) == set(cluster.clients)
        wait_until(
            lambda: load.signals["acknowledged"]() >= 100,
            timeout_s=30,
            what="a hundred acknowledged messages",
        )
        assert load.signals["sent"]() >= 100
        load.wait()
        load.drain(cluster.admin.end_offsets(topic), patience_s=60)
        assert load.signals["received"]() == load.signals["sent"]()
        pids = [process.pid for process in load.clients.values()]
    assert _left_running(pids) == []
    assert cluster.clients == {}
    assert any("acknowledged" in line for line in progress)


def test_more_consumers_than_partitions(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    load = _carry_out(cluster, _plan(topic, consumers=Consumers(count=4)), tmp_path)
    received = [report.received for report in load.consumers]
    assert len(received) == 4
    assert received.count(0) >= 1
    assert sum(received) == load.producers[0].sent


def test_partitions_that_cannot_be_read_in_time_are_listed(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    with Load(cluster, _plan(topic), tmp_path) as load:
        load.start()
        load.wait()
        ends = cluster.admin.end_offsets(topic)
        assert load.drain({**ends, 1: ends[1] + 5}, patience_s=3) == (1,)
        assert sum(report.received for report in load.consumers) == sum(ends.values())


def test_a_killed_producer_is_an_error_and_its_journal_is_kept(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    workload = Workload(arrivals=ConstantArrivals(rate_per_s=500), producers=2, duration_s=120)
    plan = _plan(topic, workload=workload, warm_up_s=0.0)
    with (
        pytest.raises(TestbedError, match=r"producer-2 was killed by signal 9"),
        Load(cluster, plan, tmp_path) as load,
    ):
        load.start()
        pids = [process.pid for process in load.clients.values()]
        load.wait(until_ns=load.begins_ns + 3_000_000_000)
        load.clients["producer-2"].send_signal(signal.SIGKILL)
        load.wait()
    assert _left_running(pids) == []
    # The others had time to finish their traces; that of the killed one is cut off.
    recovered = {(r.trace, r.file.name): r for r in recover(tmp_path)}
    cut = recovered["sent", "producer-2.parquet"]
    assert not cut.is_complete
    assert cut.rows > 100
    sent = _read(tmp_path, "sent")
    assert set(sent.id // message_id(1, 0)) == {0, 1}
    assert sent.id.is_unique
    assert len(_read(tmp_path, "received")) > 0


def test_an_interrupt_ends_everything_and_keeps_the_traces(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    workload = Workload(arrivals=ConstantArrivals(rate_per_s=200), duration_s=120)
    with (
        pytest.raises(KeyboardInterrupt),
        Load(cluster, _plan(topic, workload=workload), tmp_path) as load,
    ):
        load.start()
        pids = [process.pid for process in load.clients.values()]
        load.wait(until_ns=load.begins_ns + 2_000_000_000)
        raise KeyboardInterrupt
    assert _left_running(pids) == []
    assert recover(tmp_path) == []  # nothing is left to recover
    sent = _read(tmp_path, "sent")
    assert len(sent) > 100
    assert sent.sent_ns.notna().all()


def test_workers_end_when_their_parent_is_killed(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """Also on a cluster that has no mark to find them by."""
    script = f"""
        import sys
        from pathlib import Path
        from penstock.domain.arrivals import ConstantArrivals
        from penstock.domain.consumers import Consumers
        from penstock.domain.settings import ProducerSettings
        from penstock.domain.workload import Workload
        from penstock.load.load import Load
        from penstock.load.plan import LoadPlan
        from penstock.kafka.connection import ExistingCluster
        plan = LoadPlan(
            {topic!r}, Workload(arrivals=ConstantArrivals(rate_per_s=50), duration_s=600),
            ProducerSettings(), Consumers(), 0.0, 1, False, {PARTITIONS},
        )
        with Load(ExistingCluster({cluster.bootstrap_servers!r}), plan, Path({str(tmp_path)!r})) as load:
            load.start()
            print(*[p.pid for p in load.clients.values()], flush=True)
            load.wait()
    """
    parent = subprocess.Popen(
        cluster.command_on("producer-1", [sys.executable, "-c", textwrap.dedent(script)]),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(_left_running(pids)) == 2
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not _left_running(pids), timeout_s=30, what="the workers to end")


def test_nothing_of_the_group_stays_on_an_existing_cluster(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    # Whatever is started from this thread is on that host, where there are hosts.
    with cluster.inside("consumer-1"):
        existing = ExistingCluster(cluster.bootstrap_servers)
        with Load(existing, _plan(topic), tmp_path) as load:
            load.start()
            load.wait()
            load.drain(existing.admin.end_offsets(topic), patience_s=60)
        assert load.producers[0].sent == load.consumers[0].received > 0
        client = AdminClient(existing.client_config)
    groups = client.list_consumer_groups(request_timeout=10).result().valid
    assert [group.group_id for group in groups if topic in group.group_id] == []


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"linger.msec": 5}, "linger.msec"),
        ({"queue.buffering.max.messages": "many"}, "queue.buffering.max.messages"),
        ({"transactional.id": "mine"}, "transactional.id cannot be used"),
        ({"delivery.report.only.error": True}, "delivery.report.only.error cannot be used"),
    ],
)
def test_settings_that_cannot_be_used_are_named(
    cluster: Cluster, tmp_path: Path, properties: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        Load(cluster, _plan("none", settings=_settings(**properties)), tmp_path)


def test_consumer_settings_that_cannot_be_used_are_named(cluster: Cluster, tmp_path: Path) -> None:
    plan = _plan("none", consumers=Consumers(settings={"fetch.min.bites": 1}))
    with pytest.raises(BadInput, match=r"fetch\.min\.bites"):
        Load(cluster, plan, tmp_path)


def test_a_topic_that_is_not_there_is_named(cluster: Cluster, tmp_path: Path) -> None:
    with (
        pytest.raises(TestbedError, match="no-such-topic"),
        Load(cluster, _plan("no-such-topic"), tmp_path) as load,
    ):
        load.start()
