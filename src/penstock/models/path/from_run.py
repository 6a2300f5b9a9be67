"""The path of a run: its spec in the simulator's terms.

The client's own defaults apply where a setting is not given. A property that moves messages and that
the model does not know is refused: its effect would be missing unnoticed.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from random import Random
from typing import TypeVar

import numpy as np

from penstock.domain.client_kind import plain_producer, plain_reader
from penstock.domain.cluster import ClientQuotas, ClusterSpec
from penstock.domain.errors import BadInput
from penstock.domain.hosts import host_names
from penstock.domain.network import LinkCondition
from penstock.domain.network.condition import PERFECT
from penstock.domain.run import RunSpec
from penstock.domain.workload import Workload
from penstock.models.path.spec import (
    UNLIMITED,
    Arrivals,
    ClientName,
    Floats,
    Ints,
    Line,
    Lines,
    PathSpec,
)
from penstock.models.record_batch import BATCH_HEADER_BYTES, record_bytes
from penstock.models.requests import produce_request_bytes

T = TypeVar("T")


@dataclass(frozen=True)
class _Defaults:
    """Of a client's producer."""

    linger_ms: float
    batch_messages: int
    batch_bytes: int
    in_flight: int


# librdkafka's CONFIGURATION.md; Kafka's producer configuration (4.0 and later). Java's batches have
# no limit by count.
_DEFAULTS: dict[ClientName, _Defaults] = {
    "librdkafka": _Defaults(5.0, 10_000, 1_000_000, UNLIMITED),
    "java": _Defaults(5.0, UNLIMITED, 16_384, 5),
}
_IDEMPOTENT_IN_FLIGHT = 5
_FETCH_MIN_BYTES, _FETCH_WAIT_MS = 1, 500.0
# Of a run's keys.
KEY_BYTES = 8
_DRAWS = 4096
_BITS_PER_BYTE = 8
# Properties without an effect on the way of a message that is neither lost nor late.
_HARMLESS = {
    "auto.commit.interval.ms",
    "client.id",
    "client.rack",
    "compression.level",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "message.timeout.ms",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "request.timeout.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "session.timeout.ms",
    "socket.keepalive.enable",
    "statistics.interval.ms",
}
_KNOWN_OF_PRODUCERS = {"sticky.partitioning.linger.ms"}
_KNOWN_OF_CONSUMERS = {
    "fetch.min.bytes",
    "fetch.wait.max.ms",
    # Limits that matter to a consumer that is behind (`models.reading`).
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "max.partition.fetch.bytes",
}


def path_spec(run: RunSpec, client: ClientName = "librdkafka") -> PathSpec:
    """Clients, topic and settings of a run; refuses one with what the simulator does not know."""
    _check_known(run)
    return client_spec(run, client)


def client_spec(run: RunSpec, client: ClientName = "librdkafka") -> PathSpec:
    """The same without a look at what the simulator does not know."""
    given, read, default = run.settings, run.consumers.settings, _DEFAULTS[client]
    in_flight = _IDEMPOTENT_IN_FLIGHT if given.enable_idempotence else default.in_flight
    return PathSpec(
        client=client,
        producers=run.workload.producers,
        consumers=run.consumers.count,
        brokers=run.cluster.brokers,
        partitions=run.topic.partitions,
        replication=run.topic.replication,
        acks=given.acks or "all",
        linger_s=_or(given.linger_ms, default.linger_ms) / 1000,
        batch_messages=_or(given.batch_num_messages, default.batch_messages),
        batch_bytes=_or(given.batch_size, default.batch_bytes),
        in_flight=_or(given.in_flight, in_flight),
        fetch_min_bytes=number(read, "fetch.min.bytes", _FETCH_MIN_BYTES, 1),
        # A consumer that is answered at once asks again and again, about as often as this.
        fetch_wait_s=max(1.0, number(read, "fetch.wait.max.ms", _FETCH_WAIT_MS)) / 1000,
        is_watched=run.is_watched,
        request_bytes=BATCH_HEADER_BYTES + produce_request_bytes(0, topic=run.topic.name),
    )


