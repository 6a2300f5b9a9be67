"""Histograms: against sorted values, against HdrHistogram's own port, and S1's worked example."""

from __future__ import annotations

import math
import pickle
from itertools import permutations

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.stats.histogram import (
    BUCKETS,
    EMPTY,
    MOST_NS,
    Histogram,
    Recorder,
    bucket_index,
    lower_edge_ns,
    upper_edge_ns,
)

S = 1_000_000_000
# Every order of magnitude alike, and the neighbours of powers of two, where buckets change.
NEAR_POWERS = st.builds(
    lambda bits, off: min(MOST_NS, max(0, 2**bits + off)), st.integers(0, 63), st.integers(-2, 2)
)
VALUES = st.one_of(st.integers(0, 5000), st.integers(0, 100 * S), NEAR_POWERS)
LISTS = st.lists(VALUES, max_size=60)
FULL_LISTS = st.lists(VALUES, min_size=1, max_size=60)


def of(values: list[int]) -> Histogram:
    return Histogram.of(np.array(values, dtype=np.int64))


def hdr(values: list[int]) -> HdrHistogram:
    histogram = HdrHistogram(1, 10**15, 3)
    for value in values:
        histogram.record_value(value)
    return histogram


@given(VALUES)
def test_the_bucket_of_a_value_is_where_the_trace_pipeline_puts_it(value: int) -> None:
    shift = max(0, value.bit_length() - 11)
    index = bucket_index([value])
    assert lower_edge_ns(index)[0] == (value >> shift) << shift
    assert upper_edge_ns(index)[0] == ((value >> shift) << shift) + (1 << shift) - 1


def test_buckets_follow_each_other_without_gap_or_overlap() -> None:
    index = np.arange(BUCKETS)
    assert (bucket_index(lower_edge_ns(index)) == index).all()
    assert (bucket_index(upper_edge_ns(index)) == index).all()
    assert (lower_edge_ns(index[1:]) == upper_edge_ns(index[:-1]) + 1).all()
    assert upper_edge_ns(index)[-1] == MOST_NS


@given(FULL_LISTS, st.lists(st.floats(0, 100), min_size=1, max_size=10))
def test_percentiles_are_those_of_the_sorted_values_to_three_digits(
    values: list[int], percents: list[float]
) -> None:
    histogram, ordered = of(values), sorted(values)
    for percent, percentile in zip(percents, histogram.percentiles(percents), strict=True):
        # One unit in the last place less, so that 7 % of 100 is the seventh.
        rank = max(1, math.ceil(math.nextafter(percent, -1) * len(ordered) / 100))
        exact = ordered[rank - 1]
        assert exact <= percentile <= exact + exact // 1000 or percent == 0
        assert ordered[0] <= percentile <= ordered[-1]
    assert histogram.percentile(0) == ordered[0]
    assert histogram.percentile(100) == ordered[-1]


@given(FULL_LISTS)
def test_mean_and_extremes(values: list[int]) -> None:
    histogram = of(values)
    assert (histogram.min_ns, histogram.max_ns) == (min(values), max(values))
    assert histogram.count == len(values)
    assert math.isclose(histogram.mean_ns, sum(values) / len(values), rel_tol=5.1e-4, abs_tol=0)


def test_the_deviation_is_that_of_the_values() -> None:
    values = np.random.default_rng(2).lognormal(14, 0.7, 20_000).astype(np.int64)
    assert Histogram.of(values).deviation_ns == pytest.approx(float(values.std()), rel=0.002)
    assert Histogram.of([7_000_000]).deviation_ns == pytest.approx(0, abs=1e4)
    assert EMPTY.deviation_ns == 0


