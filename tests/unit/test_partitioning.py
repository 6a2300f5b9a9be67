"""Brokers and partitions of a topic: the document's tables, and against brute force."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain import plugins
from penstock.domain.errors import BadInput
from penstock.planner.partitioning import Partitioning
from penstock.planner.strategies import Strategy
from penstock.planner.strategies.bro_max import BroMax
from penstock.planner.strategies.bro_min import BroMin
from penstock.planner.strategies.enough import EnoughStrategy
from penstock.planner.strategies.ms_cnfl import MsCnfl

# SYSTEMS.md, S4: figures that follow from the tables if L/l_r = 40.
TABLE = Partitioning(
    throughput_mb_per_s=1,
    partition_mb_per_s=10,
    consumer_mb_per_s=20,
    most_brokers=16,
    most_replicas=30_000,
    replication_ms_per_replica=1,
    most_replication_ms=40,
    unavailable_ms_per_partition=25,
    most_unavailable_ms=2_000,
)


@pytest.mark.parametrize(
    ("copies", "consumers", "partitions", "brokers"),
    [
        (3, 25, 40, 3), (3, 45, 53, 4), (3, 65, 66, 5), (3, 85, 93, 7), (3, 105, 106, 8),
        (3, 125, 133, 10),
        (5, 25, 40, 5), (5, 45, 48, 6), (5, 65, 72, 9), (5, 85, 88, 11), (5, 105, 112, 14),
        (5, 125, 128, 16),
    ],
)  # fmt: skip
def test_bro_min_has_the_documents_figures(
    copies: int, consumers: int, partitions: int, brokers: int
) -> None:
    found = BroMin().choose(replace(TABLE, replication=copies, consumers=consumers))
    assert (found.partitions, found.brokers) == (partitions, brokers)
    assert found.is_solution and found.binding == "replication latency"


@pytest.mark.parametrize(("copies", "partitions"), [(3, 213), (5, 128)])
def test_bro_max_has_the_documents_figures(copies: int, partitions: int) -> None:
    found = BroMax().choose(replace(TABLE, replication=copies, consumers=25))
    assert (found.partitions, found.brokers) == (partitions, 16)


def test_the_baseline_breaks_constraints() -> None:
    chosen = [MsCnfl(seed=seed).choose(replace(TABLE, consumers=25)) for seed in range(200)]
    assert sum("replication latency" in one.broken for one in chosen) > 100
    assert all(1 <= one.brokers <= 16 and 1 <= one.partitions <= 1_600 for one in chosen)


def test_enough_is_even_if_there_is_room() -> None:
    found = EnoughStrategy().choose(replace(TABLE, consumers=25))
    assert (found.partitions, found.brokers) == (27, 3)
    tight = EnoughStrategy().choose(replace(TABLE, consumers=40))
    assert (tight.partitions, tight.brokers) == (40, 3)


def hundredths(low: float, high: float) -> st.SearchStrategy[float]:
    """As people write numbers; what the last bit of a float does is not the question here."""
    return st.integers(round(100 * low), round(100 * high)).map(lambda n: n / 100)


PROBLEMS = st.builds(
    Partitioning,
    throughput_mb_per_s=hundredths(0, 500),
    partition_mb_per_s=hundredths(0.5, 50),
    consumer_mb_per_s=hundredths(0.5, 50),
    consumers=st.integers(0, 60),
    replication=st.integers(1, 5),
    most_brokers=st.integers(1, 12),
    most_replicas=st.none() | hundredths(1, 100),
    replication_ms_per_replica=hundredths(0, 5),
    replication_base_ms=hundredths(0, 20),
    most_replication_ms=st.none() | hundredths(1, 100),
    unavailable_ms_per_partition=hundredths(0, 50),
    unavailable_base_ms=hundredths(0, 500),
    most_unavailable_ms=st.none() | hundredths(1, 2_000),
)


def solutions(problem: Partitioning, most: int = 1_100) -> list[tuple[int, int]]:
    """All (brokers, partitions) that meet the document's constraints, one by one."""
    p = problem
    found = []
    for b in range(p.replication, p.most_brokers + 1):
        for count in range(1, most):
            needs = [
                p.throughput_mb_per_s / rate for rate in (p.partition_mb_per_s, p.consumer_mb_per_s)
            ]
            needs.append(p.consumers)
            copies, led = count * p.replication / b, count / b
            replication_ms = p.replication_base_ms + copies * p.replication_ms_per_replica
            unavailable_ms = p.unavailable_base_ms + led * p.unavailable_ms_per_partition
            if (
                count >= max(needs) - 1e-9
                and (p.most_replicas is None or copies <= p.most_replicas + 1e-9)
                and (
                    p.most_replication_ms is None or replication_ms <= p.most_replication_ms + 1e-9
                )
                and (
                    p.most_unavailable_ms is None or unavailable_ms <= p.most_unavailable_ms + 1e-9
                )
            ):
                found.append((b, count))
    return found


