"""Write speed of a partition, estimated from samples of its offsets and log size. Pure.

Records/s come from offsets: they only grow, whatever retention and compaction delete. Bytes per
record, as stored, come from the growth of the log; where the log shrank meanwhile, records were
deleted, and that piece is not used.

**The filter.** The speed is a mean since the last change, over 30 s at most: a long mean is steady,
and a change shows at once in a short one. After every sample the last 2, 3, 4, 6, … samples are
compared with those before them; if somewhere they differ by more than 4.5 standard errors and by
more than 5 %, the mean starts over where they differ most. The error is the largest one of what was
seen (the spread of the pieces before), of what independent records would have, and of what records
with the recent burstiness would have (from piece to piece, so that a single step does not count; a
producer that commits every few seconds is not a partition that starts and stops). So with two
samples a second, a step from 1,000 to 2,000 records/s is detected after a second, and one from 1 to
3 records/s only after some ten seconds.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from penstock.domain.autoscaling import PartitionSpeed

# Between two samples.
PERIOD_S = 0.5
LONG_S = 30.0
# Numbers of last pieces that are compared with those before.
_LATEST = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
_ERRORS = 4.5
_LEAST_CHANGE = 0.05
# The share of the largest differences between neighbours that count as steps (each has two) and not
# as bursts.
_STEPS = 1 / 12
# Brokers are not asked at the same instant: a piece may be wrong by this share for that alone.
_JITTER = 0.05
# Fewest records of a piece of the log, since size and offsets are not read at the same instant.
_PIECE = 50
# If a piece grew by less than this share of the usual growth, records were deleted from it. The
# usual growth is the upper quartile, since compaction may affect most pieces.
_TORN, _USUAL = 0.8, 0.75


@dataclass(frozen=True)
class Sample:
    """What the brokers report about a partition."""

    at_s: float
    begin: int
    end: int
    # Size of its log; None if the cluster does not report it.
    size_bytes: int | None = None


class WriteSpeed:
    """Estimator of one partition; add samples in the order of their time."""

    def __init__(self) -> None:
        # Samples since the last change; and recent samples regardless of changes.
        self._samples: deque[Sample] = deque()
        self._recent: deque[Sample] = deque()
        # The first piece since the last change may have begun before it.
        self._is_mixed = False
        self._bytes_per_record: float | None = None

    def add(self, sample: Sample) -> None:
        if self._samples:
            last = self._samples[-1]
            if sample.at_s <= last.at_s:
                return
            if sample.end < last.end:  # re-created, or it lost its newest records
                self._samples.clear()
                self._recent.clear()
                self._bytes_per_record = None
        for kept in (self._samples, self._recent):
            kept.append(sample)
            while sample.at_s - kept[0].at_s > LONG_S:
                kept.popleft()
        if self._is_mixed and len(self._samples) > 2:
            self._samples.popleft()
            self._is_mixed = False
        if (start := _changed_at(self._samples, _burstiness(self._recent))) is not None:
            # From the next sample on, since the change fell between the two. If that is the last
            # piece, it may contain both speeds: it counts only until the next one.
            self._samples = deque(islice(self._samples, start + 1, None))
            self._is_mixed = len(self._samples) == 2
        self._weigh()

    @property
    def speed(self) -> PartitionSpeed | None:
        """None until there are two samples."""
        if len(self._samples) < 2:
            return None
        first, last = self._samples[0], self._samples[-1]
        return PartitionSpeed(
            records_per_s=(last.end - first.end) / (last.at_s - first.at_s),
            bytes_per_record=self._bytes_per_record,
            end=last.end,
        )

    def _weigh(self) -> None:
        """Update the size of a record in the log."""
        grown: list[tuple[int, int]] = []
        size = records = 0
        for a, b in pairwise(self._recent):
            if a.size_bytes is None or b.size_bytes is None:
                continue
            if b.begin != a.begin or b.size_bytes < a.size_bytes:
                size = records = 0
                continue
            size += b.size_bytes - a.size_bytes
            records += b.end - a.end
            if records >= _PIECE:
                grown.append((size, records))
                size = records = 0
        if records and not grown:
            grown.append((size, records))
        if grown:
            shares = sorted(size / records for size, records in grown)
            usual = shares[int(_USUAL * (len(shares) - 1))]
            whole = [(s, r) for s, r in grown if s / r >= _TORN * usual]
            self._bytes_per_record = sum(s for s, _ in whole) / sum(r for _, r in whole)
        elif self._bytes_per_record is None:
            # No record has arrived since the first sample: use the records that are there.
            last = self._samples[-1]
            if last.size_bytes and last.end > last.begin:
                self._bytes_per_record = last.size_bytes / (last.end - last.begin)


def _burstiness(samples: Sequence[Sample]) -> float:
    """Variance over mean of the counts, from differences of neighbours; 1 if independent."""
    counts = [b.end - a.end for a, b in pairwise(samples)]
    if len(counts) < 2 or not sum(counts):
        return 1.0
    squares = sorted((b - a) ** 2 for a, b in pairwise(counts))
    usual = squares[: len(squares) - int(_STEPS * len(squares))]
    return max(1.0, statistics.fmean(usual) / 2 / statistics.fmean(counts))


def _changed_at(samples: Sequence[Sample], burstiness: float) -> int | None:
    """Where a new mean must begin, if the speed has changed."""
    starts = [len(samples) - 1 - pieces for pieces in _LATEST if len(samples) - 1 - pieces >= 1]
    errors = {start: _errors_apart(samples, start, burstiness) for start in starts}
    most = max(errors, key=errors.__getitem__, default=None)
    return most if most is not None and errors[most] > _ERRORS else None


def _errors_apart(samples: Sequence[Sample], start: int, burstiness: float) -> float:
    """By how many standard errors the speed from `start` on differs from the speed before."""
    first, middle, last = samples[0], samples[start], samples[-1]
    before_s, after_s = middle.at_s - first.at_s, last.at_s - middle.at_s
    before, after = (middle.end - first.end) / before_s, (last.end - middle.end) / after_s
    change = abs(after - before)
    if change <= _LEAST_CHANGE * max(before, after):
        return 0.0
    pieces = [(b.end - a.end, b.at_s - a.at_s) for a, b in pairwise(islice(samples, start + 1))]
    seen = sum((count - before * took_s) ** 2 for count, took_s in pieces) / before_s
    # The variance of independent records is their number.
    independent = burstiness * (last.end - first.end) / (before_s + after_s)
    jitter = statistics.fmean((_JITTER * before * took_s) ** 2 / took_s for _, took_s in pieces)
    # Counts grow with time, and so does their variance; that of a rate falls with it.
    variance = (max(seen, independent) + jitter) * (1 / before_s + 1 / after_s)
    return change / math.sqrt(variance) if variance else 0.0
