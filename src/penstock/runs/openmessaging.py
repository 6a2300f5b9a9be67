"""Workload and driver files of the OpenMessaging Benchmark, as scenarios. Reads files, runs nothing.

Their files are taken as they are, by the fields of its `Workload` and of its Kafka driver's
`Config`. What a run cannot do the way that benchmark does it is named in a note with its reason;
a field that the benchmark does not know is a mistake. (It would itself pass over it in silence.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from penstock import specs
from penstock.domain.arrivals import ConstantArrivals
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.consumers import Consumers
from penstock.domain.errors import BadInput
from penstock.domain.run import Existing
from penstock.domain.scenario import Scenario
from penstock.domain.settings import ProducerSettings
from penstock.domain.sizes.sizes import ID_BYTES
from penstock.domain.value import Bound, Doc, FieldError, Value
from penstock.domain.workload import Payload, Workload
from penstock.kafka import client_properties
from penstock.specs.files import read_text
from penstock.specs.text import parse_text

Scalar = str | int | float | bool

# The keys that its round robin and its random distributor choose from (KeyDistributor.java).
_KEYS = 10_000
# Where it begins to look for the highest rate (WorkloadGenerator.java).
_FIRST_RATE_PER_S = 10_000
# It shows this rate and any above as "max-rate".
_MAX_RATE_PER_S = 10_000_000
# What all of its Kafka drivers ask for.
_USUAL_REPLICATION = 3
# The address in all of its Kafka drivers: to be replaced at deployment.
_PLACEHOLDER = "localhost:9092"
# What a scenario can have (domain.workload, domain.consumers, domain.run).
_MOST_PRODUCERS, _MOST_CONSUMERS, _MOST_WARM_UP_S = 1_000, 200, 3_600

# What a run does of itself; the value that says the same needs no note.
_CONSUMER_FIXED = {
    "auto.offset.reset": ("earliest", "a run reads its topic from the beginning"),
    "enable.auto.commit": ("true", "a run commits what it has read"),
    "group.id": (None, "each run has its own group"),
}
_PRODUCER_FIXED = {
    "transactional.id": (None, "a run sends without transactions"),
    "transaction.timeout.ms": (None, "a run sends without transactions"),
}


@dataclass(frozen=True)
class Translated:
    """A scenario, and what of the files it does not do, a sentence each that begins with a field."""

    scenario: Scenario
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OpenMessagingWorkload(Value):
    """A workload file. The fields are spelled as the files spell them."""

    name: str | None = None
    topics: Annotated[int, Bound(ge=1)]
    partitionsPerTopic: Annotated[int, Bound(ge=1)]
    keyDistributor: Literal["NO_KEY", "KEY_ROUND_ROBIN", "RANDOM_NANO"] = "NO_KEY"
    messageSize: Annotated[int, Bound(ge=0), Doc("bytes")]
    useRandomizedPayloads: bool = False
    randomBytesRatio: Annotated[float, Bound(ge=0, le=1)] = 0.0
    randomizedPayloadPoolSize: Annotated[int, Bound(ge=0)] = 0
    payloadFile: str | None = None
    subscriptionsPerTopic: Annotated[int, Bound(ge=0)]
    producersPerTopic: Annotated[int, Bound(ge=1)]
    consumerPerSubscription: Annotated[int, Bound(ge=0)]
    producerRate: Annotated[int, Bound(ge=0), Doc("messages per second of all producers")]
    consumerBacklogSizeGB: Annotated[int, Bound(ge=0)] = 0
    backlogDrainRatio: Annotated[float, Bound(ge=0, le=1)] = 1.0
    testDurationMinutes: Annotated[int, Bound(ge=1), Doc("minutes")]
    warmupDurationMinutes: Annotated[int, Bound(ge=0), Doc("minutes")] = 1


@dataclass(frozen=True, kw_only=True)
class KafkaDriver(Value):
    """A driver file of driver-kafka. The configurations are texts in the form of Java properties."""

    name: str | None = None
    driverClass: str
    replicationFactor: Annotated[int, Bound(ge=1, le=16)]
    reset: bool = False
    topicConfig: str | None = None
    commonConfig: str | None = None
    producerConfig: str | None = None
    consumerConfig: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            self.driverClass.endswith(".KafkaBenchmarkDriver"),
            "driverClass",
            "is the driver of another system; use a file of driver-kafka",
        )


@dataclass(frozen=True)
class _Client:
    """What a driver file says of the cluster and its clients."""

    replication: int = _USUAL_REPLICATION
    topic_config: Mapping[str, Scalar] = field(default_factory=dict)
    bootstrap_servers: str | None = None
    settings: ProducerSettings = field(default_factory=ProducerSettings)
    consumer_settings: Mapping[str, Scalar] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def is_workload(path: Path) -> bool:
    """Whether a file is one of that benchmark's, be it with mistakes, and not a scenario of ours."""
    data = parse_text(read_text(path), str(path), "scenario").data
    theirs = {name for name in OpenMessagingWorkload.__annotations__ if name != name.lower()}
    return isinstance(data, Mapping) and any(name in theirs for name in data)


