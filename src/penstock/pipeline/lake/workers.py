"""What a Python worker keeps from one task to the next: consumers, decoders. One per process."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from penstock.domain.lake.order import LaneTask
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import LaneReport
from penstock.pipeline.lake import lane
from penstock.pipeline.lake.consumer import LaneConsumer
from penstock.pipeline.lake.sorting import Sorter

if TYPE_CHECKING:
    from penstock.pipeline.lake.source import LaneJob

# A consumer that no task asked for since: its lane runs elsewhere, or is no more.
_FORGOTTEN_S = 60.0


@dataclass
class _Kept:
    consumer: LaneConsumer
    used_s: float


_consumers: dict[tuple[str, int], _Kept] = {}
_sorters: dict[str, tuple[Pipeline, Sorter]] = {}


def carry_out(task: LaneTask, job: LaneJob) -> LaneReport:
    """One lane's part of a micro-batch."""
    key = (job.id, task.lane)
    if job.id not in _sorters or _sorters[job.id][0] != job.pipeline:
        _sorters[job.id] = job.pipeline, Sorter(job.pipeline)
    kept = _consumers.pop(key, None)
    if kept is None:
        made = LaneConsumer(job.config, job.pipeline.lane_bytes, len(task.ranges))
        kept = _Kept(made, time.monotonic())
    try:
        report = lane.work(task, job.pipeline, kept.consumer, _sorters[job.id][1])
    except BaseException:
        # Where it stands is not known any more; the next task makes a new one.
        kept.consumer.close()
        raise
    kept.used_s = time.monotonic()
    _consumers[key] = kept
    _forget()
    _leave_collecting_to_spark()
    return report


@cache
def _leave_collecting_to_spark() -> None:
    """Its worker looks for garbage after every task, which is often enough: among the thousands of
    messages that a lane holds, Python would look again and again. What was imported is left out."""
    gc.collect()
    gc.freeze()
    gc.disable()


def _forget() -> None:
    now = time.monotonic()
    for key in [k for k, kept in _consumers.items() if now - kept.used_s > _FORGOTTEN_S]:
        _consumers.pop(key).consumer.close()
