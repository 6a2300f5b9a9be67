"""What bench/models.py makes of its measurements: of a machine that is exactly as the model says."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import model_data
from made_up_machine import FITTED, RUNS
from model_cells import Cell, cells
from model_data import Measured, Measurements
from model_verdicts import predicted, results
from penstock.domain.metrics import Distribution, Estimate
from penstock.models.observation import MeasuredLatency
from penstock.models.path.predict import CURVE_SHARES, PredictedLatency
from penstock.stats.histogram import Histogram

FULL_PER_S = 1_500.0
CELLS = cells(FULL_PER_S)
FORECASTS = predicted(FITTED, CELLS)


def latency(predicted: PredictedLatency, factor: float) -> MeasuredLatency:
    return MeasuredLatency(
        count=4_000,
        mean_ms=factor * predicted.mean_ms.value,
        percentiles_ms={p: factor * e.value for p, e in predicted.percentiles_ms.items()},
    )


def distribution(predicted: PredictedLatency, factor: float) -> Distribution:
    shares = (np.arange(4_000) + 0.5) / 4_000
    values_ms = factor * np.interp(shares, CURVE_SHARES, predicted.curve_ms)
    histogram = Histogram.of((1e6 * values_ms).astype(np.int64))
    return Distribution(
        count=4_000,
        mean_ms=Estimate(value=histogram.mean_ns / 1e6),
        deviation_ms=0.0,
        percentiles_ms={},
        min_ms=histogram.min_ns / 1e6,
        max_ms=histogram.max_ns / 1e6,
        buckets=histogram.to_buckets(),
    )


def measured(cell: Cell, factor: float) -> Measured:
    """What was predicted times `factor`; nothing if the load is too high."""
    prediction = FORECASTS[cell.name].prediction
    if prediction is None:
        return Measured(problem="orders: not steady, its queue grew")
    if cell.client == "java":  # it reports only what its producer saw
        return Measured(latencies={"produce": latency(prediction.latencies["produce"], factor)})
    predicted = prediction.latencies["end_to_end"]
    return Measured(
        latencies={"end_to_end": latency(predicted, factor)},
        cpu_share=prediction.cpu_share,
        end_to_end=distribution(predicted, factor),
    )


def measurements(factor: float = 1.0) -> Measurements:
    return Measurements(
        quick=False,
        full_per_s=FULL_PER_S,
        observations=RUNS,
        cells={cell.name: (measured(cell, factor),) * 2 for cell in CELLS},
    )


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench" / "out").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)


def test_a_machine_as_predicted_has_no_errors() -> None:
    keys, rows = results(FITTED, FORECASTS, measurements(), "digest")
    for statistic in ("latency_mean_mape", "latency_p99_mape"):
        assert max(keys[statistic].values()) < 1e-9
    assert keys["violation_mae"] < 0.005
    assert keys["interval_coverage"] == 1.0
    assert keys["saturation_right"] == 1.0
    assert keys["unjudged"] == []
    assert any(row.met for row in rows)


def test_a_machine_that_is_slower_has_the_errors_of_the_factor() -> None:
    keys, _ = results(FITTED, FORECASTS, measurements(1.25), "digest")
    for statistic in ("latency_mean_mape", "latency_p99_mape"):
        assert all(math.isclose(error, 0.25) for error in keys[statistic].values())


def test_measurements_are_read_as_they_were_written(tmp_path: Path) -> None:
    before = measurements()
    model_data.write(tmp_path / "measured.json.gz", before)
    assert model_data.read(tmp_path / "measured.json.gz") == before