@settings(max_examples=150, deadline=None)
@given(problem=PROBLEMS)
def test_against_brute_force(problem: Partitioning) -> None:
    every = solutions(problem)
    if not every:
        # Or one beyond what brute force looked at.
        impossible = problem.impossible()
        assert impossible is not None or problem.fewest_partitions >= 1_000
        return
    assert problem.impossible() is None
    fewest = min(b for b, _ in every)
    assert problem.fewest_brokers == fewest
    for brokers in {b for b, _ in every}:
        most = max(count for b, count in every if b == brokers)
        assert problem.most_partitions(brokers) == most or most == 1_099
    assert problem.fewest_partitions == min(count for _, count in every)


@settings(max_examples=300, deadline=None)
@given(problem=PROBLEMS)
def test_what_would_help_helps_and_nothing_less_does(problem: Partitioning) -> None:
    impossible = problem.impossible()
    if impossible is None:
        return
    for name, value in impossible.changes.items():
        given_value = getattr(problem, name)
        up = value > given_value

        def possible(number: float, name: str = name) -> bool:
            changed: dict[str, Any] = {name: number}
            return replace(problem, **changed).impossible() is None

        if isinstance(value, int):
            assert possible(value)
            assert not possible(value - 1 if up else value + 1)
        else:
            assert possible(value * (1 + 1e-6 if up else 1 - 1e-6))
            assert not possible(value * (1 - 1e-3 if up else 1 + 1e-3))


def test_a_problem_without_a_solution_says_why_and_what_would_help() -> None:
    problem = replace(TABLE, replication=5, consumers=200)
    with pytest.raises(BadInput, match="200 partitions, and replication latency allows 128") as it:
        BroMin().choose(problem)
    assert "most_brokers: 25" in str(it.value.fix)
    assert "most_replication_ms: 62.5" in str(it.value.fix)
    few = replace(TABLE, replication=20)
    impossible = few.impossible()
    assert impossible is not None and "20 replicas need 20 brokers" in impossible.sentence
    assert impossible.changes["most_brokers"] == 20


def test_detection_is_part_of_unavailability_and_no_partition_can_help() -> None:
    found = BroMin().choose(replace(TABLE, consumers=25, detection_ms=9_000))
    assert found.unavailable_ms == pytest.approx(9_000 + 25 * 40 / 3)


def test_many_brokers_take_no_time() -> None:
    began_s = time.perf_counter()
    found = BroMin().choose(replace(TABLE, most_brokers=100_000, consumers=90_000))
    assert found.brokers == 6_750
    assert time.perf_counter() - began_s < 1


@pytest.mark.parametrize("kind", plugins.names("penstock.strategies"))
def test_every_strategy_is_a_plug_in(kind: str) -> None:
    strategy: Any = plugins.get("penstock.strategies", kind)()
    assert isinstance(strategy, Strategy)
    assert strategy.choose(replace(TABLE, consumers=25)).partitions >= 1