def path_lines(run: RunSpec, seed: int = 1) -> Lines:
    """The links between groups of hosts; perfect ones without an emulated network."""
    network = run.cluster.network
    if network is None:
        return Lines()
    conditions = host_names(run.cluster).conditions(network.links)
    rng = Random(f"{seed}.delays")

    def line(source: str, destination: str) -> Line:
        return _line(_common(run.cluster, conditions, source, destination), rng)

    return Lines(
        to_broker=line("producers", "brokers"),
        to_producer=line("brokers", "producers"),
        to_follower=line("brokers", "brokers"),
        to_leader=line("brokers", "brokers"),
        to_reader=line("brokers", "consumers"),
        from_reader=line("consumers", "brokers"),
    )


def path_arrivals(
    run: RunSpec,
    seconds: float,
    *,
    client: ClientName = "librdkafka",
    compression_ratio: float = 1.0,
    rate_share: float = 1.0,
    seed: int | None = None,
) -> Arrivals:
    """The messages of so many seconds: due as the run's workload says, each in the partition that
    the client chooses, with its bytes in a batch. `rate_share`: at so much of the workload's rate,
    stretched in time."""
    workload = run.workload
    due, producer, partition, sizes = [], [], [], []
    for number in range(workload.producers):
        rng = Random(f"{run.seed if seed is None else seed}.{number}.path")
        is_before_end = float(seconds * rate_share).__gt__
        drawn = takewhile(is_before_end, workload.arrivals.times_s(rng))
        times = np.fromiter(drawn, np.float64) / rate_share
        due.append(times)
        producer.append(np.full(times.size, number))
        of_each = _sizes(workload, times.size, rng)
        partition.append(_partitions(run, client, times, of_each, rng))
        sizes.append(of_each / compression_ratio)
    order = np.argsort(np.concatenate(due), kind="stable")
    return Arrivals(
        np.concatenate(due)[order],
        np.concatenate(producer)[order],
        np.concatenate(partition)[order],
        np.concatenate(sizes)[order],
    )


def _check_known(run: RunSpec) -> None:
    if not run.workload.messages_per_s:
        raise BadInput(
            "workload.arrivals: has no mean rate, since it ends",
            "predict with arrivals that do not",
        )
    for where, given, known in (
        ("settings", run.settings.other, _KNOWN_OF_PRODUCERS),
        ("consumers.settings", run.consumers.settings, _KNOWN_OF_CONSUMERS),
    ):
        for name in given:
            if name not in known | _HARMLESS:
                raise BadInput(
                    f"{where}.{name}: the model does not know what this property does",
                    "remove it to predict without it, or measure: penstock run",
                )
    for where, is_plain in (
        ("producer", run.producer == plain_producer()),
        ("consumers.reader", run.consumers.reader == plain_reader()),
        ("cluster.quotas", run.cluster.quotas == ClientQuotas()),
    ):
        if not is_plain:
            raise BadInput(
                f"{where}: the model does not know what it does to latency",
                "predict without it, or measure: penstock run",
            )
    if run.workload.loop == "closed":
        raise BadInput(
            "workload.loop: a closed loop sends when it is answered, which the model does not know",
            "use an open loop",
        )
    if run.faults:
        raise BadInput("faults: are not modelled", "predict without faults")
    if run.network_profile is not None:
        raise BadInput(
            "network_profile: the model knows networks that do not change",
            "predict each step by itself",
        )


