"""The lake: lanes against Spark's own Kafka connector, a micro-batch's fixed cost, freshness, memory.

Both sides land the same backlog in a Delta table with the same columns and the same compression, on
the same two cores with the brokers beside them, in turn, with as many bytes per micro-batch: those
of the default, and in full also three times as many, for the connector has the higher cost per
micro-batch. What counts is the time from the end of the first micro-batch to that of the last full
one. Afterwards every record is counted: a side that is fast because it lost some would be found.

`cost_ratio` compares with Penstock as it was before lanes guarded themselves against single records
and second writers (a worktree of that commit), in turn, each version in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from harness import Figure, Row, main, warmed
from landed import ages_ms
from penstock.analysis.session import session
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.java import jars
from penstock.java.find import find_java
from penstock.lake import query
from penstock.lake.landing import Landed
from penstock.load.contents.random_bytes import RandomContent
from penstock.load.prefill import fill
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import find_toolchain
from steady_load import requests_of, steady_load

PARTITIONS, LANES = 12, 2
# The last commit before the lake was hardened.
BEFORE = "69133d0"
# Java compiles for a while.
_WARM_UPS = 2
STEADY_PER_S, STEADY_SIZE_BYTES = 10_000, 1000
Say = Callable[[str], None]


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    repeats = 3 if quick else 5
    # Messages of each size: several micro-batches.
    backlog_bytes = {100: 270_000_000 if quick else 800_000_000,
                     1000: 340_000_000 if quick else 1_000_000_000}  # fmt: skip
    lane_bytes = {"": Pipeline.lane_bytes, "_large": 3 * Pipeline.lane_bytes}
    if quick:
        del lane_bytes["_large"]
    keys: dict[str, Any] = {}
    rows: list[Row] = []
    costs: dict[int, Figure] = {}
    with (
        Cluster(
            ClusterSpec(brokers=3), toolchain=find_toolchain(os.environ), on_progress=say
        ) as cluster,
        tempfile.TemporaryDirectory(prefix="penstock-bench-lake-") as scratch,
    ):
        warmed(cluster, say, requests_of(PARTITIONS, STEADY_PER_S, STEADY_SIZE_BYTES))
        config = {**query.SPARK_CONFIG, "spark.sql.streaming.numRecentProgressUpdates": "10000",
                  "spark.sql.parquet.compression.codec": "zstd", "spark.jars": _jars(),
                  # Fifty by default, which costs the connector a second per micro-batch.
                  "spark.databricks.delta.snapshotPartitions": "2"}  # fmt: skip
        say("starting Spark")
        spark = session(query.with_retries("local[2]"), app="bench", with_lake=True, config=config)
        for size, total in backlog_bytes.items():
            count = _fill(cluster, size, total, say)
            for kind, most_bytes in lane_bytes.items():
                contest = Contest(cluster, Path(scratch), size, count, most_bytes)
                ratio, speeds = _compare(spark, contest, repeats, say)
                name = f"{size}b{kind}" if size < 1000 else f"{size // 1000}kb{kind}"
                keys |= {f"ratio_vs_jvm_{name}": ratio.median, f"ratio_vs_jvm_{name}_spread": ratio}
                for side, speed in speeds.items():
                    keys[f"{side}_rows_per_s_{name}"] = speed
                    rows.append(Row(f"{side}, {name}: rows/s into Delta", _thousands(speed)))
                rows.append(Row(f"ratio_vs_jvm_{name}", ratio, "≥ 1.3", ratio.median >= 1.3))
            contest = Contest(cluster, Path(scratch), size, count, Pipeline.lane_bytes)
            if (cost := _cost(contest, 2 * repeats, say)) is not None:
                costs[size] = cost
            cluster.admin.delete_topic(_backlog(size))
        if costs:
            worst = min(costs.values(), key=lambda figure: figure.median)
            keys |= {"cost_ratio": worst.median, "cost_ratio_spread": costs}
            rows += [
                Row(
                    f"cost_ratio, {size} B: rows/s, now / before",
                    cost,
                    "≥ 0.95",
                    cost.median >= 0.95,
                )
                for size, cost in costs.items()
            ]
        fixed = _fixed_ms(spark, cluster, Path(scratch), 30 if quick else 200, say)
        keys |= {"batch_fixed_ms_4_lanes": fixed.median, "batch_fixed_ms_4_lanes_spread": fixed}
        rows.append(Row("batch_fixed_ms_4_lanes", fixed, "≤ 250", fixed.median <= 250))
        steady, more = _steady(spark, cluster, Path(scratch), quick, say)
        keys |= steady
        rows += more
        spark.stop()
    return keys, rows


def _jars() -> str:
    """Delta's, and those of the connector to compare with."""
    java, cache = find_java(os.environ), jars.default_cache_dir(os.environ)
    found = [
        jar for name in ("lake", "jvm-connector") for jar in jars.bundle(name, cache, java=java)
    ]
    return ",".join(map(str, found))


