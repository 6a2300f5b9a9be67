"""How long work tells what it is doing: a function that takes one short line."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """For callers that do not want to know."""
