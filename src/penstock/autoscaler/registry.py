"""Things that a setting chooses by name. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.domain.errors import BadInput

T = TypeVar("T")


class Registry(Generic[T]):
    """Of one setting; each of its things is in a file that registers it."""

    def __init__(self, setting: str) -> None:
        self._setting = setting
        self._known: dict[str, T] = {}

    def add(self, name: str) -> Callable[[T], T]:
        def register(thing: T) -> T:
            assert name not in self._known, f"{self._setting}: two are called {name}"
            self._known[name] = thing
            return thing

        return register

    def names(self) -> tuple[str, ...]:
        return tuple(self._known)

    def get(self, name: str) -> T:
        try:
            return self._known[name]
        except KeyError:
            raise BadInput(
                f"{self._setting}: there is none called {name!r}",
                f"choose one of {', '.join(self._known)}",
            ) from None
