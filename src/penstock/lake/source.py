"""The streaming source for Spark: makes orders for micro-batches, and runs lanes.

Spark asks for the next offset (an `Order`) and its partitions (one per lane), runs one task per
lane, and gets one row from each: the lane's report. The records themselves never pass through
Spark: a lane writes them to files, and `landing` adds the files to the tables.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock import specs
from penstock.domain.errors import PenstockError
from penstock.domain.lake.order import (
    LaneTask,
    Marks,
    Obstacle,
    Order,
    next_order,
    positions,
    repeated,
)
from penstock.domain.lake.partition import Partition, listed
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.plan import even_plan, fitted, in_turn
from penstock.domain.lake.report import BatchReport
from penstock.domain.lake.stall import Stalls
from penstock.domain.lake.truncation import Truncations
from penstock.kafka.brokers import Brokers, BrokersUnavailable
from penstock.lake.checkpoint import Blocker, Checkpoint

SCHEMA = "lane INT, report STRING"
# How long a call of Spark's waits while there is nothing to do, since Spark asks again at once.
_PAUSE_S = 0.05


@dataclass(frozen=True)
class LaneJob:
    """Everything that source and lanes need. It contains secrets and must never be shown."""

    pipeline: Pipeline
    config: Mapping[str, Any]
    checkpoint: Checkpoint
    id: str

    def __repr__(self) -> str:
        return f"LaneJob({self.pipeline.name})"


class LanePartition(InputPartition):
    """One lane's task, in the form in which Spark passes it to a worker."""

    def __init__(self, task: LaneTask) -> None:
        super().__init__(task.lane)
        self.task = task


def source_for(job: LaneJob) -> type[DataSource]:
    """A source class that contains the job: options would appear in plans and logs."""
    return type("LaneSource", (_LaneSource,), {"job": job})


def format_of(job: LaneJob) -> str:
    """The name of the job's source. It is unique, since a session may run several pipelines."""
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
    """In the source's own process it makes orders; in a worker it runs a lane."""

    def __init__(self, job: LaneJob) -> None:
        self._job = job

    # --- in the source's process ---------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        return Order().to_offset()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._book.after(Order.from_offset(start)).to_offset()

    def prepareForTriggerAvailableNow(self) -> None:
        self._book.only_what_is_there()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        order = Order.from_offset(end)
        if order.number == start["order"]:
            return []
        return [LanePartition(task) for task in self._book.tasks(order)]

    @cached_property
    def _book(self) -> OrderBook:
        return OrderBook(self._job)

    # --- in a worker -----------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        from penstock.lake import worker_cache as workers

        assert isinstance(partition, LanePartition)
        report = workers.execute(partition.task, self._job)
        yield report.lane, specs.dump_json(report)


