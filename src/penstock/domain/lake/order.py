"""What a micro-batch is to read: from where in each partition, and how far at least it reaches.

An order is made when a micro-batch begins and lies in Spark's checkpoint, so a micro-batch that is
begun again has the same one. It says where lanes start. How far they get is theirs to say: a lane
ends by bytes or by time, and its report is the start of the next order. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from penstock.domain.lake.partition import Partition


class Marks(NamedTuple):
    """Of a partition: the first offset that is still there, and the one after the last."""

    low: int
    high: int


class Range(NamedTuple):
    """What is to be read of one partition."""

    start: int
    # As known when it was ordered: there may be more by the time it is read, and it may be taken.
    end: int
    # Records from here up to `start` were deleted before they were read; else the same as `start`.
    lost_from: int

    @property
    def has_work(self) -> bool:
        return self.end > self.start or self.lost_from < self.start


@dataclass(frozen=True)
class Order:
    """The ranges of one micro-batch; partitions without work are in it too, with their position."""

    number: int = -1
    ranges: Mapping[Partition, Range] = field(default_factory=dict)
    # Topic → its id: a topic that was deleted and made anew is another one.
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_work(self) -> bool:
        return any(r.has_work for r in self.ranges.values())

    def to_offset(self) -> dict[str, Any]:
        """As Spark keeps it."""
        topics: dict[str, dict[str, list[int]]] = {}
        for (topic, number), found in self.ranges.items():
            short = found[:2] if found.lost_from == found.start else found
            topics.setdefault(topic, {})[str(number)] = list(short)
        return {"order": self.number, "topics": topics, "ids": dict(self.topic_ids)}

    @classmethod
    def from_offset(cls, data: Mapping[str, Any]) -> Order:
        ranges = {
            Partition(topic, int(number)): Range(r[0], r[1], r[2] if len(r) > 2 else r[0])
            for topic, partitions in data["topics"].items()
            for number, r in partitions.items()
        }
        return cls(data["order"], ranges, data["ids"])


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
    """Why a pipeline must not go on by itself, and what to do about it."""

    message: str
    fix: str


_ANEW = "land the topic into other tables, by a pipeline with another name"


def next_order(
    last: Order,
    reached: Mapping[Partition, int],
    marks: Mapping[Partition, Marks],
    topic_ids: Mapping[str, str],
    *,
    begin: Literal["earliest", "latest"] = "earliest",
    may_lose: bool = False,
    limits: Mapping[Partition, int] | None = None,
) -> Order | Obstacle:
    """What to read after `last`, whose lanes `reached` these offsets.

    A partition that is new begins at its first record, or if the pipeline itself is new, where
    `begin` says. One without marks (nobody leads it just now) keeps its position. With `limits`,
    nothing is ordered that lies beyond them, though lanes may have read beyond them already.
    """
    for topic, known in last.topic_ids.items():
        if topic_ids.get(topic, known) != known:
            return Obstacle(
                f"the topic {topic} was deleted and made anew: its offsets begin again",
                _ANEW,
            )
    ranges: dict[Partition, Range] = {}
    for partition in sorted({*last.ranges, *marks}):
        old, found = last.ranges.get(partition), marks.get(partition)
        if old is None and limits is not None and partition not in limits:
            continue
        if old is None:
            assert found is not None
            is_first = last.number < 0
            position = found.high if is_first and begin == "latest" else found.low
        else:
            position = reached.get(partition, old.start)
        if found is None:
            ranges[partition] = Range(position, position, position)
            continue
        if position > found.high:
            return Obstacle(
                f"{partition} ends at offset {found.high}, but was read up to {position}: records "
                "that were landed are gone from the topic",
                f"it lost its newest records (an unclean election?); then {_ANEW}",
            )
        start = max(position, found.low)
        if start > position and not may_lose:
            return Obstacle(
                f"{partition}: offsets {position} to {start - 1} were deleted before they were read",
                "make retention longer than the pipeline is ever behind; to note the range and go "
                "on: lost_offsets: go-on",
            )
        end = found.high
        if limits is not None:
            end = min(end, max(start, limits.get(partition, start)))
        ranges[partition] = Range(start, end, position)
    return Order(last.number + 1, ranges, {**last.topic_ids, **topic_ids})
