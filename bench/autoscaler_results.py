"""The bench of the autoscaler: keys of the JSON and rows of the table, from what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from autoscaler_plays import KAFKA, SINK_BYTES_PER_S, Play
from harness import Figure, Row
from penstock.domain.errors import PenstockError


def results(
    plays: Mapping[str, Sequence[Play]], is_judged: bool
) -> tuple[dict[str, Any], list[Row]]:
    ours = plays["ours"]
    better = min(KAFKA, key=lambda name: statistics.median(p.p99_ms for p in plays[name]))

    def ratio(name: str, of: Callable[[Play], float]) -> Figure:
        pairs = zip(plays[name], ours, strict=True)
        return Figure.of([of(theirs) / of(own) for theirs, own in pairs])

    vs_kafka = ratio(better, lambda play: play.p99_ms)
    vs_lag = ratio("lag", lambda play: play.p99_ms)
    cost = ratio("lag", lambda play: play.lane_s)
    cost_kafka = ratio(better, lambda play: play.lane_s)
    keys: dict[str, Any] = {
        "p99_ratio_vs_kafka": vs_kafka.median,
        "p99_ratio_vs_kafka_spread": vs_kafka,
        "p99_ratio_vs_lag_scaler": vs_lag.median,
        "p99_ratio_vs_lag_scaler_spread": vs_lag,
        "cost_ratio": cost.median,
        "cost_ratio_spread": cost,
        "cost_ratio_vs_kafka": cost_kafka.median,
        "plays": {
            name: [
                {k: v for k, v in asdict(play).items() if not isinstance(v, list)}
                for play in of_policy
            ]
            for name, of_policy in plays.items()
        },
    }
    rows = []
    for name, of_policy in plays.items():
        p50, p99 = (Figure.of([getattr(p, f) for p in of_policy]) for f in ("p50_ms", "p99_ms"))
        lanes, lane_s = (Figure.of([getattr(p, f) for p in of_policy]) for f in ("lanes", "lane_s"))
        left = sum(play.left for play in of_policy)
        rows.append(
            Row(
                f"{name}: p50, p99; lanes; cost",
                f"{p50.median:,.0f} ms, {p99.median:,.0f} ms "
                f"[{p99.lowest:,.0f}, {p99.highest:,.0f}]; "
                f"{lanes.median:.1f}; {lane_s.median:,.0f} lane-s"
                + (f"; {left:,} not landed" if left else ""),
            )
        )
    saturated = [
        speed for of_policy in plays.values() for play in of_policy for speed in play.saturated
    ]
    cycles = sum(play.cycles for of_policy in plays.values() for play in of_policy)
    if not saturated:
        raise PenstockError("no lane was ever at its limit")
    low, middle, high = (float(np.percentile(saturated, p)) / 1000 for p in (5, 50, 95))
    keys |= {"saturated_cycles": len(saturated), "cycles": cycles, "saturated_kb_per_s": middle}
    rows += [
        Row(
            f"p99_ratio_vs_kafka ({better})",
            vs_kafka,
            "≥ 10",
            vs_kafka.median >= 10 if is_judged else None,
        ),
        Row("p99_ratio_vs_lag_scaler", vs_lag),
        Row("cost_ratio (lag scaler / ours)", cost),
        Row("cost_ratio_vs_kafka", cost_kafka),
        Row("cycles in which a lane was saturated", f"{len(saturated):,} of {cycles:,}"),
        Row(
            "… and what it did, kB/s, p50 [p5, p95]",
            f"{middle:.0f} [{low:.0f}, {high:.0f}]; its sink takes {SINK_BYTES_PER_S / 1000:.0f}",
        ),
    ]
    return keys, rows


def delays(
    ours: Sequence[Play], consumers: Sequence[float], executors: Sequence[float]
) -> tuple[dict[str, Any], list[Row]]:
    keys: dict[str, Any] = {}
    rows = []
    for key, text, values, limit, aim in (
        ("dt1_measure_s", "Δt1 measure, s", [s for p in ours for s in p.measure_s], 5.0, "≤ 5"),
        ("dt2_decide_s", "Δt2 decide, s", [s for p in ours for s in p.decide_s], 0.1, "< 0.1"),
        ("dt3_start_consumer_s", "Δt3 start, a consumer, s", consumers, 10.0, "≤ 10"),
        ("dt3_start_executor_s", "Δt3 start, an executor, s", executors, 10.0, "≤ 10"),
        ("dt4_hand_over_s", "Δt4 hand over, s", [s for p in ours for s in p.hand_over_s], None, ""),
        (
            "dt4_hand_over_batches",
            "Δt4 hand over, micro-batches",
            [float(n) for p in ours for n in p.hand_over_batches],
            2.0,
            "≤ 2",
        ),
    ):
        if not values:
            raise PenstockError(f"{text}: nothing was observed")
        quantiles = {f"p{p}": float(np.percentile(values, p)) for p in (5, 25, 50, 75, 95, 99)}
        keys |= {key: Figure.of(values), f"{key}_quantiles": quantiles}
        met = None if limit is None else quantiles["p50"] <= limit
        percentiles = ", ".join(f"{quantiles[p]:.3g}" for p in ("p50", "p95", "p99"))
        rows.append(Row(f"{text}: p50, p95, p99 of {len(values)}", percentiles, aim, met))
    return keys, rows
