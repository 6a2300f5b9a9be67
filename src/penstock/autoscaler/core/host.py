"""The controller's state of one host. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.domain.autoscaling import HostAnswer

Lanes = Mapping[int, tuple[str, ...]]
# After this many tries a host is reported as not answering.
TRIES = 3


@dataclass
class Host:
    """A process that takes commands."""

    # By its last answer.
    holds: dict[int, tuple[str, ...]] = field(default_factory=dict)
    acknowledged_version: int = -1
    # Commands sent since, by version: it may be acting on any of these, or on none yet.
    pending: dict[int, dict[int, tuple[str, ...]]] = field(default_factory=dict)
    asked_s: float | None = None
    tries: int = 0
    is_alive: bool = True
    # It has answered what it holds since this controller began, and no command is outstanding.
    is_known: bool = False
    # It should run, but has not for so long that the controller does not wait for it any more.
    is_absent: bool = False
    # The incarnation (process) that answered last, and those before it.
    incarnation: str | None = None
    former: set[str] = field(default_factory=set)
    # Seconds since its main thread last finished a turn, by its last answer.
    busy_s: float = 0.0

    @property
    def sent_version(self) -> int:
        return max(self.pending, default=self.acknowledged_version)

    @property
    def is_settled(self) -> bool:
        return not self.pending

    @property
    def present(self) -> Lanes:
        """What it holds, or will once it has read its last command."""
        return self.pending[max(self.pending)] if self.pending else self.holds

    @property
    def may_hold(self) -> set[str]:
        plans = [self.holds, *self.pending.values()]
        return {partition for lanes in plans for held in lanes.values() for partition in held}

    @property
    def is_silent(self) -> bool:
        """It did not answer after enough tries, or has been absent for too long."""
        return self.is_absent or self.tries >= TRIES

    def recognise(self, answer: HostAnswer) -> bool:
        """Whether another process answers than the last time; it is the present one now."""
        before, self.incarnation = self.incarnation, answer.incarnation
        if before is None or before == answer.incarnation:
            return False
        self.former.add(before)
        return True

    def lost_its_plan(self, answer: HostAnswer) -> None:
        """Its new process acts on an older command than the last one had acknowledged. It may still
        read the later command, so both count until it answers to that."""
        self.pending[self.acknowledged_version] = self.holds
        self.tries = 0
        self.acknowledge(answer)

    def acknowledge(self, answer: HostAnswer) -> None:
        self.holds = {lane: held for lane, held in answer.lanes.items() if held}
        self.acknowledged_version = answer.version
        self.pending = {v: lanes for v, lanes in self.pending.items() if v > answer.version}
        # Commands between this answer and the last command may be lost.
        self.is_known = self.is_known or not self.pending

    def began(self) -> None:
        self.is_alive, self.is_absent = True, False

    def ended(self) -> None:
        """What it may hold stays with it: it may have half landed it, and finishes that when it is
        back."""
        self.is_alive, self.asked_s, self.tries = False, None, 0
        # Of several processes at once, the one that still answers counts.
        self.former.clear()


def are_equal(a: Lanes, b: Lanes) -> bool:
    """Whether they hold the same partitions, in any order."""
    return {n: set(held) for n, held in a.items()} == {n: set(held) for n, held in b.items()}
