"""The messages in flight: when each was sent and what the client reported. No I/O.

A table with a row for each of the latest messages, as a ring. Rows leave in the order of their
numbers as soon as they are complete. A message without a report for a long time does not hold up
the others: it is set aside until the report comes. So memory is bounded by the messages in
flight, which librdkafka bounds (queue.buffering.max.messages).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.load.rdkafka import Reports

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]

NOT_YET = 0  # a time that has not come: the machine runs longer than that
UNPLACED = -1
_ENTERED_AT_ONCE = 2048
# Rows that `pass_over` looks at, to let others leave behind one without a report.
PASSED_OVER = 1 << 13


@dataclass(frozen=True)
class Rows:
    """Complete rows. A time is `NOT_YET` if that never happened."""

    sequence: Ints
    sent_ns: Ints
    since_ns: Ints
    reported_ns: Ints
    errors: Ints32
    partitions: Ints32
    offsets: Ints

    def __len__(self) -> int:
        return len(self.sequence)


_COLUMNS: dict[str, type[np.generic]] = {
    "sent_ns": np.int64,
    # From when on the generator could have sent it, if that was later than its intended time.
    "since_ns": np.int64,
    "reported_ns": np.int64,
    "errors": np.int32,
    "partitions": np.int32,
    "offsets": np.int64,
}


class InFlight:
    """Used by one thread. Messages are numbered from 0 and sent in that order."""

    def __init__(self, room: int) -> None:
        """`room`: rows that are kept at most, a power of two; a group has at most a quarter."""
        if room & (room - 1):
            raise ValueError(f"the room must be a power of two, not {room}")
        self._room, self._mask = room, room - 1
        self._entered_at_once = min(_ENTERED_AT_ONCE, room // 4)
        self._table = {name: np.zeros(room, dtype) for name, dtype in _COLUMNS.items()}
        self._table["partitions"][:] = UNPLACED
        self._sent, self._since = self._table["sent_ns"], self._table["since_ns"]
        self._reported = self._table["reported_ns"]
        self._first = 0  # the lowest number in the table
        self._next = 0  # the lowest number that is not in the table yet
        self._groups: list[tuple[int, int, int]] = []  # sent and not in the table yet
        self._aside: dict[int, dict[str, int]] = {}
        self._settled: list[Rows] = []
        self.sent = 0
        self.acknowledged = 0
        self.failed = 0
        self.waited_ns = 0  # from sending to the report, summed over all reported messages

    @property
    def under_way(self) -> int:
        return self.sent - self.acknowledged - self.failed

    def note_sent(self, count: int, at_ns: int, since_ns: int = NOT_YET) -> None:
        """The next `count` messages were handed to the client."""
        # Entered into the table later, many groups at once: mostly they have one message.
        self._groups.append((count, at_ns, since_ns))
        self.sent += count
        if self.sent - self._next >= self._entered_at_once:
            self._enter()

    def _enter(self) -> None:
        """Enter the groups that were sent meanwhile."""
        if not self._groups:
            return
        groups = np.array(self._groups)
        self._groups.clear()
        after = self.sent
        while after - self._first > self._room:
            self._set_aside(min(self._room // 4, self._room - (self._first & self._mask)))
        places = np.arange(self._next, after) & self._mask
        self._sent[places] = np.repeat(groups[:, 1], groups[:, 0])
        self._since[places] = np.repeat(groups[:, 2], groups[:, 0])
        self._next = after

    def note_reported(self, reports: Reports) -> None:
        """The client's reports on messages that it took."""
        if not len(reports.tags):
            return
        self._enter()
        failed = int(np.count_nonzero(reports.errors))
        self.failed += failed
        self.acknowledged += len(reports.tags) - failed
        tags = reports.tags
        if self._aside and int(tags.min()) < self._first:
            late = tags < self._first
            self._settle_aside(reports.where(late))
            reports = reports.where(~late)
            tags = reports.tags
        places = tags & self._mask
        table = self._table
        self.waited_ns += int(reports.at_ns.sum() - self._sent[places].sum())
        self._reported[places] = reports.at_ns
        table["errors"][places] = reports.errors
        table["partitions"][places] = reports.partitions
        table["offsets"][places] = reports.offsets

    def note_given_up(self, reports: Reports) -> None:
        """Messages that were purged: the client never reported on them, but placed them."""
        self._enter()
        partitions = self._table["partitions"]
        late = reports.tags < self._first
        partitions[reports.tags[~late] & self._mask] = reports.partitions[~late]
        for tag, partition in zip(reports.tags[late], reports.partitions[late], strict=True):
            self._aside[int(tag)]["partitions"] = int(partition)

    def pass_over(self) -> None:
        """Let complete rows leave although a few among them have no report yet."""
        self._enter()
        at = self._first & self._mask
        count = min(PASSED_OVER, self._next - self._first, self._room - at)
        if np.count_nonzero(self._reported[at : at + count] == NOT_YET) <= count // 16:
            self._set_aside(count)

    def take_complete(self, most: int) -> Rows | None:
        """Up to this many of the oldest rows, if they are complete; they leave the table."""
        self._enter()
        if self._settled:
            return self._settled.pop()
        at = self._first & self._mask
        count = min(most, self._next - self._first, self._room - at)
        silent = self._reported[at : at + count] == NOT_YET
        if silent.any():
            count = int(silent.argmax())
        return self._take(count) if count else None

    def take_rest(self) -> Rows:
        """All that is left, complete or not: those are unknown. To be called at the end."""
        self._enter()
        parts = list(self._settled)
        self._settled.clear()
        while self._first < self._next:
            room = self._room - (self._first & self._mask)
            parts.append(self._take(min(room, self._next - self._first)))
        if self._aside:
            parts.append(_rows(list(self._aside.values())))
            self._aside.clear()
        return joined(parts)

    def _take(self, count: int) -> Rows:
        at = self._first & self._mask
        place = slice(at, at + count)
        rows = Rows(
            sequence=np.arange(self._first, self._first + count),
            **{name: column[place].copy() for name, column in self._table.items()},
        )
        self._clear(place)
        self._first += count
        return rows

    def _clear(self, place: slice) -> None:
        for name, column in self._table.items():
            column[place] = UNPLACED if name == "partitions" else 0

    def _set_aside(self, count: int) -> None:
        """Of the oldest rows, what is complete leaves, and the rest is set aside."""
        rows = self._take(count)
        silent = rows.reported_ns == NOT_YET
        if not silent.all():
            self._settled.append(_chosen_rows(rows, ~silent))
        for row in np.flatnonzero(silent).tolist():
            self._aside[int(rows.sequence[row])] = {
                name: int(getattr(rows, name)[row]) for name in Rows.__dataclass_fields__
            }

    def _settle_aside(self, late: Reports) -> None:
        settled = []
        for i, tag in enumerate(late.tags.tolist()):
            settled.append(
                self._aside.pop(tag)
                | {
                    "reported_ns": int(late.at_ns[i]),
                    "errors": int(late.errors[i]),
                    "partitions": int(late.partitions[i]),
                    "offsets": int(late.offsets[i]),
                }
            )
        self._settled.append(_rows(settled))


def joined(parts: list[Rows]) -> Rows:
    """All of them, one after the other."""
    if not parts:
        return _rows([])
    return Rows(
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in Rows.__dataclass_fields__
        }
    )


def _rows(rows: list[dict[str, int]]) -> Rows:
    types: dict[str, type[np.generic]] = {"sequence": np.int64, **_COLUMNS}
    return Rows(
        **{
            name: np.array([row[name] for row in rows], dtype=dtype)
            for name, dtype in types.items()
        }
    )


def _chosen_rows(rows: Rows, which: npt.NDArray[np.bool_]) -> Rows:
    return Rows(**{name: getattr(rows, name)[which] for name in Rows.__dataclass_fields__})
