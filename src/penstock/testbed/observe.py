"""Reads the brokers' own metrics, and the system's figures for their processes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil

from penstock.domain.broker_view import (
    BrokerCounters,
    BrokerView,
    KafkaHistogram,
    ProcessUse,
    RequestClass,
    RequestTimes,
)
from penstock.domain.errors import TestbedError
from penstock.domain.value import fitting
from penstock.testbed import agent
from penstock.testbed.cluster import Cluster
from penstock.testbed.process import NodeProcess

_PHASES = {
    "queue": "RequestQueueTimeMs",
    "local": "LocalTimeMs",
    "remote": "RemoteTimeMs",
    "response_queue": "ResponseQueueTimeMs",
    "send": "ResponseSendTimeMs",
    "total": "TotalTimeMs",
}
_TIMES = {
    "count": "Count",
    "mean_ms": "Mean",
    "stddev_ms": "StdDev",
    "p50_ms": "50thPercentile",
    "p95_ms": "95thPercentile",
    "p99_ms": "99thPercentile",
    "max_ms": "Max",
}
_TOPICS = "kafka.server:type=BrokerTopicMetrics,name="
_REPLICAS = "kafka.server:type=ReplicaManager,name="
_COUNTERS = {
    "messages_in": (f"{_TOPICS}MessagesInPerSec", "Count"),
    "bytes_in": (f"{_TOPICS}BytesInPerSec", "Count"),
    "bytes_out": (f"{_TOPICS}BytesOutPerSec", "Count"),
    "replication_bytes_in": (f"{_TOPICS}ReplicationBytesInPerSec", "Count"),
    "under_replicated_partitions": (f"{_REPLICAS}UnderReplicatedPartitions", "Value"),
    "leaders": (f"{_REPLICAS}LeaderCount", "Value"),
    "partitions": (f"{_REPLICAS}PartitionCount", "Value"),
}
# Of the collector that the testbed starts brokers with.
_COLLECTOR = "java.lang:name=Copy,type=GarbageCollector"
_YOUNG = "java.lang:name=Eden Space,type=MemoryPool"
_MBEANS = [
    *(
        (f"kafka.network:type=RequestMetrics,name={name},request={request}", list(_TIMES.values()))
        for request in RequestClass
        for name in _PHASES.values()
    ),
    *((mbean, [attribute]) for mbean, attribute in _COUNTERS.values()),
    (_COLLECTOR, ["CollectionCount", "CollectionTime"]),
    (_YOUNG, ["Usage"]),
]
_ACTIVE = "kafka.controller:type=KafkaController,name=ActiveControllerCount"

Answers = Mapping[str, Mapping[str, Any]]


def observe(cluster: Cluster, timeout_s: float = 2.0) -> dict[int, BrokerView]:
    """The view of every broker, now. Unreachable brokers are included with their state."""
    fitting("cluster", cluster, Cluster)
    return {broker: _view(cluster, broker, timeout_s=timeout_s) for broker in cluster.broker_ids}


def process_view(cluster: Cluster) -> dict[int, BrokerView]:
    """The system's figures for every broker's process. The brokers are not asked."""
    return {broker: _view(cluster, broker, asks=False) for broker in cluster.broker_ids}


def active_controller(cluster: Cluster, timeout_s: float = 2.0) -> int:
    """The node that is the active controller. (Clients get a random broker: KIP-590.)"""
    for node in cluster.nodes:
        process = cluster.process(node.id)
        if node.is_controller and process.is_running and not process.is_paused:
            answers = _ask(cluster, process, [(_ACTIVE, ["Value"])], timeout_s) or {}
            if answers.get(_ACTIVE, {}).get("Value") == 1:
                return node.id
    raise TestbedError("no node reports to be the active controller", "check that `observe` is on")


def _ask(
    cluster: Cluster, process: NodeProcess, mbeans: list[tuple[str, list[str]]], timeout_s: float
) -> Answers | None:
    if not cluster.spec.observe:
        return None
    with cluster.inside(process.node.host):
        return agent.read(process.directory, mbeans, timeout_s)


def _view(
    cluster: Cluster, broker: int, *, timeout_s: float = 2.0, asks: bool = True
) -> BrokerView:
    process = cluster.process(broker)
    own, live = None, process.process
    if process.is_paused:
        state = "paused"
    elif live is None:
        state = "down"
    elif not asks:
        state = "running"
    else:
        answers = _ask(cluster, process, _MBEANS, timeout_s)
        # An agent that listens is there before the broker's metrics are.
        if answers is not None and all(mbean in answers for mbean, _ in _COUNTERS.values()):
            own = _own(answers)
        state = "starting" if own is None and cluster.spec.observe else "running"
    return BrokerView(
        broker=broker,
        at_ns=time.monotonic_ns(),
        state=state,
        process=use_of(live) if live else None,
        own=own,
    )


def use_of(process: psutil.Process) -> ProcessUse | None:
    """What a process uses; None if it has just ended."""
    with suppress(psutil.Error), process.oneshot():
        cpu, disk = process.cpu_times(), process.io_counters()
        return ProcessUse(
            cpu_s=cpu.user + cpu.system,
            resident_bytes=process.memory_info().rss,
            open_handles=process.num_fds(),
            threads=process.num_threads(),
            disk_read_bytes=disk.read_bytes,
            disk_written_bytes=disk.write_bytes,
        )
    return None


def _own(answers: Answers) -> BrokerCounters:
    collector = answers.get(_COLLECTOR, {})
    return BrokerCounters(
        requests={request: _request_times(request, answers) for request in RequestClass},
        **{name: int(answers[mbean][attribute]) for name, (mbean, attribute) in _COUNTERS.items()},
        collections=int(collector.get("CollectionCount", 0)),
        collection_ms=int(collector.get("CollectionTime", 0)),
        young_bytes=int(answers.get(_YOUNG, {}).get("Usage", {}).get("committed", 0)),
    )


def _request_times(request: RequestClass, answers: Answers) -> RequestTimes:
    def times(name: str) -> KafkaHistogram:
        mbean = f"kafka.network:type=RequestMetrics,name={name},request={request}"
        attributes = answers.get(mbean, {})
        values = {field: attributes.get(attribute, 0) for field, attribute in _TIMES.items()}
        return KafkaHistogram(**{**values, "count": int(values["count"])})

    return RequestTimes(**{phase: times(name) for phase, name in _PHASES.items()})
