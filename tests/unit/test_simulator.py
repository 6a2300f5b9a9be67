"""The simulated pipeline: what it must land, how old that is, and that lanes follow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.autoscaler.core import simulator
from penstock.autoscaler.core.actions import Action
from penstock.autoscaler.core.controller import Controller
from penstock.autoscaler.core.policies.fixed import RangePolicy
from penstock.autoscaler.core.simulator import Rig, Shift, equal_parts, simulate
from penstock.domain.autoscaling import Autoscaling, HostAnswer
from penstock.domain.lake.cycle import LaneCycle

RIG = Rig(lane_limit_bytes_per_s=1000, lane_bytes=1000, record_bytes=1, batch_s=0.2)
SETTINGS = Autoscaling(lane_capacity_bytes_per_s=800, scale_in_s=10, drain_s=10)


def steady(*per_s: float) -> list[Shift]:
    return [Shift(0.0, per_s)]


def test_what_a_lane_can_do_is_landed_within_two_micro_batches() -> None:
    # A micro-batch takes 0.2 s and what came during the one before: 0.2 / (1 - 0.4) s.
    outcome = simulate(SETTINGS, steady(200.0, 200.0), 60.0, RIG, drain_s=5.0)
    assert outcome.left == 0
    assert outcome.p50_s == pytest.approx(1.5 * 0.333, rel=0.1)
    assert outcome.p99_s < 2.1 * 0.333
    assert outcome.lane_s == pytest.approx(60.0)


def test_more_lanes_when_one_is_not_enough_and_fewer_when_it_is() -> None:
    shifts = [Shift(0.0, (100.0,) * 4), Shift(20.0, (400.0,) * 4), Shift(40.0, (100.0,) * 4)]
    outcome = simulate(SETTINGS, shifts, 80.0, RIG, drain_s=10.0)
    assert outcome.left == 0
    more, fewer = outcome.decisions
    assert (more.lanes, fewer.lanes) == (4, 1)
    assert 20.0 < more.at_s < 22.0 and fewer.at_s > 50.0
    assert outcome.p99_s < 3.0
    assert len(outcome.hand_over_s) == 2


def test_without_enough_lanes_what_waits_grows_old_and_is_counted() -> None:
    one = Autoscaling(policy=RangePolicy(), lanes=1, lane_capacity_bytes_per_s=800)
    outcome = simulate(one, steady(1000.0, 1000.0), 30.0, RIG)
    # A micro-batch lands 1,000 in 1.2 s of 2,000 that come per second.
    assert outcome.left == pytest.approx(60_000 - 25_000, rel=0.1)
    assert outcome.p99_s > 10.0


def test_kafkas_assignment_stays_as_it_is() -> None:
    fixed = Autoscaling(policy=RangePolicy(), lanes=2, lane_capacity_bytes_per_s=800)
    shifts = [Shift(0.0, (300.0, 300.0, 0.0, 0.0)), Shift(20.0, (0.0, 0.0, 300.0, 300.0))]
    outcome = simulate(fixed, shifts, 40.0, RIG)
    assert [decided.lanes for decided in outcome.decisions] == [2]


def test_a_lane_is_saturated_by_the_rule_of_a_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lane is behind throughout, the second one from a moment in the middle on."""
    cycles: list[LaneCycle] = []

    class Recorder(Controller):
        def on_answer(self, answer: HostAnswer, now_s: float) -> list[Action]:
            cycles.extend(answer.cycles)
            return super().on_answer(answer, now_s)

    monkeypatch.setattr(simulator, "Controller", Recorder)
    fixed = Autoscaling(policy=RangePolicy(), lanes=2, lane_capacity_bytes_per_s=800)
    shifts = [Shift(0.0, (2000.0, 10.0)), Shift(10.0, (2000.0, 5000.0))]
    simulate(fixed, shifts, 20.0, replace(RIG, lanes=2))
    late = [c for c in cycles if c.lane == 1]
    full = [c.is_saturated for c in late if c.size_bytes == RIG.lane_bytes]
    assert full[0] is False and all(full[1:]) and len(full) > 3
    assert not any(c.is_saturated for c in late if c.size_bytes < RIG.lane_bytes)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8), st.integers(1, 2000))
def test_a_lane_takes_as_much_of_each_until_it_is_enough(waiting: list[int], most: int) -> None:
    takes = equal_parts(np.array(waiting, dtype=float), most)
    assert (takes <= waiting).all() and takes.sum() <= most
    if sum(waiting) <= most:
        assert takes.tolist() == waiting
    else:
        assert takes.sum() > most - len(waiting)  # but for what a whole record is too much
        left_out = takes[takes < waiting]
        assert left_out.max() - left_out.min() <= 1
