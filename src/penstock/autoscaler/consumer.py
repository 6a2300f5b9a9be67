"""One consumer of a plain group: the document's own shape (S2, 4.3), for those without Spark.

Its cycle is a lane's: gather, decode, write, land; then it reads its commands and answers. Where a
partition goes on is in the ledger, with the records themselves, so it may go from one consumer to
another, and be killed at any moment, and every record is there once. Kafka is told the offsets
afterwards, for those who look at lag with its tools.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from confluent_kafka import KafkaException, TopicPartition
from deltalake import DeltaTable

from penstock.autoscaler.channel import HEARTBEAT_S, HostLink
from penstock.domain.autoscaling import Answer, Command, Cycle
from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.lake.order import LaneTask, Obstacle, Order, Range, next_order
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline
from penstock.files import create_file, sole_owner
from penstock.pipeline.lake import lane
from penstock.pipeline.lake.brokers import Away, Brokers
from penstock.pipeline.lake.consumer import LaneConsumer
from penstock.pipeline.lake.landing import LEDGER_COLUMNS, Landed, Landing
from penstock.pipeline.lake.memory import CONSUMERS, Memory
from penstock.pipeline.lake.sorting import Sorter
from penstock.pipeline.lake.tables import Tables

_IDLE_S = 0.1
_TOPICS = "topics"
# That it is likely to hold: how much is fetched of each at a time follows from it.
_PARTITIONS = 8


class _Memory(Memory):
    """Without Spark there are no orders: a report is all there is of a cycle."""

    @property
    def newest_order(self) -> int:
        return self.newest_report


def memory_of(pipeline: Pipeline, number: int) -> Memory:
    return _Memory(_place(pipeline) / str(number))


def _place(pipeline: Pipeline) -> Path:
    return Path(pipeline.checkpoint_path) / CONSUMERS


def check(pipeline: Pipeline) -> None:
    """What plain consumers cannot do is said before any is started."""
    if pipeline.start != "earliest":
        raise BadInput(
            f"start: plain consumers begin with the earliest record, not {pipeline.start}",
            "leave it out, or run it on Spark: penstock pipeline run --autoscale inside",
        )
    if (Path(pipeline.checkpoint_path) / "pipeline.json").exists():
        raise BadInput(
            f"{pipeline.checkpoint_path}: is the checkpoint of a pipeline on Spark",
            "go on with penstock pipeline run, or use another name and lake",
        )


@contextmanager
def owned(pipeline: Pipeline, number: int) -> Iterator[None]:
    """This consumer is the only one of its number, and nobody lands by Spark meanwhile."""
    check(pipeline)
    own = memory_of(pipeline, number).path
    ledger = Path(pipeline.lake) / pipeline.ledger_table
    for path in (own, ledger, _place(pipeline) / _TOPICS):
        path.mkdir(parents=True, exist_ok=True)
    with (
        sole_owner(own),
        sole_owner(Path(pipeline.checkpoint_path), among_equals=True),
        sole_owner(ledger, among_equals=True),
    ):
        yield


def settle(pipeline: Pipeline, number: int) -> Landing:
    """Finish what a life of this consumer left half landed. Call it when none runs."""
    memory = memory_of(pipeline, number)
    identity, _ = memory.open(pipeline)
    tables = Tables(Path(pipeline.lake), identity.id)
    schemas = {**Sorter(pipeline).schemas(), pipeline.ledger_table: LEDGER_COLUMNS}
    tables.prepare(schemas, must_be_empty=False)
    landing = Landing(Path(pipeline.lake), memory, tables, pipeline.ledger_table)
    if memory.newest_report >= 0:
        landing.land(memory.newest_report, lambda: [])
    return landing


class PlainConsumer:
    """Serves until it is stopped; `serve_once` is one turn."""

    def __init__(
        self, pipeline: Pipeline, config: Mapping[str, Any], number: int, link: HostLink
    ) -> None:
        self._pipeline, self._number, self._link = pipeline, number, link
        self._landing = settle(pipeline, number)
        self._batch = self._landing.memory.newest_report
        self._brokers = Brokers(config)
        self._sorter = Sorter(pipeline)
        self._consumer = LaneConsumer(
            config, pipeline.lane_bytes, _PARTITIONS, group=f"penstock.{pipeline.name}"
        )
        self._version = -1
        self._ids: dict[str, str] = {}
        self._held: set[Partition] = set()
        self._positions: dict[Partition, int] = {}
        self._last = Answer(host=number)
        self._answered_s = float("-inf")
        self._answering = threading.Lock()
        self._ended = threading.Event()
        self._landed_s = float("-inf")
        self._is_behind = False
        # It was told to end.
        self.is_dismissed = False
        if (last := link.past()) is not None:
            self._hold(last)
        self._answer(None)
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._heart.start()

    def close(self) -> None:
        self._ended.set()
        self._heart.join()
        self._consumer.close()
        self._link.close()

    def serve_once(self) -> None:
        """Commands, a cycle, an answer."""
        must_answer = False
        while (command := self._link.command(0.0)) is not None:
            must_answer = True
            if command.verb == "hold":
                self._hold(command)
            self.is_dismissed = self.is_dismissed or command.verb == "end"
        cycle = self._cycle()
        if must_answer or cycle is not None:
            self._answer(cycle)
        if cycle is None:
            time.sleep(_IDLE_S)

    def _hold(self, command: Command) -> None:
        if command.version <= self._version:
            return
        self._version = command.version
        names = command.lanes.get(self._number, ())
        self._held = {Partition.parse(name) for name in names}
        new = self._held - self._positions.keys()
        self._positions = {p: at for p, at in self._positions.items() if p in self._held}
        self._positions |= reached(self._pipeline, new)

    def _cycle(self) -> Cycle | None:
        """None if there was nothing to read, or it is not yet time: every one makes files."""
        is_due = self._is_behind or time.monotonic() - self._landed_s >= self._pipeline.every_s
        if not self._held or not is_due:
            return None
        began_s = time.monotonic()
        try:
            marks = self._brokers.marks(self._held)
            ids = self._brokers.topic_ids(sorted({p.topic for p in self._held}))
        except Away:
            return None
        last = Order(
            number=self._batch,
            ranges={p: Range(at, at, at) for p, at in self._positions.items()},
            topic_ids={topic: self._known_id(topic, ids[topic]) for topic in ids},
        )
        order = next_order(
            last,
            self._positions,
            marks,
            ids,
            begin=self._pipeline.start,
            may_lose=self._pipeline.lost_offsets == "go-on",
        )
        if isinstance(order, Obstacle):
            raise PenstockError(order.message, order.fix)
        ranges = {p: r for p, r in order.ranges.items() if p in self._held and r.has_work}
        if not ranges:
            return None
        task = LaneTask(self._number, self._batch + 1, ranges, self._version)
        landed = self._land(task)
        (report,) = landed.report.lanes
        self._positions |= {r.name: r.end for r in report.ranges}
        self._landed_s = time.monotonic()
        self._is_behind = any(r.lag for r in report.ranges)
        self._commit()
        # It is timed from its own begin, so it never waited.
        return Cycle.of(report, landed.at_ms, time.monotonic() - began_s, was_behind=True)

    def _known_id(self, topic: str, now: str) -> str:
        """As the group first saw it: one that was deleted and made anew is another topic."""
        if topic not in self._ids:
            file = _place(self._pipeline) / _TOPICS / topic
            with suppress(FileExistsError):
                create_file(file, now)
            self._ids[topic] = file.read_text()
        return self._ids[topic]

    def _land(self, task: LaneTask) -> Landed:
        report = lane.work(task, self._pipeline, self._consumer, self._sorter)
        landed = self._landing.land(task.batch, lambda: [report])
        self._batch = task.batch
        return landed

    def _commit(self) -> None:
        offsets = [TopicPartition(*p, at) for p, at in self._positions.items()]
        with suppress(KafkaException):  # for onlookers only: what counts is in the ledger
            self._consumer.commit(offsets)

    def _answer(self, cycle: Cycle | None) -> None:
        held = tuple(map(str, sorted(self._held)))
        answer = Answer(
            host=self._number,
            version=self._version,
            lanes={self._number: held} if held else {},
            positions={str(p): at for p, at in self._positions.items()},
            cycles=(cycle,) if cycle else (),
        )
        with self._answering:
            self._last = replace(answer, cycles=())
            self._say(answer)

    def _beat(self) -> None:
        """A cycle may take long: meanwhile it says what it said last."""
        while not self._ended.wait(HEARTBEAT_S / 4):
            with self._answering:
                if time.monotonic() - self._answered_s > HEARTBEAT_S:
                    with suppress(KafkaException, BufferError):  # Kafka is away: the next one
                        self._say(self._last)

    def _say(self, answer: Answer) -> None:
        self._link.answer(replace(answer, at_ms=round(time.time() * 1000)))
        self._answered_s = time.monotonic()


def reached(pipeline: Pipeline, partitions: Collection[Partition]) -> dict[Partition, int]:
    """How far each is landed, by the ledger; those that it does not have are left out."""
    if not partitions:
        return {}
    ledger = DeltaTable(f"{pipeline.lake}/{pipeline.ledger_table}").to_pyarrow_dataset()
    topics = sorted({p.topic for p in partitions})
    rows = ledger.to_table(
        columns=["topic", "partition", "end_offset"], filter=pc.field("topic").isin(topics)
    )
    ends = rows.group_by(["topic", "partition"]).aggregate([("end_offset", "max")])
    found = {
        Partition(topic, number): end
        for topic, number, end in zip(
            *(ends.column(n).to_pylist() for n in ("topic", "partition", "end_offset_max")),
            strict=True,
        )
    }
    return {p: found[p] for p in partitions if p in found}
