"""Packets that wait for their time. Pure: the time is an argument.

The kernel keeps the packets themselves; what is held here is the verdict to send, or a copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Held(Generic[Item]):
    """Items by due time; those due at the same time in the order they came."""

    def __init__(self) -> None:
        # Items with the same constant delay are due in the order they came, whatever their link:
        # a queue each, since a heap costs several times as much.
        self._fifos: dict[int, deque[tuple[int, Item]]] = {}
        self._heap: list[tuple[int, int, Item]] = []
        self._pushed = 0

    def fifo(self, wait_ns: int) -> deque[tuple[int, Item]]:
        """Where to append (due, item) for items that wait `wait_ns`, as long as a link does so."""
        return self._fifos.setdefault(wait_ns, deque())

    def keep_fifos(self, waits_ns: set[int | None]) -> None:
        """Forget the empty fifos that no link appends to any more."""
        self._fifos = {w: fifo for w, fifo in self._fifos.items() if fifo or w in waits_ns}

    def push(self, due_ns: int, item: Item) -> None:
        self._pushed += 1
        heappush(self._heap, (due_ns, self._pushed, item))

    def next_due_ns(self) -> int | None:
        heads = [fifo[0][0] for fifo in self._fifos.values() if fifo]
        if self._heap:
            heads.append(self._heap[0][0])
        return min(heads, default=None)

    def pop_overdue(self, before_ns: int) -> list[tuple[int, Item]]:
        """Take out what was due before that, each with when it was; so that `pop_due` need not say."""
        overdue: list[tuple[int, Item]] = []
        for fifo in self._fifos.values():
            while fifo and fifo[0][0] < before_ns:
                overdue.append(fifo.popleft())
        heap = self._heap
        while heap and heap[0][0] < before_ns:
            due_ns, _, item = heappop(heap)
            overdue.append((due_ns, item))
        return overdue

    def pop_due(self, now_ns: int) -> list[Item]:
        """Take out what is due."""
        due: list[Item] = []
        for fifo in self._fifos.values():
            while fifo and fifo[0][0] <= now_ns:
                due.append(fifo.popleft()[1])
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            due.append(heappop(heap)[2])
        return due

    def remove(self, unwanted: Callable[[Item], bool]) -> list[Item]:
        """Take out what is unwanted, due or not."""
        removed = [item for _, _, item in self._heap if unwanted(item)]
        self._heap = [entry for entry in self._heap if not unwanted(entry[2])]
        heapify(self._heap)
        for fifo in self._fifos.values():
            removed += [item for _, item in fifo if unwanted(item)]
            kept = [entry for entry in fifo if not unwanted(entry[1])]
            # In place: links append to this very object.
            fifo.clear()
            fifo.extend(kept)
        return removed
