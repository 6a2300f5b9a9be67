"""When a consumer group has come to rest, from the events that its members saw. Pure.

A group is at rest when every member knows its assignment, every partition belongs to one member,
the numbers of partitions per member differ by at most one, and every partition was read since it
was assigned. The rebalance time is from the moment at which a member joins or leaves until the
group is at rest again and stays so. It includes the detection by the others (their heartbeats),
the protocol and the first fetch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

What = Literal["joins", "assigned", "revoked", "reads", "leaves"]


@dataclass(frozen=True)
class GroupEvent:
    """What one member saw or did. `reads`: the first message of these since they were assigned."""

    at_ns: int
    member: str
    what: What
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True)
class Rest:
    """A time in which the group was at rest; `to_ns` is None if it is still."""

    from_ns: int
    to_ns: int | None


def rests(
    events: Iterable[GroupEvent], partitions: int, *, hear_of_nothing: bool = True
) -> Iterator[Rest]:
    """The times of rest, in order.

    `hear_of_nothing`: a member that is given no partition receives an empty assignment, as with the
    client's assignors. Where brokers assign, such a member receives nothing.
    """
    group = _Group(partitions, hear_of_nothing)
    since: int | None = None
    for event in sorted(events, key=lambda e: e.at_ns):
        group.take(event)
        if group.is_at_rest:
            since = event.at_ns if since is None else since
        elif since is not None:
            yield Rest(since, event.at_ns)
            since = None
    if since is not None:
        yield Rest(since, None)


def rebalance_ns(
    events: Sequence[GroupEvent],
    partitions: int,
    began_ns: int,
    until_ns: int | None = None,
    *,
    hear_of_nothing: bool = True,
) -> int | None:
    """From `began_ns`, when a member joined or left, until the group was at rest until the end.

    `until_ns` is where the next change begins. None if the group did not come to rest by then, or
    was never out of it.
    """
    seen = [e for e in events if until_ns is None or e.at_ns < until_ns]
    rest_times = list(rests(seen, partitions, hear_of_nothing=hear_of_nothing))
    if not rest_times or rest_times[-1].to_ns is not None or rest_times[-1].from_ns < began_ns:
        return None
    return rest_times[-1].from_ns - began_ns


class _Group:
    """Who owns what, as the members saw it."""

    def __init__(self, partitions: int, hear_of_nothing: bool) -> None:
        self._partitions, self._hear_of_nothing = partitions, hear_of_nothing
        self._members: set[str] = set()
        self._waiting: set[str] = set()
        self._owner: dict[int, str] = {}
        self._read: set[int] = set()

    def take(self, event: GroupEvent) -> None:
        match event.what:
            case "joins":
                self._members.add(event.member)
                if self._hear_of_nothing:
                    self._waiting.add(event.member)
            case "leaves":
                self._members.discard(event.member)
                self._waiting.discard(event.member)
                self._drop(event.member, tuple(self._owner))
            case "assigned":
                self._waiting.discard(event.member)
                for partition in event.partitions:
                    self._owner[partition] = event.member
                    self._read.discard(partition)
            case "revoked":
                self._drop(event.member, event.partitions)
            case "reads":
                # A message may come out of the queue after its partition went to somebody else.
                partitions = {p for p in event.partitions if self._owner.get(p) == event.member}
                self._read |= partitions

    def _drop(self, member: str, partitions: Iterable[int]) -> None:
        for partition in partitions:
            if self._owner.get(partition) == member:
                del self._owner[partition]
                self._read.discard(partition)

    @property
    def is_at_rest(self) -> bool:
        if not self._members or self._waiting or len(self._read) < self._partitions:
            return False
        owned = [sum(o == member for o in self._owner.values()) for member in self._members]
        # What one topic's assignors all come to: floor or ceiling of P / members.
        return max(owned) - min(owned) <= 1
