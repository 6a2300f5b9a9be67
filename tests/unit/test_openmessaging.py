"""OpenMessaging Benchmark files: what a scenario makes of them, and what it says it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock import specs
from penstock.domain.arrivals import ConstantArrivals
from penstock.domain.errors import BadInput
from penstock.domain.scenario import Scenario
from penstock.runs import openmessaging
from penstock.runs.openmessaging import OpenMessagingWorkload, Translated, is_workload, load

EXAMPLES = Path(__file__).parents[2] / "examples"
# What a file must say at the least.
LEAST: dict[str, object] = {
    "name": "1 topic / 1 partition",
    "topics": 1,
    "partitionsPerTopic": 1,
    "messageSize": 1024,
    "useRandomizedPayloads": True,
    "randomBytesRatio": 1.0,
    "randomizedPayloadPoolSize": 1,
    "subscriptionsPerTopic": 1,
    "producersPerTopic": 1,
    "consumerPerSubscription": 1,
    "producerRate": 1000,
    "testDurationMinutes": 5,
}
DRIVER: dict[str, object] = {
    "name": "Kafka",
    "driverClass": "io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver",
    "replicationFactor": 3,
    "topicConfig": "",
    "commonConfig": "bootstrap.servers=localhost:9092\n",
    "producerConfig": "acks=all\nlinger.ms=1\nbatch.size=131072\nenable.idempotence=true\n",
    "consumerConfig": "auto.offset.reset=earliest\nenable.auto.commit=true\n",
}
Load = Callable[..., Translated]


@pytest.fixture
def loaded(tmp_path: Path) -> Load:
    """Load a file with these fields changed; None takes one out."""

    def write(name: str, base: dict[str, object], changes: dict[str, object]) -> Path:
        content = {k: v for k, v in {**base, **changes}.items() if v is not None}
        path = tmp_path / name
        path.write_text(yaml.safe_dump(content))
        return path

    def load_changed(driver: dict[str, object] | None = None, **changes: object) -> Translated:
        workload = write("some-workload.yaml", LEAST, changes)
        return load(workload, write("driver.yaml", DRIVER, {} if driver is None else driver))

    return load_changed


def notes_on(translated: Translated, name: str) -> list[str]:
    return [note for note in translated.notes if note.startswith(name)]


# --- the workload --------------------------------------------------------------------------------


def test_a_plain_file_becomes_the_scenario_it_asks_for(loaded: Load) -> None:
    scenario = loaded(
        partitionsPerTopic=16, producersPerTopic=4, consumerPerSubscription=2
    ).scenario
    assert scenario.name == scenario.topic.name == "1-topic-1-partition"
    assert (scenario.topic.partitions, scenario.topic.replication) == (16, 3)
    assert (scenario.workload.producers, scenario.consumers.count) == (4, 2)
    assert scenario.workload.payload.size_bytes == 1024
    assert scenario.workload.keys is None
    assert scenario.workload.loop == "open"
    assert (scenario.workload.duration_s, scenario.warm_up_s) == (300, 60)
    assert scenario.existing is None


def test_the_rate_is_that_of_all_producers_together(loaded: Load) -> None:
    scenario = loaded(topics=2, producersPerTopic=5, producerRate=1000).scenario
    assert scenario.workload.producers == 10
    assert scenario.workload.arrivals == ConstantArrivals(rate_per_s=100.0)
    assert scenario.workload.messages_per_s == 1000


def test_what_is_absent_is_as_that_benchmark_has_it(loaded: Load) -> None:
    scenario = loaded(name=None, warmupDurationMinutes=None).scenario
    assert scenario.name == "some-workload"
    assert scenario.warm_up_s == 60
    assert loaded(warmupDurationMinutes=0).scenario.warm_up_s == 0


@pytest.mark.parametrize(
    ("distributor", "keys"),
    [("NO_KEY", None), ("KEY_ROUND_ROBIN", 10_000), ("RANDOM_NANO", 10_000)],
)
def test_keys(loaded: Load, distributor: str, keys: int | None) -> None:
    assert loaded(keyDistributor=distributor).scenario.workload.keys == keys


def test_a_file_that_can_be_honoured_needs_no_note_but_on_content_and_address(
    loaded: Load,
) -> None:
    names = {note.split(":")[0] for note in loaded().notes}
    assert names == {"randomizedPayloadPoolSize", "bootstrap.servers"}


@pytest.mark.parametrize(
    ("changes", "name", "says"),
    [
        ({"topics": 3}, "topics", "3: a run has one topic; it gets all 3 partitions, 3 producers"),
        ({"subscriptionsPerTopic": 2}, "subscriptionsPerTopic", "one consumer group"),
        ({"subscriptionsPerTopic": 0}, "subscriptionsPerTopic", "one is used"),
        ({"consumerPerSubscription": 0}, "subscriptionsPerTopic", "one is used"),
        ({"consumerPerSubscription": 500}, "consumerPerSubscription", "500 consumers in all; 200"),
        ({"producersPerTopic": 5000}, "producersPerTopic", "1000 share the rate"),
        ({"producerRate": 0}, "producerRate", "10,000 messages/s are sent"),
        ({"producerRate": 10_000_000}, "producerRate", "as fast as possible"),
        ({"consumerBacklogSizeGB": 5}, "consumerBacklogSizeGB", "no backlog is built"),
        ({"keyDistributor": "KEY_ROUND_ROBIN"}, "keyDistributor", "10,000 keys"),
        ({"randomBytesRatio": 0.5}, "randomBytesRatio", "0.5, randomizedPayloadPoolSize: 1:"),
        ({"useRandomizedPayloads": False}, "payloadFile", "none"),
        (
            {"useRandomizedPayloads": False, "payloadFile": "payload/payload-1Kb.data"},
            "payloadFile",
            "payload/payload-1Kb.data: is not read",
        ),
        ({"messageSize": 2}, "messageSize", "8 bytes"),
        (
            {"warmupDurationMinutes": 90},
            "warmupDurationMinutes",
            "reduced to the maximum of one hour",
        ),
    ],
)
def test_unsupported_workload_fields_are_reported(
    loaded: Load, changes: dict[str, object], name: str, says: str
) -> None:
    (note,) = notes_on(loaded(**changes), name)
    assert says in note


def test_limits_of_a_scenario_keep_the_total_rate(loaded: Load) -> None:
    scenario = loaded(producersPerTopic=5000, consumerPerSubscription=500).scenario
    assert (scenario.workload.producers, scenario.consumers.count) == (1000, 200)
    assert scenario.workload.messages_per_s == pytest.approx(1000)


def test_compression_is_where_the_content_matters(loaded: Load) -> None:
    (plain,) = notes_on(loaded(), "randomizedPayloadPoolSize")
    (packed,) = notes_on(
        loaded(driver={"producerConfig": "compression.type=lz4\n"}), "randomizedPayloadPoolSize"
    )
    assert "makes no difference" in plain
    assert "lz4 compresses worse" in packed


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mesageSize": 5}, "mesageSize: unknown field; did you mean 'messageSize'?"),
        ({"colour": 5}, "colour: unknown field; use one of name, topics"),
        ({"testDurationMinutes": 0}, "testDurationMinutes: 0 must be 1 or more"),
        ({"producerRate": None}, "producerRate: missing field (messages per second of all"),
        ({"topics": "2"}, "topics: expected a whole number"),
        ({"keyDistributor": "KEYS"}, "keyDistributor: 'KEYS' is unknown; use one of NO_KEY"),
        ({"topics": 1000, "partitionsPerTopic": 1000}, "partitions: 1000000 must be 100000"),
    ],
)
def test_mistakes_are_named_with_field_and_fix(
    loaded: Load, changes: dict[str, object], problem: str
) -> None:
    with pytest.raises(BadInput) as caught:
        loaded(**changes)
    assert problem in str(caught.value)
    assert "some-workload.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("1 topic / 16 partitions, 1 kB", "1-topic-16-partitions-1-kB"),
        ("__odd name__", "odd-name"),
        ("日本", "openmessaging"),
        ("x" * 300, "x" * 80),
    ],
)
def test_any_name_becomes_one_that_a_topic_can_have(loaded: Load, name: str, slug: str) -> None:
    assert loaded(name=name).scenario.topic.name == slug


# --- the driver ----------------------------------------------------------------------------------


def test_the_driver_gives_replication_topic_and_client_settings(loaded: Load) -> None:
    driver = {
        "topicConfig": "min.insync.replicas=2\nflush.ms=0\n",
        "producerConfig": "acks=1\nlinger.ms=1\nbatch.size=131072\nmax.request.size=2000000\n"
        "max.in.flight.requests.per.connection=5\ncompression.type=lz4",
        "consumerConfig": "auto.offset.reset=earliest\nfetch.max.wait.ms=50\n",
        "replicationFactor": 5,
    }
    scenario = loaded(driver=driver).scenario
    assert (scenario.topic.replication, scenario.cluster.brokers) == (5, 5)
    assert scenario.topic.config == {"min.insync.replicas": 2, "flush.ms": 0}
    assert scenario.settings.properties() == {
        "acks": "1",
        "linger.ms": 1.0,
        "batch.size": 131072,
        "compression.type": "lz4",
        "max.in.flight.requests.per.connection": 5,
        "message.max.bytes": 2_000_000,
    }
    assert scenario.consumers.settings == {"fetch.wait.max.ms": 50}


def test_exactly_once_as_the_driver_of_that_name_says_it(loaded: Load) -> None:
    config = "enable.idempotence=true\nmax.in.flight.requests.per.connection=1\nretries=2147483647"
    scenario = loaded(driver={"producerConfig": f"{config}\nacks=all\n"}).scenario
    assert scenario.settings.enable_idempotence is True
    assert (scenario.settings.acks, scenario.settings.retries) == ("all", 2147483647)


def test_an_address_that_is_not_the_placeholder_is_an_existing_cluster(loaded: Load) -> None:
    common = "bootstrap.servers=kafka-1:9092,kafka-2:9092\nsocket.timeout.ms=5000\n"
    translated = loaded(driver={"commonConfig": common, "replicationFactor": 5})
    existing = translated.scenario.existing
    assert existing is not None
    assert existing.bootstrap_servers == "kafka-1:9092,kafka-2:9092"
    assert translated.scenario.settings.other == {"socket.timeout.ms": 5000}
    assert translated.scenario.consumers.settings == {"socket.timeout.ms": 5000}
    assert not notes_on(translated, "bootstrap.servers")


@pytest.mark.parametrize(
    ("driver", "name", "says"),
    [
        ({"reset": True}, "reset", "no topics are deleted"),
        ({"producerConfig": "buffer.memory=1\n"}, "producerConfig: buffer.memory", "ignored"),
        ({"producerConfig": "transactional.id=a\n"}, "producerConfig: trans", "transactions"),
        ({"producerConfig": "acks=all\n"}, "producerConfig: librd", "linger.ms (Java: 0)"),
        ({"consumerConfig": "auto.offset.reset=latest\n"}, "consumerConfig: auto", "beginning"),
        ({"consumerConfig": "enable.auto.commit=false\n"}, "consumerConfig: enable", "commits"),
    ],
)
def test_unsupported_driver_fields_are_reported(
    loaded: Load, driver: dict[str, object], name: str, says: str
) -> None:
    (note,) = notes_on(loaded(driver=driver), name)
    assert says in note


@pytest.mark.parametrize(
    ("driver", "problem"),
    [
        (
            {"driverClass": "io.openmessaging.benchmark.driver.pulsar.PulsarBenchmarkDriver"},
            "is the driver of another system; use a file of driver-kafka",
        ),
        ({"replicas": 3}, "replicas: unknown field"),
        ({"producerConfig": "linger.ms=soon\n"}, "producerConfig: linger.ms: expected a number"),
        ({"producerConfig": "acks=2\n"}, "producerConfig: acks: 2 is unknown"),
        ({"commonConfig": "sasl.password=hunter2\n"}, "is a secret"),
        ({"consumerConfig": "ssl.key.password=hunter2\n"}, "consumerConfig: ssl.key.password"),
        ({"producerConfig": "acks=1\nenable.idempotence=true\n"}, "must be all with"),
    ],
)
def test_mistakes_in_a_driver_are_named(
    loaded: Load, driver: dict[str, object], problem: str
) -> None:
    with pytest.raises(BadInput) as caught:
        loaded(driver=driver)
    assert problem in str(caught.value)
    assert "driver.yaml" in str(caught.value)
    assert "hunter2" not in str(caught.value)


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["1-topic-16-partitions-1kb.yaml", "4-topics-backlog.yaml"])
def test_the_examples_run_as_they_are(name: str) -> None:
    folder = EXAMPLES / "openmessaging"
    assert is_workload(folder / name)
    for driver in (None, folder / "driver-kafka.yaml"):
        translated = load(folder / name, driver)
        again = specs.parse(specs.dump_yaml(translated.scenario), Scenario)
        assert again == translated.scenario
        assert bool(notes_on(translated, "no driver file")) == (driver is None)
    assert load(folder / name, folder / "driver-kafka.yaml").scenario.settings.linger_ms == 2


def test_a_scenario_of_ours_is_not_taken_for_one_of_theirs(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("name: own\ntopics: {}\nworkload: {arrivals: {kind: constant, rate_per_s: 1}}\n")
    assert not is_workload(own)
    assert not is_workload(EXAMPLES / "faults.yaml")
    with_a_mistake = tmp_path / "theirs.yaml"
    with_a_mistake.write_text("topics: 1\nmesageSize: 5\nproducerRate: 5\n")
    assert is_workload(with_a_mistake)
    with pytest.raises(BadInput, match="no such file"):
        is_workload(tmp_path / "none.yaml")


def test_every_field_of_the_file_has_an_effect_or_a_note(loaded: Load) -> None:
    """So that a field which the benchmark gains is not passed over in silence here."""
    other: dict[str, object] = {
        "name": "another",
        "topics": 2,
        "partitionsPerTopic": 2,
        "keyDistributor": "RANDOM_NANO",
        "messageSize": 5,
        "useRandomizedPayloads": False,
        "randomBytesRatio": 0.5,
        "randomizedPayloadPoolSize": 7,
        "payloadFile": "a",
        "subscriptionsPerTopic": 2,
        "producersPerTopic": 2,
        "consumerPerSubscription": 2,
        "producerRate": 5,
        "consumerBacklogSizeGB": 1,
        "backlogDrainRatio": 0.5,
        "testDurationMinutes": 2,
        "warmupDurationMinutes": 2,
    }
    assert set(other) == {f.name for f in fields(OpenMessagingWorkload)}
    only_with: dict[str, dict[str, Any]] = {
        "payloadFile": {"useRandomizedPayloads": False},
        "backlogDrainRatio": {"consumerBacklogSizeGB": 1},
    }
    for name, value in other.items():
        context = only_with.get(name, {})
        if name == "backlogDrainRatio":  # has no meaning but with a backlog, and the note says so
            assert "backlogDrainRatio" in "".join(loaded(**context).notes)
            continue
        assert loaded(**context, **{name: value}) != loaded(**context), name


def test_translated_is_a_value(loaded: Load) -> None:
    assert loaded() == loaded()
    assert openmessaging.Translated(loaded().scenario, ()) != loaded()
