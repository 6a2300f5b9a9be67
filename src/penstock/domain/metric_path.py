"""Figures by name: how scenarios, tables and comparisons point at one number of a run's metrics."""

from __future__ import annotations

import math
from dataclasses import fields

from penstock.domain.metrics import (
    PARTS,
    PERCENTS,
    Distribution,
    Estimate,
    MessageCounts,
    RunMetrics,
)
from penstock.domain.value import FieldError

_ESTIMATES = (
    "lost_share",
    "duplicated_share",
    "throughput_per_s",
    "throughput_mb_per_s",
    "goodput_mb_per_s",
    "timely_mb_per_s",
    "overhead_share",
)
_KPI = "kpi"
_PERCENTILES = tuple(f"{percent:g}" for percent in PERCENTS)
_DISTRIBUTIONS = ("latency", "acknowledgement", "corrected")
_EXAMPLES = (
    *_ESTIMATES,
    "latency.p99_ms",
    _KPI,
    "latency.mean_ms",
    "latency.deviation_ms",
    "acknowledgement.p50_ms",
    "parts.commit.p50_ms",
    "violation_share.100",
    "counts.acknowledged_yet_lost",
    "share.acknowledged_yet_lost",
)
# Figures that follow from latencies. `timely_mb_per_s` and what is stale are shares of messages that
# were fast enough, like `violation_share`.
_TIMES = ("latency.", "acknowledgement.", "corrected.", "parts.", "violation_share.")
_FAST_ENOUGH = ("timely_mb_per_s", "share.stale", "counts.stale")


def is_time_like(figure: str) -> bool:
    """Whether the figure describes its setting only if the run was steady."""
    return figure.startswith(_TIMES) or figure in _FAST_ENOUGH


def figure(metrics: RunMetrics, name: str) -> Estimate | None:
    """The figure called `name`; None if this run has none, since nothing arrived for instance."""
    head, _, rest = name.partition(".")
    if name in _ESTIMATES:
        estimate: Estimate | None = getattr(metrics, name)
        return estimate
    if name == _KPI:
        return None if metrics.kpi is None else Estimate(value=metrics.kpi.gamma)
    if head in _DISTRIBUTIONS and rest:
        return _of_distribution(getattr(metrics, head), rest, name)
    if head == "parts" and "." in rest:
        part, _, what = rest.partition(".")
        if part not in PARTS:
            raise _unknown(name)
        return _of_distribution(metrics.parts.get(part), what, name)
    if head == "violation_share" and _is_positive(rest):
        return metrics.violation_share.get(f"{float(rest):g}")
    if head in ("counts", "share") and rest in {f.name for f in fields(MessageCounts)}:
        count = getattr(metrics.counts, rest)
        if head == "counts":
            return Estimate(value=count)
        return Estimate(value=count / metrics.counts.sent) if metrics.counts.sent else None
    raise _unknown(name)


def check_name(name: str) -> None:
    """Raise for a name that no run can have a figure for."""
    empty = RunMetrics(
        run="",
        seconds_measured=0,
        counts=MessageCounts(),
        lost_share=Estimate(value=0),
        duplicated_share=Estimate(value=0),
    )
    figure(empty, name)


def _of_distribution(distribution: Distribution | None, what: str, name: str) -> Estimate | None:
    percentile = what.removeprefix("p").removesuffix("_ms")
    is_percentile = what == f"p{percentile}_ms" and percentile in _PERCENTILES
    if what not in ("mean_ms", "deviation_ms", "min_ms", "max_ms") and not is_percentile:
        raise _unknown(name)
    if distribution is None:
        return None
    if is_percentile:
        return distribution.percentiles_ms.get(percentile)
    value = getattr(distribution, what)
    return value if isinstance(value, Estimate) else Estimate(value=value)


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def _unknown(name: str) -> FieldError:
    return FieldError("figure", name, f"is not a figure; examples: {', '.join(_EXAMPLES)}")
