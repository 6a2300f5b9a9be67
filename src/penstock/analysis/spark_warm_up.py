"""A made-up run that warms Spark up. Its figures mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.domain.arrivals.constant import ConstantArrivals
from penstock.domain.cluster import TopicSpec
from penstock.domain.objective import Objective
from penstock.domain.run import ClockAnchor, Run, RunSpec
from penstock.domain.trace import message_id
from penstock.domain.workload import Workload
from penstock.load.trace_schema import schema
from penstock.runs.run_directory import RunDirectory


def make_up(directory: Path, is_watched: bool, messages: int = 50_000) -> None:
    """A run of ten seconds in which messages are late, lost and doubled.

    Java takes a branch that it never saw taken for one that never will be, and has to compile
    everything again when a real run takes it.
    """
    zero_ns, wall_ns = 1_000_000_000_000, 1_700_000_000_000_000_000
    number = np.arange(messages, dtype=np.int64)
    intended = zero_ns + number * (10_000_000_000 // messages)
    took_ns = 1_000_000 + number * 7919 % 97 * 500_000
    is_lost, is_doubled = number % 50 == 0, number % 70 == 1
    outcome = np.where(is_lost, np.where(number % 100 == 0, "failed", "unknown"), "acknowledged")
    # Records in the topic, the second copies last.
    record = np.concatenate([number[~is_lost], number[is_doubled & ~is_lost]])
    offset = np.arange(len(record), dtype=np.int64)
    partition = (record % 3).astype(np.int32)
    columns: dict[str, dict[str, Any]] = {
        "sent": {
            "id": message_id(1, 0) | number,
            "size_bytes": np.full(messages, 100, dtype=np.int32),
            "intended_ns": intended,
            "sent_ns": intended + 10_000,
            "reported_ns": pa.array(intended + took_ns, mask=outcome == "unknown"),
            "outcome": outcome,
            "tries": (1 + number % 40 // 39).astype(np.int16),
        },
        "received": {
            "id": message_id(1, 0) | record,
            "received_ns": (intended + 2 * took_ns)[record],
            "partition": partition,
            "offset": offset,
            "index": np.zeros(len(record), dtype=np.int32),
            "appended_ms": (wall_ns - zero_ns + (intended + took_ns // 2)[record]) // 1_000_000,
            "size_bytes": np.full(len(record), 100, dtype=np.int32),
            "consumer": np.zeros(len(record), dtype=np.int16),
        },
        "seen": {"partition": partition, "offset": offset, "seen_ns": (intended + took_ns)[record]},
    }
    if not is_watched:
        del columns["seen"]
    for trace, values in columns.items():
        (directory / trace).mkdir(parents=True, exist_ok=True)
        trace_schema = schema(trace)
        rows = len(next(iter(values.values())))
        arrays = [
            pa.array(values[f.name], f.type) if f.name in values else pa.nulls(rows, f.type)
            for f in trace_schema
        ]
        pq.write_table(
            pa.Table.from_arrays(arrays, schema=trace_schema), directory / trace / "1.parquet"
        )
    run = Run(
        id=directory.name,
        spec=RunSpec(
            name="warm",
            topic=TopicSpec(name="warm"),
            workload=Workload(arrivals=ConstantArrivals(rate_per_s=messages / 10)),
            objective=Objective(latency_ms=50.0),
            timeliness_ms=80.0,
        ),
        started_at="1970-01-01T00:00:00Z",
        versions={},
        measured_from_ns=zero_ns + 1_000_000_000,  # after a warm-up
        measured_to_ns=zero_ns + 10_000_000_000,
        anchors=(ClockAnchor(monotonic_ns=zero_ns, wall_ns=wall_ns),),
    )
    RunDirectory(directory).write_run(run)
