"""The testbed itself: how quickly it starts, what it costs, how true its network is.

Everything is measured on the real thing. Network figures come from packets of our own, timed by
the kernel at both ends; those "under load" while three brokers on the same two cores are busy.
"""

from __future__ import annotations

import math
import os
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from confluent_kafka import Producer

import harness
from harness import Figure, Row, warmed
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import MissingPart, TestbedError
from penstock.domain.network import Link, LinkCondition, NetworkSpec
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.network.loss_bernoulli import BernoulliLoss
from penstock.domain.warm_up import RequestKind
from penstock.load.paced_producer import PacedProducer
from penstock.testbed.cluster import Cluster
from penstock.testbed.network.hosts import Network
from penstock.testbed.network.probe import flood_bytes, flood_packets, probe
from penstock.testbed.observe import observe
from penstock.testbed.toolchain import Toolchain, find_toolchain

SRC, DST = "producer-1", "consumer-1"
# As fast as it can, librdkafka fills its batches.
SATURATING = RequestKind(message_bytes=1000, messages_per_request=500)
Say = Callable[[str], None]


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    if os.geteuid() != 0:
        raise MissingPart("this benchmark builds networks, which needs root", "run it as root")
    toolchain = find_toolchain(os.environ)
    starts = _starts(toolchain, repeats=3 if quick else 10, say=say)
    seed = secrets.randbelow(2**32)
    spec = ClusterSpec(place="namespaces", network=NetworkSpec(seed=seed))
    say("building the network that is measured")
    with Cluster(spec, toolchain=toolchain) as cluster:
        assert cluster.network is not None
        rss_used_mb = _after_use(cluster, say)
        network = _network_figures(cluster.network, 1 if quick else 5, say)
        say("delay while the brokers are busy")
        with _busy(cluster):
            loaded = _delay_errors(cluster.network, 1 if quick else 3)
        watching = _cost_of_watching(cluster, pairs=6 if quick else 16, say=say)
    keys = {
        **{name: figure.median for name, figure in starts.items()},
        "rss_mb_per_broker_after_use": rss_used_mb,
        **network,
        "delay_error_under_load_ms": loaded,
        **watching,
        "spread": starts,
        "seed": seed,
    }
    return keys, _rows(keys, starts)


def _rows(keys: dict[str, Any], starts: dict[str, Figure]) -> list[Row]:
    delay, loaded = keys["delay_error_ms"], keys["delay_error_under_load_ms"]
    rss_mb = starts["rss_mb_per_broker"]
    return [
        Row("start_s (3 brokers)", starts["start_s"], "≤ 12", starts["start_s"].median <= 12),
        Row("stop_s", starts["stop_s"]),
        Row("rss_mb_per_broker", rss_mb, "≤ 400", rss_mb.median <= 400),
        Row("… after use", f"{keys['rss_mb_per_broker_after_use']:.0f}"),
        Row("delay_error_ms p50", f"{delay['p50']:.3f}", "≤ 0.5", delay["p50"] <= 0.5),
        Row("delay_error_ms p99", f"{delay['p99']:.3f}"),
        Row("… under load p50, p99", f"{loaded['p50']:.3f}, {loaded['p99']:.3f}"),
        Row(
            "loss_error",
            f"{keys['loss_error']:.5f}",
            f"≤ {keys['loss_error_expected']:.5f} (99.9 %)",
            keys["loss_error"] <= keys["loss_error_expected"],
        ),
        Row("packets_per_s", keys["packets"], "≥ 100,000", keys["packets_per_s"] >= 100_000),
        Row("throughput_mbit_unlimited", keys["throughput"]),
        Row("watching: ms per look", f"{keys['observe_ms']:.1f}"),
        Row("watching: CPU ms per look, brokers and us", f"{keys['observe_cpu_ms']:.1f}"),
        Row("watching: throughput with / without, 1/s", keys["observe_throughput"]),
    ]


def _starts(toolchain: Toolchain, repeats: int, say: Say) -> dict[str, Figure]:
    start_s, stop_s, rss_mb = [], [], []
    for i in range(repeats):
        say(f"start {i + 1} of {repeats}")
        cluster = Cluster(ClusterSpec(place="namespaces"), toolchain=toolchain)
        began = time.monotonic()
        cluster.start()
        start_s.append(time.monotonic() - began)
        rss_mb += _resident_mb(cluster)
        began = time.monotonic()
        cluster.stop()
        stop_s.append(time.monotonic() - began)
    return {
        "start_s": Figure.of(start_s),
        "stop_s": Figure.of(stop_s),
        "rss_mb_per_broker": Figure.of(rss_mb),
    }


def _resident_mb(cluster: Cluster) -> list[float]:
    uses = [view.process for view in observe(cluster).values()]
    return [use.resident_bytes / 1e6 for use in uses if use is not None]


def _after_use(cluster: Cluster, say: Say) -> float:
    say("memory after use")
    warmed(cluster, say)
    return max(_resident_mb(cluster))


