"""Calibration on runs made up by the simulator itself: what went in comes out."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from penstock.domain.arrivals import PoissonArrivals
from penstock.domain.broker_view import RequestClass
from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import BadInput
from penstock.domain.run import RunSpec
from penstock.domain.settings import ProducerSettings
from penstock.domain.workload import Payload, Workload
from penstock.models import calibration
from penstock.models.calibration import direct, errors, fit
from penstock.models.observation import BrokerWork, MeasuredLatency, Observation
from penstock.models.path.physics import Physics
from penstock.models.path.predict import PathModel, Prediction, predict

TRUE = Physics(
    client_produce=2e-5,
    client_request=1e-4,
    client_answer=1e-4,
    broker_request=2e-4,
    broker_answer=1e-4,
    follower_fetch=1e-4,
    follower_answer=1e-4,
    follower_append=1e-4,
    reader_fetch=1e-4,
    reader_answer=1e-4,
    reader_request=1e-4,
    wake=1.5e-4,
    spread=0.3,
)
MODEL = PathModel(physics=TRUE, cores=2)


def run(rate_per_s: float, size_bytes: int = 100, **settings: object) -> RunSpec:
    return RunSpec(
        name="a",
        topic=TopicSpec(name="t", partitions=3, replication=3),
        workload=Workload(
            arrivals=PoissonArrivals(rate_per_s=rate_per_s), payload=Payload(size_bytes=size_bytes)
        ),
        settings=ProducerSettings(**settings),  # type: ignore[arg-type]
    )


def observed(spec: RunSpec) -> Observation:
    """What a run of that spec would measure on a machine with the true physics."""
    answer = predict(MODEL, spec, messages=4_000, seed=7)
    assert isinstance(answer, Prediction), answer
    requests, rate = answer.requests_per_s, answer.messages_per_s
    return Observation(
        run=f"{rate:.0f}",
        spec=spec,
        messages_per_s=rate,
        latencies={
            name: MeasuredLatency(
                count=4_000,
                mean_ms=latency.mean_ms.value,
                percentiles_ms={p: e.value for p, e in latency.percentiles_ms.items()},
            )
            for name, latency in answer.latencies.items()
        },
        produce_requests_per_s=requests,
        producer_cores=TRUE.client_produce * rate + 2 * TRUE.client_request * requests,
        consumer_cores=TRUE.reader_request * requests,
        brokers=BrokerWork(
            cores=0.05 + 5 * requests * 3e-4,
            requests_per_s=dict(zip(RequestClass, (requests, 2 * requests, requests), strict=True)),
            local_ms=dict.fromkeys(RequestClass, 0.1),
            bytes_in_per_s=rate * 110,
            collections_per_s=requests * 4 * 30_000 / 1e8,
            collection_ms=15.0,
            young_bytes=100_000_000,
        ),
    )


RUNS = [
    observed(run(100, linger_ms=0)),
    observed(run(300, linger_ms=0, acks="1")),
    observed(run(2_000, linger_ms=5)),
    observed(run(500, linger_ms=20, size_bytes=1_000)),
]


def test_counters_give_costs() -> None:
    found = direct(RUNS)
    assert found.client_produce == pytest.approx(TRUE.client_produce, rel=0.01)
    assert found.client_request == pytest.approx(TRUE.client_request, rel=0.01)
    assert found.reader_request == pytest.approx(TRUE.reader_request, rel=0.01)
    assert found.heap_request_bytes == pytest.approx(30_000, rel=0.01)
    assert (found.heap_young_bytes, found.heap_pause) == (1e8, 0.015)


def test_without_counters_nothing_is_made_up() -> None:
    blind = [replace(one, brokers=None, producer_cores=None, consumer_cores=None) for one in RUNS]
    assert direct(blind) == Physics()


def test_errors_are_those_of_the_prediction() -> None:
    for one in RUNS:
        for of_latency in errors(MODEL, one).values():
            assert all(abs(error) < 0.25 for error in of_latency.values()), of_latency
    slow = replace(MODEL, physics=replace(TRUE, wake=5e-3))
    assert errors(slow, RUNS[0])["produce"]["mean"] < -1
    # A machine that cannot carry the load: the model refuses, which is no error to average.
    assert errors(replace(MODEL, physics=replace(TRUE, broker_request=0.1)), RUNS[2]) == {}


def test_a_fit_explains_runs_that_it_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_EVALUATIONS", 60)
    monkeypatch.setattr(calibration, "_EVALUATIONS_AGAIN", 10)
    found = fit(RUNS, cores=2)
    assert [one.run for one in found.left_out] == [one.run for one in RUNS]
    assert len(found.model.others) == len(RUNS)
    mean = [one.errors["end_to_end"]["mean"] for one in found.left_out]
    assert math.sqrt(sum(error**2 for error in mean) / len(mean)) < 0.2
    assert 0 < found.model.scatter["end_to_end"] < 0.4


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(BadInput, match="too few"):
        fit(RUNS[:2], cores=2)