# --- lanes against the connector ------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """What both sides are to land, and how much of it per lane and micro-batch."""

    cluster: Cluster
    scratch: Path
    size_bytes: int
    count: int
    lane_bytes: int

    @property
    def topic(self) -> str:
        return _backlog(self.size_bytes)


def _backlog(size_bytes: int) -> str:
    return f"backlog-{size_bytes}"


def _fill(cluster: Cluster, size_bytes: int, total_bytes: int, say: Say) -> int:
    """How many records it came to."""
    topic = _backlog(size_bytes)
    cluster.create_topic(TopicSpec(name=topic, partitions=PARTITIONS, replication=1))
    say(f"filling {total_bytes / 1e6:.0f} MB of {size_bytes} B")
    each = total_bytes // PARTITIONS
    config = cluster.client_config
    return fill(config, topic, PARTITIONS, each, content=RandomContent(), size_bytes=size_bytes)


def _compare(
    spark: SparkSession, contest: Contest, repeats: int, say: Say
) -> tuple[Figure, dict[str, Figure]]:
    speeds: dict[str, list[float]] = {"lanes": [], "jvm": []}
    for turn in range(-_WARM_UPS, repeats):
        for side, land in (("lanes", _lanes), ("jvm", _jvm)):
            say(
                f"{contest.size_bytes} B, {contest.lane_bytes / 1e6:.0f} MB per lane: "
                f"{side}, {f'turn {turn + 1} of {repeats}' if turn >= 0 else 'getting warm'}"
            )
            place = contest.scratch / side
            ends = land(spark, contest, place)
            held = DeltaTable(f"{place}/events").to_pyarrow_dataset().count_rows()
            if held != contest.count:
                raise PenstockError(f"{side} landed {held} of {contest.count} records")
            if turn >= 0:
                speeds[side].append(_speed(ends))
            shutil.rmtree(place)
    pairs = zip(speeds["lanes"], speeds["jvm"], strict=True)
    return (
        Figure.of([lanes / jvm for lanes, jvm in pairs]),
        {side: Figure.of(found) for side, found in speeds.items()},
    )


def _speed(ends: list[tuple[float, int]]) -> float:
    """Rows/s from the end of the first micro-batch to that of the last one that was full."""
    most = max(rows for _, rows in ends)
    last = max(i for i, (_, rows) in enumerate(ends) if rows > 0.9 * most)
    if last < 2:
        raise PenstockError(f"{len(ends)} micro-batches are too few to tell a speed from")
    return sum(rows for _, rows in ends[1 : last + 1]) / (ends[last][0] - ends[0][0])


def _pipeline(cluster: Cluster, topic: str, place: Path, **fields: Any) -> Pipeline:
    return Pipeline(
        name="bench",
        bootstrap_servers=cluster.bootstrap_servers,
        streams=(Stream(topics=(topic,), table="events"),),
        lake=str(place),
        **{"lanes": LANES, **fields},
    )


def _lanes(spark: SparkSession, contest: Contest, place: Path) -> list[tuple[float, int]]:
    """(end, rows) of every micro-batch."""
    ends: list[tuple[float, int]] = []

    def tell(landed: Landed) -> None:
        ends.append((time.monotonic(), sum(lane.rows for lane in landed.report.lanes)))

    cluster = contest.cluster
    wanted = _pipeline(cluster, contest.topic, place, lane_bytes=contest.lane_bytes)
    prepared = query.prepare(wanted, cluster.client_config)
    running = query.start(spark, prepared, only_what_is_there=True, tell=tell)
    while not running.wait(1.0):
        pass
    return ends


