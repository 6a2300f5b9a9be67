"""Partitions whose log has lost landed records, until that is recorded in the ledger. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.domain.lake.order import Marks, Position
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.report import BatchReport


class _Short(NamedTuple):
    since_s: float
    # The lowest end that was seen: the log may be growing again.
    high: int


@dataclass
class Truncations:
    """Collects truncations that lanes report or that log ends show. The clock is passed in.

    A lane detects a truncation by the leader epoch of its position. Before the log has grown past
    that position, its end shows it. But after a clean change of leader, too, the new leader may
    briefly report an older end, until it has heard from its followers: so the end must stay low.
    """

    limit_s: float = 5.0
    _batch: int = -1
    _truncated: dict[Partition, int] = field(default_factory=dict)
    _short: dict[Partition, _Short] = field(default_factory=dict)

    def learn(self, report: BatchReport) -> None:
        """Add the truncations that lanes found; drop those that are in the ledger by now."""
        if report.batch == self._batch:
            return
        self._batch = report.batch
        for r in (r for lane in report.lanes for r in lane.ranges):
            if r.truncated_from is not None:
                self._truncated.pop(r.name, None)
            if r.diverged_at is not None:
                self._truncated[r.name] = r.diverged_at

    def look(
        self,
        positions: Mapping[Partition, Position],
        marks: Mapping[Partition, Marks],
        now_s: float,
    ) -> dict[Partition, int]:
        """Truncated partitions among these → the first lost offset."""
        short: dict[Partition, _Short] = {}
        for partition, position in positions.items():
            before, mark = self._short.get(partition), marks.get(partition)
            if mark is None:  # it has no leader: nothing new is known
                if before is not None:
                    short[partition] = before
            elif mark.high < position.offset:
                before = before or _Short(now_s, mark.high)
                short[partition] = before._replace(high=min(before.high, mark.high))
        self._short = short
        self._truncated = {p: at for p, at in self._truncated.items() if p in positions}
        for partition, seen in short.items():
            if now_s - seen.since_s >= self.limit_s:
                self._truncated[partition] = min(
                    seen.high, self._truncated.get(partition, seen.high)
                )
        return dict(self._truncated)

    @property
    def unsure(self) -> Collection[Partition]:
        """Partitions that end before their position, but not for long enough to be sure."""
        return self._short.keys() - self._truncated.keys()
