"""Public API: measure the capacity of a lane."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.api.landing import AnyPipeline, load
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.progress import Progress, silent
from penstock.domain.value import Bound, fitting
from penstock.domain.warm_up import RequestKind
from penstock.lake import pipeline_file
from penstock.load.prefill import fill
from penstock.runs.warm_up import warm_up
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import find_toolchain

if TYPE_CHECKING:
    from penstock.lake.capacity import Capacity, Case


def capacity(
    pipeline: AnyPipeline | None = None,
    *,
    lanes: int = 1,
    cycles: int = 40,
    quick: bool = False,
    master: str = "local[*]",
    on_progress: Progress = silent,
    on_warning: Progress = silent,
) -> dict[str, Capacity | None]:
    """Measure what one lane lands per second when more is waiting than it can take: case → figures,
    or None if the topics hold too little.

    With a pipeline: on its own topics from their beginning, into temporary tables. Without: on a
    cluster of this machine, in three cases of up to 144 partitions; `quick`: with a quarter of the
    data.
    """
    fitting("lanes", lanes, int, Bound(ge=1))
    fitting("cycles", cycles, int, Bound(ge=1))
    if pipeline is None:
        return _capacity_of_cases(lanes, cycles, 4 if quick else 1, master, on_progress, on_warning)
    from penstock.lake.capacity import trial

    checked = load(pipeline)
    config, _ = pipeline_file.client_config(checked)
    lake = Path(checked.lake)
    beside = lake if lake.is_dir() else None  # the same disk as the real tables
    with tempfile.TemporaryDirectory(prefix=".penstock-capacity-", dir=beside) as scratch:
        own = trial(checked, Path(scratch), lanes)
        name = str(pipeline) if not isinstance(pipeline, Pipeline) else pipeline.name
        return {name: _capacity(own, config, cycles, master, checked.name, on_progress)}


def _capacity_of_cases(
    lanes: int, cycles: int, divisor: int, master: str, say: Progress, warn: Progress
) -> dict[str, Capacity | None]:
    from penstock.lake.capacity import CASES, case_pipeline, trial

    measured: dict[str, Capacity | None] = {}
    spec = ClusterSpec(brokers=1)
    with Cluster(
        spec, toolchain=find_toolchain(os.environ, on_progress=say), on_progress=say
    ) as cluster:
        # Only fetching matters here, which the readers of the warm-up do.
        kind = RequestKind(messages_per_request=100, replication=1)
        warmed = warm_up(cluster, kind, on_progress=say)
        if warmed is not None and warmed.sentence:
            warn(warmed.sentence)
        for case in CASES:
            say(f"filling {case.name}")
            topics = _fill(cluster, case, divisor)
            with tempfile.TemporaryDirectory(prefix="penstock-capacity-") as scratch:
                plain = case_pipeline(topics, cluster.bootstrap_servers, Path(scratch))
                if divisor > 1:
                    plain = replace(plain, lane_bytes=plain.lane_bytes // divisor)
                measured[case.name] = _capacity(
                    trial(plain, Path(scratch), lanes),
                    cluster.client_config,
                    cycles,
                    master,
                    case.name,
                    say,
                )
            for topic in topics:
                cluster.admin.delete_topic(topic)
    return measured


def _fill(cluster: Cluster, case: Case, divisor: int) -> list[str]:
    """Create and fill the topics of a case."""
    topics = []
    for number, partitions in enumerate(case.partitions, 1):
        topics.append(f"{len(case.partitions)}-{case.partitions[0]}-{number}")
        cluster.create_topic(TopicSpec(name=topics[-1], partitions=partitions, replication=1))
        fill(cluster.client_config, topics[-1], partitions, case.partition_bytes // divisor)
    return topics


def _capacity(
    pipeline: Pipeline,
    config: Mapping[str, Any],
    cycles: int,
    master: str,
    name: str,
    say: Progress,
) -> Capacity | None:
    from penstock.analysis.session import scoped
    from penstock.lake import query
    from penstock.lake.capacity import measure

    prepared = query.prepare(pipeline, config)
    query.check_topics(prepared)
    say("starting Spark")
    with scoped(
        query.with_retries(master), app="penstock-capacity", config=query.SPARK_CONFIG
    ) as spark:
        return measure(spark, prepared, cycles, lambda text: say(f"{name}: {text}"))
