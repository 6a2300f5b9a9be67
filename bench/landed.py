"""What a pipeline landed, as benchmarks look at it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.lake.landing import Landed


def ages_ms(
    landed: Iterable[Landed], lake: Path, sent_from_ms: float = 0.0
) -> npt.NDArray[np.float64]:
    """Of every record, if it was sent since then, when its micro-batch became readable."""
    found = [np.zeros(0)]
    for one in landed:
        for file in (file for lane in one.report.lanes for file in lane.files):
            times = pq.read_table(lake / file.table / file.path, columns=["kafka_timestamp"])
            sent_ms = pc.cast(times.column(0), "int64").to_numpy() / 1000
            found.append(one.at_ms - sent_ms[sent_ms >= sent_from_ms])
    return np.concatenate(found)
