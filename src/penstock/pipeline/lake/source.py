"""The streaming source: orders for micro-batches, and lanes that carry them out.

Spark asks for the next offset (an `Order`), for its partitions (one per lane), runs one task per
lane, and gets one row from each: the lane's report. The records themselves never pass through
Spark: a lane writes them where they belong. `landing` makes them part of the tables.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock import specs
from penstock.domain.errors import PenstockError
from penstock.domain.lake.order import LaneTask, Marks, Obstacle, Order, next_order
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.plan import even_plan, fitted, in_turn
from penstock.domain.lake.report import BatchReport
from penstock.pipeline.lake.brokers import Away, Brokers
from penstock.pipeline.lake.memory import Hindrance, Memory

SCHEMA = "lane INT, report STRING"
# The most a call of Spark's is held while there is nothing to do: it asks again at once.
_PAUSE_S = 0.05


@dataclass(frozen=True)
class LaneJob:
    """Everything that source and lanes must know. Holds secrets: never shown."""

    pipeline: Pipeline
    config: Mapping[str, Any]
    memory: Memory
    id: str

    def __repr__(self) -> str:
        return f"LaneJob({self.pipeline.name})"


class LanePartition(InputPartition):
    """One lane's task, as Spark hands it on."""

    def __init__(self, task: LaneTask) -> None:
        super().__init__(task.lane)
        self.task = task


def source_for(job: LaneJob) -> type[DataSource]:
    """A source with this job in it: options would be shown in plans and logs."""
    return type("LaneSource", (_LaneSource,), {"job": job})


def format_of(job: LaneJob) -> str:
    """The name of its source: one session may run several pipelines."""
    return f"penstock-lanes-{job.id}"


class _LaneSource(DataSource):
    job: ClassVar[LaneJob]

    @classmethod
    def name(cls) -> str:
        return format_of(cls.job)

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return LaneReader(self.job)


class LaneReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """In the source's own process: makes orders. In a worker: carries a lane out."""

    def __init__(self, job: LaneJob) -> None:
        self._job = job
        self._orders: OrderBook | None = None

    # --- in the source's process ---------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        return Order().to_offset()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._book().after(Order.from_offset(start)).to_offset()

    def prepareForTriggerAvailableNow(self) -> None:
        self._book().only_what_is_there()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        order = Order.from_offset(end)
        if order.number == start["order"]:
            return []
        return [LanePartition(task) for task in self._book().tasks(order)]

    def _book(self) -> OrderBook:
        if self._orders is None:
            self._orders = OrderBook(self._job)
        return self._orders

    # --- in a worker -----------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        from penstock.pipeline.lake import workers  # half a second that the source need not wait

        assert isinstance(partition, LanePartition)
        report = workers.carry_out(partition.task, self._job)
        yield report.lane, specs.dump_json(report)


