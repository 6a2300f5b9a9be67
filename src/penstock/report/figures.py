"""The figures of a run that are compared and drawn, with their titles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.domain.metric_path import figure, is_time_like
from penstock.domain.metrics import Distribution, Estimate, MessageCounts, RunMetrics

# Intended → received in the order of a message's way. `answer` overlaps them, so it is not here.
PARTS = ("waiting", "produce", "commit", "fetch", "commit+fetch")


@dataclass(frozen=True)
class Figure:
    """One figure: its name as scenarios spell it, its name for people, its unit."""

    name: str
    title: str
    unit: str  # ms, share, per_s, mb_per_s or nothing
    # Is in sentences and overviews; the others are in the tables only.
    is_key: bool = False
    percent: float | None = None  # of a percentile

    @property
    def is_time_like(self) -> bool:
        """Whether it describes the setting only if the run was steady."""
        return is_time_like(self.name)

    def of(self, metrics: RunMetrics) -> Estimate | None:
        """None where the run has no such figure: nothing was sent, or nothing arrived."""
        if self.unit == "share" and not metrics.counts.sent:
            return None
        estimate = figure(metrics, self.name)
        return None if estimate is None or math.isnan(estimate.value) else estimate


# Those by which runs of one cell are held against each other.
MEAN_LATENCY = Figure("latency.mean_ms", "mean latency", "ms")
P50_LATENCY = Figure("latency.p50_ms", "p50 latency", "ms")
P99_LATENCY = Figure("latency.p99_ms", "p99 latency", "ms")
THROUGHPUT = Figure("throughput_per_s", "throughput", "per_s")
LOST_SHARE = Figure("lost_share", "lost share", "share")


def figures(metrics: Sequence[RunMetrics]) -> tuple[Figure, ...]:
    """Every figure that at least one of the runs has, the most important first."""
    limits = sorted({limit for m in metrics for limit in m.violation_share}, key=float)
    candidates = [
        *_times("latency", metrics, keys=("50", "99")),
        Figure("lost_share", "lost share", "share", True),
        Figure("duplicated_share", "duplicated share", "share", True),
        Figure("share.acknowledged_yet_lost", "acknowledged yet lost", "share"),
        *(
            Figure(f"share.{name}", name.replace("_", " "), "share")
            for name in ("failed_yet_delivered", "stale")
            if any(count_of(m.counts, name) for m in metrics)
        ),
        *(Figure(f"violation_share.{z}", f"share later than {z} ms", "share") for z in limits),
        Figure("goodput_mb_per_s", "goodput", "mb_per_s", True),
        Figure("timely_mb_per_s", "timely throughput", "mb_per_s"),
        Figure("kpi", "weighted KPI γ", ""),
        Figure("throughput_per_s", "throughput", "per_s"),
        Figure("throughput_mb_per_s", "throughput", "mb_per_s"),
        *_times("acknowledgement", metrics),
        *_times("corrected", metrics),
        Figure("overhead_share", "share of requests that is overhead", "share"),
        *(Figure(f"parts.{p}.mean_ms", f"mean {p}", "ms") for p in part_names(metrics)),
    ]
    return tuple(f for f in candidates if any(f.of(m) is not None for m in metrics))


def part_names(metrics: Sequence[RunMetrics]) -> list[str]:
    """The parts of latency that the runs have, in the order of a message's way."""
    present = {name for m in metrics for name in m.parts}
    return [*(p for p in PARTS if p in present), *sorted(present - set(PARTS))]


def _times(word: str, metrics: Sequence[RunMetrics], keys: Sequence[str] = ()) -> list[Figure]:
    """Of one of their distributions: every percentile that one of the runs has, and the mean."""
    distributions: list[Distribution | None] = [getattr(m, word) for m in metrics]
    present = {p for times in distributions if times is not None for p in times.percentiles_ms}
    percentiles = sorted(present, key=float)
    return [
        *(
            Figure(f"{word}.p{p}_ms", f"p{p} {word}", "ms", p in keys, float(p))
            for p in percentiles
        ),
        Figure(f"{word}.mean_ms", f"mean {word}", "ms"),
        Figure(f"{word}.deviation_ms", f"standard deviation of {word}", "ms"),
    ]


# Every count: its title, for tables. In the order of a message's life.
COUNTS: Mapping[str, str] = {
    "sent": "sent",
    "unsent": "scheduled, never sent",
    "acknowledged": "acknowledged",
    "failed": "reported failed",
    "unknown": "never answered",
    "delivered": "delivered once",
    "duplicated": "duplicated (case 5)",
    "lost": "lost",
    "acknowledged_yet_lost": "acknowledged yet lost",
    "failed_yet_delivered": "failed yet delivered",
    "stale": "stale",
    "copies": "copies in the topic",
    "redelivered": "delivered to the reader again",
    "records": "records read, warm-up included",
    "foreign": "records from other producers",
    "first_try": "case 1: delivered at the first try",
    "lost_first_try": "case 2: lost, sent once",
    "lost_after_retries": "case 3: lost after retries",
    "after_retries": "case 4: delivered after retries",
    "never_left": "lost in the client's queue, never sent",
    "tries_unknown": "tries not recorded",
    "warm_up": "sent during warm-up (excluded)",
}
# Not of messages sent in the measured time, so no share of them.
NO_SHARE = ("unsent", "copies", "redelivered", "records", "foreign", "warm_up")
# Always shown; the others are shown where they are not 0.
MAIN_COUNTS = (
    "sent",
    "delivered",
    "duplicated",
    "lost",
    "acknowledged_yet_lost",
    "failed_yet_delivered",
)


def count_of(counts: MessageCounts, name: str) -> int:
    number = getattr(counts, name)
    assert isinstance(number, int)
    return number
