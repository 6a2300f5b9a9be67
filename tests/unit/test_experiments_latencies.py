"""Latencies from hand-made traces: out of order, copies, what never came, the warm-up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.domain.arrivals import ConstantArrivals
from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import TestbedError
from penstock.domain.run import ClockAnchor, Run, RunSpec
from penstock.domain.workload import Workload
from penstock.load.trace_schema import schema
from penstock.runs.experiments import latencies

MS = 1_000_000
# The wall clock is this far ahead of the monotonic one.
AHEAD_NS = 1_700_000_000_000_000_000
RUN = Run(
    id="r",
    spec=RunSpec(
        name="e",
        topic=TopicSpec(name="t"),
        workload=Workload(arrivals=ConstantArrivals(rate_per_s=1)),
    ),
    started_at="now",
    versions={},
    measured_from_ns=1000 * MS,
    measured_to_ns=2000 * MS,
    anchors=(ClockAnchor(monotonic_ns=0, wall_ns=AHEAD_NS),),
)


def write(directory: Path, trace: str, name: str, rows: list[dict[str, Any]]) -> None:
    (directory / trace).mkdir(exist_ok=True)
    table = pa.Table.from_pylist(rows, schema=schema(trace))
    pq.write_table(table, directory / trace / f"{name}.parquet")


def sent(number: int, intended_ms: int, reported_ms: int | None, outcome: str) -> dict[str, Any]:
    return {
        "id": number,
        "size_bytes": 10,
        "intended_ns": intended_ms * MS,
        "reported_ns": None if reported_ms is None else reported_ms * MS,
        "outcome": outcome,
    }


def received(
    number: int, at_ms: float, offset: int, appended_ms: int | None = None
) -> dict[str, Any]:
    return {
        "id": number,
        "received_ns": round(at_ms * MS),
        "partition": 0,
        "index": 0,
        "offset": offset,
        "appended_ms": None if appended_ms is None else AHEAD_NS // MS + appended_ms,
        "size_bytes": 10,
        "consumer": 0,
    }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write(
        tmp_path,
        "sent",
        "producer-1",
        [
            sent(1, 500, 900, "acknowledged"),  # warm-up
            sent(2, 1000, 1010, "acknowledged"),
            sent(3, 1500, 1530, "acknowledged"),
        ],
    )
    write(
        tmp_path,
        "sent",
        "producer-2",
        [
            sent(11, 1200, 1300, "failed"),
            sent(12, 1900, None, "unknown"),
            sent(13, 2000, 2001, "acknowledged"),  # after the measured time
        ],
    )
    write(
        tmp_path,
        "received",
        "consumer-1",
        # Out of order, 3 twice; 11 was reported failed and yet arrived; 12 never did.
        [
            received(3, 1590, 5, 1500),
            received(3, 1540, 2, 1500),
            received(2, 1020, 1, 1010),
            received(11, 1260, 3, 1210),
            received(1, 600, 0, 510),
        ],
    )
    return tmp_path


def test_answers_count_from_the_intended_time(directory: Path) -> None:
    times = latencies.acknowledged(directory, RUN)
    assert times.histogram.count == 2
    assert (times.histogram.min_ns, times.histogram.max_ns) == (10 * MS, 30 * MS)
    assert times.mean_ms.value == pytest.approx(20)
    assert times.missing == 2


def test_receipt_is_that_of_the_first_copy(directory: Path) -> None:
    times = latencies.received(directory, RUN)
    assert times.histogram.count == 3
    assert (times.histogram.min_ns, times.histogram.max_ns) == (20 * MS, 60 * MS)
    assert times.mean_ms.value == pytest.approx((20 + 40 + 60) / 3)
    assert times.missing == 1


def test_visible_counts_from_the_middle_of_the_millisecond_of_the_append(directory: Path) -> None:
    assert latencies.visible_ms(directory, RUN) is None
    rows = [
        {"partition": 0, "offset": offset, "seen_ns": round(at * MS)}
        for offset, at in ((0, 550), (1, 1012.5), (2, 1504.5), (3, 1213.5), (9, 1999))
    ]
    write(directory, "seen", "watcher-1", rows)
    # 2, 4 and 3 ms after the middle; offset 0 is warm-up, 9 was received by nobody.
    assert latencies.visible_ms(directory, RUN) == pytest.approx(3.0)


def test_a_run_without_arrivals_has_no_latency(directory: Path) -> None:
    write(directory, "received", "consumer-1", [])
    with pytest.raises(TestbedError, match="no message"):
        latencies.received(directory, RUN)
    with pytest.raises(TestbedError, match="no trace"):
        latencies.received(directory / "sent", RUN)


def test_latencies_that_grow_are_not_those_of_the_setting(tmp_path: Path) -> None:
    """100 messages/s for 5 s; each waits longer than the one before, or all wait as long."""
    run = replace(RUN, measured_to_ns=6000 * MS)
    for name, grows_ms in (("steady", 0.0), ("growing", 1.0)):
        rows = [
            sent(i, 1000 + 10 * i, round(1000 + 10 * i + 5 + i % 3 + grows_ms * i), "acknowledged")
            for i in range(500)
        ]
        (tmp_path / name).mkdir()
        write(tmp_path / name, "sent", "producer-1", rows)
    assert latencies.acknowledged(tmp_path / "steady", run).unsteadiness == ""
    assert "latency grew" in latencies.acknowledged(tmp_path / "growing", run).unsteadiness
