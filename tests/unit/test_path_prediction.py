"""Predictions of runs: distributions with intervals, and loads that are too high."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.domain.arrivals import PoissonArrivals
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.network import Link, LinkCondition, NetworkSpec
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.run import RunSpec
from penstock.domain.settings import ProducerSettings
from penstock.domain.workload import Workload
from penstock.models.path.physics import Physics
from penstock.models.path.predict import PathModel, Prediction, Saturated, predict

PHYSICS = Physics(
    client_request=1e-4,
    client_answer=5e-5,
    broker_request=3e-4,
    broker_answer=1e-4,
    follower_fetch=1e-4,
    follower_answer=1e-4,
    follower_append=1e-4,
    reader_fetch=1e-4,
    reader_answer=1e-4,
    reader_request=1e-4,
    wake=5e-5,
    spread=0.3,
)
MODEL = PathModel(physics=PHYSICS, cores=2)


def run(rate_per_s: float = 200, delay_ms: float = 0.0, **settings: object) -> RunSpec:
    condition = LinkCondition(delay=ConstantDelay(ms=delay_ms))
    network = NetworkSpec(links=(Link(src="any", dst="any", condition=condition),))
    return RunSpec(
        name="a",
        cluster=ClusterSpec(place="namespaces", network=network),
        topic=TopicSpec(name="t", partitions=3, replication=3),
        workload=Workload(arrivals=PoissonArrivals(rate_per_s=rate_per_s)),
        settings=ProducerSettings(**{"linger_ms": 0, **settings}),  # type: ignore[arg-type]
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


def test_an_interval_has_what_the_fit_leaves_open_and_what_it_does_not_explain() -> None:
    sure = predicted(MODEL, run()).latencies["produce"].mean_ms
    assert (sure.low, sure.high) == (None, None)
    scattered = replace(MODEL, scatter={"produce": 0.1})
    mean = predicted(scattered, run()).latencies["produce"].mean_ms
    assert mean.low is not None and mean.high is not None
    assert mean.high / mean.value == pytest.approx(1.179, abs=0.001)
    others = tuple(replace(PHYSICS, broker_request=s) for s in (1e-4, 3e-4, 6e-4, 9e-4))
    open_ = predicted(replace(scattered, others=others), run()).latencies["produce"].mean_ms
    assert open_.low is not None and open_.high is not None
    assert open_.high / open_.low > mean.high / mean.low


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