def load(workload: Path, driver: Path | None = None) -> Translated:
    """The scenario that a workload file, with a driver file or without, asks for."""
    asked = specs.load(workload, OpenMessagingWorkload)
    client = _without_driver() if driver is None else _client(driver)
    try:
        scenario = _scenario(asked, client, _slug(asked.name or workload.stem))
    except FieldError as error:  # within its own bounds, but not within ours
        raise BadInput(f"{workload}: {error}") from None
    compression = client.settings.compression_type or "none"
    return Translated(scenario, (*_notes(asked, compression), *client.notes))


# --- the workload --------------------------------------------------------------------------------


def _scenario(asked: OpenMessagingWorkload, client: _Client, name: str) -> Scenario:
    producers = min(asked.topics * asked.producersPerTopic, _MOST_PRODUCERS)
    rate = asked.producerRate or _FIRST_RATE_PER_S
    is_ours = client.bootstrap_servers is None
    brokers = max(ClusterSpec().brokers, client.replication) if is_ours else ClusterSpec().brokers
    existing = None
    if client.bootstrap_servers is not None:
        existing = Existing(bootstrap_servers=client.bootstrap_servers)
    return Scenario(
        name=name,
        cluster=ClusterSpec(brokers=brokers),
        existing=existing,
        topic=TopicSpec(
            name=name,
            partitions=asked.topics * asked.partitionsPerTopic,
            replication=client.replication,
            config=client.topic_config,
        ),
        workload=Workload(
            # Its rate is that of all producers together, at equal distances.
            arrivals=ConstantArrivals(rate_per_s=rate / producers),
            payload=Payload(size_bytes=max(ID_BYTES, asked.messageSize)),
            producers=producers,
            keys=None if asked.keyDistributor == "NO_KEY" else _KEYS,
            duration_s=asked.testDurationMinutes * 60.0,
        ),
        settings=client.settings,
        consumers=Consumers(
            count=max(1, min(asked.topics * asked.consumerPerSubscription, _MOST_CONSUMERS)),
            settings=client.consumer_settings,
        ),
        warm_up_s=min(asked.warmupDurationMinutes * 60.0, _MOST_WARM_UP_S),
    )


def _notes(asked: OpenMessagingWorkload, compression: str) -> Iterator[str]:
    yield from _notes_on_topics(asked)
    yield from _notes_on_payload(asked, compression)
    if asked.producerRate == 0:
        yield (
            "producerRate: 0 asks for the highest rate, which one run at a fixed rate cannot find; "
            f"{_FIRST_RATE_PER_S:,} messages/s are sent, where that benchmark begins its search "
            "(`penstock experiment production` measures the highest)"
        )
    if asked.producerRate >= _MAX_RATE_PER_S:
        yield (
            f"producerRate: {asked.producerRate} means 'as fast as possible'; here it is a "
            "schedule, and a run that cannot keep it is invalid"
        )
    if asked.keyDistributor == "KEY_ROUND_ROBIN":
        yield f"keyDistributor: KEY_ROUND_ROBIN: {_KEYS:,} keys, chosen at random, not in turn"
    if asked.consumerBacklogSizeGB:
        yield (
            f"consumerBacklogSizeGB: {asked.consumerBacklogSizeGB}: no backlog is built; "
            "consumers read all the time (backlogDrainRatio has no effect)"
        )
    if asked.warmupDurationMinutes * 60 > _MOST_WARM_UP_S:
        yield f"warmupDurationMinutes: {asked.warmupDurationMinutes}: reduced to the maximum of one hour"


def _notes_on_topics(asked: OpenMessagingWorkload) -> Iterator[str]:
    producers = asked.topics * asked.producersPerTopic
    consumers = asked.topics * asked.consumerPerSubscription
    if asked.topics > 1:
        yield (
            f"topics: {asked.topics}: a run has one topic; it gets all "
            f"{asked.topics * asked.partitionsPerTopic} partitions, {producers} producers "
            f"and {consumers} consumers in one group"
        )
    if producers > _MOST_PRODUCERS:
        yield f"producersPerTopic: {producers} producers in all; {_MOST_PRODUCERS} share the rate"
    if asked.subscriptionsPerTopic > 1:
        yield (
            f"subscriptionsPerTopic: {asked.subscriptionsPerTopic}: a run has one consumer group, "
            "so each message is read once"
        )
    if not asked.subscriptionsPerTopic or not consumers:
        yield (
            "subscriptionsPerTopic × consumerPerSubscription: 0 consumers; one is used, "
            "since a run accounts for every message"
        )
    elif consumers > _MOST_CONSUMERS:
        yield f"consumerPerSubscription: {consumers} consumers in all; {_MOST_CONSUMERS} read"


