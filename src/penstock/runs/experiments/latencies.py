"""Latencies of a small run, straight from its traces. `analysis` makes the full account.

An experiment needs means and distributions of a few ten thousand messages at each of many points,
and `runs` does not import Spark. Lost messages are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.domain.errors import TestbedError
from penstock.domain.metrics import Estimate
from penstock.domain.run import Run
from penstock.stats.batch_means import of_ratio
from penstock.stats.histogram import Histogram
from penstock.stats.steadiness import judge

Ints = npt.NDArray[np.int64]
_SLICES = 200


@dataclass(frozen=True)
class Latencies:
    """Times of the measured messages that have one, and how many have none."""

    histogram: Histogram
    mean_ms: Estimate
    missing: int
    unsteadiness: str = ""  # why they are not those of the setting; empty if they are
    untested: str = ""  # why nobody knows


def acknowledged(directory: Path, run: Run) -> Latencies:
    """Intended → acknowledged; failed and unanswered ones are missing."""
    sent = _table(directory, "sent", ["intended_ns", "reported_ns", "outcome"])
    intended = _ints(sent, "intended_ns")
    is_acknowledged = np.asarray(sent.column("outcome").to_pylist(), dtype=object) == "acknowledged"
    return _latencies(run, intended, _ints(sent, "reported_ns"), is_acknowledged)


def received(directory: Path, run: Run) -> Latencies:
    """Intended → first received; messages that never arrived are missing."""
    sent = _table(directory, "sent", ["id", "intended_ns"])
    got = _table(directory, "received", ["id", "received_ns"])
    received_ids, times = _ints(got, "id"), _ints(got, "received_ns")
    order = np.argsort(times, kind="stable")
    first_ids, first = np.unique(received_ids[order], return_index=True)
    first_times = times[order][first]
    ids = _ints(sent, "id")
    place = np.searchsorted(first_ids, ids).clip(0, max(0, len(first_ids) - 1))
    arrived = first_ids[place] == ids if len(first_ids) else np.zeros(len(ids), dtype=bool)
    ends = first_times[place] if len(first_ids) else np.zeros(len(ids), dtype=np.int64)
    return _latencies(run, _ints(sent, "intended_ns"), ends, arrived)


def visible_ms(directory: Path, run: Run) -> float | None:
    """Appended by the leader → there to be read, mean; None if nobody watched.

    The append time is in whole milliseconds, cut off, so half of one is added to it.
    """
    if not (directory / "seen").is_dir() or not run.anchors:
        return None
    got = _table(directory, "received", ["partition", "offset", "appended_ms"])
    seen = _table(directory, "seen", ["partition", "offset", "seen_ns"])
    both = seen.join(got, keys=["partition", "offset"], join_type="inner")
    both = both.filter(pa.compute.is_valid(both.column("appended_ms")))
    if not both.num_rows:
        return None
    shift_ns = run.anchors[0].wall_ns - run.anchors[0].monotonic_ns
    appended_ns = _ints(both, "appended_ms") * 1_000_000 + 500_000 - shift_ns
    measured = (appended_ns >= run.measured_from_ns) & (appended_ns < run.measured_to_ns)
    if not measured.any():
        return None
    return float((_ints(both, "seen_ns") - appended_ns)[measured].mean()) / 1e6


def _latencies(
    run: Run, intended: Ints, ended: Ints, has_ended: npt.NDArray[np.bool_]
) -> Latencies:
    measured = (intended >= run.measured_from_ns) & (intended < run.measured_to_ns)
    known = measured & has_ended
    if not known.any():
        raise TestbedError("no message of the measured time has a latency")
    values = np.maximum(ended[known] - intended[known], 0)
    edges = np.linspace(run.measured_from_ns, run.measured_to_ns, _SLICES + 1)
    sums, _ = np.histogram(intended[known], edges, weights=values / 1e6)
    counts, _ = np.histogram(intended[known], edges)
    due, _ = np.histogram(intended[measured], edges)
    done, _ = np.histogram(ended[has_ended], edges)
    earlier = has_ended & (intended < run.measured_from_ns) & (ended >= run.measured_from_ns)
    steadiness = judge(
        sums,
        counts.astype(np.float64),
        due.astype(np.float64),
        done.astype(np.float64),
        (run.measured_to_ns - run.measured_from_ns) / 1e9 / _SLICES,
        waiting_first=int(earlier.sum()),
    )
    return Latencies(
        histogram=Histogram.of(values),
        mean_ms=of_ratio(sums.tolist(), counts.tolist()),
        missing=int((measured & ~has_ended).sum()),
        unsteadiness=steadiness.sentence if steadiness.state == "unsteady" else "",
        untested=steadiness.sentence if steadiness.state == "not tested" else "",
    )


def _table(directory: Path, trace: str, columns: list[str]) -> Any:
    files = sorted((directory / trace).glob("*.parquet"))
    if not files:
        raise TestbedError(f"{directory / trace}: there is no trace")
    return pa.concat_tables([pq.read_table(file, columns=columns) for file in files])


def _ints(table: Any, column: str) -> Ints:
    """As whole numbers; what is empty is 0 and must be masked."""
    return np.asarray(pa.compute.fill_null(table.column(column), 0), dtype=np.int64)
