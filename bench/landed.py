"""What a pipeline landed, as benchmarks look at it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.pipeline.lake.landing import Landed


def ages_ms(landed: Iterable[Landed], lake: Path) -> npt.NDArray[np.float64]:
    """Of every record when its micro-batch became readable."""
    found = [
        one.at_ms
        - pc.cast(
            pq.read_table(lake / file.table / file.path, columns=["kafka_timestamp"]).column(0),
            "int64",
        ).to_numpy()
        / 1000
        for one in landed
        for lane in one.report.lanes
        for file in lane.files
    ]
    return np.concatenate(found)
