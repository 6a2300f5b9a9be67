"""A pipeline at work: one streaming query, from its start to its end."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock import specs
from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import LaneReport
from penstock.files import sole_owner
from penstock.pipeline.lake.brokers import Away, Brokers
from penstock.pipeline.lake.landing import LEDGER_COLUMNS, Landed, Landing
from penstock.pipeline.lake.memory import Hindrance, Memory
from penstock.pipeline.lake.sorting import Sorter
from penstock.pipeline.lake.source import LaneJob, format_of, source_for
from penstock.pipeline.lake.tables import Tables

_TRIES = 4
# Session settings that a query of small, quick micro-batches is better off with.
SPARK_CONFIG = {
    # Each is written, and listed, once per micro-batch.
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.python.daemon.module": "penstock.pipeline.lake.daemon",
    # Over TCP a task's few bytes wait 40 ms for each other (Nagle's algorithm and late answers).
    "spark.python.unix.domain.socket.enabled": "true",
    # The other one starts several processes (readlink, chmod) per file on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    # A task that dies (a worker killed, a broken pipe) is tried again elsewhere.
    "spark.task.maxFailures": str(_TRIES),
}
_LOOK_S = 0.1


@dataclass(frozen=True)
class Prepared:
    """Everything checked and made but for Spark: a pipeline that can start."""

    job: LaneJob
    tables: Tables


def prepare(pipeline: Pipeline, config: Mapping[str, Any]) -> Prepared:
    """Checks what can be checked before Spark starts. Call it as the checkpoint's sole owner."""
    sorter = Sorter(pipeline)
    memory = Memory(Path(pipeline.checkpoint_path))
    identity, is_new = memory.open(pipeline)
    memory.ask_to_stop(False)
    memory.write_hindrance(None)
    tables = Tables(Path(pipeline.lake), identity.id)
    tables.prepare(
        {**sorter.schemas(), pipeline.ledger_table: LEDGER_COLUMNS}, must_be_empty=is_new
    )
    tables.check_not_ahead(memory.newest_order)
    return Prepared(LaneJob(pipeline, config, memory, identity.id), tables)


def check_topics(prepared: Prepared) -> None:
    """Topics that are not there are said before Spark starts; brokers that are away may come."""
    with suppress(Away):
        known = prepared.job.memory.known_topics()
        Brokers(prepared.job.config).discover(prepared.job.pipeline, known)


def with_retries(master: str) -> str:
    """A local Spark tries a task once unless its master says otherwise; no setting does."""
    found = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return f"local[{found[1] or 1},{_TRIES}]" if found else master


class Running:
    """A query at work. `stop` lets it finish its micro-batch."""

    def __init__(self, query: StreamingQuery, memory: Memory) -> None:
        self._query = query
        self._memory = memory

    @property
    def hindrance(self) -> Hindrance | None:
        return self._memory.hindrance()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended; raises what ended it, if it was an error."""
        deadline = time.monotonic() + timeout_s
        while self._query.isActive:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(_LOOK_S, left))
        self._raise()
        return True

    def stop(self, timeout_s: float = 60.0) -> None:
        """No new micro-batch begins; the present one is finished."""
        self._memory.ask_to_stop(True)
        deadline = time.monotonic() + timeout_s
        while self._query.isActive and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            if self._query.status["message"] != "Processing new data":
                break
        self._query.stop()
        self._raise()

    def _raise(self) -> None:
        error = self._query.exception()
        if error is None:
            return
        hindrance = self._memory.hindrance()
        if hindrance is not None and hindrance.is_final:
            raise PenstockError(hindrance.message, hindrance.fix)
        raise PenstockError(*_in_short(str(error)))


def start(
    spark: SparkSession,
    prepared: Prepared,
    *,
    only_what_is_there: bool = False,
    tell: Callable[[Landed], None] = lambda _: None,
) -> Running:
    job = prepared.job
    landing = Landing(
        lake=Path(job.pipeline.lake),
        memory=job.memory,
        tables=prepared.tables,
        ledger_table=job.pipeline.ledger_table,
        tell=tell,
    )

    def land(lanes: DataFrame, batch: int) -> None:
        landing.land(batch, lambda: reports(lanes))

    # What a micro-batch raises ends the query, which says it; Py4J would say it too, at length.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    spark.dataSource.register(source_for(job))
    writer = (
        spark.readStream.format(format_of(job))
        .load()
        .writeStream.queryName(f"penstock-{job.pipeline.name}")
        .foreachBatch(land)
        .option("checkpointLocation", str(job.memory.spark))
    )
    # How often is the source's to say, which knows whether more is waiting.
    trigger = {"availableNow": True} if only_what_is_there else {"processingTime": "0 seconds"}
    return Running(writer.trigger(**trigger).start(), job.memory)


@contextmanager
def owned(pipeline: Pipeline) -> Iterator[None]:
    """The checkpoint is ours alone meanwhile."""
    path = Path(pipeline.checkpoint_path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PenstockError(
            f"{path}: cannot be made: {error.strerror}", "check `lake` and `checkpoint`"
        ) from None
    ledger = Path(pipeline.lake) / pipeline.ledger_table
    ledger.mkdir(parents=True, exist_ok=True)
    # The ledger's too, in case the same pipeline is begun with another checkpoint.
    with sole_owner(path), sole_owner(ledger):
        yield


def reports(lanes: DataFrame) -> list[LaneReport]:
    """Carry the lanes out; what each says."""
    return [specs.parse(row.report, LaneReport, "report.json") for row in lanes.collect()]


def _in_short(text: str) -> tuple[str, str]:
    """What matters of Spark's long message: the last line of the Python error in it, and its fix."""
    lines = [line.strip() for line in text.splitlines()]
    fix = next((line.removeprefix("fix: ") for line in lines if line.startswith("fix: ")), "")
    errors = [line for line in lines if line.startswith("penstock.domain.errors.")]
    if errors:
        return errors[-1].partition(": ")[2], fix
    told = [line for line in lines if "Error" in line or "Exception" in line]
    return (told or lines or ["Spark ended the query"])[-1][:500], fix
