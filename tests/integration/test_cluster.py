"""The cluster on the real thing: ready means ready, whatever its shape; and it says why if not."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from clients import consume_all, produce
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource

from penstock.domain.cluster import ClientQuotas, ClusterSpec, TopicSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.kafka import client_properties
from penstock.kafka.admin import Admin
from penstock.kafka.connection import ExistingCluster
from penstock.testbed import lease
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import Toolchain

pytestmark = pytest.mark.integration


def test_what_is_sent_is_read(cluster: Cluster, unique: Callable[[str], str]) -> None:
    topic = unique("orders")
    cluster.create_topic(TopicSpec(name=topic, partitions=6, replication=3))

    assert produce(cluster, topic, 3000, acks="all") == []

    assert sorted(consume_all(cluster, topic, 3000)) == list(range(3000))
    assert sum(cluster.admin.end_offsets(topic).values()) == 3000


def test_ready_means_registered_and_in_sync(cluster: Cluster) -> None:
    assert cluster.admin.broker_ids() == {1, 2, 3}
    assert cluster.admin.out_of_sync() == []


def test_more_copies_than_brokers_is_refused(
    cluster: Cluster, unique: Callable[[str], str]
) -> None:
    with pytest.raises(BadInput, match=r"replication: 4 must be at most .* \(3\)"):
        cluster.create_topic(TopicSpec(name=unique("wide"), replication=4))


def test_a_topic_that_exists_is_refused(cluster: Cluster, unique: Callable[[str], str]) -> None:
    spec = TopicSpec(name=unique("twice"))
    cluster.create_topic(spec)
    with pytest.raises(TestbedError, match="already exists"):
        cluster.create_topic(spec)


def test_ctrl_c_while_a_topic_is_created_leaves_none(
    cluster: Cluster, unique: Callable[[str], str]
) -> None:
    # The interrupt comes before, while and after the brokers create it.
    main = threading.main_thread().ident
    assert main is not None
    names = [unique("interrupted") for _ in range(20)]
    for tries, name in enumerate(names):
        topic = TopicSpec(name=name, partitions=2, replication=2)
        alarm = threading.Timer(0.001 * tries, signal.pthread_kill, [main, signal.SIGINT])
        with pytest.raises(KeyboardInterrupt):
            alarm.start()
            Admin(cluster.client_config, cluster.inside).create_topic(topic, brokers=3)
            alarm.join()
            time.sleep(5)  # created before the alarm: the interrupt comes here
        alarm.join()
    time.sleep(2)  # what was on its way has arrived
    assert not set(names) & cluster.admin.topics()


def test_separate_controllers_sasl_ssl_and_passed_properties(
    toolchain: Toolchain, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """One cluster for three features, since a start costs ten seconds."""
    spec = ClusterSpec(
        brokers=2,
        controllers=1,
        security="sasl_ssl",
        properties={"log.retention.ms": 1234567},
        data_dir=str(tmp_path),
    )
    topic = unique("secret")
    with Cluster(spec, toolchain=toolchain) as secure:
        secure.create_topic(TopicSpec(name=topic, partitions=2, replication=2))
        assert produce(secure, topic, 100) == []
        assert sorted(consume_all(secure, topic, 100)) == list(range(100))

        # The broker took the property.
        assert _broker_config(secure, 1)["log.retention.ms"] == "1234567"
        # Data went where it was asked to go.
        assert list(tmp_path.glob(f"*/broker-1/{topic}-*"))

        # Neither without TLS, nor without the password, is there a way in.
        config = secure.client_config
        bare = {"bootstrap.servers": secure.bootstrap_servers}
        assert Admin(bare).broker_ids() == set()
        wrong = Admin({**config, "sasl.password": "guess"})
        with pytest.raises(KafkaException):
            wrong._client.list_topics(timeout=3)

        # The file that was written for Kafka's own tools works for an existing cluster.
        properties = client_properties.load(secure.directory / "client.properties")
        existing = ExistingCluster(secure.bootstrap_servers, properties)
        assert existing.check_reachable() == {1, 2}

        password = config["sasl.password"]
        assert password not in repr(properties) + repr(secure._security)
        _assert_secret_is_private(secure, password)
        directory = secure.directory
    assert not directory.exists()
    assert list(tmp_path.iterdir()) == []


def _broker_config(cluster: Cluster, broker: int) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    answer = cluster.admin._client.describe_configs([resource])[resource].result()
    return {name: entry.value for name, entry in answer.items()}


def _assert_secret_is_private(cluster: Cluster, password: str) -> None:
    for path in cluster.directory.rglob("*"):
        if path.is_file() and password.encode() in path.read_bytes():
            assert path.stat().st_mode & 0o077 == 0, f"{path} can be read by others"
            assert path.suffix != ".log", f"{path} is a log and shows the password"
    for process in lease.processes(cluster.lease):
        assert password not in " ".join(process.cmdline())


def test_a_broker_that_dies_while_starting_shows_its_log(toolchain: Toolchain) -> None:
    spec = ClusterSpec(brokers=1, properties={"compression.type": "none-such"})
    before = set(lease.leases(toolchain.root))
    with pytest.raises(TestbedError, match=r"compression\.type"):
        Cluster(spec, toolchain=toolchain).start()
    assert set(lease.leases(toolchain.root)) == before


def test_a_broker_that_dies_later_in_its_start_shows_its_log(toolchain: Toolchain) -> None:
    # Passes the formatting tool, and then the broker itself cannot load it.
    spec = ClusterSpec(brokers=1, properties={"authorizer.class.name": "no.such.Authorizer"})
    with pytest.raises(
        TestbedError, match=r"(?s)broker 1 exited unexpectedly.*no\.such\.Authorizer"
    ):
        Cluster(spec, toolchain=toolchain).start()


def test_a_port_that_is_taken_is_named(toolchain: Toolchain) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        if port > 65_000:
            pytest.skip("the kernel gave a port beyond the range that a spec may name")
        with pytest.raises(BadInput, match=f"port: {port} is in use"):
            Cluster(ClusterSpec(brokers=1, port=port), toolchain=toolchain).start()


def test_more_brokers_than_memory_is_refused(toolchain: Toolchain) -> None:
    heap_mb = min(65_536, psutil.virtual_memory().total // 2**20)
    with pytest.raises(BadInput, match=r"use at most .* brokers"):
        Cluster(ClusterSpec(brokers=16, heap_mb=heap_mb), toolchain=toolchain).start()


def test_a_name_in_use_is_refused(toolchain: Toolchain, cluster: Cluster) -> None:
    with pytest.raises(TestbedError, match="exists already"):
        Cluster(ClusterSpec(brokers=1), toolchain=toolchain, name=cluster.lease.name).start()
    assert cluster.admin.broker_ids() == {1, 2, 3}


def test_kafkas_own_tool_works_with_the_client_properties(
    cluster: Cluster, toolchain: Toolchain, unique: Callable[[str], str]
) -> None:
    topic = unique("tooled")
    cluster.create_topic(TopicSpec(name=topic))
    command = [
        *(str(toolchain.java.path), "-cp", toolchain.classpath),
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", cluster.bootstrap_servers),
        *("--command-config", str(cluster.directory / "client.properties")),
        "--list",
    ]
    done = subprocess.run(
        cluster.command_on("producer-1", command),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert topic in done.stdout.split()


def test_client_quotas_hold_producers_and_consumers_back(toolchain: Toolchain) -> None:
    quotas = ClientQuotas(producer_mb_per_s=1, consumer_mb_per_s=2)
    # One window before the present one instead of ten, so that little is let through at first.
    spec = ClusterSpec(brokers=1, quotas=quotas, properties={"quota.window.num": 2})
    with Cluster(spec, toolchain=toolchain) as cluster:
        cluster.create_topic(TopicSpec(name="limited"))
        began = time.monotonic()
        cluster.admin.send("limited", partitions=1, messages=800, size_bytes=10_000)
        assert 5 < time.monotonic() - began < 25  # 8 MB at 1 MB/s; without a quota, well below 5
        began = time.monotonic()
        reader = Consumer(
            {
                **cluster.client_config,
                "group.id": "limited",
                "fetch.message.max.bytes": 500_000,
            }
        )
        reader.assign([TopicPartition("limited", 0, 0)])
        read = 0
        while read < 800 and time.monotonic() - began < 30:
            read += len(reader.consume(800 - read, timeout=1))
        reader.close()
        assert read == 800
        assert time.monotonic() - began > 2  # 8 MB at 2 MB/s
