"""Progress callback of long-running work: a function that takes one short line."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Ignore progress."""
