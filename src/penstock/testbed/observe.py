"""Reads the broker's own view from running brokers: one HTTP request each, over loopback.

The agent (Jolokia) answers JMX reads in bulk. It listens on the loopback of the broker's own
namespace, so it is reached from inside it and never crosses the emulated network.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil

from penstock.domain.broker_view import (
    BrokerView,
    ProcessUse,
    RequestClass,
    RequestTimes,
    Times,
)
from penstock.domain.errors import TestbedError
from penstock.testbed.cluster import Cluster

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
_COUNTERS = {
    "messages_in": ("kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec", "Count"),
    "bytes_in": ("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec", "Count"),
    "bytes_out": ("kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec", "Count"),
    "replication_bytes_in": (
        "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec",
        "Count",
    ),
    "under_replicated_partitions": (
        "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
        "Value",
    ),
    "leaders": ("kafka.server:type=ReplicaManager,name=LeaderCount", "Value"),
    "partitions": ("kafka.server:type=ReplicaManager,name=PartitionCount", "Value"),
}
_MBEANS = [
    *(
        (f"kafka.network:type=RequestMetrics,name={name},request={request}", list(_TIMES.values()))
        for request in RequestClass
        for name in _PHASES.values()
    ),
    *((mbean, [attribute]) for mbean, attribute in _COUNTERS.values()),
]
_QUESTION = json.dumps(
    [{"type": "read", "mbean": mbean, "attribute": attributes} for mbean, attributes in _MBEANS]
)


def observe(cluster: Cluster, timeout_s: float = 2.0) -> dict[int, BrokerView]:
    """The view of every broker, now. One that is paused or down is shown as such, with zeros."""
    return {broker: _view(cluster, broker, timeout_s) for broker in cluster.broker_ids}


def _view(cluster: Cluster, broker: int, timeout_s: float) -> BrokerView:
    process = cluster.process(broker)
    state = "paused" if process.is_paused else "running" if process.is_running else "down"
    answers: Mapping[str, Mapping[str, Any]] = {}
    if state == "running" and cluster.spec.observe:
        with cluster.inside(process.node.host):
            answers = _ask(process.node.agent_port, timeout_s, process.node.name)
    counters = {
        name: int(answers.get(mbean, {}).get(attribute, 0))
        for name, (mbean, attribute) in _COUNTERS.items()
    }
    return BrokerView(
        broker=broker,
        at_ns=time.monotonic_ns(),
        state=state,
        process=use_of(process.process) if process.process else None,
        requests={r: _request_times(r, answers) for r in RequestClass} if answers else {},
        **counters,
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


def _ask(port: int, timeout_s: float, who: str) -> dict[str, Mapping[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("POST", "/jolokia/", _QUESTION, {"Content-Type": "application/json"})
        answers = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise TestbedError(f"{who} does not tell its timings: {error}") from None
    finally:
        connection.close()
    # Answers come in the order of the questions; they echo the names in another spelling. A metric
    # is absent until the first request of its class.
    return {
        mbean: answer["value"]
        for (mbean, _), answer in zip(_MBEANS, answers, strict=True)
        if answer["status"] == 200
    }


def _request_times(request: RequestClass, answers: Mapping[str, Mapping[str, Any]]) -> RequestTimes:
    def times(name: str) -> Times:
        mbean = f"kafka.network:type=RequestMetrics,name={name},request={request}"
        found = answers.get(mbean, {})
        values = {field: found.get(attribute, 0) for field, attribute in _TIMES.items()}
        return Times(**{**values, "count": int(values["count"])})

    return RequestTimes(**{phase: times(name) for phase, name in _PHASES.items()})
