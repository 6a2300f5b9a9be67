"""Predict a run: the whole distribution of its latencies, with intervals, or that it has none.

A model's physics are known with an uncertainty: `PathModel.others` are physics that fit the
calibration as well, and `PathModel.scatter` is what is left of its errors. An interval holds both.

Above its capacity a system has no latency, only a queue that grows: then the answer is the rate
below which it would not (`Saturated`). A load that takes more than `MOST_CPU_SHARE` of the cores
counts as saturated too, since machines near their limit do not repeat themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from penstock.domain.metrics import Estimate
from penstock.domain.run import RunSpec
from penstock.domain.value import Bound, Doc, Value
from penstock.models.path.from_run import path_arrivals, path_lines, path_spec
from penstock.models.path.physics import Physics
from penstock.models.path.simulate import PathTimes, simulate
from penstock.models.path.spec import Floats, Machines

PERCENTS = (10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
LATENCIES = ("produce", "commit", "end_to_end")
# Above this share of all cores a prediction would be a guess (FACTS: repeats differ by a third).
MOST_CPU_SHARE = 0.85
# Simulated beforehand, so that queues are as long as they get.
_LEAD_S = 1.0
# Enough for a p99 within a few per cent.
_MESSAGES = 20_000
_LEAST_S, _MOST_S = 5.0, 120.0
# A queue grows if its latency at the end is this many times that in the middle, and at least this.
_GROWTH, _GROWTH_S = 1.5, 0.05
# Of a normal distribution, 90 % lie within this many standard deviations.
_Z = 1.645
_BISECTIONS = 12


@dataclass(frozen=True, kw_only=True)
class PathModel(Value):
    """Fitted physics of one machine and cluster."""

    physics: Physics
    cores: Annotated[int, Bound(ge=0), Doc("of the machine, or of each host; 0: no limit")] = 0
    is_shared: Annotated[bool, Doc("brokers and clients share one machine")] = True
    others: Annotated[
        tuple[Physics, ...], Doc("physics that fit the calibration as well: the uncertainty")
    ] = ()
    scatter: Annotated[
        Mapping[str, float],
        Doc("latency → standard deviation of ln(measured / predicted) in the calibration"),
    ] = field(default_factory=dict)

    @property
    def machines(self) -> Machines:
        return Machines(self.cores, self.is_shared)


@dataclass(frozen=True, kw_only=True)
class PredictedLatency(Value):
    """A predicted distribution, with 90 % intervals."""

    mean_ms: Estimate
    percentiles_ms: Annotated[Mapping[str, Estimate], Doc("'50', '99', …")]
    curve_ms: Annotated[
        tuple[float, ...], Doc("times that 0, 0.5, 1 … 100 % of messages are not later than")
    ] = ()

    def late_share(self, limit_ms: float) -> float:
        """η_v(ζ): the share of messages that are later than the limit."""
        shares = np.linspace(0, 1, len(self.curve_ms))
        return float(1 - np.interp(limit_ms, self.curve_ms, shares, left=0.0, right=1.0))


@dataclass(frozen=True, kw_only=True)
class Saturated(Value):
    """The load exceeds what the path can carry."""

    offered_per_s: float
    limit_per_s: Annotated[float, Doc("messages/s below which latency is bounded")]
    reason: str

    def __str__(self) -> str:
        return (
            f"the queue grows without bound above {self.limit_per_s:,.0f} messages/s "
            f"({self.offered_per_s:,.0f} offered): {self.reason}"
        )


@dataclass(frozen=True, kw_only=True)
class Prediction(Value):
    """What a run would measure."""

    latencies: Annotated[Mapping[str, PredictedLatency], Doc("produce, commit, end_to_end")]
    parts_ms: Annotated[
        Mapping[str, float], Doc("mean of each part of the end-to-end latency; they add up")
    ]
    messages_per_s: float
    requests_per_s: float
    batch_messages: Annotated[float, Doc("mean, by request")]
    cpu_share: Annotated[float | None, Doc("of all cores; none if cores are not modelled")] = None


def predict(
    model: PathModel,
    run: RunSpec,
    *,
    compression_ratio: float = 1.0,
    messages: int = _MESSAGES,
    seed: int = 1,
) -> Prediction | Saturated:
    """Predict the run, or say that its load is too high. `messages`: how many to simulate."""

    def simulated(physics: Physics, seed: int, rate_share: float = 1.0) -> PathTimes:
        rate_per_s = rate_share * run.workload.messages_per_s
        seconds = min(_MOST_S, max(_LEAST_S, messages / rate_per_s)) + _LEAD_S
        return simulate(
            path_spec(run),
            path_arrivals(
                run,
                seconds,
                compression_ratio=compression_ratio,
                rate_share=rate_share,
                seed=seed,
            ),
            physics,
            lines=path_lines(run, seed),
            machines=model.machines,
            seed=seed,
        )

    times = simulated(model.physics, seed)
    if (reason := _overload(model, times)) is not None:
        offered_per_s = run.workload.messages_per_s
        limit_per_s = _done_per_s(times)
        if _takes_too_much(model, times):
            low, high = 0.0, 1.0
            for _ in range(_BISECTIONS):
                share = (low + high) / 2
                is_over = _takes_too_much(model, simulated(model.physics, seed, share))
                low, high = (low, share) if is_over else (share, high)
            limit_per_s = min(limit_per_s, low * offered_per_s)
        return Saturated(offered_per_s=offered_per_s, limit_per_s=limit_per_s, reason=reason)
    others = [simulated(physics, seed + 1 + n) for n, physics in enumerate(model.others)]
    counted = _counted(times)
    span_s = float(times.due_s[-1])
    return Prediction(
        latencies={
            name: _latency(
                _latency_ms(times, name),
                [_latency_ms(other, name) for other in others],
                model.scatter.get(name, 0.0),
            )
            for name in LATENCIES
        },
        parts_ms={
            name: float(1000 * np.nanmean(part[counted])) for name, part in times.parts_s.items()
        },
        messages_per_s=times.due_s.size / span_s,
        requests_per_s=times.requests / span_s,
        batch_messages=times.due_s.size / times.requests,
        cpu_share=_cpu_share(model, times),
    )


def _counted(times: PathTimes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(times.due_s >= _LEAD_S)


def _latency_ms(times: PathTimes, name: str) -> Floats:
    seconds = {
        "produce": times.produce_s,
        "commit": times.append_to_readable_s,
        "end_to_end": times.end_to_end_s,
    }[name]
    return 1000 * seconds[_counted(times)]


def _cpu_share(model: PathModel, times: PathTimes) -> float | None:
    if model.cores == 0:
        return None
    # The busiest machine decides.
    return float(times.cpu_s.max() / model.cores / times.due_s[-1])


def _takes_too_much(model: PathModel, times: PathTimes) -> bool:
    share = _cpu_share(model, times)
    return share is not None and share > MOST_CPU_SHARE


def _done_per_s(times: PathTimes) -> float:
    """Messages acknowledged per second while a queue grows: what the path can carry."""
    begin_s, end_s = times.due_s[-1] / 2, times.due_s[-1]
    done = np.count_nonzero((times.answered_s > begin_s) & (times.answered_s <= end_s))
    return float(done / (end_s - begin_s))


def _overload(model: PathModel, times: PathTimes) -> str | None:
    """Why latency would not be bounded; None if it is."""
    if _takes_too_much(model, times):
        return f"it would take {_cpu_share(model, times):.0%} of the cores"
    if np.any(np.isnan(times.answered_s)) or np.any(np.isnan(times.received_s)):
        return "messages wait longer than the simulated time"
    thirds = np.array_split(times.end_to_end_s[_counted(times)], 3)
    middle, last = (float(np.median(part)) for part in thirds[1:])
    if last > _GROWTH * middle and last - middle > _GROWTH_S:
        return f"latency would grow from {1000 * middle:,.0f} to {1000 * last:,.0f} ms"
    return None


def _latency(best_ms: Floats, others_ms: Sequence[Floats], scatter: float) -> PredictedLatency:
    def estimate(values: Sequence[float]) -> Estimate:
        """The first is the best; the others show how it varies with what the fit leaves open."""
        best = values[0]
        logs = np.log(np.maximum(values[1:], 1e-9) / max(best, 1e-9)) if len(values) > 1 else []
        spread = float(np.hypot(np.std(logs) if len(logs) > 1 else 0.0, scatter))
        if spread == 0:
            return Estimate(value=best)
        factor = float(np.exp(_Z * spread))
        return Estimate(value=best, low=best / factor, high=best * factor)

    every = [best_ms, *others_ms]
    return PredictedLatency(
        mean_ms=estimate([float(np.mean(ms)) for ms in every]),
        percentiles_ms={
            f"{percent:g}": estimate([float(np.percentile(ms, percent)) for ms in every])
            for percent in PERCENTS
        },
        curve_ms=tuple(np.quantile(best_ms, np.linspace(0, 1, 201)).tolist()),
    )