def _network_figures(network: Network, repeats: int, say: Say) -> dict[str, Any]:
    say("delay")
    delay = _delay_errors(network, repeats)
    say("loss")
    shares, count = (0.01, 0.1, 0.3), 20_000 * repeats
    errors, expected = [], []
    for share in shares:
        _condition(network, LinkCondition(loss=BernoulliLoss(share=share)))
        result = probe(network, SRC, DST, count=count, rate_per_s=8000)
        errors.append(abs(float(result.lost.mean()) - share))
        expected.append(3.29 * math.sqrt(share * (1 - share) / count))
    worst = max(range(len(shares)), key=lambda i: errors[i] / expected[i])
    say("packets per second")
    _condition(network, LinkCondition(delay=ConstantDelay(ms=5), loss=BernoulliLoss(share=0.01)))
    packets = Figure.of(
        [flood_packets(network, SRC, DST, seconds=2).packets_per_s for _ in range(3 + 2 * repeats)]
    )
    _condition(network, LinkCondition())
    say("throughput")
    mbit = Figure.of(
        [flood_bytes(network, SRC, DST, seconds=2).mbit_per_s for _ in range(3 + 2 * repeats)]
    )
    return {
        "delay_error_ms": delay,
        "loss_error": errors[worst],
        "loss_error_expected": expected[worst],
        "packets_per_s": packets.median,
        "packets": packets,
        "throughput_mbit_unlimited": mbit.median,
        "throughput": mbit,
    }


def _delay_errors(network: Network, repeats: int) -> dict[str, float]:
    """|measured − asked| one way, over several delays, all packets together."""
    errors = []
    for delay_ms in (1, 10, 50, 200):
        _condition(network, LinkCondition(delay=ConstantDelay(ms=delay_ms)))
        result = probe(
            network, SRC, DST, count=2000 * repeats, rate_per_s=700, settle_s=delay_ms / 1e3 + 0.5
        )
        errors.append(np.abs(result.received_ms - delay_ms))
    _condition(network, LinkCondition())
    p50, p99 = np.percentile(np.concatenate(errors), [50, 99])
    return {"p50": float(p50), "p99": float(p99)}


def _condition(network: Network, condition: LinkCondition) -> None:
    network.set((Link(src=SRC, dst=DST, both_ways=False, condition=condition),))


@contextmanager
def _busy(cluster: Cluster) -> Iterator[None]:
    """Keep the brokers busy with a steady 5,000 messages/s, acks=all."""
    cluster.create_topic(TopicSpec(name="busy", partitions=6, replication=3))
    with cluster.inside("producer-1"):
        producer = PacedProducer({**cluster.client_config, "log_level": 0}, "busy", size_bytes=200)
    with producer.sending(dict.fromkeys(range(6), 5000 / 6)):
        yield


def _cost_of_watching(cluster: Cluster, pairs: int, say: Say) -> dict[str, Any]:
    """What a look at all three brokers costs, and what once a second does to a busy cluster."""
    warmed(cluster, say, SATURATING)
    say("cost of watching")
    looks = 100
    for _ in range(looks):  # until Java has compiled what answers
        observe(cluster)
    cpu_before, began = _cpu_s(cluster), time.monotonic()
    for _ in range(looks):
        observe(cluster)
    took_s, cpu_s = time.monotonic() - began, _cpu_s(cluster) - cpu_before
    idle_before = _cpu_s(cluster)
    time.sleep(5)  # the measurement itself: what the brokers use when nobody asks
    idle_cores = (_cpu_s(cluster) - idle_before) / 5
    sides: dict[bool, list[float]] = {True: [], False: []}
    _throughput(cluster, looking=True)  # warm-up
    for i in range(pairs):
        say(f"cost of watching, under load: pair {i + 1} of {pairs}")
        for looking in (True, False) if i % 2 else (False, True):
            sides[looking].append(_throughput(cluster, looking))
    ratios = [seen / unseen for seen, unseen in zip(sides[True], sides[False], strict=True)]
    return {
        "observe_ms": took_s / looks * 1e3,
        "observe_cpu_ms": (cpu_s - idle_cores * took_s) / looks * 1e3,
        "observe_throughput_ratio": statistics.median(ratios),
        "observe_throughput": Figure.of(ratios),
    }


def _cpu_s(cluster: Cluster) -> float:
    """CPU used so far by all brokers and by us."""
    processes = [cluster.process(broker).process for broker in cluster.broker_ids]
    brokers = sum(sum(p.cpu_times()[:2]) for p in processes if p is not None)
    return brokers + time.process_time()


def _throughput(cluster: Cluster, looking: bool, seconds: float = 3.0) -> float:
    """Messages/s that one producer gets acknowledged as fast as it can, acks=all.

    To a topic of its own, whose files go at once: a turn writes gigabytes.
    """
    topic = TopicSpec(
        name=f"watched-{secrets.token_hex(4)}",
        partitions=6,
        replication=3,
        config={"file.delete.delay.ms": 0},
    )
    cluster.create_topic(topic)
    with cluster.inside("producer-1"):
        producer = Producer(
            {**cluster.client_config, "linger.ms": 5, "acks": "all", "log_level": 0}
        )
    acknowledged = 0

    def answered(error: object, _message: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    payload, began, looked = bytes(1000), time.monotonic(), 0
    while (now := time.monotonic()) - began < seconds:
        if looking and now - began > looked:
            looked += 1
            threading.Thread(target=observe, args=(cluster,)).start()
        try:
            for _ in range(100):
                producer.produce(topic.name, payload, on_delivery=answered)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    rate = acknowledged / (time.monotonic() - began)
    producer.flush(30)
    cluster.admin.delete_topic(topic.name)
    if not acknowledged:
        raise TestbedError(f"{topic.name}: the brokers acknowledged nothing in {seconds:g} s")
    return rate


if __name__ == "__main__":
    harness.main("testbed", measure)
