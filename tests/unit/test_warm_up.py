"""What a cluster is warmed up with, and for how long; the load itself is made up here."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock import specs
from penstock.domain.errors import BadInput
from penstock.domain.run import RunSpec
from penstock.domain.warm_up import RequestKind, WarmUp, WarmUpLimits
from penstock.load.plan import FIRST_LOOK_S, WARM_UP_MARGIN_S, plan_of
from penstock.runs import warm_up
from penstock.runs.warm_up import kind_of
from penstock.stats.flatness import WINDOW, Interval

BASE: dict[str, Any] = {
    "name": "orders",
    "topic": {"name": "orders", "partitions": 6, "replication": 3},
    "workload": {
        "arrivals": {"kind": "poisson", "rate_per_s": 600},
        "payload": {"size_bytes": 200},
        "duration_s": 12,
    },
}


def spec(**more: Any) -> RunSpec:
    return specs.parse({**BASE, **more}, RunSpec)


def kind(**settings: Any) -> RequestKind:
    return kind_of(spec(settings=settings))


def test_the_kind_of_requests_follows_from_the_settings() -> None:
    single = kind(**{"acks": "all", "linger.ms": 0})
    assert single == RequestKind(acks="all", message_bytes=200, partitions=6, replication=3)
    # 600 messages/s × 50 ms, all to one partition, since they have no keys.
    assert kind(**{"linger.ms": 50}).messages_per_request == 30
    assert kind(**{"linger.ms": 50, "batch.num.messages": 8}).messages_per_request == 8
    assert kind(**{"linger.ms": 50, "batch.size": 1000}).messages_per_request == 5
    assert kind(**{"compression.type": "lz4"}).compression == "lz4"
    keyed = spec(workload={**BASE["workload"], "keys": 100}, settings={"linger.ms": 50})
    assert kind_of(keyed).messages_per_request == 5
    closed = spec(workload={**BASE["workload"], "loop": "closed"}, settings={"linger.ms": 50})
    assert kind_of(closed).messages_per_request == 1


@pytest.mark.parametrize(
    ("change", "is_covered"),
    [
        ({}, True),
        ({"message_bytes": 400}, True),
        ({"message_bytes": 2_000}, False),
        ({"messages_per_request": 3}, True),
        ({"messages_per_request": 50}, False),
        ({"acks": "1"}, False),
        ({"compression": "lz4"}, False),
        ({"is_idempotent": True}, False),
        ({"replication": 2}, True),
        ({"replication": 1}, False),
        ({"partitions": 48}, False),
    ],
)
def test_brokers_that_are_warm_for_one_kind_are_warm_for_those_alike(
    change: dict[str, Any], is_covered: bool
) -> None:
    other = RequestKind(**change)
    assert RequestKind().covers(other) == is_covered
    assert other.covers(RequestKind()) == is_covered


def test_a_limit_below_zero_is_refused() -> None:
    with pytest.raises(BadInput, match=r"cluster_warm_up\.limit_s"):
        spec(cluster_warm_up={"limit_s": -1})


def test_only_an_extensible_load_waits_for_warmth() -> None:
    assert plan_of(spec()).waits_for_warmth
    assert plan_of(spec()).length_s == WarmUpLimits().limit_s + WARM_UP_MARGIN_S + 12
    assert not plan_of(spec(cluster_warm_up={"limit_s": 0})).waits_for_warmth
    recorded = {**BASE["workload"], "arrivals": {"kind": "recorded", "at_s": [0.0, 1.0]}}
    assert not plan_of(spec(workload=recorded)).waits_for_warmth
    # What is made in advance must fit into memory.
    fast = {**BASE["workload"], "arrivals": {"kind": "constant", "rate_per_s": 300_000}}
    assert plan_of(spec(workload=fast)).longest_warm_up_s == 10 + WARM_UP_MARGIN_S
    # A user who wants five minutes gets them.
    patient = plan_of(spec(warm_up_s=300))
    assert patient.longest_warm_up_s == 300 + WARM_UP_MARGIN_S


@pytest.mark.parametrize("warm_up_s", [0, 0.4, 1, 5])
def test_the_first_look_at_the_brokers_comes_before_the_measured_time(warm_up_s: float) -> None:
    plan = plan_of(spec(cluster_warm_up={"limit_s": 0}, warm_up_s=warm_up_s))
    assert plan.ahead_s + warm_up_s >= FIRST_LOOK_S + 0.5


class FakeLoad:
    """Its cost falls by a tenth a second until it is warm. Moves the clock."""

    def __init__(self, clock: list[float], warm_after_s: float) -> None:
        self._clock, self._warm_after_s = clock, warm_after_s

    def work(self, seconds: float) -> Interval:
        self._clock[0] += seconds
        cold_s = max(0.0, self._warm_after_s - self._clock[0])
        cost_ms = 0.5 / 0.9**cold_s
        return Interval(round(1500 / cost_ms), 40 * cost_ms, 1.5, 0.6 if cold_s else 0.01)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_warming_ends_when_it_is_warm(clock: list[float]) -> None:
    progress: list[str] = []
    done = warm_up._Step(1, 90, 1.0, progress.append).until_warm(FakeLoad(clock, warm_after_s=30))
    assert done.state == "warm"
    assert done.sentence == ""
    assert 30 + WINDOW - 1 <= done.took_s <= 30 + 2 * WINDOW + 1
    assert done.cpu_ms_per_request == pytest.approx(0.5, rel=0.05)
    assert (done.first_cpu_ms_per_request or 0) > 5
    assert len(progress) > 30


def test_a_reached_limit_is_reported_with_what_still_changes(clock: list[float]) -> None:
    done = warm_up._Step(1, 20, 1.0, lambda _: None).until_warm(FakeLoad(clock, warm_after_s=60))
    assert done.state == "still warming up"
    assert done.took_s == 20
    assert "after 20 s in warm-up, step 1 of 2" in done.sentence
    assert "`cluster_warm_up.limit_s`" in done.sentence
    assert "CPU per request fell" in done.sentence
    assert "40%" in done.sentence


def test_a_warm_cluster_still_gets_the_seconds_that_the_scenario_asks_for(
    clock: list[float],
) -> None:
    load = FakeLoad(clock, warm_after_s=0)
    done = warm_up._Step(1, 90, 0.5, lambda _: None, at_least_s=8, spent_s=40).until_warm(load)
    assert done.state == "warm"
    assert clock[0] == 8
    assert done.took_s == 48


def test_the_second_step_has_time_for_its_test() -> None:
    assert warm_up.first_step_limits(WarmUpLimits()).limit_s == 80
    assert warm_up.first_step_limits(WarmUpLimits(limit_s=10)).limit_s == 6
    assert warm_up.first_step_limits(WarmUpLimits(limit_s=0)).limit_s == 0


def test_a_step_that_must_test_does_so_beyond_its_limit(clock: list[float]) -> None:
    step = warm_up._Step(2, 0.5, 0.5, lambda _: None, at_least_intervals=2 * WINDOW)
    assert step.until_warm(FakeLoad(clock, warm_after_s=0)).state == "warm"
    assert clock[0] == WINDOW


class FakeRun:
    """The load of a run, as far as the second step looks at it."""

    waits_for_warmth = True
    longest_warm_up_s = 100.0


@pytest.mark.parametrize("was_warm", [True, False])
def test_a_run_is_warm_only_if_both_steps_were(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, was_warm: bool
) -> None:
    monkeypatch.setattr(warm_up, "RunLoad", lambda *_: FakeLoad(clock, warm_after_s=0))
    before = WarmUp(
        state="warm" if was_warm else "still warming up",
        sentence="" if was_warm else "after 80 s",
        took_s=80,
        requests=1000,
        first_cpu_ms_per_request=18.0,
        cpu_ms_per_request=0.6,
    )
    run: Any = FakeRun()
    cluster: Any = None
    done = warm_up.warm_up_run(cluster, run, spec(), before)
    assert done is not None
    assert done.state == before.state
    assert done.sentence == before.sentence
    assert done.took_s == 85
    assert done.requests > 1000
    assert done.first_cpu_ms_per_request == 18.0
    assert done.cpu_ms_per_request == 0.6
    assert done.run_cpu_ms_per_request == pytest.approx(0.5)


def test_without_answers_a_cluster_of_ones_own_shows_nothing_to_judge_by(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []

    class Waiting(FakeRun):
        def wait(self, until_ns: int) -> None:
            waited.append(until_ns)

    monkeypatch.setattr(time, "monotonic_ns", lambda: 1_000_000_000)
    run: Any = Waiting()
    theirs: Any = object()
    unanswered = spec(settings={"acks": "0"}, cluster_warm_up={"rate_per_s": 100})
    limits = unanswered.cluster_warm_up
    assert warm_up.warm_up(theirs, kind_of(unanswered), limits) is None
    assert warm_up.warm_up_run(theirs, run, unanswered, None) is None
    assert waited == [6_000_000_000]  # warm_up_s later
