"""`penstock pipeline capacity`: what one lane does at saturation."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from penstock.cli import options, output
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.warm_up import RequestKind
from penstock.measure.backlog import fill
from penstock.measure.warm_up import warm_up
from penstock.pipeline.lake import query, resolve
from penstock.pipeline.lake.capacity import (
    CASES,
    PHASES,
    Capacity,
    case_pipeline,
    measure,
    trial,
)
from penstock.pipeline.session import session
from penstock.progress import Progress
from penstock.testbed.cluster import Cluster
from penstock.testbed.parts import find_parts


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--lanes", type=int, default=1, help="Lanes side by side; figures are per lane.")
@click.option("--cycles", type=int, default=40, help="Measure at most so many micro-batches.")
@click.option("--quick", is_flag=True, help="A quarter of the data.")
@click.option("--master", default="local[*]", help="Spark master that the lanes run on.")
@options.as_json
def capacity(
    file: Path | None, lanes: int, cycles: int, quick: bool, master: str, as_json: bool
) -> None:
    """Measure what one lane lands per second when more is waiting than it can take.

    With FILE: on its own topics from their beginning, into tables that are thrown away. Without: on
    a cluster of this machine, in the three cases of the document that lanes are from.
    """
    if lanes < 1 or cycles < 1:
        raise BadInput("--lanes and --cycles must be 1 or more")
    with output.progress() as say:
        if file is None:
            found = dict(_cases(lanes, cycles, 4 if quick else 1, master, say))
        else:
            found = {str(file): _own(file, lanes, cycles, master, say)}
    sentence = _sentence(found)
    if as_json:
        output.emit_json(
            {
                "outcome": sentence,
                "lanes": lanes,
                "cases": {n: c and asdict(c) for n, c in found.items()},
            }
        )
        return
    output.outcome(sentence)
    output.table(
        ("case", "cycles", "MB/s p50 [p5, p95]", "rows/s p50", "cycle s", *PHASES),
        [
            (
                name,
                one.cycles,
                f"{_mb(one.bytes_per_s.p50)} [{_mb(one.bytes_per_s.p5)}, {_mb(one.bytes_per_s.p95)}]",
                f"{one.rows_per_s.p50:,.0f}",
                f"{one.cycle_s.p50:.2f}",
                *(f"{one.phase_s[phase]:.3f}" for phase in PHASES),
            )
            for name, one in found.items()
            if one is not None
        ],
    )
    output.note("Phases are medians in seconds; rest is Spark's part and waiting.")


def _cases(
    lanes: int, cycles: int, divisor: int, master: str, say: Progress
) -> Iterator[tuple[str, Capacity | None]]:
    spec = ClusterSpec(brokers=1)
    with Cluster(spec, parts=find_parts(os.environ, on_progress=say), on_progress=say) as cluster:
        # What matters here is fetching, which the readers of the warm-up do.
        kind = RequestKind(messages_per_request=100, replication=1)
        warmed = warm_up(cluster, kind, on_progress=say)
        if warmed is not None and warmed.sentence:
            output.warn(warmed.sentence)
        for case in CASES:
            say(f"filling {case.name}")
            topics = []
            for number, partitions in enumerate(case.partitions, 1):
                topics.append(f"{len(case.partitions)}-{case.partitions[0]}-{number}")
                cluster.create_topic(
                    TopicSpec(name=topics[-1], partitions=partitions, replication=1)
                )
                fill(cluster.client_config, topics[-1], partitions, case.partition_bytes // divisor)
            with tempfile.TemporaryDirectory(prefix="penstock-capacity-") as scratch:
                plain = case_pipeline(topics, cluster.bootstrap_servers, Path(scratch))
                if divisor > 1:
                    plain = replace(plain, lane_bytes=plain.lane_bytes // divisor)
                wanted = trial(plain, Path(scratch), lanes)
                yield (
                    case.name,
                    _measure(wanted, cluster.client_config, cycles, master, case.name, say),
                )
            for topic in topics:
                cluster.admin.delete_topic(topic)


def _own(file: Path, lanes: int, cycles: int, master: str, say: Progress) -> Capacity | None:
    pipeline = resolve.load(file)
    config, _ = resolve.client_config(pipeline)
    lake = Path(pipeline.lake)
    beside = lake if lake.is_dir() else None  # the same disk as the real tables
    with tempfile.TemporaryDirectory(prefix=".penstock-capacity-", dir=beside) as scratch:
        return _measure(
            trial(pipeline, Path(scratch), lanes), config, cycles, master, pipeline.name, say
        )


def _measure(
    pipeline: Pipeline,
    config: Mapping[str, Any],
    cycles: int,
    master: str,
    name: str,
    say: Progress,
) -> Capacity | None:
    prepared = query.prepare(pipeline, config)
    query.check_topics(prepared)
    say("starting Spark")
    spark = session(query.with_retries(master), app="penstock-capacity", config=query.SPARK_CONFIG)
    return measure(spark, prepared, cycles, lambda text: say(f"{name}: {text}"))


def _sentence(found: dict[str, Capacity | None]) -> str:
    known = [one.bytes_per_s.p50 for one in found.values() if one is not None]
    if not known:
        return "Nothing is known: the topics hold too little to saturate a lane."
    least, most = _mb(min(known)), _mb(max(known))
    return f"One lane lands {least if least == most else f'{least} to {most}'} MB/s at saturation."


def _mb(value: float) -> str:
    return f"{value / 1e6:.1f}"
