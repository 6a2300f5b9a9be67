"""Fit the physics of a machine and its cluster to measured runs.

Counters say what requests, messages and bytes cost on average (`costs`). What they do not say is
fitted to the measured latencies and CPU, by least squares over simulations of the runs: the
parameters of `_FREE`. Simulations of a fit draw the same random numbers, so that its steps are not
lost in noise.

Then runs are left out in turn, and predicted by a fit of the others. The spread of these errors is
the model's scatter, and the fits show what the calibration leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.optimize import nnls

from penstock.domain.broker_view import RequestClass
from penstock.domain.errors import BadInput
from penstock.domain.value import Doc, Value
from penstock.models.costs import Costs, costs, used_cores
from penstock.models.observation import Observation
from penstock.models.path.case import LATENCIES, Case, latency_ms
from penstock.models.path.physics import Physics
from penstock.models.path.predict import (
    TAIL_FROM,
    LatencyScatter,
    PathModel,
    Scatter,
    cpu_share,
    statistic,
)
from penstock.models.path.simulate import PathTimes
from penstock.models.path.spec import Floats, SimulatedMachines
from penstock.models.workers import LocalWorkers, WorkerFactory, Workers
from penstock.stats.noisy_fit import least_squares

Say = Callable[[str], object]

LEAST_RUNS = 3
# At most so many fits with runs left out: of many runs, several are left out at once.
_FOLDS = 8
# What a fit looks at (None: the mean), with the error that repeats of a run have.
# (In a short run few pauses decide its p99.)
_ERRORS: Mapping[float | None, float] = {None: 0.05, 50.0: 0.05, 90.0: 0.08, 99.0: 0.25}
# Append times are whole milliseconds: of the time from append to visible only the mean is used.
_MEAN_ONLY = {"commit"}
_CPU_ERROR = 0.1
# A message that is not received within the simulated time was this late.
_NEVER_MS = 60_000.0
_MESSAGES = 6_000
_SEED = 1
# Rounds of a fit: how far it looks, as a standard deviation of logarithms.
_RADII, _RADII_AGAIN = (0.6, 0.4, 0.3, 0.2, 0.15, 0.1), (0.3, 0.15)
# How far parameters are from the usual: a standard deviation of logarithms.
_USUAL = 1.5
# Of the CPU of a request before its answer is out: to handle it, the rest to answer.
_HANDLING = 2 / 3
# An error is never less than this, however well a few runs were met.
_LEAST_SCATTER = Scatter(machine=0.05, settings=0.01)


@dataclass(frozen=True)
class _Free:
    """A parameter that is fitted, by its logarithm."""

    name: str
    start: float
    low: float
    high: float


_FREE = (
    # s until a thread runs that has something to do.
    _Free("wake", 4e-5, 1e-6, 2e-3),
    # Standard deviation of the logarithm of CPU times.
    _Free("spread", 0.8, 0.02, 1.5),
    # CPU time of a process that did nothing for long, s until it is cold, s of CPU until it is warm.
    _Free("cold", 2.5, 1.0, 6.0),
    _Free("cooling", 5e-3, 1e-4, 5e-2),
    _Free("warming", 5e-4, 1e-6, 1e-2),
    # All costs of CPU, relative to what counters say on average: of warm processes.
    _Free("scale", 0.55, 0.15, 1.3),
    # The share of CPU that is spent before a result is out.
    _Free("before", 0.8, 0.15, 1.0),
    # What a produce request costs, relative to the mean of all requests.
    _Free("produce", 0.6, 0.2, 3.0),
    # The follower's share of what a follower's fetch costs.
    _Free("append", 0.15, 0.03, 0.9),
    # CPU time while the other cores work.
    _Free("contention", 1.3, 1.0, 2.5),
    # s of a piece of work in the background.
    _Free("burst", 1e-3, 5e-5, 3e-2),
)
# Of brokers that nobody could look at: what a request costs them, and how far away they are.
_UNSEEN = (
    _Free("request", 2e-4, 1e-6, 2e-2),
    _Free("client_delay", 1e-4, 1e-6, 0.5),
    _Free("broker_delay", 1e-4, 1e-6, 0.5),
)


@dataclass(frozen=True, kw_only=True)
class LeftOutRun(Value):
    """How a run was predicted by a model that was fitted without it."""

    run: str
    errors: Annotated[
        Mapping[str, Mapping[str, float]],
        Doc("latency → mean, 50, 90, 99 → ln(measured / predicted)"),
    ]


@dataclass(frozen=True)
class Calibration:
    """A fitted model, and how good it is."""

    model: PathModel
    left_out: tuple[LeftOutRun, ...]


def fit(
    observations: Sequence[Observation],
    *,
    cores: int,
    is_shared: bool = True,
    start_workers: WorkerFactory = LocalWorkers,
    say: Say = lambda _: None,
) -> Calibration:
    """Fit a model to measured runs. `start_workers`: where they are simulated."""
    if len(observations) < LEAST_RUNS:
        raise BadInput(
            f"{len(observations)} runs are too few to fit a model",
            f"measure at least {LEAST_RUNS} that differ in load, acks and batching",
        )
    machines = SimulatedMachines(cores, is_shared)
    say(f"fitting the path of messages to {len(observations)} runs")
    fitting = _Fitting(observations, start_workers(observations, _Run.of), machines)
    every = range(len(observations))
    best = fitting.best(every, None, _RADII)
    folds = [every[number::_FOLDS] for number in range(min(_FOLDS, len(every)))]
    others: list[Physics] = []
    misses: dict[int, list[_Miss]] = {}
    for number, fold in enumerate(folds):
        say(f"checking the fit on runs that are left out: {number + 1} of {len(folds)}")
        rest = [one for one in every if one not in fold]
        other = _physics(fitting.counted(rest), fitting.best(rest, best, _RADII_AGAIN))
        others.append(other)
        misses |= zip(fold, fitting.misses(fold, other), strict=True)
    in_order = [misses[number] for number in every]
    model = PathModel(
        physics=_physics(fitting.counted(every), best),
        cores=cores,
        is_shared=is_shared,
        others=tuple(others),
        scatter=_scatter([miss for of_run in in_order for miss in of_run]),
        runs=len(every),
    )
    left_out = (
        LeftOutRun(run=seen.run, errors=_by_latency(of_run))
        for seen, of_run in zip(observations, in_order, strict=True)
    )
    return Calibration(model, tuple(left_out))


def errors(model: PathModel, one: Observation) -> dict[str, dict[str, float]]:
    """Latency → statistic → ln(measured / predicted), of a run that the model may not have seen."""
    run = _Run.of(one)
    return _by_latency(_misses(run, run.simulate(model.physics, model.machines)))


# --- runs and their simulations ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Run:
    """An observation, ready to be simulated."""

    seen: Observation
    case: Case
    # On machines that cost nothing: what follows from settings and links.
    free: PathTimes

    @classmethod
    def of(cls, seen: Observation) -> _Run:
        case = Case.of(seen.spec, _MESSAGES, compression_ratio=seen.compression_ratio, seed=_SEED)
        return cls(seen, case, case.simulate(Physics(), SimulatedMachines(), _SEED))

    def simulate(self, physics: Physics, machines: SimulatedMachines) -> PathTimes:
        return self.case.simulate(physics, machines, _SEED)


@dataclass(frozen=True)
class _Miss:
    """A measured statistic beside its prediction; `free_ms`: what settings and links alone take."""

    latency: str
    percent: float | None
    measured_ms: float
    predicted_ms: float
    free_ms: float

    @property
    def log(self) -> float:
        return float(np.log(max(self.measured_ms, 1e-6) / max(self.predicted_ms, 1e-6)))


def _misses(run: _Run, times: PathTimes) -> list[_Miss]:
    misses = []
    for name in LATENCIES:
        if (measured := run.seen.latencies.get(name)) is None:
            continue
        values, free = (
            np.nan_to_num(latency_ms(one, name), nan=_NEVER_MS) for one in (times, run.free)
        )
        for percent in [None] if name in _MEAN_ONLY else _ERRORS:
            seen = measured.mean_ms if percent is None else measured.percentiles_ms[f"{percent:g}"]
            misses.append(
                _Miss(name, percent, seen, statistic(values, percent), statistic(free, percent))
            )
    return misses


def _by_latency(misses: Sequence[_Miss]) -> dict[str, dict[str, float]]:
    errors: dict[str, dict[str, float]] = {}
    for miss in misses:
        name = "mean" if miss.percent is None else f"{miss.percent:g}"
        errors.setdefault(miss.latency, {})[name] = miss.log
    return errors


# --- the fit -------------------------------------------------------------------------------------------


def _values(logs: Floats) -> dict[str, float]:
    names = [free.name for free in (*_FREE, *_UNSEEN)]
    return {name: float(np.exp(log)) for name, log in zip(names, logs, strict=False)}


@dataclass(frozen=True)
class _Fitting:
    """The runs of a fit, and who simulates them; runs are given by their numbers."""

    observations: Sequence[Observation]
    workers: Workers
    machines: SimulatedMachines

    def counted(self, runs: Sequence[int]) -> Costs:
        chosen = [self.observations[number] for number in runs]
        if self._sees_brokers and all(one.brokers is None for one in chosen):
            # Those left out were the only ones with a view of the brokers.
            return costs(self.observations)
        return costs(chosen)

    def misses(self, runs: Sequence[int], physics: Physics) -> list[list[_Miss]]:
        machines = self.machines
        return self.workers.each(
            lambda run: _misses(run, run.simulate(physics, machines)), list(runs)
        )

    def best(self, runs: Sequence[int], begin: Floats | None, radii: Sequence[float]) -> Floats:
        """The logarithms of the free parameters that explain the runs best."""
        free = _FREE if self._sees_brokers else (*_FREE, *_UNSEEN)
        known = self.counted(runs)
        usual = np.log([one.start for one in free])

        def residuals(points: Sequence[Floats]) -> Floats:
            rows = self._residuals(runs, [_physics(known, logs) for logs in points])
            # What the runs do not say stays as usual.
            return np.hstack([rows, (np.asarray(points) - usual) / _USUAL])

        return least_squares(
            residuals,
            usual if begin is None else begin,
            low=np.log([one.low for one in free]),
            high=np.log([one.high for one in free]),
            radii=radii,
        )

    @property
    def _sees_brokers(self) -> bool:
        return any(one.brokers is not None for one in self.observations)

    def _residuals(self, runs: Sequence[int], every: Sequence[Physics]) -> Floats:
        """A row for each physics: the errors of all runs."""
        machines = self.machines

        def of_run(run: _Run) -> Floats:
            return np.array([_residuals(run, physics, machines) for physics in every])

        return np.hstack(self.workers.each(of_run, list(runs)))


def _residuals(run: _Run, physics: Physics, machines: SimulatedMachines) -> Floats:
    """Errors of latencies and CPU, in units of what repeats differ by."""
    times = run.simulate(physics, machines)
    errors = [miss.log / _ERRORS[miss.percent] for miss in _misses(run, times)]
    share = cpu_share(PathModel(physics=physics, cores=machines.cores), times)
    used = used_cores(run.seen)
    # Only brokers and clients together fill the machine that they share.
    is_all = run.seen.brokers is not None and run.seen.producer_cores is not None
    if share is not None and machines.is_shared and is_all and used:
        errors.append(float(np.log(used / machines.cores / max(share, 1e-6))) / _CPU_ERROR)
    return np.asarray(errors)


def _physics(known: Costs, logs: Floats) -> Physics:
    """The costs, divided among the steps of the path."""
    value = _values(logs)
    scale, before = value["scale"], value["before"]
    part = scale * before
    request_s = value["request"] if known.broker_request_s is None else known.broker_request_s
    produce_share = known.request_shares.get(RequestClass.PRODUCE, 1 / 3)
    # The mean over all requests is known; if one class costs more, the others cost less.
    weight = min(value["produce"], 0.9 / max(produce_share, 1e-9))
    produce_s = part * weight * request_s
    fetch_s = part * request_s * (1 - weight * produce_share) / max(1e-9, 1 - produce_share)
    leader_s = (1 - value["append"]) * fetch_s
    client_s = part * known.producer_request_s
    return Physics(
        client_produce=scale * (known.producer_message_s or 0.0),
        client_request=client_s / 2,
        client_answer=client_s / 2,
        client_byte=part * known.producer_byte_s,
        broker_request=_HANDLING * produce_s,
        broker_answer=(1 - _HANDLING) * produce_s,
        broker_byte=part * known.broker_byte_s,
        follower_fetch=_HANDLING * leader_s,
        follower_answer=(1 - _HANDLING) * leader_s,
        follower_append=value["append"] * fetch_s,
        follower_byte=part * known.broker_byte_s,
        reader_fetch=_HANDLING * fetch_s,
        reader_answer=(1 - _HANDLING) * fetch_s,
        reader_request=part * known.consumer_request_s,
        reader_message=scale * (known.consumer_message_s or 0.0),
        wake=value["wake"],
        spread=value["spread"],
        cold=value["cold"],
        cooling=value["cooling"],
        warming=value["warming"],
        contention=value["contention"],
        client_delay=value.get("client_delay", 0.0),
        broker_delay=value.get("broker_delay", 0.0),
        after=(1 - before) / before,
        heap_request_bytes=known.heap_request_bytes,
        heap_per_byte=known.heap_per_byte,
        heap_young_bytes=known.heap_young_bytes,
        heap_pause=known.heap_pause_s,
        background_per_s=known.background_cores / value["burst"],
        background_burst=value["burst"],
    )


# --- what is left ----------------------------------------------------------------------------------------


def _scatter(misses: Sequence[_Miss]) -> dict[str, LatencyScatter]:
    """Latency → the standard deviations of its errors, by what a latency consists of."""
    scatter = {}
    for name in LATENCIES:
        of_one = [miss for miss in misses if miss.latency == name]
        tail = [m for m in of_one if m.percent is not None and m.percent >= TAIL_FROM]
        body = [m for m in of_one if m not in tail]
        if body:
            # Where there is no tail (one that cannot be measured), it is as its body.
            scatter[name] = LatencyScatter(body=_parts(body), tail=_parts(tail or body))
    return scatter


def _parts(misses: Sequence[_Miss]) -> Scatter:
    """Squared errors as a sum of two: of what machines take, and of what settings do."""
    predicted = np.array([miss.predicted_ms for miss in misses])
    settings = np.minimum(predicted, [miss.free_ms for miss in misses])
    machine = predicted - settings
    # By logarithms, so that twice too long is as wrong as half.
    squares = np.array([miss.log for miss in misses]) ** 2
    design = np.stack([(machine / predicted) ** 2, (settings / predicted) ** 2], axis=1)
    (of_machine, of_settings), _ = nnls(design, squares)
    return Scatter(
        machine=max(_LEAST_SCATTER.machine, float(np.sqrt(of_machine))),
        settings=max(_LEAST_SCATTER.settings, float(np.sqrt(of_settings))),
    )
