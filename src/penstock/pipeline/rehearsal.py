"""A made-up run, for Spark to practise on. Its figures mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.domain.arrivals.constant import ConstantArrivals
from penstock.domain.cluster import TopicSpec
from penstock.domain.run import ClockAnchor, Experiment, Run
from penstock.domain.trace import message_id
from penstock.domain.workload import Workload
from penstock.measure.run_directory import RunDirectory
from penstock.measure.trace import schema


def make_up(directory: Path, is_watched: bool, messages: int = 50_000) -> None:
    """A run of a second in which every message arrives."""
    zero_ns = 1_000_000_000_000
    number = np.arange(messages, dtype=np.int64)
    intended = zero_ns + number * (1_000_000_000 // messages)
    partition, offset = np.zeros(messages, dtype=np.int32), number
    size = np.full(messages, 100, dtype=np.int32)
    columns: dict[str, dict[str, Any]] = {
        "sent": {
            "id": message_id(1, 0) | number,
            "size_bytes": size,
            "intended_ns": intended,
            "sent_ns": intended + 10_000,
            "told_ns": intended + 3_000_000 + number,
            "told": ["acknowledged"] * messages,
            "tries": np.ones(messages, dtype=np.int16),
        },
        "received": {
            "id": message_id(1, 0) | number,
            "received_ns": intended + 5_000_000 + number,
            "partition": partition,
            "offset": offset,
            "appended_ms": (intended + 2_000_000) // 1_000_000,
            "size_bytes": size,
            "consumer": np.zeros(messages, dtype=np.int16),
        },
        "seen": {"partition": partition, "offset": offset, "seen_ns": intended + 4_000_000},
    }
    if not is_watched:
        del columns["seen"]
    for trace, given in columns.items():
        (directory / trace).mkdir(parents=True)
        wanted = schema(trace)
        arrays = [
            pa.array(given[f.name], f.type) if f.name in given else pa.nulls(messages, f.type)
            for f in wanted
        ]
        pq.write_table(pa.Table.from_arrays(arrays, schema=wanted), directory / trace / "1.parquet")
    run = Run(
        id=directory.name,
        experiment=Experiment(
            name="warm",
            topic=TopicSpec(name="warm"),
            workload=Workload(arrivals=ConstantArrivals(rate_per_s=float(messages))),
        ),
        started_at="1970-01-01T00:00:00Z",
        versions={},
        measured_from_ns=zero_ns,
        measured_to_ns=zero_ns + 1_000_000_000,
        anchors=(ClockAnchor(monotonic_ns=zero_ns, wall_ns=zero_ns),),
    )
    RunDirectory(directory).write_run(run)
