"""Whether a run of load was steady: no trend of its latency, no queue that grows.

A mean or a percentile of a run in which the latency grows is a property of how long the run
lasted, and one of a run that begins with a backlog is a property of the warm-up. `judge` looks for
both. It does not say whether latency is good, nor why it changed.

**Trend.** The run is cut into up to 128 parts; y is the logarithm of each part's mean latency, so
that a spike weighs little and a ratio counts the same at any level. `trend.p_value` tests y. A
change is reported only if the first and the last eighth of the run differ by what matters to a
reader.

**Queue.** waiting = what waited at the beginning + cumulated due - cumulated done, without the
messages that never arrive although later ones do: they are lost and do not wait. Whether its
growth is more than its fluctuation is Student's t of (due - done) over 32 parts, which is
growth / (√32 · deviation of the parts). If the parts were independent, t would scatter by 1. In a
steady queue it stays near 0, since what queues up is worked off: in each of the simulated families
95 % of the runs are below 0.7.

Measured, of 3,000 simulated runs each (12 s at 1,000 to 1,200 messages/s unless said otherwise;
`tests/unit/test_steadiness.py` makes them). Called unsteady although they are steady:

    independent lognormal latencies, σ .5 to 2                         0 to 1 %
    autoregressive, τ from 0.05 s to 1/30 of the run                   1 to 1.5 %; 1/20: 3 %
    M/M/1 at a load of .5, .8, .9 (5 to 30 s); .95                     0 to 1.6 %; 3.4 %
    bursts, phases of 0.2 to 1 s                                       1 to 4.5 %
    pauses of 20 to 60 ms every 0.7 to 2 s                             0 %

Bursts of 1 s that overload the server by a quarter make the queue wander for seconds: 5 % of runs
of 30 s, 22 % of runs of 12 s. τ of 1/10 of the run: 15 %. Called unsteady, rightly:

    overload 1.02, even arrivals; for 30 s                             97 %; 98 %
    overload 1.02, Poisson arrivals and exponential work               90 %, of 93 % that grew
    overload 1.05 to 2                                                 100 %
    a transient of 3 to 25 % of the run, first quarter twice the last  94 to 100 %
    growth by half, slices that scatter by 20 % with τ = 0.05 s        91 %

The test of H. Mann and M. Kendall (p < .05) on 12 to 24 batch means, with its variance widened for
their correlation, gave 8 % of false alarms with τ = 1/30 of the run, and detected 52 % of the overloads
of 1.02 and 12 to 53 % of the transients: a transient is over after a few ranks, and the batches of
a queue that grows look correlated, which widens the variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.domain.steadiness import State, Steadiness
from penstock.stats import trend

Floats = npt.NDArray[np.float64]
Numbers = Sequence[float] | Floats

# With fewer, noise and change look the same: 20 parts of 10 messages leave 10 cosines.
LEAST_S = 3.0
LEAST_PARTS, LEAST_IN_PART = 20, 10
LEAST_MESSAGES = LEAST_PARTS * LEAST_IN_PART

# The smallest change that matters, as a share of the mean latency and in ms: a fifth of 0.8 ms is
# the noise of schedulers and clocks.
_MATTERS, _MATTERS_MS = 0.2, 0.5
# Of the run: its beginning and its end, whose means are compared and shown.
_END = 1 / 8
_MOST_PARTS = 128
# For each of the three contrasts. With autoregressive noise they alarm in 1.5 % of the runs
# together; bursts are neither autoregressive nor normal and use up the rest of the 5 %.
_CERTAIN = 0.008
# Nothing is that fast. Keeps the logarithm of a latency of 0 from being infinite.
_FLOOR_MS = 0.01

_QUEUE_PARTS = 32
# A queue that grows by this share of the messages offered, and not by a burst at the end: t is 1.5
# if nothing is received during the last 7 % of the run.
_GROWS, _GROWS_T = 0.05, 1.5
# Slow growth: a queue that nothing holds back, together with a hint that the latency grew. Adds
# 0.5 % of false alarms under bursts and none elsewhere, and detects 1 % more overloads of 1.02.
_SLOW_T, _HINT = 0.9, 0.1

# What is done is as much as what is offered, but for chance.
_AS_MUCH = 0.98
# Standard deviations of a Poisson count: what differs by more is a load that changed.
_CHANCE = 4.0


def judge(
    latency_sums_ms: Numbers,
    counts: Numbers,
    due: Numbers,
    done: Numbers,
    slice_s: float,
    *,
    waiting_first: int = 0,
    done_name: str = "the brokers",
) -> Steadiness:
    """Whether the latency had a trend or the queue grew, from slices of equal length, in order.

    Per slice: the sum of the latencies of the messages that were due in it and arrived, how many
    these are, how many were due, and how many were received in it, whenever due. `waiting_first`:
    due earlier and not yet received when the first slice begins. `done_name`: who does the work,
    as a plural.
    """
    slices = _Slices.of(latency_sums_ms, counts, due, done, slice_s)
    parts = _Parts.of(slices)
    queue = _Queue.of(slices, int(waiting_first))
    state, sentence = _judged(slices, parts, queue, done_name)
    first_ms, last_ms = parts.ends_ms() if len(parts.counts) else (None, None)
    return Steadiness(
        state=state,
        sentence=sentence,
        judged_s=slices.length_s,
        latency_first_ms=first_ms,
        latency_last_ms=last_ms,
        offered_per_s=slices.per_s(slices.due),
        done_per_s=slices.per_s(slices.done),
        waiting_first=queue.first,
        waiting_last=queue.last,
    )


def _judged(slices: _Slices, parts: _Parts, queue: _Queue, done_name: str) -> tuple[State, str]:
    arrived, due = int(slices.counts.sum()), int(slices.due.sum())
    if due and not arrived:
        return "not tested", f"none of the {_number(due)} messages arrived"
    if slices.length_s < LEAST_S or due < LEAST_MESSAGES:
        return "not tested", _too_short(arrived, slices.length_s)
    is_testable = len(parts.counts) >= LEAST_PARTS
    change = parts.change()
    p = trend.p_value(parts.log_levels(), change) if is_testable else 1.0
    has_trend = p < _CERTAIN or (change > 0 and p < _HINT and queue.t > _SLOW_T)
    falls_behind = queue.growth > _GROWS * due and queue.t > _GROWS_T
    if change > 0 and (has_trend or falls_behind):
        return "unsteady", _grew(slices, parts, done_name)
    if falls_behind:
        return "unsteady", _waiting(slices, queue, done_name)
    if has_trend:
        return "unsteady", _fell(slices, parts)
    if is_testable:
        return "steady", ""
    if arrived < LEAST_MESSAGES:
        return "not tested", _too_few(arrived, slices.length_s)
    return "not tested", _too_rare(arrived, len(parts.counts))


# --- latency -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Slices:
    """What `judge` is given, checked."""

    sums_ms: Floats
    counts: Floats
    due: Floats
    done: Floats
    length_s: float

    @classmethod
    def of(
        cls, sums_ms: Numbers, counts: Numbers, due: Numbers, done: Numbers, slice_s: float
    ) -> _Slices:
        arrays = [np.asarray(series, dtype=np.float64) for series in (sums_ms, counts, due, done)]
        shapes = {array.shape for array in arrays}
        if len(shapes) > 1 or arrays[0].ndim != 1:
            raise ValueError(f"the slices differ in number: {[a.shape for a in arrays]}")
        if not all(np.isfinite(array).all() and (array >= 0).all() for array in arrays):
            raise ValueError("a slice has a negative number, or one that is not finite")
        if not (math.isfinite(slice_s) and slice_s > 0):
            raise ValueError(f"a slice cannot last {slice_s} s")
        return cls(arrays[0], arrays[1], arrays[2], arrays[3], len(arrays[0]) * slice_s)

    def per_s(self, numbers: Floats) -> float | None:
        return float(numbers.sum()) / self.length_s if self.length_s else None

    def lost(self) -> Floats:
        """Due, and overtaken by others: what is due after the last arrival may still wait."""
        lost = np.maximum(0.0, self.due - self.counts)
        arrivals = np.flatnonzero(self.counts)
        lost[arrivals[-1] + 1 if len(arrivals) else 0 :] = 0
        return lost


@dataclass(frozen=True)
class _Parts:
    """Slices joined, so that a part has ten messages in the mean; without the empty ones."""

    sums_ms: Floats
    counts: Floats

    @classmethod
    def of(cls, slices: _Slices) -> _Parts:
        messages = int(slices.counts.sum())
        parts = min(_MOST_PARTS, len(slices.counts), max(1, messages // LEAST_IN_PART))
        counts = _joined(slices.counts, parts)
        # A sum without a count is nobody's latency.
        sums = _joined(np.where(slices.counts > 0, slices.sums_ms, 0.0), parts)
        return cls(sums[counts > 0], counts[counts > 0])

    def ends_ms(self) -> tuple[float, float]:
        """Mean latency at the beginning and at the end."""
        length = max(1, int(len(self.counts) * _END))
        first, last = slice(length), slice(-length, None)
        return (
            float(self.sums_ms[first].sum() / self.counts[first].sum()),
            float(self.sums_ms[last].sum() / self.counts[last].sum()),
        )

    def change(self) -> int:
        """1 if the latency is higher at the end, -1 if lower, 0 if the difference is too small."""
        first_ms, last_ms = self.ends_ms()
        level_ms = float(self.sums_ms.sum() / self.counts.sum())
        if abs(last_ms - first_ms) <= max(_MATTERS * level_ms, _MATTERS_MS):
            return 0
        return 1 if last_ms > first_ms else -1

    def log_levels(self) -> Floats:
        return np.log(np.maximum(_FLOOR_MS, self.sums_ms / self.counts))


# --- queue ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Queue:
    """How many messages wait at both ends, and how sure it is that they became more."""

    first: int
    last: int
    t: float

    @property
    def growth(self) -> int:
        return self.last - self.first

    @classmethod
    def of(cls, slices: _Slices, waiting_first: int) -> _Queue:
        surplus = slices.due - slices.lost() - slices.done
        growth = float(surplus.sum())
        last = max(0, waiting_first + round(growth))
        parts = min(_QUEUE_PARTS, len(surplus))
        if parts < 2 or growth == 0:
            return cls(waiting_first, last, 0.0)
        deviation = float(np.std(_joined(surplus, parts), ddof=1)) * math.sqrt(parts)
        t = growth / deviation if deviation > 0 else math.copysign(math.inf, growth)
        return cls(waiting_first, last, t)


# --- sentences -----------------------------------------------------------------------------------


def _grew(slices: _Slices, parts: _Parts, done_name: str) -> str:
    why = _rates(slices, done_name) or _load_change(slices)
    return f"latency grew {_from_to(*parts.ends_ms())}" + (f": {why}" if why else " during the run")


def _fell(slices: _Slices, parts: _Parts) -> str:
    why = _load_change(slices) or "the cluster was still warming up, or working off a backlog"
    return f"latency fell {_from_to(*parts.ends_ms())} during the run: {why}"


def _waiting(slices: _Slices, queue: _Queue, done_name: str) -> str:
    why = _rates(slices, done_name)
    numbers = (
        f"{queue.last:,} messages were waiting at the end and {queue.first:,} at the beginning"
    )
    return numbers + (f": {why}" if why else "")


def _rates(slices: _Slices, done_name: str) -> str:
    """Empty if as much is done as offered; what is lost on the way is not what is too much."""
    offered, done = slices.per_s(slices.due), slices.per_s(slices.done)
    lost = slices.per_s(slices.lost())
    if offered is None or done is None or lost is None or done >= _AS_MUCH * (offered - lost):
        return ""
    return f"{done_name} handle {_number(done)} of the {_number(offered)} messages/s offered"


def _load_change(slices: _Slices) -> str:
    """Empty if the load was as high at the end as at the beginning, but for chance: arrivals in
    bursts of seconds, or a recorded load."""
    length = max(1, int(len(slices.due) * _END))
    first, last = float(slices.due[:length].sum()), float(slices.due[-length:].sum())
    if abs(last - first) <= max(_MATTERS * (first + last) / 2, _CHANCE * math.sqrt(first + last)):
        return ""
    per_s = len(slices.due) / slices.length_s / length
    return (
        f"the load itself went from {_number(first * per_s)} to {_number(last * per_s)} messages/s"
    )


def _too_short(messages: int, length_s: float) -> str:
    return (
        "the run is too short to tell whether it was steady: "
        f"{_number(messages)} messages in {_number(length_s)} s, and the test {_NEEDS}"
    )


def _too_few(messages: int, length_s: float) -> str:
    return (
        "too few messages arrived to tell whether the run was steady: "
        f"{_number(messages)} in {_number(length_s)} s, and the test {_NEEDS}"
    )


def _too_rare(messages: int, parts: int) -> str:
    return (
        "messages came at too few times to tell whether the run was steady: "
        f"{_number(messages)} in {parts} parts of it, and the test needs {LEAST_PARTS}"
    )


_NEEDS = f"needs {LEAST_MESSAGES} messages and {LEAST_S:g} s"


def _from_to(first_ms: float, last_ms: float) -> str:
    (first, unit), (last, last_unit) = _time(first_ms), _time(last_ms)
    return f"from {first}{'' if unit == last_unit else ' ' + unit} to {last} {last_unit}"


def _time(time_ms: float) -> tuple[str, str]:
    return (_number(time_ms), "ms") if time_ms < 1000 else (_number(time_ms / 1000), "s")


def _number(number: float) -> str:
    """Three digits, and all of those before the point: 1,050; 18.6; 0.012."""
    return f"{number:,.0f}" if number >= 99.95 else f"{number:.3g}"


def _joined(numbers: Floats, parts: int) -> Floats:
    """Sums over `parts` parts of equal length, as far as the number of slices allows."""
    if not len(numbers):
        return numbers
    return np.add.reduceat(numbers, np.arange(parts) * len(numbers) // parts)