class OrderBook:
    """Makes orders: asks the brokers, reads the last report, waits until it is worth it."""

    def __init__(self, job: LaneJob) -> None:
        self._job = job
        self._brokers = Brokers(job.config)
        self._partitions: set[Partition] = set()
        self._topic_ids: dict[str, str] = {}
        self._discovered_s = float("-inf")
        self._ordered_s = float("-inf")
        self._is_once = False
        # Where each partition ended when a pipeline began that lands only what is there.
        self._limits: Mapping[Partition, int] | None = None
        self._hindrance: Hindrance | None = None

    def only_what_is_there(self) -> None:
        """No order shall reach beyond what the topics hold when the first one is made."""
        self._is_once = True

    def after(self, last: Order) -> Order:
        """The next order; `last` itself if there is nothing to do, or not yet.

        The first one is always made: it says where the pipeline begins. (And Spark takes whatever
        it gets first for a micro-batch, so orders and micro-batches have the same numbers.)
        """
        while True:
            must_wait = last.number < 0
            try:
                if found := self._next(last):
                    return found
            except Away as error:
                self._hinder(f"waiting for Kafka: {error}", "it goes on when brokers answer")
                # To Spark, no next order means the end if it reads only what is there.
                must_wait = must_wait or self._is_once
            except PenstockError as error:
                self._hinder(error.message, error.fix, is_final=True)
                raise
            time.sleep(_PAUSE_S)
            if not must_wait or (last.number >= 0 and self._job.memory.is_asked_to_stop):
                return last

    def _next(self, last: Order) -> Order | None:
        if self._job.memory.is_asked_to_stop:
            return None
        report = self._report(last)
        if not self._is_once and not self._is_due(report):
            return None
        self._discover(last.topic_ids)
        marks = self._brokers.marks(self._partitions)
        if last.number < 0 or (self._is_once and self._limits is None):
            # Where a pipeline begins, or where it is to end, must be known of all of them.
            _require_leaders(self._partitions - marks.keys())
        if self._is_once and self._limits is None:
            self._limits = {partition: found.high for partition, found in marks.items()}
        order = self._order(last, report, marks)
        if order.has_work and self._are_topics_others():
            order = self._order(last, report, marks)  # which stops it
        gone = sorted(last.topic_ids.keys() - self._topic_ids.keys())
        self._hinder(
            f"the topic {', '.join(gone)} is gone" if gone else None,
            "its position is kept, and the other topics go on",
        )
        if not order.has_work and last.number >= 0:
            limits = self._limits or {}
            _require_leaders(
                {p for p, high in limits.items() if p not in marks and order.ranges[p].start < high}
            )
            return None
        self._ordered_s = time.monotonic()
        return order

    def _order(self, last: Order, report: BatchReport, marks: Mapping[Partition, Marks]) -> Order:
        found = next_order(
            last,
            report.reached,
            marks,
            self._topic_ids,
            begin=self._job.pipeline.start,
            may_lose=self._job.pipeline.lost_offsets == "go-on",
            limits=self._limits,
        )
        if isinstance(found, Obstacle):
            raise PenstockError(found.message, found.fix)
        return found

    def _are_topics_others(self) -> bool:
        """Whether a topic was made anew since they were last looked at; then the new ids are known.

        Asked before anything is read: under the old position it would be the wrong records.
        """
        now = self._brokers.topic_ids(list(self._topic_ids))
        are_others = any(now.get(topic, known) != known for topic, known in self._topic_ids.items())
        self._topic_ids |= now
        return are_others

    def tasks(self, order: Order) -> list[LaneTask]:
        """One per lane that has something to do."""
        planned = self._job.memory.plan()
        plan = planned or even_plan(self._job.pipeline.lanes, list(order.ranges))
        tasks = []
        for lane, partitions in enumerate(fitted(plan, order.ranges)):
            ranges = {p: order.ranges[p] for p in partitions if order.ranges[p].has_work}
            if ranges:
                tasks.append(LaneTask(lane, order.number, ranges, plan.version))
        last = self._job.memory.report(order.number - 1)
        turns = in_turn(last.lanes if last else ())
        return sorted(tasks, key=lambda task: turns.get(task.lane, len(turns)))

    def _is_due(self, last: BatchReport) -> bool:
        """Not too often, for every micro-batch makes files; at once if more is waiting."""
        if last.is_behind:
            return True
        return time.monotonic() - self._ordered_s >= self._job.pipeline.every_s

    def _report(self, last: Order) -> BatchReport:
        if last.number < 0:
            return BatchReport(batch=-1)
        found = self._job.memory.report(last.number)
        if found is None:
            raise PenstockError(
                f"{self._job.memory.path}: the report of micro-batch {last.number} is missing",
                "restore the checkpoint as a whole",
            )
        return found

    def _discover(self, known: Collection[str] = ()) -> None:
        if time.monotonic() - self._discovered_s >= self._job.pipeline.discover_s:
            self._partitions, self._topic_ids = self._brokers.discover(self._job.pipeline, known)
            self._discovered_s = time.monotonic()

    def _hinder(self, message: str | None, fix: str = "", is_final: bool = False) -> None:
        """Said once, where the driver sees it."""
        if message == (self._hindrance.message if self._hindrance else None):
            return
        now_ms = round(time.time() * 1000)
        self._hindrance = None
        if message is not None:
            self._hindrance = Hindrance(
                message=message, fix=fix, since_ms=now_ms, is_final=is_final
            )
        self._job.memory.write_hindrance(self._hindrance)


def _require_leaders(partitions: Collection[Partition]) -> None:
    if partitions:
        shown = ", ".join(map(str, sorted(partitions)[:3]))
        raise Away(f"{len(partitions)} partitions have no leader ({shown}, …)")