def _common(
    cluster: ClusterSpec,
    conditions: Mapping[tuple[str, str], LinkCondition],
    source: str,
    destination: str,
) -> LinkCondition:
    """The condition that all links between two groups have."""
    hosts = host_names(cluster)
    pairs = [(s, d) for s in hosts.resolve(source) for d in hosts.resolve(destination) if s != d]
    found = [conditions.get(pair, PERFECT) for pair in pairs]
    if any(condition != found[0] for condition in found):
        raise BadInput(
            f"cluster.network.links: links from {source} to {destination} differ, and the model "
            "knows one condition per direction",
            "give the same condition to all of them",
        )
    condition = found[0] if found else PERFECT
    if condition.cut:
        raise BadInput(
            f"cluster.network.links: {source} to {destination} is cut: nothing arrives",
            "predict without the cut",
        )
    return condition


def _line(condition: LinkCondition, rng: Random) -> Line:
    delay, loss = condition.delay, condition.loss
    if delay is None:
        delays_ms = np.zeros(1)
    elif delay.fixed_ms is not None:
        delays_ms = np.array([delay.fixed_ms])
    else:
        draw = delay.sampler(rng)
        delays_ms = np.array([draw() for _ in range(_DRAWS)])
    rate = condition.rate_mbit
    return Line(
        delays_ms / 1000,
        0.0 if rate is None else rate * 1e6 / _BITS_PER_BYTE,
        0.0 if loss is None else loss.mean,
    )


def _sticky_s(run: RunSpec) -> float:
    """How long librdkafka keeps to a partition without keys: twice linger.ms by default."""
    linger_ms = _or(run.settings.linger_ms, _DEFAULTS["librdkafka"].linger_ms)
    return number(run.settings.other, "sticky.partitioning.linger.ms", 2 * linger_ms) / 1000


def key_partitions(keys: int, partitions: int) -> Ints:
    """The partition of each key. Keys are numbers of eight bytes; librdkafka's `consistent_random`
    takes their CRC32. (Java's murmur2 spreads them in another way, as evenly.)"""
    hashes = [zlib.crc32(key.to_bytes(KEY_BYTES, "big")) for key in range(keys)]
    return np.array(hashes, np.int64) % partitions


def _partitions(
    run: RunSpec, client: ClientName, due_s: Floats, sizes: Floats, rng: Random
) -> Ints:
    workload, partitions = run.workload, run.topic.partitions
    draws = np.random.default_rng(rng.getrandbits(64))
    if workload.keys is not None:
        of_key = key_partitions(workload.keys, partitions)
        return of_key[draws.integers(0, workload.keys, due_s.size)]
    # Without keys a client keeps to a partition: librdkafka for a time, Java for a batch's bytes.
    if client == "java":
        along, length = np.cumsum(sizes) - sizes, float(path_spec(run, client).batch_bytes)
    else:
        along, length = due_s, _sticky_s(run)
    if length == 0 or partitions == 1:
        return draws.integers(0, partitions, due_s.size)
    # The first message after it chooses another one, and the next stretch begins with it.
    starts, begin = [], 0
    while begin < due_s.size:
        starts.append(begin)
        begin = int(np.searchsorted(along, along[begin] + length))
    lengths = np.diff([*starts, due_s.size])
    return np.repeat(draws.integers(0, partitions, len(starts)), lengths)


def _sizes(workload: Workload, count: int, rng: Random) -> Floats:
    """Bytes of each message in a batch."""
    payload = workload.payload
    values: Iterator[int] | None = None if payload.sizes is None else payload.sizes.draw(rng)
    key = None if workload.keys is None else KEY_BYTES
    if values is None:
        return np.full(count, float(record_bytes(payload.size_bytes, key_bytes=key)))
    drawn = np.fromiter(islice(values, count), np.int64, count)
    return record_bytes(drawn, key_bytes=key).astype(np.float64)


def number(
    properties: Mapping[str, object], name: str, default: float, least: float = 0.0
) -> float:
    """A property as a number."""
    given = properties.get(name, default)
    try:
        found = float(str(given))
    except ValueError:
        found = math.nan
    if not (found >= least and math.isfinite(found)):
        raise BadInput(f"{name}={given}: is not a number of {least:g} or more")
    return found


def _or(given: T | None, default: T) -> T:
    return default if given is None else given
