"""The autoscaler on a real cluster: what it measures, how its parts talk, and lanes that follow."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import lakes
import psutil
import pytest

from penstock import specs
from penstock.autoscaler.channel import ControllerLink, HostLink, Past, Superseded
from penstock.autoscaler.core.actions import AutoscalerEvent, LanesDecided, Send
from penstock.autoscaler.core.claim import Claimant, last_claim
from penstock.autoscaler.core.write_speed import PERIOD_S
from penstock.autoscaler.group import Group
from penstock.autoscaler.monitor import Monitor
from penstock.autoscaler.scaling import scaled
from penstock.autoscaler.topics import ANSWERS, Topics
from penstock.domain.autoscaling import Autoscaling, Command, HostAnswer, PartitionSpeed
from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.plan import Plan
from penstock.kafka.waiting import wait_until
from penstock.lake import query
from penstock.lake.audit import audit
from penstock.lake.checkpoint import Checkpoint
from penstock.lake.executors import Executors
from penstock.lake.landing import Landed
from penstock.load.paced_producer import PacedProducer
from penstock.testbed.cluster import Cluster
from penstock.testbed.machine import free_ports
from penstock.testbed.spark import SparkCluster

pytestmark = pytest.mark.integration
Unique = Callable[[str], str]
# So few that a compacted topic does not keep much.
KEYS = 50


@contextmanager
def written(
    cluster: Cluster, topic: str, rates: dict[int, float], size_bytes: int = 1000
) -> Iterator[dict[int, float]]:
    """Partition → records/s, which may be changed while it runs."""
    producer = PacedProducer(cluster.client_config, topic, size_bytes, KEYS)
    with producer.sending(rates):
        yield rates


def autoscaler(tmp_path: Path, pipeline: Pipeline) -> list[str]:
    """The command that runs it."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(specs.dump_yaml(pipeline))
    return [sys.executable, "-m", "penstock.cli.main", "autoscaler", "run", str(file)]


def speeds(monitor: Monitor, seconds: float) -> dict[str, PartitionSpeed]:
    """After looking for so long."""
    by_partition: dict[str, PartitionSpeed] = {}
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if (measured := monitor.look()) is not None:
            by_partition = dict(measured.partitions)
        time.sleep(PERIOD_S)
    return by_partition


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
        by_partition = speeds(monitor, 4)
        assert by_partition[f"{topic}-0"].records_per_s == pytest.approx(400, rel=0.1)
        assert by_partition[f"{topic}-1"].records_per_s == pytest.approx(50, rel=0.2)
        stored = by_partition[f"{topic}-0"].bytes_per_record
        # A record alone in its batch takes 80 bytes more, and pieces that retention tears while they
        # are measured are off by some.
        assert stored is not None and 900 < stored < 1300
        rates |= {0: 100.0, 1: 800.0}
        # On a busy machine the rates of before stay in the window for longer.
        for _ in range(5):
            by_partition = speeds(monitor, 5)
            found = [by_partition[f"{topic}-{number}"].records_per_s for number in (0, 1)]
            if found == pytest.approx([100, 800], rel=0.15):
                break
        assert found == pytest.approx([100, 800], rel=0.15)
        stored = by_partition[f"{topic}-1"].bytes_per_record
        assert stored is not None and 900 < stored < 1300
    monitor.close()
    held = lakes.in_topic(lake_cluster, topic, 2).total()
    assert held < sum(speed.end for speed in by_partition.values()), "nothing was deleted meanwhile"


def test_commands_and_answers_arrive_and_an_older_controller_is_fenced(
    lake_cluster: Cluster, unique: Unique
) -> None:
    topics = Topics(unique("talk"), lake_cluster.client_config, most_hosts=2)
    topics.prepare(lambda: None)
    topics.prepare(lambda: "own")  # they are there already
    claimant = Claimant("one")
    first = ControllerLink(topics, "own", claimant)
    assert first.begin() == Past()
    hold = Command(version=3, lanes={1: ("a-0", "a-1")})
    first.send([Send(1, hold), Send(1, Command(verb="tell", version=3))])
    host = HostLink(topics, 1, "own")
    last_command = host.past()
    assert last_command == replace(hold, group="own", term=1)
    host.answer(HostAnswer(host=1, version=3, lanes=hold.lanes))
    (answer,) = first.answers(10.0)
    assert (answer.host, answer.version, answer.lanes) == (1, 3, {1: ("a-0", "a-1")})
    second = ControllerLink(topics, "own", Claimant("two"))
    assert second.begin() == Past({1: last_command}, {1: answer})
    with pytest.raises(Superseded, match="another controller"):
        first.send([Send(1, Command(version=4))])
    # The same process as the first, after it could not reach Kafka: it does not fence the second.
    with pytest.raises(Superseded, match="another controller"):
        ControllerLink(topics, "own", claimant).begin()
    second.send([Send(1, Command(version=5))])
    command = host.command(10.0)
    assert command is not None and (command.version, command.term) == (5, 2)
    second.assure(0.0)
    for link in (first, second, host):
        link.close()


