"""Orders: where in each partition a micro-batch begins to read, and how far it reaches at least.

An order is made when a micro-batch begins and is stored in Spark's checkpoint, so a repeated
micro-batch has the same order. It says where lanes start. Where they end, lanes decide: by bytes or
by time. Their report is the start of the next order. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from penstock.domain.lake.partition import Partition


class Marks(NamedTuple):
    """Of a partition: the first offset that still exists, and the offset after the last one."""

    low: int
    high: int


class Position(NamedTuple):
    """How far a partition was read, and what Kafka needs to detect that its log was rewritten.

    An unclean election, or the death of a leader that alone had acknowledged, replaces the end of
    a log. Once the log has grown past the position again, the offset alone does not show it; the
    leader epoch of the last record read does.
    """

    offset: int
    # Of the last record read. None: no record was read, or Kafka did not report it.
    leader_epoch: int | None = None
    # The offset after that record, if it is not `offset`: the offsets between had no record
    # (transaction markers, say), and may belong to a later epoch.
    epoch_end: int | None = None

    @property
    def checked_offset(self) -> int:
        """The offset up to which `leader_epoch` is known to be valid."""
        return self.offset if self.epoch_end is None else self.epoch_end

    def after_gap(self, offset: int) -> Position:
        """This position moved on to `offset`, over offsets without a record."""
        if self.leader_epoch is None:
            return Position(offset)
        return Position(offset, self.leader_epoch, self.checked_offset)


class Range(NamedTuple):
    """The offsets to read of one partition."""

    start: int
    # As known when the order was made. A lane may read records that arrived later, too.
    end: int
    # Records from here up to `start` were deleted before they were read; else the same as `start`.
    lost_from: int
    # As in `Position`, for the position that the range begins at.
    leader_epoch: int | None = None
    epoch_end: int | None = None
    # Records from here up to `lost_from` were landed, and the topic has lost them since.
    truncated_from: int | None = None

    @classmethod
    def at(cls, position: Position, truncated_from: int | None = None) -> Range:
        """Nothing to read: the partition keeps its position."""
        offset, leader_epoch, epoch_end = position
        return cls(offset, offset, offset, leader_epoch, epoch_end, truncated_from)

    @property
    def position(self) -> Position:
        return Position(self.start, self.leader_epoch, self.epoch_end)

    @property
    def landed(self) -> Position:
        """The position of the partition until a lane has reported the range."""
        return Position(self.lost_from, self.leader_epoch, self.epoch_end)

    @property
    def has_work(self) -> bool:
        return self.end > self.start or self.lost_from < self.start


@dataclass(frozen=True)
class Order:
    """The ranges of one micro-batch; partitions without work are in it too, with their position."""

    number: int = -1
    ranges: Mapping[Partition, Range] = field(default_factory=dict)
    # Topic → its id: a topic that was deleted and created again is another one.
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_work(self) -> bool:
        return any(r.has_work for r in self.ranges.values())

    def to_offset(self) -> dict[str, Any]:
        """The form in which Spark stores it."""
        topics: dict[str, dict[str, list[int | None]]] = {}
        for (topic, number), r in self.ranges.items():
            topics.setdefault(topic, {})[str(number)] = _shortened(r)
        return {"order": self.number, "topics": topics, "ids": dict(self.topic_ids)}

    @classmethod
    def from_offset(cls, data: Mapping[str, Any]) -> Order:
        ranges = {
            Partition(topic, int(number)): _lengthened(*values)
            for topic, partitions in data["topics"].items()
            for number, values in partitions.items()
        }
        return cls(data["order"], ranges, data["ids"])


def _shortened(r: Range) -> list[int | None]:
    """Without the fields that a range usually lacks: an order may have thousands of ranges."""
    values: list[int | None] = [*r]
    if r.lost_from == r.start:
        values[2] = None
    while values[-1] is None:
        values.pop()
    return values


def _lengthened(start: int, end: int, lost_from: int | None = None, *rest: int | None) -> Range:
    return Range(start, end, start if lost_from is None else lost_from, *rest)


@dataclass(frozen=True)
class LaneTask:
    """One lane's part of an order."""

    lane: int
    batch: int
    ranges: Mapping[Partition, Range]
    # The version of the plan that it follows.
    plan: int = 0


@dataclass(frozen=True)
class Obstacle:
    """Why a pipeline must not continue without a decision by a person, and what to do."""

    message: str
    fix: str


def positions(last: Order, reached: Mapping[Partition, Position]) -> dict[Partition, Position]:
    """The position of each partition after `last`, whose lanes `reached` these positions."""
    return {p: reached.get(p, r.landed) for p, r in last.ranges.items()}


