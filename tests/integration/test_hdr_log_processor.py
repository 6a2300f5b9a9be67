"""HdrHistogram's own log processor (Kafka brings its jar along) on logs that we write."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from penstock.runs import hdr_log
from penstock.runs.hdr_log import HdrLog, Interval
from penstock.stats.histogram import Histogram
from penstock.testbed.toolchain import Toolchain

pytestmark = pytest.mark.integration

S = 1_000_000_000


def processed(toolchain: Toolchain, log: Path, *options: str) -> dict[float, tuple[float, int]]:
    """Percentile → value in ms and how many values there are up to it."""
    command = [str(toolchain.java.path), "-cp", toolchain.classpath]
    command += ["org.HdrHistogram.HistogramLogProcessor", "-v", "-i", str(log), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    figures = [row for row in rows if row and row[0] != "Value"]
    assert figures, done.stdout + done.stderr
    return {round(100 * float(row[1]), 6): (float(row[0]), int(row[2])) for row in figures}


def test_the_original_reads_our_log_to_the_same_percentiles(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    seconds = [Histogram.of(rng.lognormal(15, 1, 20_000).astype(np.int64)) for _ in range(3)]
    path = tmp_path / "latency.hlog"
    intervals = [Interval(float(i), 1.0, seconds[i], "A") for i in range(3)]
    other = Interval(0.0, 1.0, Histogram.of([1]))
    hdr_log.write(path, HdrLog(1_700_000_000.0, (*intervals, other), ("a comment",)))
    theirs, ours = processed(toolchain, path, "-tag", "A"), Histogram.merged(seconds)
    assert theirs[100.0][1] == ours.count == 60_000
    for percent in (10.0, 50.0, 75.0, 90.0, 95.0):
        value_ms, _ = theirs[percent]
        assert value_ms == pytest.approx(ours.percentile(percent) / 1e6, abs=0.0006)


def test_the_original_corrects_the_worked_example_of_s1_as_we_do(
    toolchain: Toolchain, tmp_path: Path
) -> None:
    closed = Histogram.of([10 * S] * 6 + [60 * S] + [10 * S] * 6)
    path = tmp_path / "closed.hlog"
    hdr_log.write(path, HdrLog(1_700_000_000.0, (Interval(0.0, 180.0, closed),)))
    theirs = processed(toolchain, path, "-correctLogWithKnownCoordinatedOmission", str(10 * S))
    ours = closed.corrected(10 * S)
    assert theirs[100.0][1] == ours.count == 18
    for percent in (50.0, 75.0, 80.0, 85.0, 90.0, 95.0):
        # It takes 60 s for the upper edge of their bucket, so what it adds lies a bucket higher.
        assert theirs[percent][0] == pytest.approx(ours.percentile(percent) / 1e6, rel=3e-3)
