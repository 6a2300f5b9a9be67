"""The policies that ours is compared with, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock import specs
from penstock.autoscaler.core.assignors import assign_range, assign_sticky
from penstock.autoscaler.core.packing import Problem
from penstock.autoscaler.core.packing.any_fit import BestFitDecreasing
from penstock.autoscaler.core.packing.balance import balance
from penstock.autoscaler.core.packing.keep import KeepPacking
from penstock.autoscaler.core.policies.fixed import CooperativeStickyPolicy, RangePolicy
from penstock.autoscaler.core.policies.packing import PackingPolicy
from penstock.autoscaler.core.policies.scalers import HpaPolicy, LagPolicy
from penstock.autoscaler.core.policy import Decider, View
from penstock.cli.main import penstock
from penstock.domain import plugins
from penstock.domain.autoscaling import Autoscaling
from penstock.domain.errors import BadInput
from penstock.domain.lake.partition import Partition


def decider(settings: Autoscaling) -> Decider:
    new_decider: Decider = settings.policy.decider(settings)
    return new_decider


def of(*topics: tuple[str, int]) -> list[Partition]:
    return [Partition(topic, number) for topic, count in topics for number in range(count)]


def lanes(assignment: Mapping[Partition, int]) -> str:
    return " ".join(str(assignment[p]) for p in sorted(assignment))


def view(
    speeds: Mapping[Partition, float], current: Mapping[Partition, int], **more: object
) -> View:
    base = View(
        now_s=0.0,
        since_change_s=0.0,
        speeds=speeds,
        peaks=speeds,
        lag_bytes={},
        overdue_bytes={},
        current=current,
        capacities={},
        capacity=100.0,
        most_lanes=10,
    )
    return replace(base, **more)  # type: ignore[arg-type]


def test_range_puts_neighbours_of_every_topic_together() -> None:
    assert lanes(assign_range(of(("a", 5), ("b", 2)), 2, {})) == "0 0 0 1 1 0 1"
    assert lanes(assign_range(of(("a", 2)), 3, {})) == "0 1"


def test_sticky_keeps_what_it_can() -> None:
    partitions = of(("a", 6))
    before = dict(zip(partitions, (0, 0, 0, 1, 1, 1), strict=True))
    assert lanes(assign_sticky(partitions, 2, before)) == "0 0 0 1 1 1"
    after = assign_sticky(partitions, 3, before)
    assert sorted(after.values()) == [0, 0, 1, 1, 2, 2]
    assert sum(after[p] != before[p] for p in partitions) == 2
    assert lanes(assign_sticky(partitions, 1, before)) == "0 0 0 0 0 0"


def test_a_fixed_number_must_be_given() -> None:
    with pytest.raises(BadInput, match="needs a fixed number"):
        decider(Autoscaling(policy=RangePolicy()))


def test_kafkas_assignment_changes_only_with_the_partitions() -> None:
    it = decider(Autoscaling(policy=CooperativeStickyPolicy(), lanes=2))
    partitions = of(("a", 4))
    first = it.decide(view(dict.fromkeys(partitions, 1.0), {}))
    assert first is not None and lanes(first.assignment) == "0 1 0 1"
    skewed = view(dict(zip(partitions, (500.0, 1.0, 500.0, 1.0), strict=True)), first.assignment)
    assert it.decide(skewed) is None


def test_the_hpa_sees_only_what_is_done_and_waits_between_changes() -> None:
    it = decider(Autoscaling(policy=HpaPolicy(), plan_at=0.5))
    partitions = of(("a", 8))
    one = dict.fromkeys(partitions, 0)
    busy = dict.fromkeys(partitions, 50.0)  # 400 written, and one lane can do 100
    first = it.decide(view(busy, one, now_s=10.0))
    assert first is not None and len(set(first.assignment.values())) == 2
    assert it.decide(view(busy, first.assignment, now_s=100.0)) is None
    later = it.decide(view(busy, first.assignment, now_s=200.0))
    assert later is not None and len(set(later.assignment.values())) == 4


def test_the_hpa_takes_no_wish_for_a_change() -> None:
    it = decider(Autoscaling(policy=HpaPolicy(), plan_at=0.5))
    partitions = of(("a", 8))
    one = dict.fromkeys(partitions, 0)
    silent, busy = dict.fromkeys(partitions, 0.0), dict.fromkeys(partitions, 50.0)
    four = dict(zip(partitions, (0, 1, 2, 3) * 2, strict=True))
    begun = decider(Autoscaling(policy=HpaPolicy()))
    assert begun.decide(view(silent, four, now_s=0.0)) is None  # not before five minutes
    assert begun.decide(view(silent, four, now_s=299.0)) is None
    assert begun.decide(view(silent, four, now_s=330.0)) is not None
    assert it.decide(view(silent, one, now_s=0.0)) is None  # none would do, and there is one
    assert it.decide(view(busy, one, now_s=31.0)) is not None


def test_lag_scales_out_at_once_and_in_after_five_minutes() -> None:
    it = decider(Autoscaling(policy=LagPolicy()))
    partitions = of(("a", 8))
    one = dict.fromkeys(partitions, 0)
    speeds = dict.fromkeys(partitions, 10.0)
    four = dict(zip(partitions, (0, 1, 2, 3) * 2, strict=True))
    assert (
        decider(Autoscaling(policy=LagPolicy())).decide(view(speeds, four)) is None
    )  # not at first
    behind = view(speeds, one, lag_bytes=dict.fromkeys(partitions, 200.0), now_s=0.0)
    decision = it.decide(behind)
    assert decision is not None and len(set(decision.assignment.values())) == 4
    assert it.decide(view(speeds, decision.assignment, now_s=100.0)) is None
    less = it.decide(view(speeds, decision.assignment, now_s=320.0))
    assert less is not None and set(less.assignment.values()) == {0}


def test_a_partition_alone_on_a_slow_lane_goes_to_one_that_can() -> None:
    it = decider(Autoscaling())
    (one,) = partitions = of(("a", 1))
    slow = view({one: 90.0}, {one: 0}, capacities={0: 80.0})
    decision = it.decide(slow)
    assert decision is not None and decision.assignment == {one: 1}
    # One that is hardly slower is not worth it.
    assert it.decide(replace(slow, capacities={0: 88.0})) is None
    assert partitions == [one]


def test_what_waits_is_spread_too_where_no_more_lanes_can_be_had() -> None:
    it = decider(Autoscaling(most_lanes=4))
    partitions = of(("a", 5))
    idle = dict.fromkeys(partitions, 0.0)
    late = dict.fromkeys(partitions, 50_000.0)
    behind = view(idle, dict.fromkeys(partitions, 0), overdue_bytes=late, since_change_s=40.0)
    decision = it.decide(behind)
    assert decision is not None and len(set(decision.assignment.values())) == 4
    # Not again and again, while it becomes less here and there.
    again = it.decide(replace(behind, since_change_s=5.0))
    assert again is not None and again.assignment == behind.current


def test_an_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"policy\.kind: 'luck' is unknown") as error:
        specs.parse({"policy": "luck"}, Autoscaling)
    assert all(name in str(error.value) for name in plugins.names("penstock.policies"))


def test_a_policy_is_given_by_its_name_or_with_its_own_settings() -> None:
    by_name = specs.parse({"policy": "lag"}, Autoscaling)
    assert by_name.policy == LagPolicy()
    text = "policy: {kind: packing, algorithm: {kind: KEEP, lane_worth: 0.2}}"
    with_settings = specs.parse(text, Autoscaling, "a.yaml")
    assert with_settings.policy == PackingPolicy(algorithm=KeepPacking(lane_worth=0.2))
    assert specs.parse(specs.dump_yaml(with_settings), Autoscaling, "b.yaml") == with_settings
    short = specs.parse({"policy": {"kind": "packing", "algorithm": "BFD"}}, Autoscaling)
    assert short.policy == PackingPolicy(algorithm=BestFitDecreasing())
    with pytest.raises(BadInput, match="threshold_s: -1 must be more than 0"):
        specs.parse({"policy": {"kind": "lag", "threshold_s": -1}}, Autoscaling)
    with pytest.raises(BadInput, match="lane_worth: unknown field"):
        specs.parse({"policy": {"kind": "lag", "lane_worth": 1}}, Autoscaling)


def test_the_threshold_of_lag_is_a_setting_of_its_own() -> None:
    partitions = of(("a", 8))
    behind = view(
        dict.fromkeys(partitions, 10.0),
        dict.fromkeys(partitions, 0),
        lag_bytes=dict.fromkeys(partitions, 200.0),
    )
    decision = decider(Autoscaling(policy=LagPolicy(threshold_s=2.0))).decide(behind)
    assert decision is not None and len(set(decision.assignment.values())) == 8


@pytest.mark.parametrize(
    "arguments",
    [["pipeline", "run", "p.yaml", "--autoscale", "inside"], ["autoscaler", "run", "p.yaml"]],
)
@pytest.mark.parametrize("setting", ["policy: luck", "policy: {kind: packing, algorithm: XX}"])
def test_a_misspelt_name_ends_the_command_before_it_asks_a_broker(
    arguments: list[str], setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text(
        "name: p\nbootstrap_servers: nowhere:1\nlake: lake\n"
        f"streams: [{{topics: [t], table: t}}]\nautoscaling: {{{setting}}}\n"
    )
    error = CliRunner().invoke(penstock, arguments).exception
    assert isinstance(error, BadInput) and "is unknown; use one of" in error.message


def test_balancing_moves_little_and_fills_lanes_by_what_they_can_do() -> None:
    partitions = of(("a", 6))
    speeds = dict(zip(partitions, (40.0, 40.0, 10.0, 10.0, 10.0, 10.0), strict=True))
    before = dict(zip(partitions, (0, 0, 0, 1, 1, 1), strict=True))
    even = balance(Problem(speeds=speeds, capacity=100.0, current=before), 2)
    assert {sum(speeds[p] for p in partitions if even[p] == n) for n in (0, 1)} == {60.0}
    assert sum(even[p] != before[p] for p in partitions) == 2
    uneven = balance(
        Problem(speeds=dict.fromkeys(partitions, 10.0), capacity=100.0, capacities={0: 200.0}), 2
    )
    assert sorted(uneven.values()) == [0, 0, 0, 0, 1, 1]
