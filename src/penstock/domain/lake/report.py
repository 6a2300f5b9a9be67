"""What lanes say they did in a micro-batch: the truth that tables, ledger and next order follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from penstock.domain.lake.partition import Partition
from penstock.domain.value import Doc, Value


@dataclass(frozen=True, kw_only=True)
class LandedFile(Value):
    """A data file that is written, and not yet part of its table."""

    table: str
    path: Annotated[str, Doc("relative to the table")]
    rows: int
    size_bytes: int
    written_ms: Annotated[int, Doc("when, in Unix time")]
    stats: Annotated[str, Doc("Delta's statistics of its columns, as JSON")]


@dataclass(frozen=True, kw_only=True)
class LandedRange(Value):
    """One partition's part: [start, end) was read, and where each record of it went."""

    topic: str
    partition: int
    start: int
    end: int
    known_end: Annotated[int, Doc("where the partition ended when the micro-batch began")]
    rows: Annotated[Mapping[str, int], Doc("table → records that went there")] = field(
        default_factory=dict
    )
    offset_sums: Annotated[
        Mapping[str, str], Doc("table → sum of their offsets (text: it may be large)")
    ] = field(default_factory=dict)
    ignored: Annotated[int, Doc("records that the stream's `ignore` left out")] = 0
    gaps: Annotated[int, Doc("offsets without a record: compacted away, or of transactions")] = 0
    lost_from: Annotated[int, Doc("records from here to `start` were deleted unread")]
    size_bytes: Annotated[int, Doc("of keys and values")] = 0

    @property
    def name(self) -> Partition:
        return Partition(self.topic, self.partition)

    @property
    def is_in_ledger(self) -> bool:
        """Something was read, or lost."""
        return self.end > self.start or self.lost_from < self.start

    @property
    def lag(self) -> int:
        return max(0, self.known_end - self.end)


@dataclass(frozen=True, kw_only=True)
class LaneReport(Value):
    """One lane's micro-batch."""

    batch: int
    lane: int
    plan: Annotated[int, Doc("the version of the plan that it followed; 0: the default")] = 0
    files: tuple[LandedFile, ...] = ()
    ranges: tuple[LandedRange, ...] = ()
    gather_s: float = 0.0
    decode_s: float = 0.0
    write_s: float = 0.0
    is_saturated: Annotated[bool, Doc("it ended by bytes: more was waiting")] = False
    kept_partitions: Annotated[
        int, Doc("partitions that it was reading already, so that nothing was fetched anew")
    ] = 0
    worker: Annotated[str, Doc("the process that it ran in")] = ""
    ended_ms: Annotated[int, Doc("when it had written its files, Unix")] = 0
    oldest_ms: Annotated[int | None, Doc("the first record's time, Unix")] = None
    newest_ms: Annotated[int | None, Doc("the last record's time, Unix")] = None
    troubles: Annotated[tuple[str, ...], Doc("what Kafka's client complained of")] = ()

    @property
    def size_bytes(self) -> int:
        return sum(r.size_bytes for r in self.ranges)

    @property
    def rows(self) -> int:
        return sum(sum(r.rows.values()) for r in self.ranges)

    def ages_s(self, landed_ms: int) -> tuple[float, float] | None:
        """Of its oldest and its newest record when they could be read."""
        if self.oldest_ms is None or self.newest_ms is None:
            return None
        oldest, newest = ((landed_ms - ms) / 1000 for ms in (self.oldest_ms, self.newest_ms))
        return max(0.0, oldest), max(0.0, newest)


@dataclass(frozen=True, kw_only=True)
class BatchReport(Value):
    """All lanes of a micro-batch. Once it is written down it happened, whoever dies next."""

    batch: int
    lanes: tuple[LaneReport, ...] = ()

    @property
    def reached(self) -> dict[Partition, int]:
        return {r.name: r.end for lane in self.lanes for r in lane.ranges}

    @property
    def has_ledger_rows(self) -> bool:
        """Whether anything was read or lost."""
        return any(r.is_in_ledger for lane in self.lanes for r in lane.ranges)

    @property
    def is_behind(self) -> bool:
        """Some lane ended, by bytes or by time, before the end that it knew of."""
        return any(r.lag for lane in self.lanes for r in lane.ranges)

    @property
    def files(self) -> dict[str, list[LandedFile]]:
        """By table."""
        found: dict[str, list[LandedFile]] = {}
        for lane in self.lanes:
            for file in lane.files:
                found.setdefault(file.table, []).append(file)
        return found
