"""The bench of the autoscaler: how long it takes until a consumer or an executor is there."""

from __future__ import annotations

import time
from pathlib import Path

from autoscaler_plays import Say
from penstock import specs
from penstock.analysis.session import session
from penstock.autoscaler.channel import ControllerLink
from penstock.autoscaler.core.actions import (
    AutoscalerEvent,
    HostStarted,
)
from penstock.autoscaler.core.claim import Claimant
from penstock.autoscaler.group import Group
from penstock.autoscaler.host_managers import ProcessHosts
from penstock.autoscaler.topics import Topics
from penstock.domain.cluster import TopicSpec
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.kafka.waiting import wait_until
from penstock.lake import query
from penstock.lake.executors import ONE_LANE_EACH, Executors
from penstock.testbed.cluster import Cluster
from penstock.testbed.spark import SparkCluster


def consumer_starts(cluster: Cluster, scratch: Path, times: int, say: Say) -> list[float]:
    """From the start of a plain consumer's process until it is heard of."""
    topic = "starts"
    cluster.create_topic(TopicSpec(name=topic, partitions=1, replication=1))
    pipeline = Pipeline(
        name="starts",
        bootstrap_servers=cluster.bootstrap_servers,
        streams=(Stream(topics=(topic,), table="events"),),
        lake=str(scratch / "starts"),
    )
    file = scratch / "starts.yaml"
    file.write_text(specs.dump_yaml(pipeline))
    topics = Topics(
        pipeline.name, cluster.client_config, most_hosts=pipeline.autoscaling.most_lanes
    )
    topics.make()
    group = Group(pipeline, is_plain=True).make_id()
    link = ControllerLink(topics, group, Claimant("bench"), is_dry=True)
    link.begin()
    took_s: list[float] = []

    def tell(event: AutoscalerEvent) -> None:
        took_s.extend([event.took_s] if isinstance(event, HostStarted) else [])

    manager = ProcessHosts(file, tell)
    try:
        for n in range(times):
            say(f"starting a consumer, {n + 1} of {times}")
            manager.start([0])
            while len(took_s) == n:
                for answer in link.answers(0.1):
                    manager.heard(answer)
            manager.retire(())
            for _ in link.answers(1.0):  # what it said last
                pass
    finally:
        manager.close()
        link.close()
    return took_s


def executor_starts(times: int, say: Say) -> list[float]:
    """From the request of one more executor of a standalone cluster until it can be used."""
    took_s = []
    config = {**query.SPARK_CONFIG, **ONE_LANE_EACH, "spark.executor.memory": "512m"}
    with SparkCluster(workers=1, cores=2, memory_mb=2048) as standalone:
        say("starting Spark on a standalone cluster")
        spark = session(standalone.master, app="bench", config=config)
        executors = Executors(spark)
        wait_until(lambda: executors.lanes == 2, timeout_s=60, what="both executors")
        for n in range(times):
            say(f"starting an executor, {n + 1} of {times}")
            executors.give_back(1)
            wait_until(lambda: executors.lanes == 1, timeout_s=60, what="one executor to go")
            began_s = time.monotonic()
            executors.ask_for(2)
            wait_until(lambda: executors.lanes == 2, timeout_s=60, what="an executor to come")
            took_s.append(time.monotonic() - began_s)
        spark.stop()
    return took_s
