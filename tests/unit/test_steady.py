"""How much of a run is tested for steadiness when something was done to it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from penstock.analysis.steady import slices_before
from penstock.analysis.summary_arrays import Entries

SLICE_NS = 100_000_000


def latencies(longest_ms: Mapping[int, float]) -> Entries:
    """Slice → its longest latency."""
    at = np.array(sorted(longest_ms), dtype=np.int64)
    most = np.array([round(longest_ms[n] * 1e6) for n in sorted(longest_ms)], dtype=np.int64)
    ones = np.ones_like(at)
    return Entries(at, ones, ones, most, most, most)


@pytest.mark.parametrize(
    ("changed", "slices"),
    [
        ({}, 49),  # the last slice's messages may have been on their way
        ({47: 4000, 48: 4000, 49: 4000}, 47),
        ({20: 4000}, 49),  # one straggler long before is no reason to look away
        ({49: 10_000, 48: None, 47: 9000}, 47),  # nothing of a slice arrived: it says nothing
        (dict.fromkeys(range(50), 60000), 0),
    ],
)
def test_slices_that_the_fault_hit_are_left_out(
    changed: Mapping[int, float | None], slices: int
) -> None:
    longest = dict.fromkeys(range(100), 5.0) | dict(changed)
    known_ms = {n: ms for n, ms in longest.items() if ms is not None}
    assert slices_before(5.0, SLICE_NS, latencies(known_ms)) == slices


def test_without_messages_or_time_there_is_nothing_to_test() -> None:
    assert slices_before(5.0, SLICE_NS, latencies({})) == 0
    assert slices_before(0.0, SLICE_NS, latencies({0: 5.0})) == 0
