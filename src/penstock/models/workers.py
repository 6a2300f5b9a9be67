"""Who computes the same of each of many items: this process, or others (`analysis.workers`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Workers(Protocol):
    """Has items, and computes something of each of them: here, or on many machines."""

    def each(self, function: Callable[[Any], T], numbers: Sequence[int]) -> list[T]:
        """The function of the items with these numbers, in their order."""


# From items and what is to be made of each before anything is computed.
WorkerFactory = Callable[[Sequence[Any], Callable[[Any], Any]], Workers]


class LocalWorkers:
    """Computes in this process, one after the other."""

    def __init__(self, items: Sequence[Any], prepare: Callable[[Any], Any]) -> None:
        self._items = [prepare(item) for item in items]

    def each(self, function: Callable[[Any], T], numbers: Sequence[int]) -> list[T]:
        return [function(self._items[number]) for number in numbers]
