"""What bench/models.py measures, as values: one file, by which bench/models_again.py judges a model that was changed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from penstock import specs
from penstock.domain.metrics import Distribution
from penstock.domain.value import Doc, Value
from penstock.models.observation import (
    MeasuredLatency,
    MeasuredReading,
    MeasuredSending,
    Observation,
)
from penstock.stats.histogram import Histogram


@dataclass(frozen=True, kw_only=True)
class Measured(Value):
    """One measurement of a cell."""

    latencies: Mapping[str, MeasuredLatency] = field(default_factory=dict)
    cpu_share: float | None = None
    seen: Observation | None = None
    end_to_end: Distribution | None = None
    stored_bytes_per_message: Annotated[float | None, Doc("on the disks of all brokers")] = None
    problem: Annotated[str, Doc("why it has no latencies: unsteady, or refused")] = ""

    @property
    def histogram(self) -> Histogram | None:
        return None if self.end_to_end is None else Histogram.of_distribution(self.end_to_end)


@dataclass(frozen=True, kw_only=True)
class Measurements(Value):
    """All measurements of the bench, on one cluster."""

    quick: bool
    full_per_s: Annotated[float, Doc("requests/s that would fill the processors; see model_cells")]
    # Of the calibration.
    observations: tuple[Observation, ...]
    sendings: tuple[MeasuredSending, ...] = ()
    readings: tuple[MeasuredReading, ...] = ()
    cells: Annotated[Mapping[str, tuple[Measured, ...]], Doc("name → repeats")]
    full: Annotated[tuple[MeasuredSending, ...], Doc("of `full_cells`")] = ()
    read: Annotated[tuple[MeasuredReading, ...], Doc("of `reading_cells`, each twice")] = ()


def write(file: Path, measurements: Measurements) -> None:
    text = specs.dump_json(measurements, indent=None)
    # Without a time: the same figures are the same bytes.
    file.write_bytes(gzip.compress(text.encode(), mtime=0))


def read(file: Path) -> Measurements:
    return specs.parse(json.loads(gzip.decompress(file.read_bytes())), Measurements, str(file))
