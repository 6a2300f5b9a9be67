"""Calibration on runs of a made-up machine: what went in comes out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from made_up_machine import (
    CLIENT_REQUEST_S,
    MESSAGE_S,
    MODEL,
    PHYSICS,
    READER_REQUEST_S,
    REQUEST_S,
    observed,
    run_spec,
)
from penstock.domain.broker_view import RequestClass
from penstock.domain.errors import BadInput
from penstock.models import calibration
from penstock.models.calibration import Calibration, errors, fit
from penstock.models.costs import costs
from penstock.models.observation import Observation
from penstock.models.path.physics import Physics
from penstock.models.path.predict import Prediction, predict

RUNS = [
    observed(run_spec(100, acks="all")),
    observed(run_spec(300, acks="1")),
    observed(run_spec(2_000, acks="all", linger_ms=5)),
    observed(run_spec(500, acks="all", linger_ms=20, size_bytes=1_000)),
]


def test_counters_give_costs() -> None:
    found = costs(RUNS)
    assert found.producer_message_s == pytest.approx(MESSAGE_S, rel=0.01)
    assert found.producer_request_s == pytest.approx(CLIENT_REQUEST_S, rel=0.01)
    assert found.consumer_request_s == pytest.approx(READER_REQUEST_S, rel=0.01)
    # Fetches are fewer than assumed by the made-up counters, so this is about right only.
    assert found.broker_request_s == pytest.approx(REQUEST_S, rel=0.25)
    assert found.request_shares[RequestClass.PRODUCE] == pytest.approx(0.25)


def test_garbage_collections_give_the_heap_that_requests_use() -> None:
    def with_heap(one: Observation) -> Observation:
        assert one.brokers is not None
        requests = sum(one.brokers.requests_per_s.values())
        allocated = 30_000 * requests + 3 * 3 * one.brokers.bytes_in_per_s
        work = replace(
            one.brokers,
            collections_per_s=allocated / 1e8,
            collection_ms=15.0,
            young_bytes=100_000_000,
        )
        return replace(one, brokers=work)

    found = costs([with_heap(one) for one in RUNS])
    assert found.heap_request_bytes == pytest.approx(30_000, rel=0.01)
    assert found.heap_per_byte == pytest.approx(3, rel=0.01)
    assert (found.heap_young_bytes, found.heap_pause_s) == (1e8, 0.015)


def test_without_counters_nothing_is_made_up() -> None:
    blind = [replace(one, brokers=None, producer_cores=None, consumer_cores=None) for one in RUNS]
    found = costs(blind)
    assert found.broker_request_s is found.producer_message_s is found.consumer_message_s is None
    assert found.background_cores == 0


def test_errors_are_those_of_the_prediction() -> None:
    for one in RUNS:
        for of_latency in errors(MODEL, one).values():
            assert all(abs(error) < 0.25 for error in of_latency.values()), of_latency
    slow = replace(MODEL, physics=replace(PHYSICS, wake=5e-3))
    assert errors(slow, RUNS[0])["produce"]["mean"] < -1


@pytest.fixture(scope="module")
def found() -> Calibration:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "_RADII", (0.5, 0.2))
        patch.setattr(calibration, "_RADII_AGAIN", (0.15,))
        patch.setattr(calibration, "_MESSAGES", 2_000)
        return fit(RUNS, cores=2)


def test_a_fit_explains_runs_that_it_has_not_seen(found: Calibration) -> None:
    assert [one.run for one in found.left_out] == [one.run for one in RUNS]
    assert len(found.model.others) == len(RUNS)
    mean = [one.errors["end_to_end"]["mean"] for one in found.left_out]
    assert math.sqrt(sum(error**2 for error in mean) / len(mean)) < 0.2
    scatter = found.model.scatter["end_to_end"]
    assert 0 < scatter.body.machine < 0.5
    # What follows from settings is known better than what the machine takes.
    assert scatter.body.settings < 0.1


def test_intervals_of_a_fit_hold_runs_that_it_has_not_seen(found: Calibration) -> None:
    held = []
    for spec in (run_spec(200, acks="all", linger_ms=2), run_spec(800, acks="1", linger_ms=10)):
        truth, answer = (predict(m, spec, messages=4_000) for m in (MODEL, found.model))
        assert isinstance(truth, Prediction) and isinstance(answer, Prediction)
        for name in ("produce", "end_to_end"):
            mean = answer.latencies[name].mean_ms
            assert mean.low is not None and mean.high is not None
            held.append(mean.low <= truth.latencies[name].mean_ms.value <= mean.high)
    assert sum(held) >= 3, held


def test_a_cluster_that_nobody_can_look_into_is_fitted_by_its_clients_alone() -> None:
    blind = [replace(one, brokers=None, is_local=False) for one in RUNS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "_RADII", (0.5, 0.2))
        patch.setattr(calibration, "_RADII_AGAIN", (0.15,))
        patch.setattr(calibration, "_MESSAGES", 2_000)
        found = fit(blind, cores=0, is_shared=False)
    assert found.model.physics != Physics()
    mean = [abs(one.errors["end_to_end"]["mean"]) for one in found.left_out]
    assert sorted(mean)[len(mean) // 2] < 0.3


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(BadInput, match="too few"):
        fit(RUNS[:2], cores=2)


def test_one_run_with_counters_among_others_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left out, it leaves runs that show nothing of the brokers."""
    monkeypatch.setattr(calibration, "_RADII", (0.3,))
    monkeypatch.setattr(calibration, "_RADII_AGAIN", (0.1,))
    monkeypatch.setattr(calibration, "_MESSAGES", 1_000)
    mixed = [RUNS[0], *(replace(one, brokers=None) for one in RUNS[1:])]
    assert len(fit(mixed, cores=2).left_out) == len(RUNS)
