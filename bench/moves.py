"""What it costs to move a partition from one lane to another, which is what a move is priced by.

One query on real Spark; its plan is changed so that in every second micro-batch all partitions are
with another lane than before: what was prefetched is lost, offsets are looked for anew, other
brokers' connections are used. The micro-batches in between have kept everything. Both kinds follow
one another, so whatever else the machine does is the same for both.

**backlog**: more is waiting than a micro-batch takes, so a lane has as much prefetched as it may.
**stream**: what comes is landed at once, and nothing is prefetched but what has just come.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from harness import Figure, Row, main, warmed
from penstock.analysis.session import session
from penstock.domain.autoscaling import Autoscaling
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.lake.plan import Plan
from penstock.lake import query
from penstock.lake.landing import Landed
from penstock.load.contents.random_bytes import RandomContent
from penstock.load.prefill import fill
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import find_toolchain
from steady_load import requests_of, steady_load

PARTITIONS, LANES, SIZE_BYTES = 16, 2, 1000
LANE_BYTES = 4_000_000
STREAM_PER_S = 5000
_WARM_BATCHES = 10
Say = Callable[[str], None]


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    batches = 30 if quick else 120
    with (
        Cluster(
            ClusterSpec(brokers=3), toolchain=find_toolchain(os.environ), on_progress=say
        ) as cluster,
        tempfile.TemporaryDirectory(prefix="penstock-bench-moves-") as scratch,
    ):
        warmed(cluster, say, requests_of(PARTITIONS, STREAM_PER_S, SIZE_BYTES))
        total = (batches + _WARM_BATCHES + 10) * LANES * LANE_BYTES
        config = cluster.client_config
        for topic in ("backlog", "stream"):
            cluster.create_topic(TopicSpec(name=topic, partitions=PARTITIONS, replication=1))
        say(f"filling {total / 1e6:.0f} MB")
        each = total // PARTITIONS
        fill(config, "backlog", PARTITIONS, each, content=RandomContent(), size_bytes=SIZE_BYTES)
        say("starting Spark")
        spark = session(
            query.with_retries(f"local[{LANES}]"), app="bench", config=query.SPARK_CONFIG
        )
        say(f"backlog, {batches} micro-batches")
        backlog = _Play(cluster, Path(scratch), "backlog").play(spark, batches)
        say(f"stream, {batches} micro-batches")
        with steady_load(config, "stream", PARTITIONS, STREAM_PER_S, SIZE_BYTES):
            stream = _Play(cluster, Path(scratch), "stream").play(spark, batches)
        spark.stop()
    return _results({"backlog": backlog, "stream": stream})


@dataclass(frozen=True)
class Batch:
    moved: int
    took_s: float
    gather_s: float
    size_bytes: int


class _Play:
    """One topic, with a plan that turns every second micro-batch."""

    def __init__(self, cluster: Cluster, scratch: Path, topic: str) -> None:
        self._config = cluster.client_config
        self._wanted = Pipeline(
            name=topic,
            bootstrap_servers=cluster.bootstrap_servers,
            streams=(Stream(topics=(topic,), table="events"),),
            lake=str(scratch / topic),
            lanes=LANES,
            lane_bytes=LANE_BYTES,
            every_s=0.0,
        )
        self._names = [f"{topic}-{n}" for n in range(PARTITIONS)]
        self._landed: list[Landed] = []

    def play(self, spark: Any, batches: int) -> list[Batch]:
        prepared = query.prepare(self._wanted, self._config)
        checkpoint = prepared.job.checkpoint

        def tell(landed: Landed) -> None:
            self._landed.append(landed)
            turn = len(self._landed) // 2
            lanes = [[] for _ in range(LANES)]  # type: list[list[str]]
            for n, name in enumerate(self._names):
                lanes[(n + turn) % LANES].append(name)
            checkpoint.write_plan(Plan(version=1 + turn, lanes=tuple(map(tuple, lanes))))

        running = query.start(spark, prepared, tell=tell)
        try:
            while len(self._landed) < batches + _WARM_BATCHES:
                if running.wait(0.2):
                    raise PenstockError("the query ended by itself")
        finally:
            running.stop()
        return [
            Batch(
                moved=sum(len(lane.ranges) - lane.kept_partitions for lane in now.report.lanes),
                took_s=(now.at_ms - before.at_ms) / 1000,
                gather_s=max(lane.gather_s for lane in now.report.lanes),
                size_bytes=sum(lane.size_bytes for lane in now.report.lanes),
            )
            for before, now in pairwise(self._landed[_WARM_BATCHES:])
            if now.report.lanes
        ]


def _results(plays: dict[str, list[Batch]]) -> tuple[dict[str, Any], list[Row]]:
    keys: dict[str, Any] = {}
    rows = []
    for name, batches in plays.items():
        moved = [batch for batch in batches if batch.moved > PARTITIONS // 2]
        kept = [batch for batch in batches if not batch.moved]
        if not (moved and kept):
            raise PenstockError(f"{name}: {len(moved)} with moves, {len(kept)} without")
        for what in ("took_s", "gather_s"):
            both = [
                Figure.of([1000 * getattr(batch, what) for batch in some]) for some in (moved, kept)
            ]
            keys |= {f"{name}_{what}_moved_ms": both[0], f"{name}_{what}_kept_ms": both[1]}
            label = "a micro-batch" if what == "took_s" else "… of which gathering"
            rows.append(
                Row(
                    f"{name}: {label}, all moved, all kept, ms",
                    f"{both[0].median:.0f}, {both[1].median:.0f}",
                )
            )
        # At equal bytes: what comes while a micro-batch takes longer is in the next one.
        both_kinds = [*moved, *kept]
        terms = np.array([[1.0, b.size_bytes, bool(b.moved)] for b in both_kinds])
        took_s = np.array([b.took_s for b in both_kinds])
        (_, _, extra_s), *_ = np.linalg.lstsq(terms, took_s)
        # In lane-seconds: all lanes wait as long as the micro-batch takes longer.
        per_move_s = max(0.0, float(extra_s)) * LANES / statistics.median(b.moved for b in moved)
        worth = Autoscaling.scale_in_s / per_move_s if per_move_s else None
        keys |= {f"{name}_lane_s_per_move": per_move_s, f"{name}_moves_a_lane_is_worth": worth}
        rows += [
            Row(f"{name}: a move costs, lane-seconds", f"{per_move_s:.4f}"),
            Row(
                f"{name}: a lane saved for {Autoscaling.scale_in_s:.0f} s is worth, moves",
                "any number of them" if worth is None else f"{worth:,.0f}",
            ),
        ]
    return keys, rows


if __name__ == "__main__":
    main("moves", measure)