def test_of_two_groups_with_one_name_and_different_lakes_the_second_is_refused(
    lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    topic, name = unique("twice"), unique("twice").replace("-", "_")
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=1, replication=1))
    first, second = (
        lakes.pipeline(lake_cluster, tmp_path / lake, topic, name=name) for lake in ("a", "b")
    )
    topics = Topics(name, lake_cluster.client_config, most_hosts=2)
    group = Group(first, is_plain=True)
    topics.prepare(group.id)
    link = ControllerLink(topics, group.make_id(), Claimant("one"))
    link.begin()
    done = subprocess.run(
        [*autoscaler(tmp_path, second), "--consumers"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == BadInput.exit_code
    assert f"penstock.{name}.group: another pipeline of the name {name}" in done.stderr
    assert "another `name`" in done.stderr
    assert not (tmp_path / "b").exists()
    # As a host, it is refused too; and the first is still the controller.
    with pytest.raises(BadInput, match="another pipeline"):
        HostLink(topics, 0, "another").past()
    link.assure(0.0)
    link.close()


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_group_topic_that_would_lose_commands_is_refused(
    lake_cluster: Cluster, unique: Unique, policy: str
) -> None:
    name = unique("lossy")
    config = {"cleanup.policy": policy}
    group = f"penstock.{name}.group"
    lake_cluster.create_topic(TopicSpec(name=group, partitions=2, replication=1, config=config))
    with pytest.raises(BadInput, match=f"its cleanup.policy is {policy}") as refused:
        Topics(name, lake_cluster.client_config, most_hosts=1).prepare(lambda: "own")
    assert "kafka-configs.sh" in refused.value.fix


def test_a_paused_controller_ends_after_a_successor_took_over(
    lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    topic, name = unique("stopped"), unique("stopped").replace("-", "_")
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=1, replication=1))
    pipeline = lakes.pipeline(lake_cluster, tmp_path / "lake", topic, name=name)
    Checkpoint(Path(pipeline.checkpoint_path)).open(pipeline)  # as if the pipeline had run
    topics = Topics(name, lake_cluster.client_config, most_hosts=1)
    topics.make()

    def claimed(term: int) -> Callable[[], bool]:
        def is_so() -> bool:
            claim = last_claim(topics.latest(ANSWERS))
            return claim is not None and claim.term == term

        return is_so

    command = autoscaler(tmp_path, pipeline)
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    second: subprocess.Popen[str] | None = None
    try:
        wait_until(claimed(1), timeout_s=30, what="the first is the controller", every_s=0.3)
        first.send_signal(signal.SIGSTOP)
        second = subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True)
        wait_until(claimed(2), timeout_s=30, what="the second is the controller", every_s=0.3)
        first.send_signal(signal.SIGCONT)
        _, stderr = first.communicate(timeout=30)
        assert first.returncode == 1
        assert f"another controller of {name} has taken over" in stderr
        assert claimed(2)() and second.poll() is None
    finally:
        for process in (first, second):
            if process is not None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()


def test_what_it_would_do_it_says_without_a_pipeline_and_commands_nobody(
    lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    topic, name = unique("dry"), unique("dry").replace("-", "_")
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=4, replication=1))
    settings = Autoscaling(lane_capacity_bytes_per_s=100_000)
    pipeline = lakes.pipeline(lake_cluster, tmp_path, topic, name=name, autoscaling=settings)
    command = autoscaler(tmp_path, pipeline)
    lines: list[dict[str, Any]] = []

    def is_decided() -> bool:
        assert process.stdout is not None
        lines.append(json.loads(process.stdout.readline()))
        return bool(lines[-1]["event"] == "decision" and lines[-1]["lanes"] >= 2)

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
    assert json.loads(out.splitlines()[-1])["outcome"] == "Stopped. Nothing was changed."
    assert process.returncode == 0
    topics = Topics(name, lake_cluster.client_config, most_hosts=1)
    assert topics.latest(ANSWERS) == [] and topics.latest(1) == []
    assert not (tmp_path / "_pipelines").exists()


