"""What the controller knows of one host. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.domain.autoscaling import Answer

Lanes = Mapping[int, tuple[str, ...]]
# After so many tries it is said that a host does not answer.
TRIES = 3


@dataclass
class Host:
    """A process that takes commands."""

    # As it last said.
    holds: dict[int, tuple[str, ...]] = field(default_factory=dict)
    said_version: int = -1
    # As it was told since, by version: it may be acting on any of these, or on none yet.
    pending: dict[int, dict[int, tuple[str, ...]]] = field(default_factory=dict)
    asked_s: float | None = None
    tries: int = 0
    is_alive: bool = True
    # It said what it holds since this controller began, and no command is between.
    is_known: bool = False
    # It should run, and did not for so long that nobody waits for it any more.
    is_absent: bool = False

    @property
    def told_version(self) -> int:
        return max(self.pending, default=self.said_version)

    @property
    def is_settled(self) -> bool:
        return not self.pending

    @property
    def present(self) -> Lanes:
        """What it holds, or will once it has read its last command."""
        return self.pending[max(self.pending)] if self.pending else self.holds

    @property
    def may_hold(self) -> set[str]:
        found = [self.holds, *self.pending.values()]
        return {partition for lanes in found for held in lanes.values() for partition in held}

    @property
    def is_silent(self) -> bool:
        """It was asked, or waited for, often enough."""
        return self.is_absent or self.tries >= TRIES

    def said(self, answer: Answer) -> None:
        self.holds = {lane: held for lane, held in answer.lanes.items() if held}
        self.said_version = answer.version
        self.pending = {v: told for v, told in self.pending.items() if v > answer.version}
        # Of commands between what it says and the last one, some may be known to nobody any more.
        self.is_known = self.is_known or not self.pending

    def began(self) -> None:
        self.is_alive, self.is_absent = True, False

    def ended(self) -> None:
        """What it may hold stays: it may have landed half of it, and ends that when it is back."""
        self.is_alive, self.asked_s, self.tries = False, None, 0


def are_equal(a: Lanes, b: Lanes) -> bool:
    """In whatever order partitions are told."""
    return {n: set(held) for n, held in a.items()} == {n: set(held) for n, held in b.items()}
