"""HDR histograms in numpy: counts per bucket of three significant digits. No single values.

A value v (whole nanoseconds) lies in the bucket whose lower edge is (v >> shift) << shift, with
shift = max(0, bit_length(v) - 11): at most 2,048 buckets up to 2,047 ns and 1,024 for every power
of two above. These are the buckets of HdrHistogram with 3 digits and a lowest value of 1, so both
count alike. A `Histogram` is a value: sparse, cheap to keep by the hundred and to send to another
process. A `Recorder` takes values in and is not thread-safe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.domain.metrics import Distribution

Ints = npt.NDArray[np.int64]

# Of the values that a power of two above 2,048 is divided into; HdrHistogram calls it the half
# count of sub-buckets.
STEPS = 1024
_STEP_BITS = 10
MOST_NS = 2**63 - 1
BUCKETS = (63 - _STEP_BITS) * STEPS + STEPS

# Chunks that stay in the processor's cache: 512 kB of values at a time.
_CHUNK = 1 << 16
# A freeze of 60 s with an interval of 1 µs stands for 60 million values that were never sent. From
# this many on they are counted bucket by bucket and not one by one.
_MANY = 1 << 14
# Exactly what a float64 holds; larger numbers are cut to their upper bits before they become one.
_EXACT = 1 << 53


def bucket_index(values_ns: npt.ArrayLike) -> Ints:
    """The number of the bucket of each value, counted from the bucket of 0."""
    values = np.asarray(values_ns, dtype=np.int64)
    if not values.size:
        return np.zeros(values.shape, dtype=np.int64)
    return _index(values, int(values.min()), int(values.max()))


def lower_edge_ns(index: npt.ArrayLike) -> Ints:
    """The smallest value of each bucket."""
    indices = np.asarray(index, dtype=np.int64)
    shift = _shift(indices)
    return np.asarray((indices - shift * STEPS) << shift, dtype=np.int64)


def upper_edge_ns(index: npt.ArrayLike) -> Ints:
    """The largest value of each bucket; HdrHistogram's "highest equivalent value"."""
    indices = np.asarray(index, dtype=np.int64)
    return np.asarray(lower_edge_ns(indices) + ((1 << _shift(indices)) - 1), dtype=np.int64)


def _middle_ns(index: Ints) -> Ints:
    """HdrHistogram's "median equivalent value": the lower edge plus half the width."""
    return np.asarray(lower_edge_ns(index) + ((1 << _shift(index)) >> 1), dtype=np.int64)


