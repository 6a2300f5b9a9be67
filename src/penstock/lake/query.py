"""Runs a pipeline as one streaming query on Spark."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock import specs
from penstock.analysis.session import is_on_this_machine
from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import LaneReport
from penstock.kafka.brokers import Brokers, BrokersUnavailable
from penstock.kafka.waiting import holds_within
from penstock.lake import secrets
from penstock.lake.checkpoint import Blocker, Checkpoint
from penstock.lake.landing import Landed, Landing
from penstock.lake.routing import Router
from penstock.lake.source import LaneJob, format_of, source_for
from penstock.lake.tables import Tables

_TRIES = 4
# Session settings that a query of small, quick micro-batches is better off with.
SPARK_CONFIG = {
    # Spark writes one file of each kind per micro-batch, and lists them all.
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.python.daemon.module": "penstock.lake.daemon",
    # Over TCP a task's few bytes wait 40 ms for each other (Nagle's algorithm and late answers).
    "spark.python.unix.domain.socket.enabled": "true",
    # The default starts several processes (readlink, chmod) per file on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    # A task that dies (a killed worker, a broken pipe) is retried elsewhere.
    "spark.task.maxFailures": str(_TRIES),
}
_LOOK_S = 0.1


@dataclass(frozen=True)
class Prepared:
    """A pipeline that is ready to start: everything is checked and created except Spark."""

    job: LaneJob
    tables: Tables


def prepare(pipeline: Pipeline, config: Mapping[str, Any]) -> Prepared:
    """Check what can be checked before Spark starts. Call it as the checkpoint's sole owner."""
    router = Router(pipeline)
    checkpoint = Checkpoint(Path(pipeline.checkpoint_path))
    identity = checkpoint.open(pipeline)
    checkpoint.ask_to_stop(False)
    checkpoint.write_blocker(None)
    tables = Tables(Path(pipeline.lake), identity.id)
    tables.prepare(pipeline, router.schemas())
    tables.check_checkpoint(pipeline.ledger_table, checkpoint.newest_order)
    return Prepared(LaneJob(pipeline, config, checkpoint, identity.id), tables)


def check_topics(prepared: Prepared) -> None:
    """Raise if a topic is missing, before Spark starts. Brokers that do not answer are not an error:
    they may come back."""
    with suppress(BrokersUnavailable):
        known = prepared.job.checkpoint.known_topics()
        Brokers(prepared.job.config).discover(prepared.job.pipeline, known)


def with_retries(master: str) -> str:
    """Add retries to a local master: no other setting makes a local Spark retry a task."""
    local = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return f"local[{local[1] or 1},{_TRIES}]" if local else master


class Running:
    """A running query. `stop` lets it finish its micro-batch."""

    def __init__(self, query: StreamingQuery, checkpoint: Checkpoint) -> None:
        self._query = query
        self._checkpoint = checkpoint

    @property
    def blocker(self) -> Blocker | None:
        return self._checkpoint.blocker()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended; raises the error that ended it, if any."""
        with _java_alive():
            if not holds_within(timeout_s, lambda: not self._query.isActive, every_s=_LOOK_S):
                return False
            self._raise()
        return True

    def stop(self, timeout_s: float = 60.0) -> None:
        """Finish the present micro-batch and start no other."""
        self._checkpoint.ask_to_stop(True)
        with _java_alive():
            # An order that was made before this may not have become a micro-batch yet.
            self.wait(_LOOK_S)
            holds_within(timeout_s, self._is_idle, every_s=_LOOK_S)
            self._query.stop()
            self._raise()

    def _is_idle(self) -> bool:
        status = self._query.status["message"]
        return not self._query.isActive or status != "Processing new data"

    def _raise(self) -> None:
        if (error := self._query.exception()) is not None:
            if (blocker := self.blocker) is not None and blocker.is_final:
                raise PenstockError(blocker.message, blocker.fix)
            raise PenstockError(*_in_short(str(error)))


@contextmanager
def _java_alive() -> Iterator[None]:
    """Turn the many errors of Py4J after the end of Spark's Java process into one."""
    try:
        yield
    except (Py4JError, OSError) as error:
        if isinstance(error, Py4JJavaError):  # Java answered, so it is running
            raise
        raise PenstockError(
            "Spark's Java process has ended, or does not answer",
            "check dmesg for an out-of-memory kill, then start the pipeline again; nothing is lost",
        ) from None


def start(
    spark: SparkSession,
    prepared: Prepared,
    *,
    only_what_is_there: bool = False,
    tell: Callable[[Landed], None] = lambda _: None,
) -> Running:
    job = prepared.job
    master = spark.sparkContext.master or "local"
    settings = dict(spark.sparkContext.getConf().getAll())
    secrets.check(
        job.config,
        settings,
        master=master,
        is_on_this_machine=is_on_this_machine(master, settings.get("spark.driver.host", "")),
        lane_secrets=job.pipeline.lane_secrets,
    )
    lake, ledger_table = Path(job.pipeline.lake), job.pipeline.ledger_table
    landing = Landing(lake, job.checkpoint, prepared.tables, ledger_table, tell)

    def land(lanes: DataFrame, batch: int) -> None:
        landing.land(batch, lambda: reports(lanes))

    # An error in a micro-batch ends the query, which reports it; Py4J would log it too, at length.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    spark.dataSource.register(source_for(job))
    writer = (
        spark.readStream.format(format_of(job))
        .load()
        .writeStream.queryName(f"penstock-{job.pipeline.name}")
        .foreachBatch(land)
        .option("checkpointLocation", str(job.checkpoint.spark))
    )
    # The source decides how often, since it knows whether more is waiting.
    trigger = {"availableNow": True} if only_what_is_there else {"processingTime": "0 seconds"}
    return Running(writer.trigger(**trigger).start(), job.checkpoint)


def reports(lanes: DataFrame) -> list[LaneReport]:
    """Run the lanes and return their reports."""
    return [specs.parse(row.report, LaneReport, "report.json") for row in lanes.collect()]


def _in_short(text: str) -> tuple[str, str]:
    """The last line of the Python error in Spark's long message, and its fix."""
    lines = [line.strip() for line in text.splitlines()]
    fix = next((line.removeprefix("fix: ") for line in lines if line.startswith("fix: ")), "")
    errors = [line for line in lines if line.startswith("penstock.domain.errors.")]
    if errors:
        return errors[-1].partition(": ")[2], fix
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return (errors or lines or ["Spark ended the query"])[-1][:500], fix
