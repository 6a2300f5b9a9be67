"""Predictions of runs: distributions with intervals, and loads that are too high."""

from __future__ import annotations

from dataclasses import replace

import pytest

from made_up_machine import MODEL, PHYSICS
from made_up_machine import run_spec as run
from penstock.domain.run import RunSpec
from penstock.models.path.predict import (
    LatencyScatter,
    PathModel,
    Prediction,
    Saturated,
    Scatter,
    predict,
)


def predicted(model: PathModel, of: RunSpec) -> Prediction:
    answer = predict(model, of, messages=5_000)
    assert isinstance(answer, Prediction), answer
    return answer


def test_a_prediction_has_the_whole_distribution_and_its_parts() -> None:
    answer = predicted(MODEL, run(rate_per_s=30, delay_ms=10))
    produce, end_to_end = answer.latencies["produce"], answer.latencies["end_to_end"]
    # There and back, and a round trip of replication: 40 ms, and little more at this load.
    assert 40 < produce.percentiles_ms["50"].value < 48
    assert produce.percentiles_ms["99"].value > produce.percentiles_ms["50"].value
    assert sum(answer.parts_ms.values()) == pytest.approx(end_to_end.mean_ms.value)
    assert answer.parts_ms["replicate"] > 19
    assert answer.messages_per_s == pytest.approx(30, rel=0.1)
    assert answer.batch_messages == pytest.approx(answer.messages_per_s / answer.requests_per_s)
    assert answer.cpu_share is not None and 0.01 < answer.cpu_share < 0.1


def test_the_violation_rate_is_that_of_the_distribution() -> None:
    produce = predicted(MODEL, run(rate_per_s=30, delay_ms=10)).latencies["produce"]
    assert produce.late_share(0) == 1 and produce.late_share(1e9) == 0
    for percent in (50, 90, 99):
        limit_ms = produce.percentiles_ms[f"{percent}"].value
        assert produce.late_share(limit_ms) == pytest.approx(1 - percent / 100, abs=0.006)


def test_an_interval_has_the_errors_of_left_out_runs() -> None:
    sure = predicted(MODEL, run()).latencies["produce"].mean_ms
    assert (sure.low, sure.high) == (None, None)
    scatter = LatencyScatter(body=Scatter(machine=0.1), tail=Scatter(machine=0.3))
    answer = predicted(replace(MODEL, scatter={"produce": scatter}), run()).latencies["produce"]
    mean, p99 = answer.mean_ms, answer.percentiles_ms["99"]
    assert mean.low is not None and mean.high is not None
    # Nothing of it follows from settings: e^(1.645 · 0.1)
    assert mean.high / mean.value == pytest.approx(1.179, abs=0.001)
    assert p99.high is not None and p99.high / p99.value == pytest.approx(1.638, abs=0.001)
    # With few runs one knows less of their spread.
    few = predicted(replace(MODEL, scatter={"produce": scatter}, runs=4), run())
    wider = few.latencies["produce"].mean_ms
    assert wider.high is not None and wider.high / wider.value == pytest.approx(1.265, abs=0.001)


def test_what_follows_from_settings_and_links_is_known_better() -> None:
    scatter = {"produce": LatencyScatter(body=Scatter(machine=0.5, settings=0.01))}
    far = predicted(replace(MODEL, scatter=scatter), run(30, delay_ms=10))
    mean = far.latencies["produce"].mean_ms
    assert mean.high is not None
    # 40 of some 44 ms are links.
    assert 1.03 < mean.high / mean.value < 1.15


def test_an_interval_has_what_the_calibration_leaves_open() -> None:
    scatter = {"produce": LatencyScatter(body=Scatter(machine=0.05))}
    sure = replace(MODEL, scatter=scatter)
    others = tuple(replace(PHYSICS, broker_request=s) for s in (1e-4, 3e-4, 6e-4, 9e-4))
    one, open_ = (
        predicted(model, run()).latencies["produce"].mean_ms
        for model in (sure, replace(sure, others=others))
    )
    assert one.high is not None and open_.high is not None
    assert open_.high / open_.value > one.high / one.value


@pytest.mark.parametrize(
    ("of", "low", "high", "why"),
    [
        # About 1.9 ms of CPU per message: 85 % of two cores are used up by some 900 of them.
        (run(rate_per_s=5_000, batch_num_messages=1), 400, 1_600, "of the cores"),
        # One request per round trip of 40 ms on each of three connections.
        (run(rate_per_s=200, delay_ms=10, in_flight=1, batch_num_messages=1), 65, 76, "latency"),
    ],
)
def test_a_load_that_is_too_high_has_a_limit_instead_of_a_latency(
    of: RunSpec, low: float, high: float, why: str
) -> None:
    answer = predict(MODEL, of, messages=3_000)
    assert isinstance(answer, Saturated)
    assert low < answer.limit_per_s < high
    assert why in answer.reason
    assert f"above {answer.limit_per_s:,.0f} messages/s" in str(answer)
