"""Waits for a condition, with a timeout and an error that names what was awaited."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.domain.errors import TestbedError


def holds_within(timeout_s: float, condition: Callable[[], bool], *, every_s: float = 0.05) -> bool:
    """Whether `condition()` becomes true within `timeout_s`. It is called at least once."""
    until_s = time.monotonic() + timeout_s
    while not condition():
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(every_s, left_s))
    return True


def wait_until(
    condition: Callable[[], bool],
    *,
    timeout_s: float,
    what: str,
    every_s: float = 0.05,
    error: type[TestbedError] = TestbedError,
    explain: Callable[[], str] = lambda: "",
) -> float:
    """Wait until `condition()` holds; the seconds it took. `explain()` is added to the error."""
    start = time.monotonic()
    if not holds_within(timeout_s, condition, every_s=every_s):
        detail = explain()
        raise error(f"waited {timeout_s:g} s for {what}" + (f": {detail}" if detail else ""))
    return time.monotonic() - start
