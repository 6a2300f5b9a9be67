"""What a closed loop hides: it sends nothing while it waits, so slow answers count too rarely."""

from __future__ import annotations

from penstock.domain.arrivals import ConstantArrivals
from penstock.domain.metrics import PERCENTS, Distribution, Estimate
from penstock.domain.workload import Workload
from penstock.stats.histogram import Histogram

_NS_TO_MS = 1e-6


def corrected(workload: Workload, recorded: Histogram | None) -> Distribution | None:
    """The answer times of a closed loop, corrected for coordinated omission; None: not possible.

    The correction needs the interval that the loop would have kept. Only constant arrivals have
    one; and a loop whose answers mostly take longer than it sends as fast as it can, and has no
    schedule. Without confidence intervals: what is added was not observed.
    """
    arrivals = workload.arrivals
    if recorded is None or workload.loop == "open" or not isinstance(arrivals, ConstantArrivals):
        return None
    interval_ns = round(1e9 / arrivals.rate_per_s)
    if 2 * recorded.count_at_most(interval_ns) < recorded.count:
        return None
    whole = recorded.corrected(interval_ns)
    values = zip(PERCENTS, whole.percentiles(PERCENTS), strict=True)
    return Distribution(
        count=whole.count,
        mean_ms=Estimate(value=whole.mean_ns * _NS_TO_MS),
        deviation_ms=whole.deviation_ns * _NS_TO_MS,
        percentiles_ms={f"{p:g}": Estimate(value=v * _NS_TO_MS) for p, v in values},
        min_ms=whole.min_ns * _NS_TO_MS,
        max_ms=whole.max_ns * _NS_TO_MS,
        buckets=whole.to_buckets(),
    )
