"""Cache of a Python worker from one task to the next: consumers and routers. One per process."""

from __future__ import annotations

import gc
import time
from functools import cache
from typing import TYPE_CHECKING

from penstock.domain.lake.order import LaneTask
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import LaneReport
from penstock.lake import lane
from penstock.lake.consumer import LaneConsumer
from penstock.lake.routing import Router

if TYPE_CHECKING:
    from penstock.lake.source import LaneJob

# A consumer that was not used for this time: its lane runs elsewhere, or has ended.
_FORGOTTEN_S = 60.0


# Each with the time of its last use.
_consumers: dict[tuple[str, int], tuple[LaneConsumer, float]] = {}
_routers: dict[str, tuple[Pipeline, Router]] = {}


def execute(task: LaneTask, job: LaneJob) -> LaneReport:
    """Run one lane's part of a micro-batch."""
    key = (job.id, task.lane)
    router = _router_of(job)
    consumer, _ = _consumers.pop(key, (None, 0.0))
    if consumer is None:
        consumer = LaneConsumer(job.config, job.pipeline.lane_bytes, len(task.ranges))
    try:
        report = lane.work(task, job.pipeline, consumer, router)
    except BaseException:
        # Its position is not known any more; the next task makes a new one.
        consumer.close()
        raise
    _consumers[key] = consumer, time.monotonic()
    _forget()
    _leave_collecting_to_spark()
    return report


def _router_of(job: LaneJob) -> Router:
    if (known := _routers.get(job.id)) is not None:
        pipeline, router = known
        if pipeline == job.pipeline:
            return router
        router.close()
    made = Router(job.pipeline)
    _routers[job.id] = job.pipeline, made
    return made


@cache
def _leave_collecting_to_spark() -> None:
    """Spark's worker collects garbage after every task, which is often enough: Python itself would
    visit the thousands of messages that a lane holds again and again. Imported modules are
    frozen."""
    gc.collect()
    gc.freeze()
    gc.disable()


def _forget() -> None:
    now = time.monotonic()
    for key in [k for k, (_, used_s) in _consumers.items() if now - used_s > _FORGOTTEN_S]:
        _consumers.pop(key)[0].close()