def test_lanes_follow_the_load_and_every_record_is_landed_once(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    name = unique("scaled").replace("-", "_")
    topic = unique("scaled")
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=4, replication=1))
    pipeline = lakes.pipeline(
        lake_cluster,
        tmp_path,
        topic,
        name=name,
        lane_limit_bytes_per_s=150_000.0,
        lane_bytes=75_000,
        every_s=0.0,
        autoscaling=Autoscaling(lane_capacity_bytes_per_s=150_000, scale_in_s=4, drain_s=10),
    )
    reasons: list[str] = []
    lanes: list[int] = []

    def tell(landed: Landed) -> None:
        lanes.append(len(landed.report.lanes))
        tell_autoscaler(landed)

    def note(event: AutoscalerEvent) -> None:
        reasons.extend([event.reason] if isinstance(event, LanesDecided) else [])

    with written(lake_cluster, topic, dict.fromkeys(range(4), 15.0)) as rates:
        prepared = query.prepare(pipeline, lakes.config(pipeline))
        with scaled("inside", Executors(spark), prepared, note) as tell_autoscaler:
            running = query.start(spark, prepared, tell=tell)
            try:
                checkpoint = prepared.job.checkpoint

                def planned() -> int:
                    plan: Plan | None = checkpoint.plan()
                    return sum(1 for lane in plan.lanes if lane) if plan else 0

                wait_until(lambda: planned() == 1, timeout_s=30, what="one lane is enough")
                rates |= dict.fromkeys(range(4), 45.0)
                wait_until(lambda: planned() == 2, timeout_s=30, what="two lanes are needed")
                rates |= dict.fromkeys(range(4), 10.0)
                wait_until(lambda: planned() == 1, timeout_s=60, what="one lane is enough again")
            finally:
                running.stop()
    assert any("has" in text and "can read" in text for text in reasons), reasons
    assert any("fewer lanes are enough" in text for text in reasons), reasons
    lakes.land(spark, replace(pipeline, lane_limit_bytes_per_s=None, lane_bytes=10**7))
    assert lakes.in_tables(pipeline) == lakes.in_topic(lake_cluster, topic, 4)
    assert audit(spark, pipeline).problems == ()


def test_plain_consumers_follow_the_load_and_survive_kills_of_one_and_of_the_controller(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    topic = unique("plain")
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=4, replication=1))
    pipeline = lakes.pipeline(
        lake_cluster,
        tmp_path / "lake",
        topic,
        name=unique("plain").replace("-", "_"),
        lane_limit_bytes_per_s=150_000.0,
        lane_bytes=75_000,
        autoscaling=Autoscaling(
            lane_capacity_bytes_per_s=150_000, most_lanes=4, scale_in_s=4, drain_s=10, answer_s=5
        ),
    )
    file = tmp_path / "pipeline.yaml"
    file.write_text(specs.dump_yaml(pipeline))
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
        return lakes.rows(pipeline)

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
            wait_until(
                lambda: len(consumers()) == 1,
                timeout_s=60,
                what="one is enough again",
                explain=lambda: f"{consumers()}\n{(tmp_path / 'log').read_text()}",
            )
        held = lakes.in_topic(lake_cluster, topic, 4)
        wait_until(lambda: landed() == held.total(), timeout_s=60, what="all is landed")
    finally:
        process.terminate()
        process.wait(60)
        wait_until(lambda: not consumers(), timeout_s=30, what="all have ended")
        log.close()
    assert lakes.in_tables(pipeline) == held, (tmp_path / "log").read_text()
    assert audit(spark, pipeline).problems == ()


def test_on_a_standalone_cluster_executors_follow_the_lanes(
    spark: Any, lake_cluster: Cluster, tmp_path: Path, unique: Unique
) -> None:
    topic = unique("executors")
    lake_cluster.create_topic(TopicSpec(name=topic, partitions=4, replication=1))
    pipeline = lakes.pipeline(
        lake_cluster,
        tmp_path / "lake",
        topic,
        name=unique("executors").replace("-", "_"),
        lanes=1,
        lane_limit_bytes_per_s=150_000.0,
        lane_bytes=75_000,
        every_s=0.0,
        autoscaling=Autoscaling(
            lane_capacity_bytes_per_s=150_000, scale_in_s=4, drain_s=10, most_lanes=3
        ),
    )
    file = tmp_path / "pipeline.yaml"
    file.write_text(specs.dump_yaml(pipeline))
    (port,) = free_ports(1)

    def metrics() -> str:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
        return ""

    def follows(lanes: str) -> Callable[[], bool]:
        """Whether lanes are as many, and executors too."""

        def is_so() -> bool:
            gauge = re.search(r"^penstock_autoscaler_lanes{.*} (\S+)$", metrics(), re.MULTILINE)
            lines = (" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"]))
            executors = sum("CoarseGrainedExecutorBackend" in line for line in lines)
            now = float(gauge[1]) if gauge else 0.0
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
            _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert "fewer lanes are enough" in stderr
    for name in ("write_bytes_per_second", "lane_load", "plan_lane", "moves_total", "lag_bytes"):
        assert f"penstock_autoscaler_{name}" in text
    assert 'decisions_total{pipeline="' in text and 'trigger="capacity exceeded"' in text
    lakes.land(spark, replace(pipeline, lane_limit_bytes_per_s=None, lane_bytes=10**7))
    assert lakes.in_tables(pipeline) == lakes.in_topic(lake_cluster, topic, 4)
    assert audit(spark, pipeline).problems == ()
