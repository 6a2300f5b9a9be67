"""A pipeline with an autoscaler: one that decides in this process, or commands from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from penstock.autoscaler.actions import Event, Tell
from penstock.autoscaler.channel import HostLink, Topics
from penstock.autoscaler.run import Pilot
from penstock.pipeline.lake.agent import Agent
from penstock.pipeline.lake.executors import Executors
from penstock.pipeline.lake.landing import Landed
from penstock.pipeline.lake.query import Prepared


@contextmanager
def scaled(
    where: str | None, spark: SparkSession, prepared: Prepared, tell: Callable[[Event], None]
) -> Iterator[Callable[[Landed], None]]:
    """`where`: inside, outside, or none at all. Gives whom to tell of every micro-batch."""
    if where is None:
        yield lambda _: None
        return
    job = prepared.job
    topics = Topics(job.pipeline.name, job.config, most_hosts=1)

    def warn(text: str) -> None:
        tell(Tell(text, is_warning=True))

    topics.make(warn)
    wanted = job.pipeline
    cycle_s = wanted.lane_seconds + wanted.every_s
    agent = Agent(job.memory, HostLink(topics, 0), Executors(spark), cycle_s, warn)
    agent.start()
    pilot = Pilot(job.pipeline, job.config, topics, tell) if where == "inside" else None
    if pilot is not None:
        pilot.start()
    try:
        yield agent.tell
    finally:
        if pilot is not None:
            pilot.stop()
        agent.stop()
