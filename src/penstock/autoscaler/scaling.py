"""Connects a pipeline on Spark to its autoscaler, in this process or another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from penstock.autoscaler.agent import Agent
from penstock.autoscaler.channel import HostLink
from penstock.autoscaler.core.actions import AutoscalerEvent, warning
from penstock.autoscaler.loop import beside
from penstock.autoscaler.topics import Topics
from penstock.lake.executors import Executors
from penstock.lake.landing import Landed
from penstock.lake.query import Prepared


@contextmanager
def scaled(
    where: str | None,
    executors: Executors,
    prepared: Prepared,
    tell: Callable[[AutoscalerEvent], None],
) -> Iterator[Callable[[Landed], None]]:
    """`where`: inside, outside or None. Yields the function to call for every micro-batch."""
    if where is None:
        yield lambda _: None
        return
    job, pipeline = prepared.job, prepared.job.pipeline
    topics = Topics(pipeline.name, job.config, most_hosts=1)

    def warn(text: str) -> None:
        tell(warning(text))

    topics.prepare(lambda: job.id, warn)
    cycle_s = pipeline.lane_seconds + pipeline.every_s
    link = HostLink(topics, 0, job.id, warn)
    agent = Agent(job.checkpoint, link, executors, cycle_s, warn)
    agent.start()
    is_inside = where == "inside"
    try:
        with beside(pipeline, job.config, topics, tell) if is_inside else nullcontext():
            yield agent.tell
    finally:
        agent.stop()
