"""What a lane has gathered from Kafka: records, positions, and what it met on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.domain.lake.order import Position
from penstock.domain.lake.partition import Partition
from penstock.lake.records import Records

# Messages taken from the client at a time.
_MOST = 5000
# Memory that Python needs for a record besides key and value, and for a header besides name and
# value: sums of sys.getsizeof, rounded up as the allocator does (CPython 3.11).
_RECORD_BYTES, _HEADER_BYTES = 250, 200
# Memory limit of a lane including that, in multiples of `lane_bytes`. Records of 100 bytes come to
# 3.5, so only smaller records or long headers end a lane's part before `lane_bytes` does.
MEMORY_FACTOR = 4
# Below this, memory does not end a lane's part.
_LEAST_MEMORY_BYTES = 16_000_000


class Unreadable(NamedTuple):
    """A batch of records that the client cannot read."""

    base_offset: int
    why: str


@dataclass
class Gathered:
    """The result of `LaneConsumer.gather`."""

    records: Records = field(default_factory=Records)
    # How far each partition was read: where to continue.
    ends: dict[Partition, Position] = field(default_factory=dict)
    # Partitions that are not read up to the end of their range yet → that end.
    open_ends: dict[Partition, int] = field(default_factory=dict)
    # Partitions whose log lost records that were read before → the first such offset.
    diverged: dict[Partition, int] = field(default_factory=dict)
    # Partitions whose next records the client cannot read → where their batch begins, and why.
    unreadable: dict[Partition, Unreadable] = field(default_factory=dict)
    # Of keys and values.
    size_bytes: int = 0
    # Memory that the records take, approximately.
    held_bytes: int = 0
    kept_partitions: int = 0
    troubles: dict[str, None] = field(default_factory=dict)

    def room(self, most_bytes: int) -> int:
        """How many messages may be taken next, by the mean size so far; 0: none."""
        count = len(self.records)
        if not count:
            return 100
        room = _MOST
        for taken, most in (
            (self.size_bytes, most_bytes),
            (self.held_bytes, max(_LEAST_MEMORY_BYTES, MEMORY_FACTOR * most_bytes)),
        ):
            if taken >= most:
                return 0
            room = min(room, int((most - taken) / max(1.0, taken / count)))
        return max(1, room)

    def count(self, records: int, size_bytes: int, headers: Sequence[Any]) -> None:
        """Add the size of records that were added, and the memory that they take."""
        self.size_bytes += size_bytes
        self.held_bytes += size_bytes + _RECORD_BYTES * records
        if any(headers):  # seldom; and this is cheap
            self.held_bytes += _header_bytes(headers)

    def end_before(self, offsets: Mapping[Partition, int]) -> None:
        """Give back the records of these partitions from these offsets on: they are read again."""
        if not offsets:
            return
        records = self.records
        places = map(Partition, records.topics, records.partitions)
        self.records = records.only(
            [
                i
                for i, (place, offset) in enumerate(zip(places, records.offsets, strict=True))
                if offset < offsets.get(place, offset + 1)
            ]
        )
        for partition, offset in offsets.items():
            # The epoch of the record before it is not kept; the next record brings it.
            self.ends[partition] = Position(offset)
            self.diverged.pop(partition, None)
        held = ", ".join(f"{p} at {offset}" for p, offset in sorted(offsets.items())[:3])
        self.troubles[f"records that the decoder hangs on ended this part early ({held})"] = None


def _header_bytes(headers: Iterable[Any]) -> int:
    return sum(
        _HEADER_BYTES + len(name) + len(value or b"")
        for of_record in headers
        if isinstance(of_record, list)  # not of those without any, or that cannot be read
        for name, value in of_record
    )
