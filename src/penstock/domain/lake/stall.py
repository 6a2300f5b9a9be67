"""Stalled partitions: no broker has answered for them for longer than an election takes. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from penstock.domain.lake.partition import Partition


@dataclass
class Stalls:
    """Remembers since when partitions are silent. The clock is passed in."""

    limit_s: float = 5.0
    _since_s: dict[Partition, float] = field(default_factory=dict)

    def look(self, silent: Collection[Partition], now_s: float) -> dict[Partition, float]:
        """The partitions that have been silent for too long → since when."""
        self._since_s = {p: self._since_s.get(p, now_s) for p in silent}
        return {p: at_s for p, at_s in self._since_s.items() if now_s - at_s >= self.limit_s}
