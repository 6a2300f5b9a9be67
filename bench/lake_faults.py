"""The lake under faults: kills, pauses, a full disk, compaction, a rewritten log, a topic made again.

Two pipelines run as users run them, one on Spark and one as a group of plain consumers, each under
load into a lake of its own. Again and again one of these faults strikes at a random moment; what
ended is started again. Meanwhile the audit must not raise a false alarm. In the end every record of
the topics is looked for in the tables with a reader that is not the pipeline's. Then copies of the
lake are broken in many ways, among as many copies that are not, and the audit must tell which.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaError, TopicPartition
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from harness import Figure, Row, main, warmed
from lake_breaks import BREAKS
from lake_lives import GroupLife, Life, SparkLife, penstock, small_disk
from lake_rewrites import LANDERS, careless_cluster, recreated_topic, unclean_election
from penstock import specs
from penstock.analysis.session import session
from penstock.domain.autoscaling import Autoscaling
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.lake.audit import audit
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import find_toolchain
from steady_load import requests_of, steady_load

# Of each topic.
PARTITIONS, MESSAGES_PER_S, SIZE_BYTES = 6, 300, 100
# Of each kind of fault, in full; once each in quick, but for kills of a worker.
FAULTS = {
    "spark": {
        "driver killed": 12,
        "Java killed": 12,
        "worker killed": 12,
        "driver paused": 5,
        "compaction and vacuum": 6,
        "disk full": 4,
    },
    "consumers": {
        "consumer killed": 18,
        "controller killed": 12,
        "consumer paused": 5,
        "controller paused": 5,
        "compaction and vacuum": 6,
        "disk full": 4,
    },
}
# Of each, in full, on each side.
REWRITES = {
    "unclean election": (unclean_election, 2),
    "topic deleted and re-created": (recreated_topic, 1),
}
LIVES: dict[str, type[Life]] = {"spark": SparkLife, "consumers": GroupLife}
# From one recovery to the next fault.
BETWEEN_S = (0.2, 4.0)
DISK_MB = 3000
Say = Callable[[str], None]


@dataclass
class Counts:
    """What the benchmark adds up."""

    by_kind: Counter[str] = field(default_factory=Counter)
    recoveries_s: dict[str, list[float]] = field(default_factory=dict)
    records: int = 0
    lost: int = 0
    doubled: int = 0
    invented: int = 0
    zombies: int = 0
    audits: int = 0
    false_alarms: list[str] = field(default_factory=list)
    breaks_injected: int = 0
    breaks_missed: list[str] = field(default_factory=list)

    def judge(self, spark: SparkSession, pipeline: Pipeline, when: str) -> None:
        """Nothing is wrong, so the audit must say so."""
        self.audits += 1
        found = audit(spark, pipeline)
        if not found.is_clean:
            self.false_alarms.append(f"{when}: {found.problems[0]}")


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    rng = random.Random(5)
    counts = Counts()
    with ExitStack() as stack:
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-faults-"))
        )
        stack.enter_context(small_disk(scratch / "disk", DISK_MB))
        say("starting Spark for the audits")
        spark = session("local[2]", app="bench", with_lake=True)
        stack.callback(spark.stop)
        _rewrite_all(spark, scratch, counts, quick, say)
        cluster = stack.enter_context(
            Cluster(ClusterSpec(brokers=3), toolchain=find_toolchain(os.environ), on_progress=say)
        )
        if not quick:
            warmed(cluster, say, requests_of(PARTITIONS, MESSAGES_PER_S, SIZE_BYTES))
        lakes = {}
        for side in LIVES:
            with _load(cluster, side) as topics:
                lakes[side] = _pipeline(cluster, side, topics, scratch)
                life = _strike_all(spark, lakes[side], side, scratch, counts, rng, quick, say)
            say(f"{side}: landing what is left, and counting")
            _land_the_rest(life, cluster, lakes[side])
            counts.judge(spark, lakes[side], f"{side} at rest")
            _count(cluster, lakes[side], counts)
            say(
                f"so far: {counts.by_kind.total()} faults, {counts.records:,} records, "
                f"{counts.lost} lost, {counts.doubled} doubled, {counts.invented} invented, "
                f"{len(counts.false_alarms)} false alarms of {counts.audits} audits"
            )
        for number, pipeline in enumerate(lakes.values()):
            kinds = list(BREAKS)[number :: len(lakes)] if quick else list(BREAKS)
            _break_all(spark, pipeline, kinds, scratch, counts, rng, say)
    return _figures(counts, quick)


def _rewrite_all(spark: SparkSession, scratch: Path, counts: Counts, quick: bool, say: Say) -> None:
    """Topics that change under a pipeline, on a cluster of their own."""
    with careless_cluster(find_toolchain(os.environ)) as cluster:
        for side, lander in LANDERS.items():
            for kind, (rewrite, times) in REWRITES.items():
                # In quick each kind once, on one of the sides.
                once = int((side == "spark") == (kind == "unclean election"))
                for number in range(once if quick else times):
                    say(f"{side}: {kind}, {number + 1}")
                    place = scratch / "disk" / f"{side}-{kind}-{number}".replace(" ", "-")
                    rewrite(spark, cluster, place, lander)
                    # Unreplicated, it would lack a leader when the next one kills its broker.
                    cluster.admin.delete_topic(place.name)
                    counts.by_kind[f"{side}: {kind}"] += 1


# --- faults --------------------------------------------------------------------------------------


@contextmanager
def _load(cluster: Cluster, side: str) -> Iterator[tuple[str, ...]]:
    """Two topics, for two tables."""
    topics = (f"{side}-a", f"{side}-b")
    for topic in topics:
        cluster.create_topic(TopicSpec(name=topic, partitions=PARTITIONS, replication=3))
    with ExitStack() as stack:
        for topic in topics:
            stack.enter_context(
                steady_load(cluster.client_config, topic, PARTITIONS, MESSAGES_PER_S, SIZE_BYTES)
            )
        yield topics


def _pipeline(cluster: Cluster, side: str, topics: Sequence[str], scratch: Path) -> Pipeline:
    return Pipeline(
        name=side,
        bootstrap_servers=cluster.bootstrap_servers,
        streams=tuple(Stream(topics=(t,), table=t.replace("-", "_")) for t in topics),
        lake=str(scratch / "disk" / side),
        lanes=2,
        every_s=0.3,
        autoscaling=Autoscaling(lane_capacity_bytes_per_s=60_000, most_lanes=3, answer_s=5),
    )


def _strike_all(
    spark: SparkSession,
    pipeline: Pipeline,
    side: str,
    scratch: Path,
    counts: Counts,
    rng: random.Random,
    quick: bool,
    say: Say,
) -> Life:
    """The faults of one side, in any order; the pipeline is ended afterwards."""
    file = scratch / f"{side}.yaml"
    file.write_text(specs.dump_yaml(pipeline))
    plan = [kind for kind, times in FAULTS[side].items() for _ in range(1 if quick else times)]
    rng.shuffle(plan)
    life = LIVES[side](file, pipeline, scratch / f"{side}.log", rng)
    try:
        life.await_batches(3)
        for number, kind in enumerate(plan):
            say(f"{side}: fault {number + 1} of {len(plan)}: {kind}")
            time.sleep(rng.uniform(*BETWEEN_S))
            seconds = life.strike(kind)
            counts.by_kind[f"{side}: {kind}"] += 1
            counts.recoveries_s.setdefault(f"{side}: {kind}", []).append(seconds)
            if number % 5 == (3 if quick else 0):
                counts.judge(spark, pipeline, f"{side} at work, after: {kind}")
    finally:
        life.end()
    counts.zombies += life.zombies
    return life


def _count(cluster: Cluster, pipeline: Pipeline, counts: Counts) -> None:
    """Every record of the topics is looked for in the tables, and the other way round."""
    for stream in pipeline.streams:
        sent = _in_topic(cluster, stream.topics[0])
        landed = _in_table(pipeline, stream.tables[0])
        counts.records += len(sent)
        counts.lost += len(np.setdiff1d(sent, landed))
        counts.doubled += len(landed) - len(np.unique(landed))
        counts.invented += len(np.setdiff1d(landed, sent))


def _land_the_rest(life: Life, cluster: Cluster, pipeline: Pipeline) -> None:
    if isinstance(life, SparkLife):
        penstock("pipeline", "run", str(life.file), "--once")
        return
    last = GroupLife(life.file, pipeline, life.file.with_suffix(".last.log"), life.rng)
    try:
        ends = sum(len(_in_topic(cluster, stream.topics[0])) for stream in pipeline.streams)
        deadline = time.monotonic() + 120
        while sum(len(_in_table(pipeline, t)) for t in pipeline.tables) < ends:
            if time.monotonic() > deadline:
                break  # what is missing is counted
            time.sleep(0.5)
    finally:
        last.end()


def _places(partitions: Any, offsets: Any) -> npt.NDArray[np.int64]:
    return np.asarray(partitions, dtype=np.int64) << 40 | np.asarray(offsets, dtype=np.int64)


def _in_table(pipeline: Pipeline, table: str) -> npt.NDArray[np.int64]:
    rows = DeltaTable(f"{pipeline.lake}/{table}").to_pyarrow_table(
        columns=["kafka_partition", "kafka_offset"]
    )
    return _places(rows.column(0).to_numpy(), rows.column(1).to_numpy())


def _in_topic(cluster: Cluster, topic: str) -> npt.NDArray[np.int64]:
    consumer = Consumer(
        {
            **cluster.client_config,
            "group.id": "independent",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    partitions: list[int | None] = []
    offsets: list[int | None] = []
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        messages = consumer.consume(10_000, 1.0)
        good = [m for m in messages if m.error() is None]
        for message in messages:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        partitions += [m.partition() for m in good]
        offsets += [m.offset() for m in good]
    consumer.close()
    return _places(partitions, offsets)


# --- breaks --------------------------------------------------------------------------------------


def _break_all(
    spark: SparkSession,
    pipeline: Pipeline,
    kinds: Sequence[str],
    scratch: Path,
    counts: Counts,
    rng: random.Random,
    say: Say,
) -> None:
    """Each kind in a copy, beside a copy that nobody broke. Both are audited at the same time."""

    def copied(name: str) -> Pipeline:
        shutil.copytree(pipeline.lake, scratch / name)
        return replace(pipeline, lake=str(scratch / name))

    with ThreadPoolExecutor(1) as beside:
        for kind in kinds:
            say(f"breaking a copy: {kind}")
            try:
                whole, broken = copied("whole"), copied("broken")
                BREAKS[kind](broken, rng)
                control = beside.submit(counts.judge, spark, whole, "a copy")
                counts.breaks_injected += 1
                if audit(spark, broken).is_clean:
                    counts.breaks_missed.append(kind)
                control.result()
            finally:
                for name in ("whole", "broken"):
                    shutil.rmtree(scratch / name, ignore_errors=True)


# --- figures -------------------------------------------------------------------------------------


def _figures(counts: Counts, quick: bool) -> tuple[dict[str, Any], list[Row]]:
    faults = counts.by_kind.total()
    wanted = 10 if quick else 100
    found = counts.breaks_injected - len(counts.breaks_missed)
    every = [seconds for several in counts.recoveries_s.values() for seconds in several]
    if not every:
        raise PenstockError("nothing was struck")
    keys = {
        "faults": faults,
        "by_kind": dict(counts.by_kind),
        "records": counts.records,
        "lost": counts.lost,
        "doubled": counts.doubled,
        "invented": counts.invented,
        "zombies": counts.zombies,
        "audits": counts.audits,
        "false_alarms": len(counts.false_alarms),
        "false_alarms_why": counts.false_alarms,
        "breaks_injected": counts.breaks_injected,
        "breaks_found": found,
        "breaks_missed": counts.breaks_missed,
        "recovery_s": {"p50": float(np.median(every)), "max": max(every)},
        "recovery_s_by_kind": {k: Figure.of(v) for k, v in counts.recoveries_s.items()},
    }
    return keys, [
        Row("faults", faults, f"≥ {wanted}", faults >= wanted),
        Row("records sent", f"{counts.records:,}"),
        Row("lost", counts.lost, "0", counts.lost == 0),
        Row("doubled", counts.doubled, "0", counts.doubled == 0),
        Row("in a table and not in its topic", counts.invented, "0", counts.invented == 0),
        Row("resumed processes that did not end", counts.zombies, "0", counts.zombies == 0),
        Row(
            f"false alarms of {counts.audits} audits",
            len(counts.false_alarms),
            "0",
            not counts.false_alarms,
        ),
        Row(
            f"breaks found of {counts.breaks_injected} injected",
            found,
            "all",
            found == counts.breaks_injected,
        ),
        *(Row(f"recovery_s, {k}", Figure.of(v)) for k, v in counts.recoveries_s.items()),
    ]


if __name__ == "__main__":
    main("lake_faults", measure)
