"""The summary's counts of one run → was it steady. The test itself is `stats.steadiness`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.analysis import summary
from penstock.analysis.latency import LATENCY
from penstock.analysis.outcome_bits import Outcomes
from penstock.analysis.summary_arrays import Entries, RunSummary
from penstock.analysis.timeline import SECOND_NS, Timeline
from penstock.domain.steadiness import Disturbance, Steadiness
from penstock.stats.steadiness import judge

Floats = npt.NDArray[np.float64]

_NS_TO_MS = 1e-6
# Of what was acknowledged: with less received, it is the consumers who fall behind.
_BEHIND = 0.95


def steadiness(
    run_summary: RunSummary, line: Timeline, disturbance: Disturbance | None
) -> Steadiness:
    """Test the time before the first disturbance; what follows is changed on purpose."""
    slices = line.slices
    if slices and (line.to_ns - line.from_ns) % line.slice_ns:
        slices -= 1  # the last one is shorter
    latency = run_summary.entries(summary.SLICED[LATENCY])
    if disturbance is not None:
        slices = min(slices, slices_before(disturbance.at_s, line.slice_ns, latency))
    rows, arrived = run_summary.entries(summary.OUTCOME), run_summary.entries(summary.ARRIVED)
    outcomes = Outcomes(rows.bucket)

    def per_slice(entries: Entries, weights: npt.NDArray[Any]) -> Floats:
        inside = (entries.at >= 0) & (entries.at < slices)
        sums = np.bincount(entries.at[inside], weights[inside], minlength=slices)
        return np.asarray(sums[:slices], dtype=np.float64)

    due = rows.where(outcomes.is_sent)
    # What is lost never waits.
    earlier = rows.where(outcomes.is_sent & ~outcomes.is_lost & (rows.at < 0))
    waiting = int(earlier.entries.sum()) - int(arrived.entries[arrived.at < 0].sum())
    judged = judge(
        per_slice(latency, latency.total * _NS_TO_MS),
        per_slice(latency, latency.entries),
        per_slice(due, due.entries),
        per_slice(arrived, arrived.entries),
        line.slice_ns / SECOND_NS,
        waiting_first=max(0, waiting),
        done_name=_bottleneck(run_summary, slices),
    )
    if disturbance is None or judged.state == "unsteady":
        return judged
    note = "; steady until then" if judged.state == "steady" else ""
    if judged.state == "not tested" and disturbance.at_s > 0:
        note = "; the time before it was too short to be tested"
    return replace(judged, state="changed on purpose", sentence=disturbance.sentence + note)


def slices_before(at_s: float, slice_ns: int, latency: Entries) -> int:
    """The slices whose messages had arrived when it happened: the last ones before it are hit, too,
    and where nothing arrived of a slice, nothing says that it was not."""
    at_ns = int(at_s * SECOND_NS)
    count = at_ns // slice_ns
    inside = (latency.at >= 0) & (latency.at < count)
    longest_ns = np.full(count, at_ns, dtype=np.int64)
    longest_ns[latency.at[inside]] = 0
    np.maximum.at(longest_ns, latency.at[inside], latency.most[inside])
    while count and count * slice_ns + longest_ns[count - 1] > at_ns:
        count -= 1
    return count


def _bottleneck(run_summary: RunSummary, slices: int) -> str:
    """What falls behind if the queue grows: the brokers that acknowledge, or the consumers."""
    accepted, arrived = (
        int(entries.entries[(entries.at >= 0) & (entries.at < slices)].sum())
        for entries in map(run_summary.entries, (summary.ACCEPTED, summary.ARRIVED))
    )
    return "the consumers" if arrived < _BEHIND * accepted else "the brokers"
