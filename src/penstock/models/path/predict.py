"""Predict a run: the whole distribution of its latencies, with intervals, or that it has none.

An interval holds what errors on left-out runs were (`PathModel.scatter`), or, where it is more, what
fits of other parts of the calibration disagree by (`PathModel.others`: far from the calibration they
do). Errors differ by what a latency consists of: waits that follow from settings and links (`linger.ms`,
delays, full windows) are known well, what machines take is not. So scatter is given for each of the
two, and a prediction's own mix decides.

Above its capacity a system has no latency, only a queue that grows: then the answer is the rate
below which it would not (`Saturated`). A load that takes more than `MOST_CPU_SHARE` of the cores
counts as saturated too, since machines near their limit do not repeat themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from scipy.special import ndtri, stdtrit

from penstock.domain.errors import BadInput
from penstock.domain.metrics import Estimate
from penstock.domain.run import RunSpec
from penstock.domain.value import Bound, Doc, Value
from penstock.models.path.case import LATENCIES, Case, counted, latency_ms
from penstock.models.path.physics import Physics
from penstock.models.path.simulate import PathTimes
from penstock.models.path.spec import ClientName, Floats, SimulatedMachines

PERCENTS = (10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
# From this percentile on, a few pauses and bursts decide.
TAIL_FROM = 95.0
# Above this share of all cores a prediction would be a guess (FACTS: repeats differ by a third).
MOST_CPU_SHARE = 0.85
# Enough for a p99 within a few per cent.
MESSAGES = 20_000
# A queue grows if its latency at the end is this many times that in the middle, and at least this.
_GROWTH, _GROWTH_S = 1.5, 0.05
_CONFIDENCE = 0.9
_BISECTIONS, _LIMIT_MESSAGES = 8, 3_000
# With fewer, there is no p99.
_LEAST_MESSAGES = 100
# Shares of messages at which a distribution is kept: by half percents, and finer in its tail.
CURVE_SHARES = np.concatenate([np.linspace(0, 0.99, 199), np.linspace(0.99, 1, 101)[1:]])
# What machines are when they cost nothing: only settings and links are left.
_FREE = Physics()


@dataclass(frozen=True, kw_only=True)
class Scatter(Value):
    """Standard deviations of a prediction's errors, relative to each part of the latency."""

    machine: Annotated[float, Bound(ge=0), Doc("of what machines take")] = 0.0
    settings: Annotated[float, Bound(ge=0), Doc("of what follows from settings and links")] = 0.0

    def of_ms(self, value_ms: float, settings_ms: float) -> float:
        """The standard deviation of a latency of which so much follows from settings."""
        settings_ms = min(value_ms, settings_ms)
        return float(np.hypot(self.machine * (value_ms - settings_ms), self.settings * settings_ms))


@dataclass(frozen=True, kw_only=True)
class LatencyScatter(Value):
    """Of one latency: of its mean and lower percentiles, and of its tail."""

    body: Scatter = field(default_factory=Scatter)
    tail: Scatter = field(default_factory=Scatter)

    def at(self, percent: float | None) -> Scatter:
        """None: of the mean."""
        return self.tail if percent is not None and percent >= TAIL_FROM else self.body


@dataclass(frozen=True, kw_only=True)
class PathModel(Value):
    """Fitted physics of one machine and cluster."""

    physics: Physics
    cores: Annotated[int, Bound(ge=0), Doc("of the machine, or of each host; 0: no limit")] = 0
    is_shared: Annotated[bool, Doc("brokers and clients share one machine")] = True
    others: Annotated[
        tuple[Physics, ...], Doc("fits of parts of the calibration: the uncertainty")
    ] = ()
    scatter: Annotated[
        Mapping[str, LatencyScatter], Doc("latency → what is left of errors on left-out runs")
    ] = field(default_factory=dict)
    runs: Annotated[int, Bound(ge=0), Doc("that scatter was found with; 0: normal errors")] = 0

    @property
    def machines(self) -> SimulatedMachines:
        return SimulatedMachines(self.cores, self.is_shared)

    @property
    def deviations(self) -> float:
        """So many standard deviations on each side hold 90 %; more if they rest on few runs."""
        share = (1 + _CONFIDENCE) / 2
        # Student's t.
        return float(stdtrit(self.runs - 1, share) if self.runs > 1 else ndtri(share))


@dataclass(frozen=True, kw_only=True)
class PredictedLatency(Value):
    """A predicted distribution, with 90 % intervals."""

    mean_ms: Estimate
    percentiles_ms: Annotated[Mapping[str, Estimate], Doc("'50', '99', …")]
    curve_ms: Annotated[
        tuple[float, ...],
        Doc("times that 0, 0.5, 1 … 99, 99.01 … 100 % of messages are not later than"),
    ] = ()

    def late_share(self, limit_ms: float) -> float:
        """η_v(ζ): the share of messages that are later than the limit."""
        return float(1 - np.interp(limit_ms, self.curve_ms, CURVE_SHARES, left=0.0, right=1.0))


