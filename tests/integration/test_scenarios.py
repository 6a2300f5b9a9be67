"""What becomes of messages when things fail, on the real cluster: every count checked twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock import specs
from penstock.analysis.analyze import analyze
from penstock.domain.errors import BadInput
from penstock.domain.metrics import RunMetrics
from penstock.domain.run import Run, RunSpec
from penstock.runs.clusters import set_network
from penstock.runs.execute import execute
from penstock.runs.run_directory import RunDirectory
from penstock.runs.validity import checked
from penstock.testbed.cluster import Cluster

pytestmark = pytest.mark.integration

Carry = Callable[..., tuple[Run, RunMetrics]]


@pytest.fixture
def carry(cluster: Cluster, spark: Any, tmp_path: Path, unique: Callable[[str], str]) -> Carry:
    """Carry a small experiment out, analyse it, and count the topic independently."""

    def run(**more: Any) -> tuple[Run, RunMetrics]:
        topic = unique("scenario")
        fields = {
            "name": "test",
            "topic": {"name": topic, "partitions": 3, "replication": 3},
            "workload": {
                "producers": 2,
                "arrivals": {"kind": "poisson", "rate_per_s": 300},
                "duration_s": 4,
            },
            "warm_up_s": 1,
            "cluster_warm_up": {"limit_s": 0},
            "schedule_lag_ms": 1000,  # other tests' leftovers may be at work beside us
            **more,
        }
        text = specs.dump_json(fields).replace("TOPIC", topic)
        spec = specs.parse(text, RunSpec, source="test.json")
        # The topic is left for the independent count, which the run would delete.
        created = replace(spec.topic, config={"message.timestamp.type": "LogAppendTime"})
        cluster.create_topic(created)
        directory = RunDirectory(tmp_path / topic)
        directory.path.mkdir()
        done = execute(spec, cluster, directory)
        assert done.status == "complete", done.reason
        metrics = analyze(spark, [directory.path])[directory.path]
        assert metrics.counts.records == counted(cluster, topic), "the run and Kafka disagree"
        return done, metrics

    return run


def counted(cluster: Cluster, topic: str) -> int:
    """The records of a topic, read by a plain consumer that knows nothing of runs."""
    ends = cluster.admin.end_offsets(topic)
    with cluster.inside():
        consumer = Consumer(
            {**cluster.client_config, "group.id": f"{topic}-count", "enable.auto.commit": False}
        )
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    places: set[tuple[int | None, int | None]] = set()
    try:
        while left := sum(ends.values()) - len(places):
            messages = consumer.consume(left, timeout=10)
            assert messages, f"{len(places)} of {sum(ends.values())} records could be read"
            places |= {(m.partition(), m.offset()) for m in messages}
    finally:
        consumer.close()
    return len(places)


def test_without_faults_everything_arrives_once(carry: Carry) -> None:
    run, metrics = carry(settings={"acks": "all", "linger.ms": 5})
    counts = metrics.counts
    assert counts.sent == counts.delivered == counts.acknowledged > 2000
    assert counts.lost == counts.duplicated == counts.foreign == counts.redelivered == 0
    assert counts.first_try == counts.sent
    assert counts.warm_up > 0
    assert metrics.latency is not None
    assert set(metrics.parts) >= {"waiting", "produce", "commit", "fetch"}
    assert sum(p.sent for p in run.producers) == counts.sent + counts.warm_up
    assert metrics.lost_share.high is not None
    assert 0 < metrics.lost_share.high < 0.05


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_a_broker_killed_under_load(carry: Carry, acks: str) -> None:
    # Frozen before it dies, it has something in its socket for sure. By its number: each of three
    # brokers leads one of three partitions, and a frozen one may be asked in vain who leads.
    broker = 2 if acks == "0" else "leader of TOPIC-0"
    frozen = [{"kind": "pause", "broker": broker, "at_s": 0.7}] if acks == "0" else []
    run, metrics = carry(
        settings={"acks": acks, "linger.ms": 5, "message.timeout.ms": 40_000},
        workload={
            "producers": 2,
            "arrivals": {"kind": "constant", "rate_per_s": 500},
            "duration_s": 5,
        },
        faults=[
            *frozen,
            {"kind": "kill", "broker": broker, "at_s": 1, "for_s": 2},
        ],
    )
    counts = metrics.counts
    struck = [*(["paused"] if frozen else []), "killed", "undone"]
    assert [event.sentence[:6] for event in run.events] == struck
    assert counts.sent == counts.delivered + counts.lost + counts.duplicated
    if acks == "0":
        # Nobody answers for what was in the socket of the dead broker.
        assert counts.lost > 0
        assert counts.lost == counts.acknowledged_yet_lost + (counts.failed + counts.unknown)
    if acks == "all":
        assert counts.acknowledged_yet_lost == 0, "acks=all broke a promise"
    assert metrics.latency is not None
    assert metrics.latency.max_ms > 500, "a dead leader must show in the longest latency"


@pytest.mark.root
def test_packet_loss_with_a_short_timeout(carry: Carry, cluster: Cluster) -> None:
    link = {
        "src": "producers",
        "dst": "brokers",
        "condition": {
            "loss": {"kind": "bernoulli", "share": 0.2},
            "delay": {"kind": "constant", "ms": 20},
        },
    }
    network = {"producers": 2, "consumers": 1, "links": [link]}
    spec = {"brokers": 3, "place": "namespaces", "network": network}
    base = {
        "name": "x",
        "topic": {"name": "x"},
        "workload": {"arrivals": {"kind": "constant", "rate_per_s": 1}},
    }
    lossy = specs.parse({**base, "cluster": spec}, RunSpec)
    set_network(cluster, lossy.cluster, seed="test")
    try:
        _, metrics = carry(
            cluster=spec,
            settings={"acks": "1", "linger.ms": 5, "message.timeout.ms": 400, "retries": 3},
        )
    finally:
        set_network(cluster, specs.parse(base, RunSpec).cluster, seed="test")
    counts = metrics.counts
    assert counts.failed > 0, "20 % loss and 400 ms must be too much for some"
    assert counts.lost > 0
    assert counts.lost + counts.failed_yet_delivered >= counts.failed
    assert counts.acknowledged_yet_lost == 0, "no broker failed"
    assert metrics.lost_share.low is not None
    assert metrics.lost_share.low <= metrics.lost_share.value <= (metrics.lost_share.high or 0)


def test_a_frozen_consumer_shows_in_the_latency(carry: Carry) -> None:
    freeze = {"kind": "pause-client", "client": "consumer-1", "at_s": 1, "for_s": 2}
    run, metrics = carry(faults=[freeze], settings={"acks": "1", "linger.ms": 20})
    assert metrics.counts.lost == 0
    assert metrics.latency is not None
    # Messages that were there to be read while it was frozen waited for it.
    assert metrics.latency.max_ms > 1500
    assert metrics.parts["fetch"].max_ms > 1500
    assert run.events[0].sentence == "paused consumer-1"


PLUGINS = """
import dataclasses, pathlib
from penstock.load.producers import ProducerKind
from penstock.load.readers import ReaderKind
from penstock.load.scheduled_producer import ScheduledProducer

