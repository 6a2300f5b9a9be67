"""The autoscaler on a real cluster: what it measures, how its parts talk, and lanes that follow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest
from confluent_kafka import Producer

from integration import lakes
from penstock import specs
from penstock.autoscaler.actions import Decided, Event, Send
from penstock.autoscaler.channel import ControllerLink, HostLink, Superseded, Topics
from penstock.autoscaler.monitor import Monitor
from penstock.autoscaler.write_speed import PERIOD_S
from penstock.domain.autoscaling import Answer, Autoscaling, Command, PartitionSpeed
from penstock.domain.cluster import TopicSpec
from penstock.domain.lake.plan import Plan
from penstock.pipeline.lake import query
from penstock.pipeline.lake.audit import audit
from penstock.pipeline.lake.landing import Landed
from penstock.pipeline.lake.scaling import scaled
from penstock.testbed.cluster import Cluster
from penstock.testbed.machine import free_ports
from penstock.testbed.spark import SparkCluster
from penstock.testbed.waiting import wait_until

pytestmark = pytest.mark.integration
Unique = Callable[[str], str]
# So few that a compacted topic does not keep much.
KEYS = 50


@contextmanager
def written(
    cluster: Cluster, topic: str, rates: dict[int, float], size_bytes: int = 1000
) -> Iterator[dict[int, float]]:
    """Partition → records/s, which may be changed while it runs."""
    ended = threading.Event()

    def send() -> None:
        producer = Producer({**cluster.client_config, "linger.ms": 5})
        due = dict.fromkeys(rates, 0.0)
        numbers = count()
        last_s = time.monotonic()
        while not ended.wait(0.02):
            now_s = time.monotonic()
            for partition, rate in rates.items():
                due[partition] += rate * (now_s - last_s)
                while due[partition] >= 1:
                    key = str(next(numbers) % KEYS)
                    producer.produce(topic, os.urandom(size_bytes), key, partition=partition)
                    due[partition] -= 1
            last_s = now_s
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield rates
    finally:
        ended.set()
        thread.join()


def speeds(monitor: Monitor, seconds: float) -> dict[str, PartitionSpeed]:
    """After looking for so long."""
    found: dict[str, PartitionSpeed] = {}
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if (measured := monitor.look()) is not None:
            found = dict(measured.partitions)
        time.sleep(PERIOD_S)
    return found


RETENTION = {"retention.bytes": 200_000, "segment.bytes": 1_048_576, "file.delete.delay.ms": 0}
COMPACTION = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0.01,
    "segment.ms": 1500,
    "max.compaction.lag.ms": 1500,
}


@pytest.mark.parametrize("config", [RETENTION, COMPACTION], ids=["retention", "compaction"])
def test_the_monitor_finds_the_write_speed_while_the_log_loses_records(
    lake_cluster: Cluster, tmp_path: Path, unique: Unique, config: dict[str, Any]
) -> None:
    topic = unique("speeds")
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=2, replication=1, config=config))
    monitor = Monitor(lakes.pipeline(lake_cluster, tmp_path, topic), lake_cluster.client_config)
    with written(lake_cluster, topic, {0: 400.0, 1: 50.0}) as rates:
        found = speeds(monitor, 4)
        assert found[f"{topic}-0"].records_per_s == pytest.approx(400, rel=0.1)
        assert found[f"{topic}-1"].records_per_s == pytest.approx(50, rel=0.2)
        stored = found[f"{topic}-0"].bytes_per_record
        assert stored is not None and 950 < stored < 1100  # some pieces are torn a little
        rates |= {0: 100.0, 1: 800.0}
        found = speeds(monitor, 5)
        assert found[f"{topic}-0"].records_per_s == pytest.approx(100, rel=0.15)
        assert found[f"{topic}-1"].records_per_s == pytest.approx(800, rel=0.15)
        stored = found[f"{topic}-1"].bytes_per_record
        assert stored is not None and 950 < stored < 1100
    monitor.close()
    held = lakes.in_topic(lake_cluster, topic, 2).total()
    assert held < sum(speed.end for speed in found.values()), "nothing was deleted meanwhile"


def test_commands_and_answers_arrive_and_an_older_controller_is_fenced(
    lake_cluster: Cluster, unique: Unique
) -> None:
    topics = Topics(unique("talk"), lake_cluster.client_config, most_hosts=2)
    topics.make()
    topics.make()  # they are there already
    first = ControllerLink(topics)
    assert first.past() == ({}, {})
    hold = Command(version=3, lanes={1: ("a-0", "a-1")})
    first.send([Send(1, hold), Send(1, Command(verb="tell", version=3))])
    host = HostLink(topics, 1)
    assert host.past() == hold
    host.answer(Answer(host=1, version=3, lanes=hold.lanes))
    (answer,) = first.answers(10.0)
    assert (answer.host, answer.version, answer.lanes) == (1, 3, {1: ("a-0", "a-1")})
    second = ControllerLink(topics)
    assert second.past() == ({1: hold}, {1: answer})
    with pytest.raises(Superseded, match="another controller"):
        first.send([Send(1, Command(version=4))])
    second.send([Send(1, Command(version=5))])
    command = host.command(10.0)
    assert command is not None and command.version == 5
    for link in (first, second, host):
        link.close()


def test_what_it_would_do_it_says_without_a_pipeline_and_commands_nobody(
    lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    topic, name = unique("dry"), unique("dry").replace("-", "_")
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=4, replication=1))
    settings = Autoscaling(lane_bytes_per_s=100_000)
    wanted = lakes.pipeline(lake_cluster, tmp_path, topic, name=name, autoscaling=settings)
    file = tmp_path / "pipeline.yaml"
    file.write_text(specs.dump_yaml(wanted))
    command = [sys.executable, "-m", "penstock.cli.main", "autoscaler", "run", str(file)]
    lines: list[dict[str, Any]] = []

    def is_decided() -> bool:
        assert process.stdout is not None
        lines.append(json.loads(process.stdout.readline()))
        return lines[-1]["event"] == "decision" and lines[-1]["lanes"] >= 2

    with written(lake_cluster, topic, dict.fromkeys(range(4), 30.0)):
        process = subprocess.Popen(
            [*command, "--dry-run", "--json"], stdout=subprocess.PIPE, text=True
        )
        try:
            wait_until(is_decided, timeout_s=30, what="more than a lane for 120 kB/s")
        finally:
            process.terminate()
            out, _ = process.communicate(timeout=30)
    assert set(lines[-1]["plan"]) == {f"{topic}-{n}" for n in range(4)}
    assert f"{lines[-1]['lanes']} lanes" in lines[-1]["text"]
    assert json.loads(out.splitlines()[-1])["outcome"] == "Stopped. The plan holds without it."
    assert process.returncode == 0
    topics = Topics(name, lake_cluster.client_config, most_hosts=1)
    assert ControllerLink(topics, is_dry=True).past() == ({}, {})


@pytest.mark.slow
def test_lanes_follow_the_load_and_every_record_is_landed_once(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    name = unique("scaled").replace("-", "_")
    topic = unique("scaled")
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=4, replication=1))
    wanted = lakes.pipeline(
        lake_cluster,
        tmp_path,
        topic,
        name=name,
        lane_bytes_per_s=150_000.0,
        lane_bytes=75_000,
        every_s=0.0,
        autoscaling=Autoscaling(lane_bytes_per_s=150_000, scale_in_s=4, drain_s=10),
    )
    told: list[str] = []
    lanes: list[int] = []

    def tell(landed: Landed) -> None:
        lanes.append(len(landed.report.lanes))
        tell_autoscaler(landed)

    def note(event: Event) -> None:
        told.extend([event.reason] if isinstance(event, Decided) else [])

    with written(lake_cluster, topic, dict.fromkeys(range(4), 15.0)) as rates:
        prepared = query.prepare(wanted, lakes.config(wanted))
        with scaled("inside", spark, prepared, note) as tell_autoscaler:
            running = query.start(spark, prepared, tell=tell)
            try:
                memory = prepared.job.memory

                def planned() -> int:
                    plan: Plan | None = memory.plan()
                    return sum(1 for lane in plan.lanes if lane) if plan else 0

                wait_until(lambda: planned() == 1, timeout_s=30, what="one lane is enough")
                rates |= dict.fromkeys(range(4), 45.0)
                wait_until(lambda: planned() == 2, timeout_s=30, what="two lanes are needed")
                rates |= dict.fromkeys(range(4), 10.0)
                wait_until(lambda: planned() == 1, timeout_s=60, what="one lane is enough again")
            finally:
                running.stop()
    assert any("has" in text and "can do" in text for text in told), told
    assert any("fewer lanes do" in text for text in told), told
    lakes.land(spark, replace(wanted, lane_bytes_per_s=None, lane_bytes=10**7))
    assert lakes.in_tables(wanted) == lakes.in_topic(lake_cluster, topic, 4)
    assert audit(spark, wanted).problems == ()


@pytest.mark.slow
def test_plain_consumers_follow_the_load_and_survive_kills_of_one_and_of_the_controller(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    topic = unique("plain")
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=4, replication=1))
    wanted = lakes.pipeline(
        lake_cluster,
        tmp_path / "lake",
        topic,
        name=unique("plain").replace("-", "_"),
        lane_bytes_per_s=150_000.0,
        lane_bytes=75_000,
        autoscaling=Autoscaling(
            lane_bytes_per_s=150_000, most_lanes=4, scale_in_s=4, drain_s=10, answer_s=5
        ),
    )
    file = tmp_path / "pipeline.yaml"
    file.write_text(specs.dump_yaml(wanted))
    command = [sys.executable, "-m", "penstock.cli.main", "autoscaler", "run", str(file)]
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen([*command, "--consumers"], stderr=log)

    def consumers() -> list[psutil.Process]:
        """Whoever started them."""
        every = psutil.process_iter(["cmdline", "status"])
        return [
            one
            for one in every
            if {"consumer", str(file)} <= set(one.info["cmdline"] or ())
            and one.info["status"] != psutil.STATUS_ZOMBIE
        ]

    def landed() -> int:
        return lakes.in_tables(wanted).total() if (tmp_path / "lake/events").exists() else 0

    try:
        with written(lake_cluster, topic, dict.fromkeys(range(4), 15.0)) as rates:
            wait_until(lambda: landed() > 0, timeout_s=30, what="something is landed")
            rates |= dict.fromkeys(range(4), 60.0)
            wait_until(lambda: len(consumers()) >= 2, timeout_s=40, what="more consumers")
            before = landed()
            consumers()[-1].kill()
            wait_until(lambda: landed() > before + 400, timeout_s=60, what="it goes on")
            process.kill()
            process.wait()
            before = landed()
            wait_until(lambda: landed() > before + 400, timeout_s=30, what="they go on alone")
            process = subprocess.Popen([*command, "--consumers"], stderr=log)
            rates |= dict.fromkeys(range(4), 5.0)
            wait_until(lambda: len(consumers()) == 1, timeout_s=60, what="one is enough again")
        held = lakes.in_topic(lake_cluster, topic, 4)
        wait_until(lambda: landed() == held.total(), timeout_s=60, what="all is landed")
    finally:
        process.terminate()
        process.wait(60)
        wait_until(lambda: not consumers(), timeout_s=30, what="all have ended")
        log.close()
    assert lakes.in_tables(wanted) == held, (tmp_path / "log").read_text()
    assert audit(spark, wanted).problems == ()


@pytest.mark.slow
def test_on_a_standalone_cluster_executors_follow_the_lanes(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    topic = unique("executors")
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=4, replication=1))
    wanted = lakes.pipeline(
        lake_cluster,
        tmp_path / "lake",
        topic,
        name=unique("executors").replace("-", "_"),
        lanes=1,
        lane_bytes_per_s=150_000.0,
        lane_bytes=75_000,
        every_s=0.0,
        autoscaling=Autoscaling(lane_bytes_per_s=150_000, scale_in_s=4, drain_s=10, most_lanes=3),
    )
    file = tmp_path / "pipeline.yaml"
    file.write_text(specs.dump_yaml(wanted))
    (port,) = free_ports(1)

    def metrics() -> str:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
        return ""

    def follows(lanes: str) -> Callable[[], bool]:
        """Whether lanes are as many, and executors too."""

        def is_so() -> bool:
            found = re.search(r"^penstock_autoscaler_lanes{.*} (\S+)$", metrics(), re.MULTILINE)
            lines = (" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"]))
            executors = sum("CoarseGrainedExecutorBackend" in line for line in lines)
            now = float(found[1]) if found else 0.0
            return now == executors and (now > 1 if lanes == "several" else now == 1)

        return is_so

    with SparkCluster(workers=1, cores=3, memory_mb=3072) as standalone:
        command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(file)]
        command += ["--autoscale", "inside", "--master", standalone.master]
        command += ["--conf", "spark.executor.memory=512m", "--metrics-port", str(port)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            with written(lake_cluster, topic, dict.fromkeys(range(4), 10.0)) as rates:
                wait_until(follows("one"), timeout_s=90, what="one executor", every_s=0.3)
                rates |= dict.fromkeys(range(4), 80.0)
                wait_until(follows("several"), timeout_s=60, what="more executors", every_s=0.3)
                rates |= dict.fromkeys(range(4), 10.0)
                wait_until(follows("one"), timeout_s=60, what="one executor again", every_s=0.3)
            text = metrics()
        finally:
            process.terminate()
            _, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert "fewer lanes do" in told
    for name in ("write_bytes_per_second", "lane_load", "plan_lane", "moves_total", "lag_bytes"):
        assert f"penstock_autoscaler_{name}" in text
    assert 'decisions_total{pipeline="' in text and 'trigger="capacity exceeded"' in text
    lakes.land(spark, replace(wanted, lane_bytes_per_s=None, lane_bytes=10**7))
    assert lakes.in_tables(wanted) == lakes.in_topic(lake_cluster, topic, 4)
    assert audit(spark, wanted).problems == ()
