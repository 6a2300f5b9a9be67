"""The load generator: what the trace of every message costs, how punctual it is, its memory.

`tracing_cost_ratio` compares the generator, with a full trace, with the tightest loop around
confluent-kafka that anybody would write, `produce()` and `poll(0)` without any callback: how many
messages per second each brings through one process at saturation, on the same settings, in turn.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic_ns
from typing import Any

from confluent_kafka import Producer

import harness
from harness import Figure, Row, warmed
from penstock.domain.arrivals import ConstantArrivals
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.consumers import Consumers
from penstock.domain.settings import ProducerSettings
from penstock.domain.warm_up import RequestKind
from penstock.domain.workload import Payload, Workload
from penstock.load.load import Load
from penstock.load.plan import LoadPlan
from penstock.load.producer_job import ProducerJob
from penstock.load.realtime import keep_python_out_of_the_way, make_realtime
from penstock.load.scheduled_producer import ScheduledProducer
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import find_toolchain

SIZE_BYTES = 100
PARTITIONS = 3
SETTINGS = {"acks": "1", "linger.ms": 5}
RATE_PER_S = 20_000
KIND = RequestKind(
    acks="1",
    message_bytes=SIZE_BYTES,
    messages_per_request=100,
    partitions=PARTITIONS,
    replication=1,
)
# A schedule on which everything is due at once.
FLOOD_PER_S = 1e9
Say = Callable[[str], None]


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    repeats = 3 if quick else 9
    messages = 500_000 if quick else 2_000_000
    spec = ClusterSpec(brokers=1, place="loopback")
    say("starting a broker")
    with Cluster(spec, toolchain=find_toolchain(os.environ)) as cluster:
        warmed(cluster, say, KIND)
        speeds = _speeds(cluster, messages, repeats, say)
        machine = _in_process(_machine_lag_us)
        punctuality = _punctuality(cluster, 3 if quick else 5, 10, say)
        memory = _memory(cluster, 40 if quick else 180, say)
    ratio = Figure.of([b / t for b, t in zip(speeds["bare"], speeds["traced"], strict=True)])
    over_counting = Figure.of(
        [c / t for c, t in zip(speeds["counting"], speeds["traced"], strict=True)]
    )
    figures = {f"{side}_msgs_per_s": Figure.of(values) for side, values in speeds.items()}
    keys = {
        **{name: figure.median for name, figure in figures.items()},
        "tracing_cost_ratio": ratio.median,
        "tracing_cost_ratio_to_counting": over_counting.median,
        "schedule_lag_us": {name: punctuality[name].median for name in ("p50", "p99", "max")},
        "generator_cores": punctuality["cores"].median,
        "machine_lag_us": machine,
        **memory,
        "spread": {**figures, "tracing_cost_ratio": ratio, "schedule_lag_us": punctuality},
    }
    lag = punctuality["p99"]
    rows = [
        Row("bare_msgs_per_s", figures["bare_msgs_per_s"]),
        Row("… with a callback that counts", figures["counting_msgs_per_s"]),
        Row("traced_msgs_per_s", figures["traced_msgs_per_s"]),
        Row("tracing_cost_ratio", ratio, "≤ 1.15", ratio.median <= 1.15),
        Row("… to the loop that counts", over_counting),
        Row("schedule_lag_us p50 (20 k/s)", punctuality["p50"]),
        Row("schedule_lag_us p99", lag, "≤ 300", lag.median <= 300),
        Row("… of a thread that only sleeps, p99", f"{machine:.0f}"),
        Row("… largest", punctuality["max"]),
        Row("cpu of the generator at 20 k/s, cores", punctuality["cores"]),
        Row(
            "rss_growth_mb (producer)",
            f"{memory['rss_growth_mb']['producer-1']:.1f} of {memory['rss_mb']['producer-1']:.0f}",
            "≤ 10",
            memory["rss_growth_mb"]["producer-1"] <= 10,
        ),
        Row(
            "rss_growth_mb (consumer)",
            f"{memory['rss_growth_mb']['consumer-1']:.1f} of {memory['rss_mb']['consumer-1']:.0f}",
            "≤ 10",
            memory["rss_growth_mb"]["consumer-1"] <= 10,
        ),
    ]
    return keys, rows


# --- speed -------------------------------------------------------------------------------------


def _speeds(cluster: Cluster, messages: int, repeats: int, say: Say) -> dict[str, list[float]]:
    """Messages per second of each side. In turn, so that a slow minute slows all of them."""
    sides: Mapping[str, Callable[..., float]] = {
        "bare": _bare,
        "counting": _counting,
        "traced": _traced,
    }
    found: dict[str, list[float]] = {side: [] for side in sides}
    with _topic(cluster, "speed") as topic:
        for repeat in range(-1, repeats):  # the first round warms up
            for side, loop in sides.items():
                say(f"{side}, round {max(0, repeat + 1)} of {repeats}")
                rate = _in_process(loop, cluster.client_config, topic, messages)
                if repeat >= 0:
                    found[side].append(rate)
    return found


def _in_process(loop: Callable[..., float], *arguments: Any) -> float:
    """Each side in a fresh process of its own, as the generator is."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_answer, args=(theirs, loop, *arguments))
    process.start()
    theirs.close()
    try:
        rate: float = mine.recv()
        return rate
    finally:
        process.join()