@settings(max_examples=15)  # it walks through all its buckets in Python
@given(st.lists(st.integers(0, 10**8), min_size=1, max_size=50))
def test_a_second_opinion_hdrhistogram(values: list[int]) -> None:
    ours, theirs = of(values), hdr(values)
    assert ours.count == theirs.get_total_count()
    assert math.isclose(ours.mean_ns, theirs.get_mean_value(), rel_tol=1e-12)
    assert theirs.get_max_value() == upper_edge_ns(bucket_index([ours.max_ns]))[0]
    for value, count in ours.to_buckets():
        assert theirs.get_count_at_value(value) == count
    for percent in (25, 50, 90, 100):
        # Its rank is rounded where ours is rounded up: the same where there is nothing to round.
        rank = percent * len(values) / 100
        if rank >= 1 and rank == int(rank):
            theirs_ns = theirs.get_value_at_percentile(percent)
            assert min(theirs_ns, ours.max_ns) == ours.percentile(percent)


@given(st.lists(LISTS, min_size=2, max_size=4))
def test_merging_knows_neither_order_nor_groups(parts: list[list[int]]) -> None:
    whole = of([value for part in parts for value in part])
    histograms = [of(part) for part in parts]
    for order in permutations(histograms):
        assert Histogram.merged(order) == whole
    first, second, *rest = histograms
    assert first.merge(second.merge(Histogram.merged(rest))) == whole
    assert first.merge(second).merge(Histogram.merged(rest)) == whole
    assert hash(Histogram.merged(histograms)) == hash(whole)


@given(LISTS)
def test_buckets_and_pickles_give_the_same_histogram_back(values: list[int]) -> None:
    histogram = of(values)
    extremes = (histogram.min_ns, histogram.max_ns) if values else (None, None)
    again = Histogram.from_buckets(
        reversed(histogram.to_buckets()), min_ns=extremes[0], max_ns=extremes[1]
    )
    assert again == histogram
    assert pickle.loads(pickle.dumps(histogram)) == histogram


def test_without_the_extremes_they_are_the_edges_of_the_outer_buckets() -> None:
    histogram = Histogram.from_buckets(of([5000, 70_001]).to_buckets())
    assert (histogram.min_ns, histogram.max_ns) == (5000, 70_015)


@given(FULL_LISTS, VALUES)
def test_values_up_to_a_limit_include_its_bucket(values: list[int], limit: int) -> None:
    edge = int(upper_edge_ns(bucket_index([limit]))[0])
    above = sum(value > edge for value in values)
    assert of(values).count_at_most(limit) == len(values) - above


def test_an_empty_histogram_has_no_percentiles() -> None:
    assert Histogram.of([]) == EMPTY == Histogram.merged([]) == Recorder().histogram()
    assert EMPTY.count == 0
    assert math.isnan(EMPTY.mean_ns)
    assert EMPTY.to_buckets() == ()
    assert EMPTY.corrected(5) == EMPTY
    with pytest.raises(ValueError, match="empty"):
        EMPTY.percentile(50)


def test_an_invalid_time_is_refused() -> None:
    with pytest.raises(ValueError, match="negative: -1 ns"):
        Histogram.of([5, -1])
    with pytest.raises(TypeError, match="whole nanoseconds, not float64"):
        Histogram.of([1.5])
    with pytest.raises(ValueError, match="more than"):
        Histogram.of(np.array([2**63], dtype=np.uint64))
    with pytest.raises(ValueError, match="between 0 and 100"):
        of([1]).percentile(101)
    with pytest.raises(ValueError, match="interval"):
        of([1]).corrected(0)
    with pytest.raises(ValueError, match="negative"):
        Histogram.from_buckets([(5, -1)])


def test_many_chunks_count_like_one_value_at_a_time() -> None:
    rng = np.random.default_rng(1)
    values = rng.lognormal(15, 2, 200_000).astype(np.int64)
    histogram = Histogram.of(values)
    index, counts = np.unique([bucket_index([v])[0] for v in values[:2000]], return_counts=True)
    assert Histogram.of(values[:2000]).counts.tolist() == counts.tolist()
    assert Histogram.of(values[:2000]).index.tolist() == index.tolist()
    assert histogram.count == len(values)
    recorder = Recorder()
    for part in np.array_split(values, 7):
        recorder.record(part)
    assert recorder.histogram() == histogram


# --- coordinated omission ------------------------------------------------------------------------


def corrected_one_by_one(values: list[int], interval: int) -> list[int]:
    """HdrHistogram's recordValueWithExpectedInterval, word for word."""
    result = []
    for value in values:
        result.append(value)
        missing = value - interval
        while missing >= interval:
            result.append(missing)
            missing -= interval
    return result


