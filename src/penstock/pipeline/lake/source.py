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
        self._only: Mapping[Partition, Marks] | None = None
        self._hindrance: Hindrance | None = None

    def only_what_is_there(self) -> None:
        """From now on no order reaches beyond what the topics hold now."""
        self._discover()
        self._only = self._brokers.marks(self._partitions)

    def after(self, last: Order) -> Order:
        """The next order; `last` itself if there is nothing to do, or not yet.

        The first one is always made: it says where the pipeline begins. (And Spark takes whatever
        it gets first for a micro-batch, so orders and micro-batches have the same numbers.)
        """
        while True:
            try:
                found: Order | None = self._after(last)
            except Away as error:
                self._hinder(f"no broker answers: {error}", "it goes on when one does")
                # To Spark, no next order means the end if it reads only what is there.
                found = last if self._only is None else None
            except PenstockError as error:
                self._hinder(error.message, error.fix, is_final=True)
                raise
            if found is not None and found.number >= 0 and found != last:
                return found
            time.sleep(_PAUSE_S)
            if last.number >= 0 and (found is not None or self._job.memory.is_asked_to_stop):
                return last

    def _after(self, last: Order) -> Order:
        if self._job.memory.is_asked_to_stop:
            return last
        report = self._report(last)
        if self._only is None and not self._is_due(report):
            return last
        self._discover(last.topic_ids)
        pipeline = self._job.pipeline
        found = next_order(
            last,
            report.reached,
            self._marks(),
            self._topic_ids,
            begin=pipeline.start,
            may_lose=pipeline.lost_offsets == "go-on",
        )
        if isinstance(found, Obstacle):
            raise PenstockError(found.message, found.fix)
        gone = sorted(last.topic_ids.keys() - self._topic_ids.keys())
        self._hinder(
            f"the topic {', '.join(gone)} is gone" if gone else None,
            "its position is kept, and the other topics go on",
        )
        if not found.has_work and last.number >= 0:
            return last
        self._ordered_s = time.monotonic()
        return found

    def tasks(self, order: Order) -> list[LaneTask]:
        """One per lane that has something to do."""
        planned = self._job.memory.plan()
        plan = planned or even_plan(self._job.pipeline.lanes, list(order.ranges))
        tasks = []
        for lane, partitions in enumerate(fitted(plan, order.ranges)):
            ranges = {p: order.ranges[p] for p in partitions if order.ranges[p].has_work}
            if ranges:
                tasks.append(LaneTask(lane, order.number, ranges))
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
                "restore the checkpoint as a whole, or land under another pipeline name",
            )
        return found

    def _discover(self, known: Collection[str] = ()) -> None:
        if time.monotonic() - self._discovered_s >= self._job.pipeline.discover_s:
            self._partitions, self._topic_ids = self._brokers.discover(self._job.pipeline, known)
            self._discovered_s = time.monotonic()

    def _marks(self) -> dict[Partition, Marks]:
        marks = self._brokers.marks(self._partitions)
        if self._only is None:
            return marks
        return {
            # One that nobody leads just now is waited for.
            p: Marks(marks.get(p, then).low, min(marks.get(p, then).high, then.high))
            for p, then in self._only.items()
        }

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