def next_order(
    last: Order,
    reached: Mapping[Partition, Position],
    marks: Mapping[Partition, Marks],
    topic_ids: Mapping[str, str],
    *,
    begin: Literal["earliest", "latest"] = "earliest",
    may_lose: bool = False,
    limits: Mapping[Partition, int] | None = None,
    truncated: Mapping[Partition, int] | None = None,
) -> Order | Obstacle:
    """The order after `last`, whose lanes `reached` these positions.

    A partition that is new begins at its first record, or if the pipeline itself is new, where
    `begin` says. A partition without marks (it has no leader at the moment) keeps its position, and
    so does one whose log ends before its position. With `limits`, no range reaches beyond them, but
    lanes may already have read further. `truncated` maps each partition that lost landed records to
    the first lost offset.
    """
    if replaced := _replaced_topic(last.topic_ids, topic_ids):
        return replaced
    stands = positions(last, reached)
    ranges: dict[Partition, Range] = {}
    for partition in sorted({*stands, *marks}):
        if partition not in stands and limits is not None and partition not in limits:
            continue
        mark = marks.get(partition)
        if partition in stands:
            position = stands[partition]
        else:
            assert mark is not None
            at_end = last.number < 0 and begin == "latest"
            position = Position(mark.high if at_end else mark.low)
        cuts = [(truncated or {}).get(partition)]
        # A range that a lane has reported is in the ledger; any other is carried over.
        if partition in last.ranges and partition not in reached:
            cuts.append(last.ranges[partition].truncated_from)
        cut = min((first for first in cuts if first is not None), default=None)
        if cut is not None:
            if not may_lose:
                return _truncation(partition, cut, position.offset)
            # The epoch belongs to records that are gone. The next record brings a new one.
            position = Position(position.offset)
        if mark is None or mark.high < position.offset:
            ranges[partition] = Range.at(position, cut)
            continue
        start = max(position.offset, mark.low)
        if start > position.offset and not may_lose:
            return Obstacle(
                f"{partition}: offsets {position.offset} to {start - 1} were deleted before they "
                "were read",
                "make retention longer than the pipeline is ever behind; to record the range and "
                "continue after it: lost_offsets: continue",
            )
        end = mark.high
        if limits is not None:
            end = min(end, max(start, limits.get(partition, start)))
        # The epoch of records that retention has deleted cannot be checked.
        known = position if position.checked_offset >= mark.low else Position(start)
        ranges[partition] = Range(
            start, end, position.offset, known.leader_epoch, known.epoch_end, cut
        )
    return Order(last.number + 1, ranges, {**last.topic_ids, **topic_ids})


def repeated(
    order: Order,
    marks: Mapping[Partition, Marks],
    topic_ids: Mapping[str, str],
    *,
    may_lose: bool = False,
) -> Order | Obstacle:
    """An order that an earlier process made, checked as if it were made now.

    It is recomputed from the same positions and up to the same ends, so that records deleted since
    then are recorded as lost. A partition without marks (its topic is gone, it has no leader, or no
    stream takes it any more) keeps its position and is left to a later order. One whose log ends
    before its position stays as ordered: the lane reads nothing from it, or detects the truncation.
    """
    before = {p: Range.at(r.landed, r.truncated_from) for p, r in order.ranges.items()}
    now = next_order(
        Order(order.number - 1, before, order.topic_ids),
        {},
        {p: mark for p, mark in marks.items() if p in before},
        {topic: topic_ids[topic] for topic in order.topic_ids if topic in topic_ids},
        may_lose=may_lose,
        limits={p: r.end for p, r in order.ranges.items()},
    )
    if isinstance(now, Obstacle):
        return now
    ranges = {
        p: r if p in marks and marks[p].high < r.start else now.ranges[p]
        for p, r in order.ranges.items()
    }
    return Order(order.number, ranges, order.topic_ids)


def _replaced_topic(known: Mapping[str, str], now: Mapping[str, str]) -> Obstacle | None:
    for topic, id_ in known.items():
        if now.get(topic, id_) != id_:
            return Obstacle(
                f"the topic {topic} was deleted and created again: its offsets start again at 0",
                "land the topic into other tables, with a pipeline of another name",
            )
    return None


def _truncation(partition: Partition, first: int, position: int) -> Obstacle:
    return Obstacle(
        f"{partition}: [{first}, {position}) was landed and is no longer in the topic: the log was "
        "truncated (unclean election, or acks=1 and a dead leader)",
        f"to keep these rows, record the range and continue at {position}: lost_offsets: continue "
        "(records that the topic has in this range now are not landed); or land the topic into "
        "other tables, with a pipeline of another name",
    )
