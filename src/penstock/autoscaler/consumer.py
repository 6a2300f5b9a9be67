"""One plain consumer: a lane in its own process, without Spark, as in the document (S2, 4.3).

Its cycle is a lane's: gather, decode, write, land; then it reads its commands and answers. The
positions of partitions are in the ledger, with the records, so a partition may move from one
consumer to another, and a consumer may be killed at any moment: every record is landed once.
Offsets are committed to Kafka afterwards, only for tools that show lag.
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
from penstock.autoscaler.group import Group, consumers_path
from penstock.autoscaler.topics import Topics, Warn
from penstock.domain.autoscaling import Command, HostAnswer
from penstock.domain.errors import BadInput, GroupStopped, PenstockError
from penstock.domain.lake.cycle import Cycles, LaneCycle
from penstock.domain.lake.order import LaneTask, Obstacle, Order, Position, Range, next_order
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.truncation import Truncations
from penstock.kafka.brokers import Brokers, BrokersUnavailable
from penstock.lake import lane, ownership, pipeline_file
from penstock.lake.checkpoint import Checkpoint, OrderlessCheckpoint
from penstock.lake.consumer import LaneConsumer
from penstock.lake.landing import resumed
from penstock.lake.routing import Router
from penstock.specs.files import create_file, sole_owner

_IDLE_S = 0.1
_TOPICS = "topics"
# Number of partitions that it is likely to hold; the fetch size of each follows from it.
_PARTITIONS = 8


def checkpoint_of(pipeline: Pipeline, number: int) -> Checkpoint:
    return OrderlessCheckpoint(consumers_path(pipeline) / str(number))


def check(pipeline: Pipeline) -> None:
    """Raise if plain consumers cannot run this pipeline, before any is started."""
    if pipeline.start != "earliest":
        raise BadInput(
            f"start: plain consumers begin with the earliest record, not {pipeline.start}",
            "remove it, or run the pipeline on Spark: penstock pipeline run --autoscale inside",
        )
    if (Path(pipeline.checkpoint_path) / "pipeline.json").exists():
        raise BadInput(
            f"{pipeline.checkpoint_path}: is the checkpoint of a pipeline on Spark",
            "continue with penstock pipeline run, or use another name and lake",
        )


@contextmanager
def owned(pipeline: Pipeline, number: int) -> Iterator[None]:
    """Hold the locks of this consumer: no other has its number, and Spark does not run."""
    check(pipeline)
    own = checkpoint_of(pipeline, number).path
    for path in (own, consumers_path(pipeline) / _TOPICS):
        path.mkdir(parents=True, exist_ok=True)
    with sole_owner(own), ownership.owned(pipeline, among_equals=True):
        yield


@contextmanager
def joined(pipeline: Pipeline, number: int, on_warning: Warn) -> Iterator[PlainConsumer]:
    """The consumer of this number, in the group that a controller started; it ends with the block."""
    config, _ = pipeline_file.client_config(pipeline)
    topics = Topics(pipeline.name, config, most_hosts=pipeline.autoscaling.most_lanes)
    _check_number(pipeline, topics, number)
    with ending(number), owned(pipeline, number):
        group = Group(pipeline, is_plain=True).make_id()
        served = PlainConsumer(
            pipeline, config, number, HostLink(topics, number, group, on_warning)
        )
        try:
            yield served
        finally:
            served.close()


def _check_number(pipeline: Pipeline, topics: Topics, number: int) -> None:
    try:
        there = topics.count()
    except KafkaException as error:
        raise PenstockError(
            f"{pipeline.bootstrap_servers}: no broker answers: {error.args[0].str()}",
            "check bootstrap_servers and client_properties; the controller restarts this consumer",
        ) from None
    if not there:
        raise BadInput(
            f"there is no command topic {topics.group}",
            "start the controller first: penstock autoscaler run FILE --consumers",
        )
    # There may be more than now, of a time when most_lanes was higher.
    if not 0 <= number < there - 1:
        raise BadInput(
            f"number: {number} must be below {there - 1}, the number of hosts of {topics.group}"
        )


@contextmanager
def ending(number: int) -> Iterator[None]:
    """Add the consumer's number to errors, since many share a terminal. If the ledger refused its
    records because others landed them while it was paused, its next start begins where the ledger
    ends."""
    try:
        yield
    except PenstockError as error:
        error.message = f"consumer {number} ends: {error.message}"
        raise


class PlainConsumer:
    """Runs cycles; `serve_once` is one turn, `serve` many."""

    def __init__(
        self, pipeline: Pipeline, config: Mapping[str, Any], number: int, link: HostLink
    ) -> None:
        self._pipeline, self._number, self._link = pipeline, number, link
        self._router = Router(pipeline)
        # Finishes what an earlier process of this consumer left half landed.
        checkpoint = checkpoint_of(pipeline, number)
        self._landing = resumed(pipeline, checkpoint, self._router.schemas())
        self._batch = self._landing.checkpoint.newest_report
        self._brokers = Brokers(config)
        # The group under which Kafka's tools find the offsets; it must differ from another lake's.
        name = f"penstock.{pipeline.name}.{link.group}"
        self._consumer = LaneConsumer(config, pipeline.lane_bytes, _PARTITIONS, group=name)
        self._version = -1
        self._ids: dict[str, str] = {}
        self._held: set[Partition] = set()
        self._positions: dict[Partition, Position] = {}
        self._truncations = Truncations()
        self._last = HostAnswer(host=number)
        self._answered_s = float("-inf")
        self._answering = threading.Lock()
        self._ended = threading.Event()
        self._landed_s = float("-inf")
        # When the main thread last finished a turn.
        self._turned_s = time.monotonic()
        self._is_behind = False
        self._cycles = Cycles()
        # It was commanded to end.
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
        self._router.close()
        self._link.close()

    def serve(self, ended: threading.Event) -> None:
        """Take turns until it is commanded to end, or `ended` is set; a cycle is finished."""
        while not (ended.is_set() or self.is_dismissed):
            self.serve_once()

    def serve_once(self) -> None:
        """Commands, a cycle, an answer."""
        must_answer = False
        while (command := self._link.command(0.0)) is not None:
            must_answer = True
            if command.verb == "hold":
                self._hold(command)
            self.is_dismissed = self.is_dismissed or command.verb == "end"
        if self.is_dismissed:
            return
        cycle = self._cycle()
        self._turned_s = time.monotonic()
        if must_answer or cycle is not None:
            self._answer(cycle)
        if cycle is None:
            self._cycles.rested()
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

    def _cycle(self) -> LaneCycle | None:
        """None if there was nothing to read, or it is not due yet: every cycle makes files."""
        is_due = self._is_behind or time.monotonic() - self._landed_s >= self._pipeline.every_s
        if not self._held or not is_due:
            return None
        began_s = time.monotonic()
        try:
            marks = self._brokers.marks(self._held)
            log_ends = self._brokers.with_log_ends(marks, self._positions)
            ids = self._brokers.topic_ids(sorted({p.topic for p in self._held}))
        except BrokersUnavailable:
            return None
        last = Order(
            number=self._batch,
            ranges={p: Range.at(at) for p, at in self._positions.items()},
            topic_ids={topic: self._known_id(topic, ids[topic]) for topic in ids},
        )
        order = next_order(
            last,
            {},
            marks,
            ids,
            begin=self._pipeline.start,
            may_lose=self._pipeline.lost_offsets == "continue",
            truncated=self._truncations.look(self._positions, log_ends, began_s),
        )
        if isinstance(order, Obstacle):
            raise GroupStopped(order.message, order.fix)
        ranges = {p: r for p, r in order.ranges.items() if p in self._held and r.has_work}
        if not ranges:
            return None
        task = LaneTask(self._number, self._batch + 1, ranges, self._version)
        read = lane.work(task, self._pipeline, self._consumer, self._router)
        landed = self._landing.land(task.batch, lambda: [read])
        self._batch = task.batch
        self._positions |= landed.report.reached
        self._truncations.learn(landed.report)
        self._landed_s = time.monotonic()
        self._is_behind = landed.report.is_behind
        offsets = [TopicPartition(*p, at.offset) for p, at in self._positions.items()]
        with suppress(KafkaException):  # for tools only: the ledger has the positions
            self._consumer.commit(offsets)
        (cycle,) = self._cycles.landed(landed.report, self._landed_s, landed.at_ms)
        return cycle

    def _known_id(self, topic: str, now: str) -> str:
        """The id as the group first saw it: a re-created topic is another topic."""
        if topic not in self._ids:
            file = consumers_path(self._pipeline) / _TOPICS / topic
            with suppress(FileExistsError):
                create_file(file, now)
            self._ids[topic] = file.read_text()
        return self._ids[topic]

    def _answer(self, cycle: LaneCycle | None) -> None:
        held = tuple(map(str, sorted(self._held)))
        answer = HostAnswer(
            host=self._number,
            version=self._version,
            lanes={self._number: held} if held else {},
            positions={str(p): at.offset for p, at in self._positions.items()},
            cycles=(cycle,) if cycle else (),
        )
        with self._answering:
            self._last = replace(answer, cycles=())
            self._say(answer)

    def _beat(self) -> None:
        """Heartbeat: a cycle may take long; meanwhile repeat the last answer, with its duration."""
        while not self._ended.wait(HEARTBEAT_S / 4):
            with self._answering:
                if time.monotonic() - self._answered_s > HEARTBEAT_S:
                    with suppress(KafkaException, BufferError):  # no broker: try at the next beat
                        self._say(self._last)

    def _say(self, answer: HostAnswer) -> None:
        now_s = time.monotonic()
        busy_s = now_s - self._turned_s
        self._link.answer(replace(answer, busy_s=busy_s, at_ms=round(time.time() * 1000)))
        self._answered_s = now_s


def reached(pipeline: Pipeline, partitions: Collection[Partition]) -> dict[Partition, Position]:
    """The position of each partition by the ledger; those that it does not have are left out."""
    if not partitions:
        return {}
    ledger = DeltaTable(f"{pipeline.lake}/{pipeline.ledger_table}").to_pyarrow_dataset()
    topics = sorted({p.topic for p in partitions})
    names, values = ["topic", "partition"], ["end_offset", "leader_epoch", "epoch_end"]
    rows = ledger.to_table(
        columns=[*names, *values, "landed_at"], filter=pc.field("topic").isin(topics)
    ).sort_by([("end_offset", "ascending"), ("landed_at", "ascending")])
    # The last row of each partition, including nulls. (One thread keeps the order.)
    whole = pc.ScalarAggregateOptions(skip_nulls=False)
    last = rows.group_by(names, use_threads=False).aggregate([(v, "last", whole) for v in values])
    columns = last.select([*names, *(f"{value}_last" for value in values)])
    found = (row.values() for row in columns.to_pylist())
    positions = {Partition(topic, number): Position(*at) for topic, number, *at in found}
    return {p: positions[p] for p in partitions if p in positions}
