"""The bench of the autoscaler: the simulator, calibrated by the plays that were measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autoscaler_plays import (
    BEGIN_LANES,
    KAFKA,
    SINK_BYTES_PER_S,
    SIZE_BYTES,
    Play,
    Trace,
    settings,
)
from harness import Row
from penstock.autoscaler.core.simulator import Rig, Simulated, simulate

SIMULATED_PARTITIONS = 500


def calibrated(plays: Sequence[Play]) -> Rig:
    """A line through what micro-batches took, by their lanes."""
    seen = [batch for play in plays for batch in play.fixed_s]
    by_lanes = {
        n: statistics.median(s for lanes, s in seen if lanes == n) for n in {n for n, _ in seen}
    }
    weights = [sum(1 for lanes, _ in seen if lanes == n) for n in by_lanes]
    per_lane_s, fixed_s = np.polyfit([*by_lanes], [*by_lanes.values()], 1, w=np.sqrt(weights))
    if per_lane_s < 0:  # noise: more lanes cannot cost less
        per_lane_s, fixed_s = 0.0, statistics.median(s for _, s in seen)
    return Rig(
        lane_limit_bytes_per_s=SINK_BYTES_PER_S,
        lane_bytes=SINK_BYTES_PER_S,
        record_bytes=SIZE_BYTES,
        batch_s=float(fixed_s),
        batch_s_per_lane=float(per_lane_s),
        lanes=BEGIN_LANES,
    )


def simulated_play(
    name: str, trace: Trace, rig: Rig, lanes: int | None, **fields: Any
) -> Simulated:
    autoscaling = settings(
        "packing" if name == "ours" else name, lanes=lanes if name in KAFKA else None, **fields
    )
    return simulate(autoscaling, trace.shifts, trace.seconds, rig, trace.drain_s, trace.lead_s)


def compared(
    plays: Mapping[str, Sequence[Play]], simulated: Mapping[str, Sequence[Simulated]], rig: Rig
) -> tuple[dict[str, Any], list[Row]]:
    """Trace by trace."""
    keys: dict[str, Any] = {"simulator_rig": rig, "simulated": {}}
    rows = []
    for name, of_policy in simulated.items():
        pairs = list(zip(of_policy, plays[name], strict=True))
        keys["simulated"][name] = [
            {
                "p50_ms": 1000 * made.p50_s,
                "p99_ms": 1000 * made.p99_s,
                "lane_s": made.lane_s,
                "p99_over_real": 1000 * made.p99_s / real.p99_ms,
                "lane_s_over_real": made.lane_s / real.lane_s,
            }
            for made, real in pairs
        ]
        rows += [
            Row(
                f"simulated, {name}: p50, p99; cost (measured)",
                f"{1000 * made.p50_s:,.0f} ms ({real.p50_ms:,.0f}), "
                f"{1000 * made.p99_s:,.0f} ms ({real.p99_ms:,.0f}); "
                f"{made.lane_s:,.0f} lane-s ({real.lane_s:,.0f})",
            )
            for made, real in pairs
        ]
    return keys, rows


def large(rig: Rig, trace: Trace) -> tuple[dict[str, Any], list[Row]]:
    """As many partitions as no machine here has lanes for, on a cluster with a core for every lane:
    a micro-batch takes as long there as one of a few lanes does here."""
    rig = replace(
        rig,
        batch_s=rig.batch_s + BEGIN_LANES * rig.batch_s_per_lane,
        batch_s_per_lane=0.0,
        lanes=SIMULATED_PARTITIONS // 4,
    )
    keys: dict[str, Any] = {}
    rows = []
    lanes: int | None = None
    for name in ("ours", *KAFKA, "lag", "hpa"):
        play = simulated_play(name, trace, rig, lanes, most_lanes=SIMULATED_PARTITIONS)
        if name == "ours":
            lanes = math.ceil(play.lane_s / trace.counted_s)
        keys[name] = {
            "p50_ms": 1000 * play.p50_s,
            "p99_ms": 1000 * play.p99_s,
            "lane_s": play.lane_s,
            "decisions": len(play.decisions),
            "moves": sum(decided.moves for decided in play.decisions),
        }
        rows.append(
            Row(
                f"simulated, {SIMULATED_PARTITIONS} partitions, {name}: p50, p99; lanes; cost",
                f"{1000 * play.p50_s:,.0f} ms, {1000 * play.p99_s:,.0f} ms; "
                f"{play.lane_s / trace.counted_s:.1f}; {play.lane_s:,.0f} lane-s",
            )
        )
    return {f"simulated_{SIMULATED_PARTITIONS}": keys}, rows
