"""Whether the machine itself was as fast in one run as in another."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.report import numbers
from penstock.report.shown import Shown

# As a ratio. Less explains no difference that anybody would report.
_MATTERS = 1.1


def difference(runs: Sequence[Shown]) -> str:
    """A sentence if the machine was slower in one of the runs than in another; else empty."""
    known = [
        (one.run.observer.work_ms, one.label)
        for one in runs
        if one.run.observer is not None and one.run.observer.work_ms
    ]
    if len(known) < 2:
        return ""
    (fast_ms, fast), (slow_ms, slow) = min(known), max(known)
    if slow_ms <= _MATTERS * fast_ms:
        return ""
    return (
        f"The machine itself was slower: the same work took {numbers.quantity(slow_ms, 'ms')} of "
        f"CPU in {slow}, and {numbers.quantity(fast_ms, 'ms')} in {fast}."
    )