def _answer(pipe: Any, loop: Callable[..., float], *arguments: Any) -> None:
    pipe.send(loop(*arguments))


def _alike() -> None:
    """What the generator does for itself, for the other sides too."""
    keep_python_out_of_the_way()
    make_realtime()


def _bare(config: dict[str, Any], topic: str, messages: int) -> float:
    producer = Producer({**config, **SETTINGS})
    producer.list_topics(topic)
    produce, poll, value = producer.produce, producer.poll, os.urandom(SIZE_BYTES)
    _alike()
    began = time.perf_counter()
    for _ in range(messages):
        while True:
            try:
                produce(topic, value)
                break
            except BufferError:
                poll(0.01)
        poll(0)
    producer.flush()
    return messages / (time.perf_counter() - began)


def _counting(config: dict[str, Any], topic: str, messages: int) -> float:
    producer = Producer({**config, **SETTINGS})
    producer.list_topics(topic)
    produce, poll, value = producer.produce, producer.poll, os.urandom(SIZE_BYTES)
    acknowledged = 0

    def answered(error: Any, _message: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    _alike()
    began = time.perf_counter()
    for _ in range(messages):
        while True:
            try:
                produce(topic, value, on_delivery=answered)
                break
            except BufferError:
                poll(0.01)
        poll(0)
    producer.flush()
    took_s = time.perf_counter() - began
    assert acknowledged == messages
    return messages / took_s


def _traced(config: dict[str, Any], topic: str, messages: int) -> float:
    """From the first message to the last answer, as for the others; the trace is complete then
    but for its conversion to Parquet, which is no part of the load."""
    with tempfile.TemporaryDirectory() as directory:
        workload = Workload(
            arrivals=ConstantArrivals(rate_per_s=FLOOD_PER_S),
            payload=Payload(size_bytes=SIZE_BYTES),
            duration_s=messages / FLOOD_PER_S,
        )
        job = ProducerJob(0, topic, {**config, **SETTINGS}, workload, 0.0, 1, Path(directory))
        producer = ScheduledProducer(job)
        begins_ns = monotonic_ns()
        producer.run(begins_ns, threading.Event())
        took_ns = monotonic_ns() - begins_ns
        report = producer.finish()
    assert report.acknowledged == report.sent >= messages - 1
    return messages / took_ns * 1e9


# --- punctuality and memory --------------------------------------------------------------------


def _plan(topic: str, duration_s: float) -> LoadPlan:
    return LoadPlan(
        topic=topic,
        workload=Workload(
            arrivals=ConstantArrivals(rate_per_s=RATE_PER_S),
            payload=Payload(size_bytes=SIZE_BYTES),
            duration_s=duration_s,
        ),
        settings=ProducerSettings(acks="1", linger_ms=5),
        consumers=Consumers(),
        warm_up_s=3.0,
        seed=1,
        watch_visibility=False,
        partitions=PARTITIONS,
    )


def _punctuality(cluster: Cluster, repeats: int, duration_s: float, say: Say) -> dict[str, Figure]:
    """How late the generator itself is at 20,000 messages/s, with the broker and a consumer on
    the same processors."""
    found: dict[str, list[float]] = {"p50": [], "p99": [], "max": [], "cores": []}
    for repeat in range(repeats):
        say(f"punctuality, run {repeat + 1} of {repeats}")
        with (
            _topic(cluster, "punctual") as topic,
            tempfile.TemporaryDirectory() as directory,
            Load(cluster, _plan(topic, duration_s), Path(directory)) as load,
        ):
            load.start()
            load.wait(until_ns=load.measured_from_ns)
            before = sum(load.clients["producer-1"].cpu_times()[:2])
            load.wait(until_ns=load.measured_to_ns)
            used_s = sum(load.clients["producer-1"].cpu_times()[:2]) - before
            load.wait()
            load.drain(cluster.admin.end_offsets(topic), 60)
            (report,) = load.producers
        found["p50"].append(report.lag_p50_us)
        found["p99"].append(report.lag_p99_us)
        found["max"].append(report.lag_max_us)
        found["cores"].append(used_s / duration_s)
    return {name: Figure.of(values) for name, values in found.items()}


def _machine_lag_us() -> float:
    """How late (p99) this machine wakes a thread that asks for it every 150 µs and does nothing
    else: a generator cannot be better. On a virtual machine it says what the neighbours take."""
    make_realtime()
    late_ns = []
    due_ns = monotonic_ns()
    for _ in range(20_000):
        due_ns += 150_000
        left_ns = due_ns - monotonic_ns()
        if left_ns > 0:
            time.sleep(left_ns / 1e9)
        late_ns.append(monotonic_ns() - due_ns)
    return sorted(late_ns)[-200] / 1000


def _memory(cluster: Cluster, duration_s: float, say: Say) -> dict[str, Any]:
    """Resident memory of the processes at the end, and what it grew by after the first seconds."""
    say(f"memory over {duration_s:g} s")
    with (
        _topic(cluster, "memory") as topic,
        tempfile.TemporaryDirectory() as directory,
        Load(cluster, _plan(topic, duration_s), Path(directory)) as load,
    ):
        load.start()
        # The warm-up, and as long again as librdkafka's queues and buffers take to be in use.
        load.wait(until_ns=load.measured_from_ns + 5_000_000_000)
        first = _rss_mb(load)
        load.wait(until_ns=load.measured_to_ns)
        last = _rss_mb(load)
    return {
        "rss_mb": last,
        "rss_growth_mb": {name: last[name] - first[name] for name in first},
        "memory_over_s": duration_s - 5,
    }


def _rss_mb(load: Load) -> dict[str, float]:
    return {name: p.memory_info().rss / 2**20 for name, p in load.clients.items()}


class _topic:
    """A topic for a while, of which the broker keeps only the newest records."""

    def __init__(self, cluster: Cluster, stem: str) -> None:
        self._cluster, self.name = cluster, f"{stem}-{monotonic_ns()}"

    def __enter__(self) -> str:
        config = {
            "message.timestamp.type": "LogAppendTime",
            "segment.bytes": "100000000",
            "retention.bytes": "100000000",
        }
        self._cluster.create_topic(
            TopicSpec(name=self.name, partitions=PARTITIONS, replication=1, config=config)
        )
        return self.name

    def __exit__(self, *_: object) -> None:
        self._cluster.admin.delete_topic(self.name)


if __name__ == "__main__":
    harness.main("load", measure)
