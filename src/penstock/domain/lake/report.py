"""Reports of lanes about a micro-batch. Tables, ledger and the next order follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from penstock.domain.lake.order import Position
from penstock.domain.lake.partition import Partition
from penstock.domain.value import Doc, Value


@dataclass(frozen=True, kw_only=True)
class LandedFile(Value):
    """A data file that is written but not yet part of its table."""

    checks_types = False  # there are many

    table: str
    path: Annotated[str, Doc("relative to the table")]
    rows: int
    size_bytes: int
    written_ms: Annotated[int, Doc("when, in Unix time")]
    stats: Annotated[str, Doc("Delta's statistics of its columns, as JSON")]


@dataclass(frozen=True, kw_only=True)
class LandedRange(Value):
    """One partition's part: [start, end) was read, and where each record of it went."""

    checks_types = False  # there are many

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
    ignored: Annotated[int, Doc("records dropped by the stream's `ignore`")] = 0
    gaps: Annotated[int, Doc("offsets without a record: compacted away, or of transactions")] = 0
    lost_from: Annotated[int, Doc("records from here to `start` were deleted unread")]
    size_bytes: Annotated[int, Doc("of keys and values")] = 0
    leader_epoch: Annotated[
        int | None,
        Doc("of the last record read, by which Kafka tells whether the log was rewritten"),
    ] = None
    epoch_end: Annotated[
        int | None, Doc("the offset after that record, if it is not `end`: no record is between")
    ] = None
    truncated_from: Annotated[
        int | None,
        Doc("the topic lost its records from here to `lost_from` after they were landed"),
    ] = None
    diverged_at: Annotated[
        int | None, Doc("the lane found that the topic has lost its records from here to `end`")
    ] = None
    is_move: Annotated[
        bool,
        Doc("nothing was read: rejected records went to their tables (counts may be negative)"),
    ] = False

    @property
    def name(self) -> Partition:
        return Partition(self.topic, self.partition)

    @property
    def is_in_ledger(self) -> bool:
        """Something was read, or lost, or gone from the topic after it was landed."""
        is_lost = self.lost_from < self.start or self.truncated_from is not None
        return self.end > self.start or is_lost or self.is_move

    @property
    def position(self) -> Position:
        """Where the next read continues."""
        return Position(self.end, self.leader_epoch, self.epoch_end)

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
    kept_partitions: Annotated[
        int, Doc("partitions that it was reading already, so that nothing was fetched again")
    ] = 0
    worker: Annotated[str, Doc("the process that it ran in")] = ""
    ended_ms: Annotated[int, Doc("when it had written its files, Unix")] = 0
    oldest_ms: Annotated[int | None, Doc("the first record's time, Unix")] = None
    newest_ms: Annotated[int | None, Doc("the last record's time, Unix")] = None
    troubles: Annotated[
        tuple[str, ...],
        Doc("what may have cost it time: complaints of Kafka's client, records that hang"),
    ] = ()
    rejects: Annotated[Mapping[str, int], Doc("kind of reason → records rejected for it")] = field(
        default_factory=dict
    )

    @property
    def size_bytes(self) -> int:
        return sum(r.size_bytes for r in self.ranges)

    @property
    def is_behind(self) -> bool:
        """Whether it ended, by bytes or by time, before an end that was known: more was waiting
        than it took. Whether its cycle was saturated: see `Cycles`."""
        return any(r.lag for r in self.ranges)

    @property
    def rows(self) -> int:
        return sum(sum(r.rows.values()) for r in self.ranges)

    @property
    def records(self) -> int:
        """Number of records read: landed, rejected or ignored."""
        return self.rows + sum(r.ignored for r in self.ranges)

    def ages_s(self, landed_ms: int) -> tuple[float, float] | None:
        """Ages of its oldest and its newest record when they became readable in the lake."""
        if self.oldest_ms is None or self.newest_ms is None:
            return None
        oldest, newest = ((landed_ms - ms) / 1000 for ms in (self.oldest_ms, self.newest_ms))
        return max(0.0, oldest), max(0.0, newest)


@dataclass(frozen=True, kw_only=True)
class RemovedRows(Value):
    """Rows of one partition that leave a table."""

    table: str
    topic: str
    partition: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class BatchReport(Value):
    """The reports of all lanes of a micro-batch. Once written, it is final, even after a crash."""

    batch: int
    lanes: tuple[LaneReport, ...] = ()
    removed: tuple[RemovedRows, ...] = ()
    move: Annotated[
        int | None, Doc("it moves rejects, as the ledger's move of this number and no other")
    ] = None

    @property
    def reached(self) -> dict[Partition, Position]:
        return {r.name: r.position for lane in self.lanes for r in lane.ranges}

    @property
    def has_ledger_rows(self) -> bool:
        """Whether anything was read or lost."""
        return any(r.is_in_ledger for lane in self.lanes for r in lane.ranges)

    @property
    def is_behind(self) -> bool:
        """Whether a lane is."""
        return any(lane.is_behind for lane in self.lanes)

    @property
    def files(self) -> dict[str, list[LandedFile]]:
        """The files of each table."""
        files: dict[str, list[LandedFile]] = {}
        for lane in self.lanes:
            for file in lane.files:
                files.setdefault(file.table, []).append(file)
        return files