@dataclass(frozen=True, kw_only=True)
class Saturated(Value):
    """The load exceeds what the path can carry."""

    offered_per_s: float
    limit_per_s: Annotated[float, Doc("messages/s below which latency is bounded")]
    reason: str
    grows: Annotated[bool, Doc("a queue grows; false: the machine is too busy to predict it")] = (
        True
    )

    def __str__(self) -> str:
        what = "the queue grows without bound" if self.grows else "latency cannot be predicted"
        return (
            f"{what} above {self.limit_per_s:,.0f} messages/s "
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
    client: ClientName = "librdkafka",
    compression_ratio: float = 1.0,
    messages: int = MESSAGES,
    seed: int = 1,
) -> Prediction | Saturated:
    """Predict the run, or say that its load is too high. `messages`: how many to simulate."""

    def case(rate_share: float = 1.0, messages: int = messages) -> Case:
        return Case.of(
            run,
            messages,
            client=client,
            compression_ratio=compression_ratio,
            rate_share=rate_share,
            seed=seed,
        )

    here = case()
    if here.arrivals.due_s.size < _LEAST_MESSAGES:
        rate_per_s = run.workload.messages_per_s
        raise BadInput(
            f"{rate_per_s:g} messages/s: too few for percentiles, {here.arrivals.due_s.size} in "
            "two minutes",
            "predict at 1 message/s or more",
        )
    times = here.simulate(model.physics, model.machines, seed)
    if (reason := _overload(model, times)) is not None:
        offered_per_s = run.workload.messages_per_s
        limit_per_s = _done_per_s(times)
        if _takes_too_much(model, times):
            low, high = 0.0, 1.0
            for _ in range(_BISECTIONS):
                share = (low + high) / 2
                slower = case(share, min(messages, _LIMIT_MESSAGES)).simulate(
                    model.physics, model.machines, seed
                )
                low, high = (low, share) if _takes_too_much(model, slower) else (share, high)
            limit_per_s = min(limit_per_s, low * offered_per_s)
        used = cpu_share(model, times)
        return Saturated(
            offered_per_s=offered_per_s,
            limit_per_s=limit_per_s,
            reason=reason,
            # Below all cores no queue need grow, but machines that busy do not repeat themselves.
            grows=not (_takes_too_much(model, times) and used is not None and used < 1),
        )
    others = [here.simulate(physics, model.machines, seed) for physics in model.others]
    free = here.simulate(_FREE, SimulatedMachines(), seed) if model.scatter else None
    which = counted(times)
    span_s = float(times.due_s[-1])
    return Prediction(
        latencies={
            name: _latency(
                model,
                name,
                latency_ms(times, name),
                [latency_ms(other, name) for other in others],
                None if free is None else latency_ms(free, name),
            )
            for name in LATENCIES
        },
        parts_ms={
            name: float(1000 * np.nanmean(part[which])) for name, part in times.parts_s.items()
        },
        messages_per_s=times.due_s.size / span_s,
        requests_per_s=times.requests / span_s,
        batch_messages=times.due_s.size / times.requests,
        cpu_share=cpu_share(model, times),
    )


def cpu_share(model: PathModel, times: PathTimes) -> float | None:
    """The used share of the cores; None if cores are not modelled."""
    if model.cores == 0:
        return None
    # The busiest machine decides.
    return float(times.cpu_s.max() / model.cores / times.due_s[-1])


def _takes_too_much(model: PathModel, times: PathTimes) -> bool:
    share = cpu_share(model, times)
    return share is not None and share > MOST_CPU_SHARE


def _done_per_s(times: PathTimes) -> float:
    """Messages acknowledged per second while a queue grows: what the path can carry."""
    begin_s, end_s = times.due_s[-1] / 2, times.due_s[-1]
    done = np.count_nonzero((times.answered_s > begin_s) & (times.answered_s <= end_s))
    return float(done / (end_s - begin_s))


def _overload(model: PathModel, times: PathTimes) -> str | None:
    """Why latency would not be bounded; None if it is."""
    if _takes_too_much(model, times):
        share = cpu_share(model, times)
        return f"it would take {share:.0%} of the cores, and predictions hold up to {MOST_CPU_SHARE:.0%}"
    if np.any(np.isnan(times.answered_s)) or np.any(np.isnan(times.received_s)):
        return "messages wait longer than the simulated time"
    thirds = np.array_split(times.end_to_end_s[counted(times)], 3)
    middle, last = (float(np.median(part)) for part in thirds[1:])
    if last > _GROWTH * middle and last - middle > _GROWTH_S:
        return f"latency would grow from {1000 * middle:,.0f} to {1000 * last:,.0f} ms"
    return None


def statistic(values_ms: Floats, percent: float | None) -> float:
    """The mean (None) or a percentile."""
    return float(np.mean(values_ms) if percent is None else np.percentile(values_ms, percent))


def _latency(
    model: PathModel,
    name: str,
    best_ms: Floats,
    others_ms: Sequence[Floats],
    free_ms: Floats | None,
) -> PredictedLatency:
    """`free_ms`: the same on machines that cost nothing."""

    def estimate(percent: float | None) -> Estimate:
        best = statistic(best_ms, percent)
        # The jackknife: each of the others lacks one part of the calibration.
        others = [statistic(ms, percent) for ms in others_ms]
        deviation = float(np.std(others) * np.sqrt(len(others) - 1)) if others else 0.0
        if free_ms is not None and name in model.scatter:
            scatter = model.scatter[name].at(percent)
            deviation = max(deviation, scatter.of_ms(best, statistic(free_ms, percent)))
        if deviation == 0 or best <= 0:
            return Estimate(value=best)
        factor = float(np.exp(model.deviations * deviation / best))
        return Estimate(value=best, low=best / factor, high=best * factor)

    return PredictedLatency(
        mean_ms=estimate(None),
        percentiles_ms={f"{percent:g}": estimate(percent) for percent in PERCENTS},
        curve_ms=tuple(np.quantile(best_ms, CURVE_SHARES).tolist()),
    )
