"""Public API: land topics in the lake."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prometheus_client import CollectorRegistry

from penstock.api.arguments import as_path
from penstock.autoscaler.core.actions import AutoscalerEvent
from penstock.autoscaler.metrics import Metrics as AutoscalerMetrics
from penstock.autoscaler.scaling import scaled
from penstock.domain.errors import TooManyRejects, unknown_choice
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.progress import Progress, silent
from penstock.domain.value import FieldError, fitting
from penstock.lake import pipeline_file, secrets
from penstock.lake.checkpoint import Blocker
from penstock.lake.landing import Landed
from penstock.lake.metrics import Metrics
from penstock.lake.ownership import owned
from penstock.lake.rejects import RejectAlarm, RejectWatch, top
from penstock.lake.status import PipelineStatus, Watch

if TYPE_CHECKING:
    from penstock.lake.query import Prepared, Running

_LOOK_S = 1.0

# A file or a value.
AnyPipeline = str | Path | Pipeline


@dataclass(frozen=True)
class Listener:
    """Callbacks while a pipeline runs."""

    progress: Progress = silent
    warning: Progress = silent
    status: Callable[[PipelineStatus], None] = lambda _: None
    event: Callable[[AutoscalerEvent], None] = lambda _: None
    """Events of the autoscaler."""


@dataclass(frozen=True)
class Summary:
    """The result of a pipeline that has ended."""

    pipeline: Pipeline
    status: PipelineStatus
    alarm: RejectAlarm | None = None
    """Why it stopped by itself: more records were rejected than `rejects_stop_share` allows."""

    @property
    def outcome(self) -> str:
        now = self.status
        sentences = [
            f"{now.rows:,} rows landed in {now.batches:,} micro-batches, lag {now.lag:,}.",
            f"{now.lost:,} offsets were deleted before they were read." if now.lost else "",
            f"{now.rejected:,} records were rejected ({top(now.rejects)}): "
            f"see {self.pipeline.rejects_table}."
            if now.rejected
            else "",
        ]
        return " ".join(filter(None, sentences))

    def to_data(self) -> dict[str, Any]:
        stopped_by = self.alarm.message if self.alarm else None
        return {
            "outcome": self.outcome,
            "stopped_by": stopped_by,
            "lake": self.pipeline.lake,
            **asdict(self.status),
        }

    def check(self) -> None:
        """Raise if it stopped because of too many rejects."""
        if self.alarm is not None:
            raise TooManyRejects(
                self.alarm.message,
                f"{self.alarm.fix}, then start the pipeline again: it continues from here",
            )


def land(
    pipeline: AnyPipeline,
    *,
    once: bool = False,
    autoscale: Literal["inside", "outside"] | None = None,
    master: str = "local[*]",
    spark_config: Mapping[str, str] | None = None,
    ended: threading.Event | None = None,
    registry: CollectorRegistry | None = None,
    listener: Listener | None = None,
) -> Summary:
    """Land the topics of a pipeline until `ended` is set, or, with `once`, until all records that
    the topics hold now are landed. Ctrl-C and SIGTERM let the micro-batch finish.

    `autoscale`: the number of lanes follows the load; `inside` decides in this process, `outside`
    takes plans from `autoscale`. Prometheus metrics go to `registry`.
    """
    # Imported here since they take a second, which other functions need not wait for.
    from penstock.analysis.session import scoped
    from penstock.lake import query
    from penstock.lake.executors import ONE_LANE_EACH, Executors

    spark_config = fitting("spark_config", spark_config or {}, Mapping[str, Any])
    secrets.check_spark_config(spark_config)
    listener = fitting("listener", listener, Listener | None) or Listener()
    ended = ended or threading.Event()
    checked = load(pipeline)
    if autoscale not in (None, "inside", "outside"):
        raise FieldError("autoscale", autoscale, unknown_choice(autoscale, ["inside", "outside"]))
    if autoscale is not None:
        checked.autoscaling.policy.decider(
            checked.autoscaling
        )  # a mistake in it is reported before anything starts
    config, warnings = pipeline_file.client_config(checked)
    for warning in warnings:
        listener.warning(f"{checked.client_properties}: {warning}")
    registry = registry or CollectorRegistry()
    metrics = Metrics(checked.name, registry)
    watch = Watch(checked.rejects_table, time.monotonic())
    alarms = _Alarms(checked, listener.warning)

    def on_landed(landed: Landed) -> None:
        watch.add(landed, time.monotonic())
        metrics.add(landed)
        alarms.add(landed, prepared)
        tell_autoscaler(landed)

    with owned(checked), ExitStack() as stack:
        prepared = query.prepare(checked, config)
        query.check_topics(prepared)
        listener.progress("starting Spark")
        spark = stack.enter_context(
            scoped(
                query.with_retries(master),
                app=f"penstock-{checked.name}",
                config={
                    **query.SPARK_CONFIG,
                    **(ONE_LANE_EACH if autoscale else {}),
                    **spark_config,
                },
            )
        )
        scaling_metrics = AutoscalerMetrics(checked.name, registry)

        def on_event(event: AutoscalerEvent) -> None:
            listener.event(event)
            scaling_metrics.add(event)

        tell_autoscaler = stack.enter_context(
            scaled(autoscale, Executors(spark), prepared, on_event)
        )
        running = query.start(spark, prepared, only_what_is_there=once, tell=on_landed)
        try:
            _follow(running, watch, metrics, alarms, listener, ended)
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
            ended.set()
        if ended.is_set():
            listener.progress("finishing the micro-batch")
            running.stop()
    if (last := running.blocker) and last.message:  # for example a topic that is gone
        listener.warning(f"{last.message}; {last.fix}")
    return Summary(checked, watch.status(time.monotonic()), alarms.final)


def load(pipeline: AnyPipeline) -> Pipeline:
    """A pipeline from a file or a value, with what stands in the files that it names."""
    if isinstance(pipeline, Pipeline):
        return pipeline_file.completed(pipeline)
    return pipeline_file.load(as_path("pipeline", pipeline, Pipeline))


class _Alarms:
    """Alarms about too many rejects: warnings, or the end of the pipeline."""

    def __init__(self, pipeline: Pipeline, warn: Progress) -> None:
        self._watch, self._warn = RejectWatch(pipeline), warn
        self.final: RejectAlarm | None = None

    def add(self, landed: Landed, prepared: Prepared) -> None:
        """The query calls this before it asks for the next order; after an alarm there is none."""
        lanes = landed.report.lanes
        rejects = sum((Counter(lane.rejects) for lane in lanes), Counter[str]())
        alarm = self._watch.add(sum(lane.records for lane in lanes), rejects, time.monotonic())
        if alarm is None:
            return
        if alarm.must_stop:
            self.final = alarm
            prepared.job.checkpoint.ask_to_stop(True)
        else:
            self._warn(f"{alarm.message}; {alarm.fix}")


def _follow(
    running: Running,
    watch: Watch,
    metrics: Metrics,
    alarms: _Alarms,
    listener: Listener,
    ended: threading.Event,
) -> None:
    """Report on the pipeline until it ends or must be stopped."""
    warned: set[str] = set()
    while not running.wait(_LOOK_S):
        if alarms.final is not None:
            listener.progress("stopping: too many records are rejected")
            running.stop()
            return
        if ended.is_set():
            return
        blocker = running.blocker
        metrics.see(blocker)
        _warn_of_skipped(blocker, warned, listener.warning)
        if blocker and blocker.message:
            listener.progress(blocker.message)
        else:
            listener.status(watch.status(time.monotonic()))
    _warn_of_skipped(running.blocker, warned, listener.warning)


def _warn_of_skipped(blocker: Blocker | None, warned: set[str], warn: Progress) -> None:
    """Warn of each topic once."""
    new = set(blocker.skipped_topics if blocker else ()) - warned
    if new:
        warned |= new
        warn(
            f"not landed, though `topics` names or matches it: {', '.join(sorted(new))} "
            "(Kafka's own topics and the autoscaler's are skipped)"
        )
