"""Waiting for a condition instead of sleeping: with a limit, and with a name for what is awaited."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.domain.errors import TestbedError


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
    while not condition():
        if time.monotonic() - start > timeout_s:
            detail = explain()
            raise error(f"waited {timeout_s:g} s for {what}" + (f": {detail}" if detail else ""))
        time.sleep(every_s)
    return time.monotonic() - start