class OrderBook:
    """Makes orders from the last report and the brokers' offsets, when one is due."""

    def __init__(self, job: LaneJob) -> None:
        self._job = job
        self._brokers = Brokers(job.config)
        self._may_lose = job.pipeline.lost_offsets == "continue"
        self._partitions: set[Partition] = set()
        self._topic_ids: dict[str, str] = {}
        self._discovered_s = float("-inf")
        self._ordered_s = float("-inf")
        # The number of the last order that was made here; an earlier process may have made others.
        self._made = -1
        self._is_once = False
        # With `only_what_is_there`: where each partition ended when the pipeline began.
        self._limits: Mapping[Partition, int] | None = None
        self._truncations = Truncations()
        self._stalls = Stalls()
        self._blocker: Blocker | None = None

    def only_what_is_there(self) -> None:
        """No order may reach beyond what the topics hold when the first one is made."""
        self._is_once = True

    # --- new orders --------------------------------------------------------------------------------

    def after(self, last: Order) -> Order:
        """The next order; `last` itself if there is nothing to do, or not yet.

        The first one is always made: it says where the pipeline begins. (Spark makes a micro-batch
        of the first offset that it gets, so orders and micro-batches have the same numbers.)
        """
        while True:
            must_wait = last.number < 0
            try:
                with self._explained():
                    if order := self._next(last):
                        self._made = order.number
                        return order
            except BrokersUnavailable:
                # If Spark reads only what is there, no next order means the end to it.
                must_wait = must_wait or self._is_once
            # A pace, not a wait for something: Spark asks again at once, for as long as it runs.
            time.sleep(_PAUSE_S)
            if not must_wait or (last.number >= 0 and self._job.checkpoint.is_asked_to_stop):
                return last

    def _next(self, last: Order) -> Order | None:
        if self._job.checkpoint.is_asked_to_stop:
            return None
        report = self._report(last)
        if not self._is_once and not self._is_due(report):
            return None
        self._discover(last.topic_ids)
        marks = self._brokers.marks(self._partitions)
        if last.number < 0 or (self._is_once and self._limits is None):
            # Where a pipeline begins or ends must be known for all partitions.
            _require_leaders(self._partitions - marks.keys())
        if self._is_once and self._limits is None:
            self._limits = {partition: mark.high for partition, mark in marks.items()}
        self._truncations.learn(report)
        stands = positions(last, report.reached)
        log_ends = self._brokers.with_log_ends(marks, stands)
        truncated = self._truncations.look(stands, log_ends, time.monotonic())
        make = partial(
            next_order,
            last,
            report.reached,
            marks,
            begin=self._job.pipeline.start,
            may_lose=self._may_lose,
            limits=self._limits,
            truncated=truncated,
        )
        order = _unless_stopped(make(self._topic_ids))
        if order.has_work and self._are_topics_others():
            order = _unless_stopped(make(self._topic_ids))  # raises
        self._tell(last, order, marks)
        if not order.has_work and last.number >= 0:
            if self._is_once:
                self._require_known_ends(order, marks)
            return None
        self._ordered_s = time.monotonic()
        return order

    def _are_topics_others(self) -> bool:
        """Whether a topic was re-created since the last look. Updates the ids.

        Checked before anything is read: the old position would give the wrong records.
        """
        now = self._brokers.topic_ids(list(self._topic_ids))
        before, self._topic_ids = self._topic_ids, self._topic_ids | now
        return before != self._topic_ids

    def _require_known_ends(self, order: Order, marks: Mapping[Partition, Marks]) -> None:
        """Raise while an end is unknown: until then, not all that is there is landed."""
        limits = self._limits or {}
        _require_leaders(
            {p for p, high in limits.items() if p not in marks and order.ranges[p].start < high}
        )
        if unsure := sorted(self._truncations.unsure):
            raise BrokersUnavailable(
                f"{unsure[0]} ends before its position, {order.ranges[unsure[0]].start}"
            )

    def _is_due(self, last: BatchReport) -> bool:
        """At once if more is waiting; otherwise rarely, since every micro-batch makes files."""
        return last.is_behind or time.monotonic() - self._ordered_s >= self._job.pipeline.every_s

    def _report(self, last: Order) -> BatchReport:
        if last.number < 0:
            return BatchReport(batch=-1)
        report = self._job.checkpoint.report(last.number)
        if report is None:
            raise PenstockError(
                f"{self._job.checkpoint.path}: the report of micro-batch {last.number} is missing",
                "restore the checkpoint as a whole",
            )
        return report

    def _discover(self, known: Collection[str] = ()) -> None:
        if time.monotonic() - self._discovered_s >= self._job.pipeline.discover_s:
            self._partitions, self._topic_ids = self._brokers.discover(self._job.pipeline, known)
            self._discovered_s = time.monotonic()

    # --- their tasks -------------------------------------------------------------------------------

    def tasks(self, order: Order) -> list[LaneTask]:
        """One per lane that has something to do."""
        if order.number != self._made and self._job.checkpoint.report(order.number) is None:
            order = self._checked(order)
        planned = self._job.checkpoint.plan()
        plan = planned or even_plan(self._job.pipeline.lanes, list(order.ranges))
        tasks = []
        for lane, partitions in enumerate(fitted(plan, order.ranges)):
            ranges = {p: order.ranges[p] for p in partitions if order.ranges[p].has_work}
            if ranges:
                tasks.append(LaneTask(lane, order.number, ranges, plan.version))
        last = self._job.checkpoint.report(order.number - 1)
        turns = in_turn(last.lanes if last else ())
        return sorted(tasks, key=lambda task: turns.get(task.lane, len(turns)))

    def _checked(self, order: Order) -> Order:
        """Check an order that an earlier process made but did not carry out.

        Only partitions that the streams take now are looked up: a partition of this order that
        cannot be read must not hold up the others.
        """
        while True:
            with suppress(BrokersUnavailable), self._explained():
                self._discover(order.topic_ids)
                marks = self._brokers.marks(self._partitions)
                # After the marks: the topic may have been re-created since.
                ids = self._brokers.topic_ids(list(self._topic_ids))
                checked = _unless_stopped(repeated(order, marks, ids, may_lose=self._may_lose))
                self._tell(order, checked, marks)
                return checked
            if self._job.checkpoint.is_asked_to_stop:
                raise PenstockError(
                    f"micro-batch {order.number} was not repeated: no broker answered",
                    "nothing of it was landed; start the pipeline again when Kafka is back",
                )
            # Without a limit, so not `wait_until`: what is awaited is reported (`_explained`), and
            # only the user's wish to stop ends it.
            time.sleep(_PAUSE_S)

    # --- messages to the driver --------------------------------------------------------------------

    def _tell(self, last: Order, order: Order, marks: Mapping[Partition, Marks]) -> None:
        """Report what blocks some partitions while the others are read."""
        blockers: dict[str, str] = {}  # message → fix
        gone = sorted(last.topic_ids.keys() - self._topic_ids.keys())
        # Except topics that were removed from the pipeline file.
        if gone := [t for t in gone if self._job.pipeline.stream_of(t) is not None]:
            fix = "its position is kept, and the other topics are still read"
            blockers[f"the topic {', '.join(gone)} no longer exists"] = fix
        stalled = self._stalls.look(self._partitions - marks.keys(), time.time())
        if stalled:
            first = min(stalled, key=lambda p: (stalled[p], p))
            since = time.strftime("%H:%M:%S", time.localtime(stalled[first]))
            why = self._brokers.silent.get(first, "it has no leader")
            fix = "check the brokers that have replicas of it; the other partitions are still read"
            blockers[f"{listed(stalled)} cannot be read since {since}: {why}"] = fix
        short = {p for p, r in order.ranges.items() if p in marks and marks[p].high < r.start}
        if cut := sorted(p for p in short if order.ranges[p].truncated_from is not None):
            r = order.ranges[cut[0]]
            what = (
                f"was truncated at offset {r.truncated_from}, and was read up to {r.start} before"
            )
            fix = "it is read again when it has grown past that offset"
            blockers[f"{listed(cut)} {what}"] = fix
        texts, fixes = "; ".join(blockers), "; ".join(blockers.values())
        self._note_blocker(texts, fixes, stalled=len(stalled.keys() | short))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Report errors that are raised inside."""
        try:
            yield
        except BrokersUnavailable as error:
            self._note_blocker(
                f"waiting for Kafka: {error}",
                "the pipeline continues when a broker answers",
                stalled=len(self._partitions),
            )
            raise
        except PenstockError as error:
            self._note_blocker(error.message, error.fix, is_final=True)
            raise

    def _note_blocker(
        self, message: str, fix: str, *, is_final: bool = False, stalled: int = 0
    ) -> None:
        """Write it where the driver reads it, if it has changed."""
        known = self._blocker or Blocker()
        now = Blocker(
            message=message,
            fix=fix,
            since_ms=known.since_ms,
            is_final=is_final,
            stalled_partitions=stalled,
            skipped_topics=self._brokers.skipped,
        )
        if now == known:
            return
        if now.message != known.message:
            now = replace(now, since_ms=round(time.time() * 1000))
        is_any = now.message or now.stalled_partitions or now.skipped_topics
        self._blocker = now if is_any else None
        self._job.checkpoint.write_blocker(self._blocker)


def _unless_stopped(outcome: Order | Obstacle) -> Order:
    if isinstance(outcome, Obstacle):
        raise PenstockError(outcome.message, outcome.fix)
    return outcome


def _require_leaders(partitions: Collection[Partition]) -> None:
    if partitions:
        raise BrokersUnavailable(
            f"{len(partitions)} partitions have no leader ({listed(partitions)})"
        )
