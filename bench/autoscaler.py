"""Lanes that follow the write speed, against what people have without us.

A pipeline on real Spark lands a topic of a real cluster. Every lane writes to a sink that takes no
more than so many bytes/s, so a lane is really saturable, whatever the machine has left; the cycles
in which it was are counted. The load is skewed and shifts suddenly: a quarter of the partitions is
hot, every minute others are, and the whole rises and falls. Each of two traces is carried out for
every policy in turn: ours; Kafka's range and cooperative-sticky assignment, with as many lanes as
ours had on average, rounded up; a threshold of lag; Kubernetes' rule. Ours has its default settings. All
begin with four lanes; the first seconds, in which everybody finds its first plan, are not counted.
All lanes are of one query, so a micro-batch lasts as long as its slowest lane takes, whoever plans.

Latency is from a record's time to the moment when it can be read in the table; what was not landed
a while after the load ended counts with the age that it had by then. Cost is lanes × seconds.
Then the load shifts every few seconds, for more decisions to be timed; then how long it takes until
a consumer or an executor is there. Last, the simulator, with figures of this very run: on the same
traces, to be compared with what was measured, and with 500 partitions.

In quick the load shifts after 10 s: too short for the lag of a lane that has too much to become what
it becomes in practice, so that ratio is shown and not judged.
"""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

from autoscaler_plays import KAFKA, PARTITIONS, SIZE_BYTES, Play, Say, Stage, settings, trace
from autoscaler_results import delays, results
from autoscaler_simulated import SIMULATED_PARTITIONS, calibrated, compared, large, simulated_play
from autoscaler_starts import consumer_starts, executor_starts
from harness import Row, main, warmed
from penstock.analysis.session import session
from penstock.domain.cluster import ClusterSpec
from penstock.domain.warm_up import RequestKind
from penstock.lake import query
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import find_toolchain

# As `shifting_load` sends them.
SHIFTING = RequestKind(
    message_bytes=SIZE_BYTES, messages_per_request=4, partitions=PARTITIONS, replication=1
)
# Of the two traces.
SEEDS = (3, 4)
# Not counted: everybody finds its first plan, Kubernetes' rule after 30 s.
LEAD_S = 36.0


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    times = 2 if quick else 30
    shape = (2, 10.0, 12.0, 8.0) if quick else (4, 60.0, LEAD_S, 30.0)
    traces = [trace(seed, *shape) for seed in (SEEDS[:1] if quick else SEEDS)]
    plays: dict[str, list[Play]] = {}
    fixed: list[int] = []
    with (
        Cluster(
            ClusterSpec(brokers=3), toolchain=find_toolchain(os.environ), on_progress=say
        ) as cluster,
        tempfile.TemporaryDirectory(prefix="penstock-bench-autoscaler-") as scratch,
    ):
        warmed(cluster, say, SHIFTING)
        say("starting Spark")
        spark = session(query.with_retries("local[16]"), app="bench", config=query.SPARK_CONFIG)
        stage = Stage(spark, cluster, Path(scratch))
        stage.play(trace(SEEDS[0], 1, 5.0, 12.0, 8.0), settings("packing"), say)  # to get warm
        for one in traces:
            ours = stage.play(one, settings("packing"), say)
            plays.setdefault("ours", []).append(ours)
            fixed.append(math.ceil(ours.lanes))
            for policy in KAFKA:
                theirs = stage.play(one, settings(policy, lanes=fixed[-1]), say)
                plays.setdefault(policy, []).append(theirs)
            plays.setdefault("lag", []).append(stage.play(one, settings("lag"), say))
        restless = []
        if not quick:
            plays["hpa"] = [stage.play(traces[0], settings("hpa"), say)]
            # Nothing to compare, only many decisions, scaling in among them.
            often = trace(SEEDS[0], 24, 6.0, 12.0, 8.0)
            restless = [stage.play(often, settings("packing", scale_in_s=4.0), say)]
        spark.stop()
        consumers = consumer_starts(cluster, Path(scratch), times, say)
    executors = executor_starts(times, say)
    say("simulating")
    rig = calibrated([play for of_policy in plays.values() for play in of_policy])
    simulated = {
        name: [
            simulated_play(name, one, rig, lanes)
            for one, lanes, _ in zip(traces, fixed, of_policy, strict=False)
        ]
        for name, of_policy in plays.items()
    }
    keys, rows = results(plays, is_judged=not quick)
    for more_keys, more_rows in (
        delays([*plays["ours"], *restless], consumers, executors),
        compared(plays, simulated, rig),
        large(rig, trace(SEEDS[0], *shape, SIMULATED_PARTITIONS)),
    ):
        keys |= more_keys
        rows += more_rows
    return keys, rows


if __name__ == "__main__":
    main("autoscaler", measure)