def _notes_on_payload(asked: OpenMessagingWorkload, compression: str) -> Iterator[str]:
    effect = (
        "which without compression makes no difference"
        if compression == "none"
        else f"which {compression} compresses worse"
    )
    new_bytes = f"every message gets new random bytes, {effect}"
    if asked.messageSize < ID_BYTES:
        yield f"messageSize: {asked.messageSize}: {ID_BYTES} bytes, room for a message's number"
    if asked.payloadFile and not asked.useRandomizedPayloads:
        yield f"payloadFile: {asked.payloadFile}: is not read; {new_bytes}"
    elif not asked.useRandomizedPayloads:
        yield f"payloadFile: none; {new_bytes}"
    else:
        pool = f"randomizedPayloadPoolSize: {asked.randomizedPayloadPoolSize}"
        if asked.randomBytesRatio < 1:
            pool = f"randomBytesRatio: {asked.randomBytesRatio:g}, {pool}"
        yield f"{pool}: {new_bytes}"


def _slug(name: str) -> str:
    """A name for a run and a topic: 1 topic / 16 partitions → 1-topic-16-partitions."""
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-._")[:80].rstrip("-._")
    return slug or "openmessaging"


# --- the driver ----------------------------------------------------------------------------------


def _without_driver() -> _Client:
    note = (
        f"no driver file: {_USUAL_REPLICATION} replicas, as all of driver-kafka have, and "
        "librdkafka's own defaults (--driver names one)"
    )
    return _Client(notes=(note,))


def _client(path: Path) -> _Client:
    driver = specs.load(path, KafkaDriver)
    notes: list[str] = []
    common = _properties(driver.commonConfig, path, "commonConfig", notes)
    producer = {**common, **_properties(driver.producerConfig, path, "producerConfig", notes)}
    consumer = {**common, **_properties(driver.consumerConfig, path, "consumerConfig", notes)}
    topic = _properties(driver.topicConfig, path, "topicConfig", notes)
    consumer.pop("bootstrap.servers", None)
    servers = str(producer.pop("bootstrap.servers", _PLACEHOLDER))
    _take_fixed(producer, _PRODUCER_FIXED, "producerConfig", notes)
    _take_fixed(consumer, _CONSUMER_FIXED, "consumerConfig", notes)
    notes.extend(_notes_on_cluster(driver, servers, producer))
    return _Client(
        replication=driver.replicationFactor,
        topic_config=topic,
        bootstrap_servers=None if servers == _PLACEHOLDER else servers,
        settings=specs.parse(producer, ProducerSettings, f"{path}: producerConfig"),
        consumer_settings=_checked_consumer(consumer, path),
        notes=tuple(notes),
    )


def _properties(text: str | None, path: Path, where: str, notes: list[str]) -> dict[str, Scalar]:
    """The text's entries by librdkafka's names, numbers and truth values as such."""
    properties = client_properties.parse(text or "", f"{path}: {where}")
    notes.extend(f"{where}: {warning}" for warning in properties.warnings)
    return {name: _scalar(value) for name, value in properties.values.items()}


def _scalar(text: str) -> Scalar:
    value = text.strip()
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if re.fullmatch(r"-?\d+", value):
        return int(value)
    return float(value) if re.fullmatch(r"-?\d+\.\d+", value) else value


def _take_fixed(
    properties: dict[str, Scalar],
    fixed: Mapping[str, tuple[str | None, str]],
    where: str,
    notes: list[str],
) -> None:
    """Out with what a run decides itself; with a note where it decides otherwise."""
    for name, (same, why) in fixed.items():
        value = properties.pop(name, None)
        if value is not None and str(value).lower() != same:
            notes.append(f"{where}: {name}: ignored; {why}")


def _checked_consumer(properties: dict[str, Scalar], path: Path) -> dict[str, Scalar]:
    try:
        Consumers(settings=properties)
    except FieldError as error:
        name = error.field.removeprefix("settings.")
        raise BadInput(f"{path}: consumerConfig: {name}: {error.rule}") from None
    return properties


def _notes_on_cluster(
    driver: KafkaDriver, servers: str, producer: Mapping[str, Scalar]
) -> Iterator[str]:
    if servers == _PLACEHOLDER:
        yield (
            f"bootstrap.servers: {_PLACEHOLDER} is treated as the placeholder of that "
            "benchmark's files: the run starts its own cluster (to use a running one, write "
            "127.0.0.1:9092)"
        )
    if driver.reset:
        yield "reset: true: no topics are deleted; each run has its own topic"
    # Those that shape latency and throughput, with what Java does without them.
    usual = {"linger.ms": "0", "batch.size": "16384", "enable.idempotence": "true"}
    absent = [f"{name} (Java: {value})" for name, value in usual.items() if name not in producer]
    if absent:
        yield f"producerConfig: librdkafka's defaults and not Java's for {', '.join(absent)}"
