"""A second opinion: Kafka's own ProducerPerformance and EndToEndLatency on the same settings.

Sides take turns on one cluster with 10 ms of delay each way. Ours is measured as theirs is: from
the moment the client took a message (not from its intended time) to the answer, and in a closed
loop from the send to the receipt.

EndToEndLatency asks for a record only when its producer has been answered, so it takes one round
trip (20 ms) more than our consumer, which has asked already: `end_to_end_less_round_trip` is without
it. It does not warm up.

With acks=all a broker takes one request of a connection after the other, each for two round trips,
so at `LINGER_MS` requests queue: latency is then that of the queue, as many requests long as the
client lets out, and librdkafka lets out one more than Java's. `acks_all_unqueued` lingers so long
that no request waits for another.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from harness import Figure, Row, kafka_tool, main, warmed
from penstock.domain.arrivals import ConstantArrivals
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import TestbedError
from penstock.domain.network import Link, LinkCondition, NetworkSpec
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.run import RunSpec
from penstock.domain.settings import ProducerSettings
from penstock.domain.warm_up import RequestKind
from penstock.domain.workload import Payload, Workload
from penstock.runs.execute import execute
from penstock.runs.run_directory import RunDirectory
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import find_toolchain

RATE_PER_S, SIZE_BYTES, LINGER_MS, IN_FLIGHT = 200, 200, 5, 5
UNQUEUED_LINGER_MS, ROUND_TRIP_MS = 100, 20.0
# Name → acks, linger.ms.
PRODUCE = {
    "produce_acks_1": ("1", LINGER_MS),
    "produce_acks_all": ("all", LINGER_MS),
    "produce_acks_all_unqueued": ("all", UNQUEUED_LINGER_MS),
}
KINDS = tuple(
    RequestKind(acks=acks, message_bytes=SIZE_BYTES, partitions=1, replication=3)
    for acks in ("1", "all")
)
_PERCENTILES = re.compile(r"([\d.]+) ms 50th, ([\d.]+) ms 95th, ([\d.]+) ms 99th")
_END_TO_END = re.compile(r"50th = ([\d.]+), 99th = ([\d.]+)")


def measure(quick: bool, say: Callable[[str], None]) -> tuple[dict[str, Any], list[Row]]:
    repeats, seconds = (3, 10.0) if quick else (5, 20.0)
    apart = LinkCondition(delay=ConstantDelay(ms=10))
    network = NetworkSpec(links=(Link(src="any", dst="any", condition=apart),))
    spec = ClusterSpec(brokers=3, place="namespaces", network=network)
    found: dict[str, list[tuple[float, float]]] = {}
    with (
        Cluster(
            spec, toolchain=find_toolchain(os.environ, on_progress=say), on_progress=say
        ) as cluster,
        tempfile.TemporaryDirectory() as scratch,
    ):
        warmed(cluster, say, *KINDS)
        for turn in range(repeats):
            say(f"turn {turn + 1} of {repeats}")
            for name, (acks, linger_ms) in PRODUCE.items():
                path = Path(scratch) / f"{name}-{turn}"
                ours = _ours(cluster, path, acks, linger_ms, seconds)
                found.setdefault(f"{name}_ours", []).append(ours)
                theirs = _producer_performance(cluster, f"{name}-{turn}", acks, linger_ms, seconds)
                found.setdefault(f"{name}_theirs", []).append(theirs)
            closed = _ours(
                cluster, Path(scratch) / f"closed-{turn}", "all", 0, seconds, closed=True
            )
            their_p50, their_p99 = _end_to_end_latency(cluster, turn, int(seconds * 10))
            found.setdefault("end_to_end_ours", []).append(closed)
            found.setdefault("end_to_end_theirs", []).append((their_p50, their_p99))
            found.setdefault("end_to_end_less_round_trip_ours", []).append(closed)
            found.setdefault("end_to_end_less_round_trip_theirs", []).append(
                (their_p50 - ROUND_TRIP_MS, their_p99 - ROUND_TRIP_MS)
            )
    keys: dict[str, Any] = {}
    rows = []
    for what in (*PRODUCE, "end_to_end", "end_to_end_less_round_trip"):
        for place, (percent, allowed) in enumerate((("p50", 0.10), ("p99", 0.25))):
            ours_ms = [pair[place] for pair in found[f"{what}_ours"]]
            theirs_ms = [pair[place] for pair in found[f"{what}_theirs"]]
            ratio = Figure.of([o / t for o, t in zip(ours_ms, theirs_ms, strict=True)])
            keys |= {
                f"{what}_{percent}_ours_ms": Figure.of(ours_ms),
                f"{what}_{percent}_theirs_ms": Figure.of(theirs_ms),
                f"{what}_{percent}_ratio": ratio,
            }
            shown = f"{ratio} ({Figure.of(ours_ms)} against {Figure.of(theirs_ms)} ms)"
            met = abs(ratio.median - 1) <= allowed
            rows.append(Row(f"{what} {percent}, ours/theirs", shown, f"1 ± {allowed:g}", met))
    return keys, rows


def _ours(
    cluster: Cluster, path: Path, acks: str, linger_ms: int, seconds: float, closed: bool = False
) -> tuple[float, float]:
    """(p50, p99) in ms: sent to answered; in a closed loop, sent to received."""
    path.mkdir()
    rate = 10.0 if closed else RATE_PER_S
    spec = RunSpec(
        name="ours",
        cluster=cluster.spec,
        topic=TopicSpec(name="ours", partitions=1, replication=3),
        workload=Workload(
            arrivals=ConstantArrivals(rate_per_s=rate),
            payload=Payload(size_bytes=SIZE_BYTES),
            loop="closed" if closed else "open",
            duration_s=seconds,
        ),
        settings=ProducerSettings(
            acks="all" if acks == "all" else "1",
            linger_ms=linger_ms,
            # The Java client's own. librdkafka has no limit, and with acks=all a queue that grows.
            in_flight=IN_FLIGHT,
        ),
        warm_up_s=3,
        visibility="off",
    )
    # What is compared must not wait for a poll of the consumer's own making.
    run = execute(spec, cluster, RunDirectory(path))
    if run.status != "complete":
        raise TestbedError(f"our side failed: {run.reason}")
    sent = pq.read_table(path / "sent").to_pandas()
    sent = sent[sent.intended_ns >= run.measured_from_ns]
    if closed:
        received = pq.read_table(path / "received").to_pandas().groupby("id").received_ns.min()
        times = (sent.set_index("id").join(received)).eval("received_ns - sent_ns")
    else:
        times = (sent.reported_ns - sent.sent_ns)[sent.outcome == "acknowledged"]
    p50, p99 = np.percentile(times.dropna(), [50, 99]) / 1e6
    return float(p50), float(p99)


def _producer_performance(
    cluster: Cluster, topic: str, acks: str, linger_ms: int, seconds: float
) -> tuple[float, float]:
    cluster.create_topic(TopicSpec(name=topic, partitions=1, replication=3))
    records = int(RATE_PER_S * seconds)
    command = [
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(SIZE_BYTES)),
        *("--throughput", str(RATE_PER_S), "--warmup-records", str(3 * RATE_PER_S)),
        "--command-property",
        *(f"bootstrap.servers={cluster.bootstrap_servers}", f"acks={acks}"),
        *(f"linger.ms={linger_ms}", "enable.idempotence=false"),
        f"max.in.flight.requests.per.connection={IN_FLIGHT}",
    ]
    text = kafka_tool(cluster, command)
    lines = list(_PERCENTILES.finditer(text))
    if not lines:
        raise TestbedError(f"ProducerPerformance said nothing we understand:\n{text[-2000:]}")
    return float(lines[-1][1]), float(lines[-1][3])


def _end_to_end_latency(cluster: Cluster, turn: int, messages: int) -> tuple[float, float]:
    topic = f"theirs-e2e-{turn}"
    cluster.create_topic(TopicSpec(name=topic, partitions=1, replication=3))
    servers = cluster.bootstrap_servers
    command = [
        "org.apache.kafka.tools.EndToEndLatency",
        *("--bootstrap-server", servers, "--topic", topic, "--num-records", str(messages)),
        *("--producer-acks", "all", "--record-size", str(SIZE_BYTES)),
    ]
    text = kafka_tool(cluster, command)
    match = _END_TO_END.search(text)
    if match is None:
        raise TestbedError(f"EndToEndLatency said nothing we understand:\n{text[-2000:]}")
    return float(match[1]), float(match[2])


if __name__ == "__main__":
    main("second_opinion", measure)