def _jvm(spark: SparkSession, contest: Contest, place: Path) -> list[tuple[float, int]]:
    per_batch = LANES * contest.lane_bytes // contest.size_bytes
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", contest.cluster.bootstrap_servers)
        .option("subscribe", contest.topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", per_batch)
        .load()
        .selectExpr(
            *(f"{name} AS kafka_{name}" for name in ("topic", "partition", "offset", "timestamp")),
            *("key AS kafka_key", "headers AS kafka_headers", "value"),
        )
    )
    done = (
        records.writeStream.format("delta")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(place / "events"))
    )
    done.awaitTermination()
    found = []
    for progress in done.recentProgress:
        started = datetime.fromisoformat(progress["timestamp"]).timestamp()
        ended = started + progress["durationMs"]["triggerExecution"] / 1000
        if progress["numInputRows"]:
            found.append((ended, int(progress["numInputRows"])))
    return found


# --- now against before -----------------------------------------------------------------------------


def _cost(contest: Contest, repeats: int, say: Say) -> Figure | None:
    """Rows/s of this version over those of `BEFORE`; none without Git's history."""
    root = Path(__file__).resolve().parent.parent
    with ExitStack() as stack:
        before = stack.enter_context(_worktree(root))
        if before is None:
            say(f"no commit {BEFORE} here, so nothing to compare with")
            return None
        sides = {
            "now": stack.enter_context(_side(root)),
            "before": stack.enter_context(_side(before)),
        }
        speeds: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(-_WARM_UPS, repeats):
            for name in sorted(sides, reverse=turn % 2 == 0):
                say(f"{contest.size_bytes} B: {name}, turn {turn + 1} of {repeats}")
                place = contest.scratch / name
                ends = _ask(sides[name], contest, place)
                if turn >= 0:
                    speeds[name].append(_speed(ends))
                shutil.rmtree(place)
    pairs = zip(speeds["now"], speeds["before"], strict=True)
    return Figure.of([now / before for now, before in pairs])


@contextmanager
def _worktree(root: Path) -> Iterator[Path | None]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-before-") as scratch:
        place = Path(scratch) / "before"
        made = subprocess.run(
            ["git", "-C", root, "worktree", "add", "--detach", place, BEFORE], capture_output=True
        )
        try:
            yield place if made.returncode == 0 else None
        finally:
            if made.returncode == 0:
                subprocess.run(
                    ["git", "-C", root, "worktree", "remove", "--force", place], capture_output=True
                )


@contextmanager
def _side(root: Path) -> Iterator[subprocess.Popen[str]]:
    script = Path(__file__).with_name("lake_side.py")
    process = subprocess.Popen(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def _ask(side: subprocess.Popen[str], contest: Contest, place: Path) -> list[tuple[float, int]]:
    assert side.stdin is not None and side.stdout is not None
    asked = {
        "topic": contest.topic,
        "place": str(place),
        "servers": contest.cluster.bootstrap_servers,
        "lanes": LANES,
        "lane_bytes": contest.lane_bytes,
    }
    side.stdin.write(json.dumps(asked) + "\n")
    side.stdin.flush()
    answer = side.stdout.readline()
    if not answer:
        raise PenstockError(
            "one side of the contest died; run bench/lake_side.py by hand to see why"
        )
    ends = [(at_s, rows) for at_s, rows in json.loads(answer)]
    if (landed := sum(rows for _, rows in ends)) != contest.count:
        raise PenstockError(f"landed {landed} of {contest.count} records")
    return ends


# --- a micro-batch with next to nothing in it -------------------------------------------------------


def _fixed_ms(
    spark: SparkSession, cluster: Cluster, scratch: Path, batches: int, say: Say
) -> Figure:
    say("a micro-batch's fixed cost")
    topic = "trickle"
    cluster.create_topic(TopicSpec(name=topic, partitions=PARTITIONS, replication=1))
    wanted = _pipeline(cluster, topic, scratch / "trickle", lanes=4, every_s=0.0)
    ended = threading.Event()
    trickle = threading.Thread(target=_trickle, args=(cluster.client_config, topic, ended))
    trickle.start()
    seen: list[float] = []
    try:
        prepared = query.prepare(wanted, cluster.client_config)
        running = query.start(spark, prepared, tell=lambda _: seen.append(time.monotonic()))
        while len(seen) < batches + 20:
            if running.wait(0.2):
                raise PenstockError("the query ended by itself")
        running.stop()
    finally:
        ended.set()
        trickle.join()
    # There is always something waiting, so the next begins when one ends.
    return Figure.of([1000 * (b - a) for a, b in pairwise(seen[20:])])


def _trickle(config: Mapping[str, Any], topic: str, ended: threading.Event) -> None:
    """One message per partition and ten milliseconds."""
    producer = Producer({**config, "linger.ms": 0})
    while not ended.wait(0.01):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"x" * 100, partition=partition)
        producer.poll(0)
    producer.flush(10)


