"""The monitor's filter: the document's tests (4.2), and logs that retention and compaction cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import accumulate

import pytest

from penstock.autoscaler.core.write_speed import Sample, WriteSpeed
from penstock.domain.autoscaling import PartitionSpeed

PERIOD_S = 0.5


def watched(
    arrivals_s: Iterator[float], until_s: float, size_bytes: int = 123
) -> list[tuple[float, PartitionSpeed]]:
    """What the filter says after each sample of a partition to which records come at these times."""
    filtered, speeds, count = WriteSpeed(), [], 0
    next_s = next(arrivals_s)
    for n in range(1, int(until_s / PERIOD_S) + 1):
        now_s = n * PERIOD_S
        while next_s <= now_s:
            count += 1
            next_s = next(arrivals_s)
        filtered.add(Sample(now_s, 0, count, count * size_bytes))
        if (speed := filtered.speed) is not None:
            speeds.append((now_s, speed))
    return speeds


def steps(*rates_for: tuple[float, float]) -> Iterator[float]:
    """Evenly: (records/s, seconds), the last one for ever."""
    now_s, begins_s = 0.0, 0.0
    for rate, seconds in rates_for:
        begins_s += seconds
        while now_s < begins_s:
            now_s += 1 / rate
            yield now_s
    while True:
        now_s += 1 / rate
        yield now_s


def poisson(rate: Callable[[float], float], seed: int = 1) -> Iterator[float]:
    rng, now_s = random.Random(seed), 0.0
    while True:
        now_s += rng.expovariate(rate(now_s))
        yield now_s


def measured_bytes_per_s(speed: PartitionSpeed) -> float:
    return speed.records_per_s * (speed.bytes_per_record or 0)


def converged_after(
    speeds: list[tuple[float, PartitionSpeed]], step_s: float, bytes_per_s: float
) -> float:
    """Seconds from the step until it is right within a tenth, and stays so."""
    wrong = [
        at_s
        for at_s, speed in speeds
        if at_s > step_s and abs(measured_bytes_per_s(speed) - bytes_per_s) > 0.1 * bytes_per_s
    ]
    return max(wrong, default=step_s) + PERIOD_S - step_s


def test_three_rates_for_35_s_each_are_found_within_seconds() -> None:
    speeds = watched(steps((50, 35), (200, 35), (100, 35)), 105)
    for begin_s, rate in ((0, 50), (35, 200), (70, 100)):
        part = [(at_s, speed) for at_s, speed in speeds if at_s <= begin_s + 35]
        assert converged_after(part, begin_s, rate * 123) <= 5  # the document: 30


@pytest.mark.parametrize("phase_s", [0.0, 0.1, 0.25, 0.4, 0.49])
@pytest.mark.parametrize(("before", "after"), [(30, 300), (300, 30), (1000, 1500), (1500, 1000)])
def test_wherever_between_two_samples_a_step_falls_it_is_known_in_a_second_and_a_half(
    before: float, after: float, phase_s: float
) -> None:
    step_s = 20 + phase_s
    speeds = watched(steps((before, step_s), (after, 20)), 40)
    assert converged_after(speeds, step_s, after * 123) <= 1.5


@pytest.mark.parametrize("seed", range(5))
def test_waits_of_up_to_2_s_do_not_move_it(seed: int) -> None:
    rng = random.Random(seed)
    waits = accumulate(iter(lambda: rng.uniform(0.01, 2), None))
    speeds = [measured_bytes_per_s(speed) for at_s, speed in watched(waits, 120) if at_s > 30]
    assert all(abs(speed - 123 / 1.005) < 0.35 * 123 for speed in speeds)


@pytest.mark.parametrize("rate", [20.0, 1000.0])
def test_a_steady_poisson_rate_is_not_a_change(rate: float) -> None:
    speeds = [
        speed.records_per_s for at_s, speed in watched(poisson(lambda _: rate), 300) if at_s > 20
    ]
    assert all(abs(speed - rate) < 0.3 * rate for speed in speeds)
    # A mean over 30 s has this error; twice the mean over 2 s would have four times as much.
    assert sum(abs(speed - rate) for speed in speeds) / len(speeds) < 2 * (rate / 30) ** 0.5


@pytest.mark.parametrize(
    ("before", "after", "within_s"), [(1000, 3000, 4), (3000, 500, 4), (1, 4, 30)]
)
def test_a_step_of_independent_records_is_followed(
    before: float, after: float, within_s: float
) -> None:
    speeds = watched(poisson(lambda now_s: before if now_s < 60 else after), 60 + within_s)
    assert speeds[-1][1].records_per_s == pytest.approx(after, rel=0.5)


def test_a_partition_that_falls_silent_has_no_speed() -> None:
    def arrivals() -> Iterator[float]:
        yield from (i / 100 for i in range(1, 3000))
        yield float("inf")

    assert watched(arrivals(), 34)[-1][1].records_per_s == 0.0


def test_retention_does_not_change_the_speed() -> None:
    """Segments of 1,000 records go as others come."""
    filtered = WriteSpeed()
    for n in range(60):
        end = n * 100
        begin = max(0, (end - 2000) // 1000 * 1000)
        filtered.add(Sample(n * PERIOD_S, begin, end, (end - begin) * 50))
    assert filtered.speed is not None
    assert filtered.speed.records_per_s == pytest.approx(200)
    assert filtered.speed.bytes_per_record == 50.0


def test_compaction_does_not_change_the_speed() -> None:
    filtered, size = WriteSpeed(), 0
    for n in range(60):
        size += 100 * 50 if n else 0
        if n % 7 == 6:
            size = size // 3  # begin stays where it is
        if n % 11 == 5:
            size -= 3000  # less than what came meanwhile
        filtered.add(Sample(n * PERIOD_S, 0, n * 100, size))
    assert filtered.speed is not None
    assert filtered.speed.records_per_s == pytest.approx(200)
    assert filtered.speed.bytes_per_record == 50.0


def test_before_anything_comes_a_record_is_taken_to_be_as_large_as_those_that_lie_there() -> None:
    filtered = WriteSpeed()
    filtered.add(Sample(0.0, 1000, 3000, 80_000))
    filtered.add(Sample(0.5, 1000, 3000, 80_000))
    assert filtered.speed == PartitionSpeed(records_per_s=0.0, bytes_per_record=40.0, end=3000)


def test_records_are_counted_without_sizes() -> None:
    filtered = WriteSpeed()
    for n in range(4):
        filtered.add(Sample(n * PERIOD_S, 0, n * 10))
    assert filtered.speed == PartitionSpeed(records_per_s=20.0, bytes_per_record=None, end=30)


def test_a_re_created_topic_restarts_the_mean() -> None:
    filtered = WriteSpeed()
    for n, end in enumerate((1000, 1100, 0, 30)):
        filtered.add(Sample(n * 1.0, 0, end, end * 10))
    assert filtered.speed == PartitionSpeed(records_per_s=30.0, bytes_per_record=10.0, end=30)


def test_a_stopped_clock_gives_no_sample() -> None:
    filtered = WriteSpeed()
    filtered.add(Sample(1.0, 0, 10))
    filtered.add(Sample(1.0, 0, 20))
    assert filtered.speed is None


def test_a_producer_that_commits_every_few_seconds_has_one_speed() -> None:
    """10,000 records that become readable together, every 5 s; the log grows all the while."""
    filtered, speeds = WriteSpeed(), []
    for n in range(160):
        filtered.add(Sample(n * PERIOD_S, 0, n // 10 * 10_000, n * 1000 * 50))
        if n > 80 and filtered.speed is not None:
            speeds.append(filtered.speed)
    assert all(1300 < speed.records_per_s < 2700 for speed in speeds)
    assert all(speed.bytes_per_record == pytest.approx(50, rel=0.1) for speed in speeds)