def _shift(index: Ints) -> Ints:
    return np.maximum(index // STEPS - 1, 0)


def _index(values: Ints, smallest: int, largest: int) -> Ints:
    """Read from the bits of the value as a float64: its exponent and the upper ten of its digits.

    That is one conversion and one shift, and the reason for the speed of recording.
    """
    if largest >= _EXACT:  # only the upper 11 bits count, so the lower 11 of a large one may go
        values = np.where(values >= _EXACT, values & ~0x7FF, values)
    # 1023 is the exponent of 1.0; 2**10 has the index 2**10.
    index = values.astype(np.float64).view(np.int64)
    index >>= 52 - _STEP_BITS
    index -= (1023 + _STEP_BITS - 1) * STEPS
    if smallest < STEPS:  # too small for ten digits: each value is a bucket
        np.copyto(index, values, where=values < STEPS)
    return index


def summed(keys: Ints, amounts: Ints) -> tuple[Ints, Ints]:
    """The distinct keys, rising, and the sum of the amounts of each."""
    distinct, place = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(sums, place, amounts)
    return distinct, sums


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of values in nanoseconds, with the exact smallest and largest one.

    `index` holds the numbers of the buckets that have a count, rising; `counts` their counts. Made
    by the functions below and by `Recorder`, whose word for it is that they fit together.
    """

    index: Ints
    counts: Ints
    min_ns: int = 0
    max_ns: int = 0

    @classmethod
    def of(cls, values_ns: npt.ArrayLike) -> Histogram:
        """Of some whole numbers of nanoseconds, none of them negative."""
        values = _whole(values_ns)
        if len(values) > _CHUNK:
            recorder = Recorder()
            recorder.record(values)
            return recorder.histogram()
        if not len(values):
            return EMPTY
        # A few are sorted faster than all buckets are looked through.
        smallest, largest = _extremes(values)
        index, counts = np.unique(_index(values, smallest, largest), return_counts=True)
        return cls(index, counts.astype(np.int64), smallest, largest)

    @classmethod
    def merged(cls, histograms: Iterable[Histogram]) -> Histogram:
        """All of them together. In whatever order and grouping: only sums, least and largest."""
        full = [h for h in histograms if h.count]
        if not full:
            return EMPTY
        if len(full) == 1:
            return full[0]
        index, counts = summed(
            np.concatenate([h.index for h in full]), np.concatenate([h.counts for h in full])
        )
        return cls(index, counts, min(h.min_ns for h in full), max(h.max_ns for h in full))

    @classmethod
    def from_buckets(
        cls,
        buckets: Iterable[tuple[int, int]],
        *,
        min_ns: int | None = None,
        max_ns: int | None = None,
    ) -> Histogram:
        """From (value, count) pairs in any order, as `to_buckets` gives them.

        Without the exact extremes they are taken for the outer edges of the outer buckets.
        """
        pairs = np.array(list(buckets), dtype=np.int64).reshape(-1, 2)
        if (pairs < 0).any():
            raise ValueError("a bucket of a histogram cannot be negative")
        pairs = pairs[pairs[:, 1] > 0]
        if not len(pairs):
            return EMPTY
        index, counts = summed(bucket_index(pairs[:, 0]), pairs[:, 1])
        return cls(
            index,
            counts,
            int(lower_edge_ns(index[0])) if min_ns is None else min_ns,
            int(upper_edge_ns(index[-1])) if max_ns is None else max_ns,
        )

    @classmethod
    def of_distribution(cls, times: Distribution) -> Histogram:
        """From what was written down of one."""
        ends = {"min_ns": round(times.min_ms * 1e6), "max_ns": round(times.max_ms * 1e6)}
        return cls.from_buckets(times.buckets, **ends)

    def to_buckets(self) -> tuple[tuple[int, int], ...]:
        """(lower edge in ns, count) of every bucket that has one, for `metrics.Distribution`."""
        return tuple(zip(lower_edge_ns(self.index).tolist(), self.counts.tolist(), strict=True))

    def merge(self, other: Histogram) -> Histogram:
        return Histogram.merged((self, other))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return (
            (self.min_ns, self.max_ns) == (other.min_ns, other.max_ns)
            and np.array_equal(self.index, other.index)
            and np.array_equal(self.counts, other.counts)
        )

    def __hash__(self) -> int:
        return hash((self.min_ns, self.max_ns, self.index.tobytes(), self.counts.tobytes()))

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @property
    def mean_ns(self) -> float:
        """Every value counts as the middle of its bucket; NaN if there is none."""
        if not len(self.counts):
            return math.nan
        # As floats: the sum of large values would not fit into 64 bits.
        middle = _middle_ns(self.index).astype(np.float64)
        return float(middle @ self.counts.astype(np.float64)) / self.count

    @property
    def deviation_ns(self) -> float:
        """The standard deviation; 0 if there is no value."""
        if not self.count:
            return 0.0
        away = _middle_ns(self.index) - self.mean_ns
        return math.sqrt(float(self.counts @ (away * away)) / self.count)

    def percentile(self, percent: float) -> int:
        """See `percentiles`."""
        return self.percentiles((percent,))[0]

    def percentiles(self, percents: Sequence[float]) -> tuple[int, ...]:
        """The value that `percent` of all values (0 to 100) do not exceed, in ns.

        As HdrHistogram has it: the upper edge of the bucket of the value with rank
        ceil(percent · n / 100); 0 is the smallest value. Never beyond the exact largest one.
        """
        if not len(self.counts):
            raise ValueError("an empty histogram has no percentiles")
        cumulative = np.cumsum(self.counts)
        total = int(cumulative[-1])
        places = np.searchsorted(cumulative, [rank(p, total) for p in percents], side="left")
        upper = np.clip(upper_edge_ns(self.index[places]), self.min_ns, self.max_ns)
        return tuple(
            self.min_ns if p == 0 else int(value) for p, value in zip(percents, upper, strict=True)
        )

    def count_at_most(self, value_ns: int) -> int:
        """Values up to and including the bucket of `value_ns`."""
        end = np.searchsorted(self.index, bucket_index([value_ns])[0], side="right")
        return int(self.counts[:end].sum())

    def corrected(self, expected_interval_ns: int) -> Histogram:
        """With the values that a closed loop failed to record while it waited for an answer.

        HdrHistogram's copyCorrectedForCoordinatedOmission: a value v above the interval between
        requests stands also for v - i, v - 2i, … ≥ i of requests that were due meanwhile. A value
        counts as the upper edge of its bucket, the largest one as it was. For a histogram that was
        recorded without this correction.
        """
        values = np.minimum(upper_edge_ns(self.index), self.max_ns)
        recorder = Recorder()
        recorder.add(self)
        recorder.add_missing(values, self.counts, expected_interval_ns)
        return recorder.histogram()


EMPTY = Histogram(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def rank(percent: float, total: int) -> int:
    """Which of `total` sorted values the percentile is, from 1 on."""
    if not 0 <= percent <= 100:
        raise ValueError(f"a percentile is between 0 and 100, not {percent}")
    # One unit in the last place less, as HdrHistogram: 99.9 % of 1,000 is 999.0000000000001.
    exact = math.nextafter(percent, -math.inf) * total / 100
    return min(total, max(1, math.ceil(exact)))


class Recorder:
    """Takes values in, chunk by chunk. One per process: merge what they made."""

    def __init__(self) -> None:
        self._counts: Ints = np.zeros(BUCKETS, dtype=np.int64)
        self._min_ns = MOST_NS
        self._max_ns = -1

    def record(self, values_ns: npt.ArrayLike, expected_interval_ns: int | None = None) -> None:
        """Count whole numbers of nanoseconds, none of them negative.

        With an interval, a value from a closed loop is corrected as it comes in (see
        `Histogram.corrected`), here exactly and not by bucket.
        """
        values = _whole(values_ns)
        for start in range(0, len(values), _CHUNK):
            chunk = values[start : start + _CHUNK]
            smallest, largest = _extremes(chunk)
            self._count(_index(chunk, smallest, largest), None)
            self._min_ns = min(self._min_ns, smallest)
            self._max_ns = max(self._max_ns, largest)
            if expected_interval_ns is not None and largest >= 2 * expected_interval_ns:
                late = chunk[chunk >= 2 * expected_interval_ns]
                self.add_missing(late, np.ones(len(late), np.int64), expected_interval_ns)

    def add(self, histogram: Histogram) -> None:
        """All that another one counted."""
        if not histogram.count:
            return
        self._counts[histogram.index] += histogram.counts
        self._min_ns = min(self._min_ns, histogram.min_ns)
        self._max_ns = max(self._max_ns, histogram.max_ns)

    def add_missing(self, values_ns: Ints, counts: Ints, interval_ns: int) -> None:
        """Count v - i, v - 2i, … ≥ i for every v: what `corrected` adds, without the values."""
        if interval_ns <= 0:
            raise ValueError(f"the expected interval must be more than 0 ns, not {interval_ns}")
        late = values_ns >= 2 * interval_ns
        values, counts = values_ns[late], counts[late]
        if not len(values):
            return
        missing = values // interval_ns - 1
        self._min_ns = min(self._min_ns, int((values - missing * interval_ns).min()))
        few = missing < _MANY
        self._add_one_by_one(values[few], counts[few], missing[few], interval_ns)
        for value, count in zip(values[~few].tolist(), counts[~few].tolist(), strict=True):
            self._add_by_bucket(value, count, interval_ns)

    def histogram(self) -> Histogram:
        """All so far."""
        index = np.flatnonzero(self._counts).astype(np.int64)
        if not len(index):
            return EMPTY
        return Histogram(index, self._counts[index], self._min_ns, self._max_ns)

    def _count(self, index: Ints, weights: npt.NDArray[np.float64] | None) -> None:
        """Over the range that is used: a count of all buckets would cost more than the values."""
        first = int(index.min())
        index -= first
        window = np.bincount(index, weights)
        self._counts[first : first + len(window)] += window.astype(np.int64, copy=False)

    def _add_one_by_one(self, values: Ints, counts: Ints, missing: Ints, interval_ns: int) -> None:
        begins = 0
        ends = np.cumsum(missing)
        while begins < len(values):
            before = int(ends[begins - 1]) if begins else 0
            # At least one value, and as many more as fit into a chunk.
            end = max(begins + 1, int(np.searchsorted(ends, before + _CHUNK, side="right")))
            times = missing[begins:end]
            first = np.repeat(ends[begins:end] - times - before, times)
            steps = np.arange(1, len(first) + 1, dtype=np.int64) - first
            due = np.repeat(values[begins:end], times) - steps * interval_ns
            # Counts as weights are floats: exact up to 2**53 in a chunk, which no run reaches.
            weights = np.repeat(counts[begins:end].astype(np.float64), times)
            self._count(_index(due, int(due.min()), int(due.max())), weights)
            begins = end

    def _add_by_bucket(self, value: int, count: int, interval_ns: int) -> None:
        """How many of v - i, v - 2i, … ≥ i lie in each bucket: a difference of two counts."""
        first, last = bucket_index([interval_ns, value - interval_ns]).tolist()
        lower = np.maximum(lower_edge_ns(np.arange(first, last + 1)), interval_ns)
        # v - k·i ≥ edge for k = 1 … (v - edge) // i
        at_least = (value - lower) // interval_ns
        self._counts[first : last + 1] += count * (at_least - np.append(at_least[1:], 0))


def _extremes(values: Ints) -> tuple[int, int]:
    smallest, largest = int(values.min()), int(values.max())
    if smallest < 0:
        raise ValueError(f"a time cannot be negative: {smallest} ns")
    return smallest, largest


def _whole(values: npt.ArrayLike) -> Ints:
    array: npt.NDArray[Any] = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"a histogram counts whole nanoseconds, not {array.dtype}")
    if array.dtype == np.uint64 and array.size and int(array.max()) > MOST_NS:
        raise ValueError(f"{int(array.max())} ns is more than a histogram can count")
    return np.ascontiguousarray(array.reshape(-1), dtype=np.int64)