# --- a steady stream ------------------------------------------------------------------------------


def _steady(
    spark: SparkSession, cluster: Cluster, scratch: Path, quick: bool, say: Say
) -> tuple[dict[str, Any], list[Row]]:
    """Freshness at 10 MB/s, as often as it can and at the default; memory over the first."""
    keys: dict[str, Any] = {}
    rows = []
    for name, every_s, seconds in (
        ("freshness", 0.0, 40 if quick else 600),
        ("freshness_default", Pipeline.every_s, 30 if quick else 60),
    ):
        say(f"{name}: 10 MB/s for {seconds} s")
        topic, place = f"steady-{name}", scratch / name
        cluster.create_topic(
            TopicSpec(
                name=topic,
                partitions=PARTITIONS,
                replication=1,
                config={"retention.bytes": 50_000_000, "segment.bytes": 16_000_000},
            )
        )
        wanted = _pipeline(cluster, topic, place, every_s=every_s)
        landed: list[Landed] = []
        memory: list[float] = []
        with steady_load(cluster.client_config, topic, PARTITIONS, STEADY_PER_S, STEADY_SIZE_BYTES):
            prepared = query.prepare(wanted, cluster.client_config)
            running = query.start(spark, prepared, tell=landed.append)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                if running.wait(2.0):
                    raise PenstockError("the query ended by itself")
                memory.append(_memory_mb())
            running.stop()
        begins_ms = landed[0].at_ms + 10_000
        ages = ages_ms((one for one in landed if one.at_ms >= begins_ms), place)
        p50, p99 = (float(np.percentile(ages, p)) for p in (50, 99))
        files = [
            file.size_bytes for one in landed for lane in one.report.lanes for file in lane.files
        ]
        keys |= {
            f"{name}_p50_ms": p50,
            f"{name}_p99_ms": p99,
            f"{name}_every_s": every_s,
            f"{name}_batches": len(landed),
            f"{name}_file_mb": statistics.median(files) / 1e6,
        }
        rows += [
            Row(f"{name}_p50_ms, a micro-batch every {every_s:g} s at most", f"{p50:,.0f}"),
            Row(f"{name}_p99_ms", f"{p99:,.0f}"),
            Row("… size of its files", f"{statistics.median(files) / 1e6:.1f} MB"),
        ]
        if name == "freshness":
            third = max(1, len(memory) // 3)
            # The first third is warming up: heaps grow to their working size.
            middle, last = (
                statistics.median(memory[third : 2 * third]),
                statistics.median(memory[2 * third :]),
            )
            keys |= {
                "memory_mb": last,
                "memory_growth_mb": last - middle,
                "memory_minutes": seconds / 60,
                "memory_series_mb": memory[:: max(1, len(memory) // 100)],
            }
            rows.append(
                Row(
                    f"memory of driver, Spark and lanes over {seconds / 60:.1f} min",
                    f"{last:,.0f} MB, last third over the middle: {last - middle:+,.0f} MB",
                    "does not grow",
                    None if quick else last - middle < 0.05 * middle,
                )
            )
    return keys, rows


def _memory_mb() -> float:
    """Of this process, Spark's and the lanes'; not of the brokers, which are children too."""
    total = psutil.Process().memory_info().rss
    for child in psutil.Process().children(recursive=True):
        try:
            if "pyspark" in (line := " ".join(child.cmdline())) or "org.apache.spark" in line:
                total += child.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 1e6


def _thousands(figure: Figure) -> str:
    return f"{figure.median:,.0f} [{figure.lowest:,.0f}, {figure.highest:,.0f}]"


if __name__ == "__main__":
    main("lake", measure)
