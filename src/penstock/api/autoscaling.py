"""Public API: scale the number of lanes, or of plain consumers, with the load."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry

from penstock.api.landing import AnyPipeline, load
from penstock.autoscaler.channel import Superseded
from penstock.autoscaler.consumer import check
from penstock.autoscaler.core.actions import AutoscalerEvent
from penstock.autoscaler.group import Group
from penstock.autoscaler.host_managers import HostManager, PipelineHosts, ProcessHosts
from penstock.autoscaler.loop import run_for_good
from penstock.autoscaler.metrics import Metrics
from penstock.autoscaler.topics import Topics
from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.progress import Progress, silent
from penstock.lake import pipeline_file


def autoscale(
    pipeline: AnyPipeline,
    *,
    consumers: bool = False,
    dry_run: bool = False,
    ended: threading.Event | None = None,
    registry: CollectorRegistry | None = None,
    on_event: Callable[[AutoscalerEvent], None] = lambda _: None,
    on_warning: Progress = silent,
) -> None:
    """Scale the lanes of a pipeline that runs with `autoscale="outside"`, until `ended` is set.

    `consumers`: without Spark, start and end plain consumers on this machine instead, which read
    the file themselves. `dry_run`: decide, and send no commands.
    """
    checked = load(pipeline)
    if consumers and isinstance(pipeline, Pipeline):
        raise BadInput(
            "pipeline: must be a file, since every plain consumer is a process that reads it",
            "write it with penstock.dump_yaml",
        )
    config, warnings = pipeline_file.client_config(checked)
    for warning in warnings:
        on_warning(f"{checked.client_properties}: {warning}")
    settings = checked.autoscaling
    settings.policy.decider(settings)  # a mistake in it is reported before anything starts
    if consumers:
        check(checked)
    metrics = Metrics(checked.name, registry or CollectorRegistry(), is_plain=consumers)

    def tell(event: AutoscalerEvent) -> None:
        on_event(event)
        metrics.add(event)

    group = Group(checked, is_plain=consumers)
    # There may be more hosts than `most_lanes`, if it was higher before.
    hosts = max(settings.most_lanes, 1 + max(group.landers(), default=-1)) if consumers else 1
    topics = Topics(checked.name, config, most_hosts=hosts)
    # Before the id is created: a pipeline that is refused leaves nothing behind.
    topics.prepare(group.id, on_warning)
    if consumers and not dry_run:
        group.make_id()
    manager: HostManager = (
        PipelineHosts()
        if isinstance(pipeline, Pipeline) or not consumers
        else ProcessHosts(Path(pipeline), tell)
    )
    is_superseded = False
    try:
        run_for_good(
            group,
            config,
            topics,
            manager,
            ended=ended or threading.Event(),
            tell=tell,
            is_dry=dry_run,
        )
    except Superseded:
        is_superseded = True
        raise
    finally:
        if not is_superseded:  # otherwise its consumers belong to the other controller now
            manager.close()