@dataclasses.dataclass(frozen=True, kw_only=True)
class Signed(ProducerKind):
    "librdkafka, with a signature."
    kind = "signed"
    signature: str

    def producer(self, job):
        (pathlib.Path(job.directory) / job.name).write_text(self.signature)
        return ScheduledProducer(job)

@dataclasses.dataclass(frozen=True, kw_only=True)
class Halves(ReaderKind):
    "Every record is two messages; the second one has no number."
    kind = "halves"

    def messages(self, value):
        return value[:50], b"rest"
"""


def test_kinds_of_clients_from_another_package_and_records_that_hold_two_messages(
    carry: Carry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "others_clients.py").write_text(PLUGINS)
    about = tmp_path / "others-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[penstock.producers]\nsigned = others_clients:Signed\n"
        "[penstock.readers]\nhalves = others_clients:Halves\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run, metrics = carry(
        producer={"kind": "signed", "signature": "ours"}, consumers={"reader": {"kind": "halves"}}
    )
    directory = tmp_path / run.spec.topic.name
    assert [(directory / f"producer-{n}").read_text() for n in (1, 2)] == ["ours", "ours"]
    counts = metrics.counts
    assert counts.delivered == counts.sent > 2000
    assert counts.foreign == counts.records == counts.sent + counts.warm_up
    assert sum(c.received for c in run.consumers) == 2 * sum(c.records for c in run.consumers)
    assert checked(run, metrics).invalid == ()


def test_a_topic_that_has_data_is_refused(
    cluster: Cluster, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    spec = specs.parse(
        {
            "name": "test",
            "topic": {"name": unique("used")},
            "workload": {"arrivals": {"kind": "constant", "rate_per_s": 10}},
        },
        RunSpec,
    )
    cluster.create_topic(spec.topic)
    cluster.admin.send(spec.topic.name, 1, messages=5, size_bytes=10)
    with pytest.raises(BadInput, match="has 5 records already"):
        execute(spec, cluster, RunDirectory(tmp_path))
    run = RunDirectory(tmp_path).run()
    assert run.status == "interrupted"  # so it is repeated on resume
    assert "has 5 records already" in run.reason
