"""A fit whose runs are simulated on Spark's executors."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from made_up_machine import observed, run_spec
from penstock.analysis.workers import SparkWorkers
from penstock.api import models
from penstock.models import calibration
from penstock.models.calibration import fit

RUNS = [
    observed(run_spec(rate, acks=acks, linger_ms=linger))
    for rate, acks, linger in ((100, "all", 0), (300, "1", 0), (800, "all", 5))
]


def test_spark_finds_the_same_model(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_RADII", (0.3,))
    monkeypatch.setattr(calibration, "_RADII_AGAIN", (0.1,))
    assert fit(RUNS, cores=2, start_workers=partial(SparkWorkers, spark)) == fit(RUNS, cores=2)


def test_many_runs_are_simulated_on_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "_RADII", ())
    monkeypatch.setattr(calibration, "_RADII_AGAIN", ())
    said: list[str] = []
    with models._workers(models._MANY_RUNS, "local[2]", said.append) as start_workers:
        assert isinstance(start_workers([1, 2, 3], lambda x: 10 * x), SparkWorkers)
        assert start_workers([1, 2, 3], lambda x: 10 * x).each(lambda x: x + 1, [2, 0]) == [31, 11]
    assert said == ["starting Spark on local[2] for 40 runs"]
