"""One side of a contest between two versions of Penstock: lands what it is told to, in turns.

Run with the version's `src` as PYTHONPATH. It reads one JSON object per line (topic, place, servers,
lanes, lane_bytes) and answers with the end and the rows of every micro-batch. The process, its Spark
and its Python workers stay, so that both versions are warm.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.domain.lake.pipeline import Pipeline, Stream

if TYPE_CHECKING or find_spec("penstock.lake"):
    from penstock.analysis.session import session
    from penstock.lake import query
    from penstock.lake.landing import Landed
else:  # the older side, from before the packages were cut as they are now
    from penstock.pipeline.lake import query
    from penstock.pipeline.lake.landing import Landed
    from penstock.pipeline.session import session


def serve() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    spark = session(query.with_retries("local[2]"), app="bench", config=query.SPARK_CONFIG)
    for line in sys.stdin:
        asked = json.loads(line)
        ends: list[tuple[float, int]] = []

        def tell(landed: Landed, ends: list[tuple[float, int]] = ends) -> None:
            ends.append((time.monotonic(), sum(lane.rows for lane in landed.report.lanes)))

        wanted = Pipeline(
            name="bench",
            bootstrap_servers=asked["servers"],
            streams=(Stream(topics=(asked["topic"],), table="events"),),
            lake=asked["place"],
            lanes=asked["lanes"],
            lane_bytes=asked["lane_bytes"],
        )
        prepared = query.prepare(wanted, {"bootstrap.servers": asked["servers"]})
        running = query.start(spark, prepared, only_what_is_there=True, tell=tell)
        while not running.wait(1.0):
            pass
        print(json.dumps(ends), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    serve()
