"""Whether a cluster is warm: the cost of a request and its latency do not fall any more. Pure.

The test compares the last `WINDOW` intervals of load (1 s or 0.5 s each) with as many before them.
The cluster is warm if the brokers' CPU per request and the latency fell by less than `TOLERANCE`,
and Java's compilers used less than `COMPILING` of the brokers' CPU, or less than `LITTLE_COMPILING`
cores. The compilers are the cause, the other two the effect. A cluster whose processes cannot be
seen is judged by its latency alone.

Three fresh brokers on two cores under as many requests as they take (200 B, acks=all): CPU per
request falls from 18 ms in the first seconds to 0.9 ms after 20 s and 0.48 ms after 40 s, where it
stays; the compilers use half of the CPU until then and 1 to 3 % afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

WINDOW = 5
TOLERANCE = 0.1
PAIRS = 0.8
COMPILING = 0.05
# Of a core: under a light load the brokers use so little that any compiling is a large share.
LITTLE_COMPILING = 0.03


@dataclass(frozen=True)
class Interval:
    """A short time of load. CPU is that of all brokers; None where it cannot be seen."""

    requests: int
    latency_ms: float
    cpu_s: float | None = None
    compiler_s: float | None = None

    @property
    def cpu_ms_per_request(self) -> float | None:
        return None if self.cpu_s is None or not self.requests else 1e3 * self.cpu_s / self.requests


def reasons(intervals: Sequence[Interval], interval_s: float = 1.0) -> list[str]:
    """What still changes, with its numbers; empty if the cluster is warm."""
    recent, before = intervals[-WINDOW:], intervals[-2 * WINDOW : -WINDOW]
    if len(before) < WINDOW:
        seen_s, needed_s = len(intervals) * interval_s, 2 * WINDOW * interval_s
        return [f"{seen_s:g} s of load, and the test needs {needed_s:g} s"]
    changing = []
    if not any(interval.requests for interval in recent):
        changing.append(f"no request was answered in the last {WINDOW * interval_s:g} s")
    elif not any(interval.requests for interval in before):
        changing.append(
            f"no request was answered in the {WINDOW * interval_s:g} s before, to compare with"
        )
    old, new = cost_ms(before), cost_ms(recent)
    if (
        old
        and new
        and new < old * (1 - TOLERANCE)
        and _is_below("cpu_ms_per_request", recent, before)
    ):
        changing.append(f"CPU per request fell from {old:.3g} to {new:.3g} ms")
    slow, fast = (_latency_ms(part) for part in (before, recent))
    if fast < slow * (1 - TOLERANCE) and _is_below("latency_ms", recent, before):
        changing.append(f"latency fell from {slow:.3g} to {fast:.3g} ms")
    compiling_s = sum(interval.compiler_s or 0.0 for interval in recent)
    if (
        (share := compiler_share(recent)) is not None
        and share > COMPILING
        and compiling_s > LITTLE_COMPILING * WINDOW * interval_s
    ):
        changing.append(f"Java's compilers used {share:.0%} of the brokers' CPU")
    return changing


def _is_below(figure: str, recent: Sequence[Interval], before: Sequence[Interval]) -> bool:
    """Not by one slow interval among the earlier ones: four pairs of five show it."""
    pairs = [
        getattr(r, figure) < getattr(b, figure)
        for r in recent
        for b in before
        # One in which nothing was answered, under a light load, has no figure.
        if r.requests and b.requests
    ]
    return bool(pairs) and bool(sum(pairs) >= PAIRS * len(pairs))


def _latency_ms(intervals: Sequence[Interval]) -> float:
    answered = [interval.latency_ms for interval in intervals if interval.requests]
    return fmean(answered) if answered else 0.0


def cost_ms(intervals: Sequence[Interval]) -> float | None:
    """The brokers' CPU per request over these intervals; None if it cannot be seen."""
    requests = sum(interval.requests for interval in intervals)
    used = [interval.cpu_s for interval in intervals if interval.cpu_s is not None]
    return 1e3 * sum(used) / requests if requests and len(used) == len(intervals) else None


def compiler_share(intervals: Sequence[Interval]) -> float | None:
    """The share of the brokers' CPU that Java's compilers used."""
    used = sum(i.cpu_s for i in intervals if i.cpu_s is not None)
    if not used or any(i.compiler_s is None for i in intervals):
        return None
    return sum(i.compiler_s or 0.0 for i in intervals) / used