@given(st.lists(st.integers(0, 50_000), max_size=30), st.integers(10, 60_000))
def test_recording_with_correction_adds_what_was_due_meanwhile(
    values: list[int], interval: int
) -> None:
    recorder = Recorder()
    recorder.record(np.array(values, dtype=np.int64), expected_interval_ns=interval)
    assert recorder.histogram() == of(corrected_one_by_one(values, interval))


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=3), st.integers(1, 10))
def test_a_freeze_of_many_intervals_is_counted_by_bucket_to_the_same_effect(
    values: list[int], interval: int
) -> None:
    recorder = Recorder()
    recorder.record(np.array(values, dtype=np.int64), expected_interval_ns=interval)
    assert recorder.histogram() == of(corrected_one_by_one(values, interval))


@given(st.lists(st.integers(0, 2047), max_size=30), st.integers(1, 3000))
def test_correcting_afterwards_is_exact_where_buckets_hold_one_value(
    values: list[int], interval: int
) -> None:
    assert of(values).corrected(interval) == of(corrected_one_by_one(values, interval))


@given(
    st.lists(st.integers(1, 20 * S), min_size=1, max_size=30),
    st.integers(S // 100, 25 * S),
)
def test_correcting_afterwards_agrees_with_hdrhistogram(values: list[int], interval: int) -> None:
    ours, theirs = of(values).corrected(interval), HdrHistogram(1, 10**15, 3)
    # By bucket, as the Java original does it: the upper edge stands for the value.
    for value, count in of(values).to_buckets():
        upper = min(max(values), int(upper_edge_ns(bucket_index([value]))[0]))
        theirs.record_corrected_value(upper, interval, count)
    # The Python port, unlike the original, goes on below the interval; above it they agree.
    first, last = bucket_index([interval, max(values)])
    counts = dict(zip(ours.index.tolist(), ours.counts.tolist(), strict=True))
    for index in range(first + 1, last + 1):
        assert theirs.get_count_at_index(index) == counts.get(index, 0)


def closed_loop(service_s: list[int]) -> list[int]:
    """S1's Algorithm 1: one user who waits for each answer before the next request."""
    now, latencies = 0, []
    for service in service_s:
        sent = now
        now += service * S
        latencies.append(now - sent)
    return latencies


def open_loop(interval_s: int, until_s: int, frozen_s: tuple[int, int]) -> list[int]:
    """S1's Algorithms 2 and 3: a request every `interval_s`, whatever becomes of the others.

    Each takes 10 s, but one that is sent within the freeze is answered at its end. (Algorithm 3
    subtracts the other way round in print; a latency is the answer's time minus the request's.)
    """
    latencies = []
    for sent in range(0, until_s, interval_s):
        begins, ends = frozen_s
        answered = ends if begins <= sent < ends else sent + 10
        latencies.append((answered - sent) * S)
    return latencies


def test_the_worked_example_of_s1() -> None:
    # Three minutes: 6 requests of 10 s, one that hangs for 60 s, 6 more of 10 s.
    closed = Histogram.of(closed_loop([10] * 6 + [60] + [10] * 6))
    opened = Histogram.of(open_loop(10, 180, frozen_s=(60, 120)))
    corrected = closed.corrected(10 * S)
    assert (closed.count, opened.count, corrected.count) == (13, 18, 18)
    assert corrected == opened
    recorder = Recorder()
    recorder.record(closed_loop([10] * 6 + [60] + [10] * 6), expected_interval_ns=10 * S)
    assert recorder.histogram() == opened
    # "The mean latency in this region is 35 seconds with six measurements compared to 60 with one."
    frozen = Histogram.of(closed_loop([60])).corrected(10 * S)
    assert (frozen.count, round(frozen.mean_ns / S, 1)) == (6, 35.0)
    # What the closed loop hides: it puts the slowest fifth at 10 s, where a user waits 30.
    assert closed.percentile(80) == pytest.approx(10 * S, rel=1e-3)
    assert corrected.percentile(80) == pytest.approx(30 * S, rel=1e-3)
