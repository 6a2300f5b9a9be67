"""Fit the physics of a machine and its cluster to measured runs.

What counters show is taken from them: CPU per request, message and byte of clients and brokers, and
garbage collections, by least squares that allow no negative cost (`direct`). What they do not show
is fitted to the measured latencies (`fit`): the time of a wake-up, how much CPU times vary, what a
core takes to wake up, how much of a broker's network work is before the answer, and other work on
the machine.

Every run is then left out once and predicted by a fit of the others. The spread of these errors is
the model's scatter, and the fits are its uncertainty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize, nnls

from penstock.domain.broker_view import RequestClass
from penstock.domain.errors import BadInput
from penstock.models.observation import BrokerWork, Observation
from penstock.models.path.physics import Physics
from penstock.models.path.predict import PathModel, Prediction, predict
from penstock.models.path.spec import Floats

Say = Callable[[str], object]

LEAST_RUNS = 3
# Percentiles that a fit looks at, beside the mean, with the error that repeats of a run have.
_ERRORS = {"mean": 0.05, "50": 0.05, "90": 0.08, "99": 0.15}
# A prediction that refuses (a load that is too high) is as wrong as one by this factor.
_REFUSED = 4.0
_MESSAGES = 4_000
_EVALUATIONS, _EVALUATIONS_AGAIN = 160, 40


@dataclass(frozen=True)
class _Free:
    """A parameter that is fitted, by its logarithm."""

    name: str
    start: float
    low: float
    high: float


_FREE = (
    _Free("wake", 5e-5, 1e-6, 2e-3),
    _Free("spread", 0.4, 0.02, 1.5),
    _Free("idle", 2e-5, 1e-7, 2e-3),
    _Free("network_share", 0.5, 0.05, 1.0),
    _Free("background_per_s", 5.0, 0.05, 100.0),
)
_BACKGROUND_BURST_S = 1e-3


@dataclass(frozen=True)
class LeftOut:
    """How a run was predicted by a model that was fitted without it."""

    run: str
    # Latency → ln(measured / predicted), by statistic; empty: the model refused.
    errors: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Calibration:
    """A fitted model, and how good it is."""

    model: PathModel
    left_out: tuple[LeftOut, ...]


def fit(
    observations: Sequence[Observation],
    *,
    cores: int,
    is_shared: bool = True,
    say: Say = lambda _: None,
) -> Calibration:
    """Fit a model to measured runs."""
    if len(observations) < LEAST_RUNS:
        raise BadInput(
            f"{len(observations)} runs are too few to fit a model",
            f"measure at least {LEAST_RUNS} that differ in load, acks and batching",
        )
    known = direct(observations)
    start = np.array([np.log(free.start) for free in _FREE])

    def fitted(chosen: Sequence[Observation], begin: Floats, evaluations: int) -> Floats:
        def loss(logs: Floats) -> float:
            model = PathModel(physics=_physics(known, logs), cores=cores, is_shared=is_shared)
            return sum(_loss(model, one) for one in chosen)

        found = minimize(
            loss,
            begin,
            method="Nelder-Mead",
            bounds=[(np.log(free.low), np.log(free.high)) for free in _FREE],
            options={"maxfev": evaluations, "xatol": 0.02, "fatol": 0.01},
        )
        return np.asarray(found.x)

    say(f"fitting {len(_FREE)} parameters to {len(observations)} runs")
    best = fitted(observations, start, _EVALUATIONS)
    left_out, others = [], []
    for number, one in enumerate(observations):
        say(f"leaving out run {number + 1} of {len(observations)}")
        rest = [other for other in observations if other is not one]
        again = _physics(known, fitted(rest, best, _EVALUATIONS_AGAIN))
        others.append(again)
        without = PathModel(physics=again, cores=cores, is_shared=is_shared)
        left_out.append(LeftOut(one.run, errors(without, one)))
    model = PathModel(
        physics=_physics(known, best),
        cores=cores,
        is_shared=is_shared,
        others=tuple(others),
        scatter=_scatter(left_out),
    )
    return Calibration(model, tuple(left_out))


def errors(model: PathModel, one: Observation) -> dict[str, dict[str, float]]:
    """Latency → statistic → ln(measured / predicted); empty if the model calls it saturated."""
    answer = predict(model, one.spec, messages=_MESSAGES)
    if not isinstance(answer, Prediction):
        return {}
    found: dict[str, dict[str, float]] = {}
    for name, measured in one.latencies.items():
        predicted = answer.latencies[name]
        values = {"mean": predicted.mean_ms.value} | {
            percent: estimate.value for percent, estimate in predicted.percentiles_ms.items()
        }
        seen = {"mean": measured.mean_ms} | dict(measured.percentiles_ms)
        found[name] = {
            statistic: float(np.log(max(seen[statistic], 1e-6) / max(values[statistic], 1e-6)))
            for statistic in _ERRORS
            if statistic in seen
        }
    return found


def _loss(model: PathModel, one: Observation) -> float:
    """Squared errors, in units of what repeats differ by; large ones count less than squared, so
    that one run that the model cannot explain does not spoil the rest."""
    found = errors(model, one)
    if not found:
        return len(one.latencies) * len(_ERRORS) * _huber(np.log(_REFUSED) / 0.05)
    return sum(
        _huber(error / _ERRORS[statistic])
        for of_latency in found.values()
        for statistic, error in of_latency.items()
    )


def _huber(value: float, corner: float = 3.0) -> float:
    size = abs(value)
    return size**2 / 2 if size <= corner else corner * (size - corner / 2)


def _scatter(left_out: Sequence[LeftOut]) -> dict[str, float]:
    """Latency → standard deviation of the errors of its mean and percentiles."""
    found: dict[str, list[float]] = {}
    for one in left_out:
        for name, of_latency in one.errors.items():
            found.setdefault(name, []).extend(of_latency.values())
    return {name: float(np.sqrt(np.mean(np.square(each)))) for name, each in found.items()}


def _physics(known: Physics, logs: Floats) -> Physics:
    values = {free.name: float(np.exp(log)) for free, log in zip(_FREE, logs, strict=True)}
    share = values.pop("network_share")
    # What a broker does around a request: part of it before the answer, the rest when it is out.
    before, after = share * known.broker_answer, (1 - share) * known.broker_answer
    return replace(
        known,
        broker_request=known.broker_request + before / 2,
        follower_fetch=known.follower_fetch + before / 2,
        reader_fetch=known.reader_fetch + before / 2,
        broker_answer=before / 2,
        follower_answer=before / 2,
        reader_answer=before / 2,
        after=after / max(1e-9, known.broker_request + before),
        background_burst=_BACKGROUND_BURST_S,
        **values,
    )


# --- from counters -----------------------------------------------------------------------------------


def direct(observations: Sequence[Observation]) -> Physics:
    """What counters show. `broker_answer` is all that a broker does around a request."""
    return Physics(
        **_producer_costs(observations),
        **_consumer_costs(observations),
        **_broker_costs([one.brokers for one in observations if one.brokers is not None]),
    )


def _non_negative(rows: Sequence[Sequence[float]], totals: Sequence[float]) -> Floats:
    """Least squares relative to the totals, with no negative coefficient."""
    design, target = np.asarray(rows, np.float64), np.asarray(totals, np.float64)
    # Columns of one size: their units differ by orders of magnitude.
    sizes = np.maximum(np.abs(design).max(axis=0), 1e-300)
    weights = 1 / np.maximum(target, 1e-9)
    found, _ = nnls(design / sizes * weights[:, None], target * weights)
    return np.asarray(found / sizes)


def _requests_per_s(one: Observation) -> float | None:
    if one.produce_requests_per_s is not None:
        return one.produce_requests_per_s
    return None if one.brokers is None else one.brokers.requests_per_s[RequestClass.PRODUCE]


def _producer_costs(observations: Sequence[Observation]) -> dict[str, float]:
    rows, totals = [], []
    for one in observations:
        requests = _requests_per_s(one)
        if one.producer_cores is None or requests is None:
            continue
        size = one.spec.workload.payload.mean_bytes * one.messages_per_s
        rows.append((one.messages_per_s, requests, size))
        totals.append(one.producer_cores)
    if not rows:
        return {}
    message, request, byte = _non_negative(rows, totals)
    # A request and its answer take about the same.
    return {
        "client_produce": message,
        "client_request": request / 2,
        "client_answer": request / 2,
        "client_byte": byte,
    }


def _consumer_costs(observations: Sequence[Observation]) -> dict[str, float]:
    rows, totals = [], []
    for one in observations:
        if one.consumer_cores is None or one.brokers is None:
            continue
        fetches = one.brokers.requests_per_s[RequestClass.CONSUMER_FETCH]
        rows.append((one.messages_per_s, fetches))
        totals.append(one.consumer_cores)
    if not rows:
        return {}
    message, fetch = _non_negative(rows, totals)
    return {"reader_message": message, "reader_request": fetch}


def _broker_costs(works: Sequence[BrokerWork]) -> dict[str, float]:
    if not works:
        return {}

    def local_s(kind: RequestClass) -> float:
        """At the lightest load: under load it has waiting in it."""
        return min((w.local_ms[kind] for w in works if kind in w.local_ms), default=0.0) / 1000

    produce, follower, reader = (local_s(kind) for kind in RequestClass)
    rows, totals = [], []
    for work in works:
        handled = sum(local_s(kind) * work.requests_per_s[kind] for kind in RequestClass)
        rows.append((1.0, sum(work.requests_per_s.values()), work.bytes_in_per_s))
        totals.append(max(1e-6, work.cores - handled))
    _, around, byte = _non_negative(rows, totals)
    costs = {
        "broker_request": produce,
        "follower_fetch": follower,
        "follower_append": produce,
        "reader_fetch": reader,
        "broker_answer": around,
        # The leader and its followers share what a byte costs.
        "broker_byte": byte / 3,
        "follower_byte": byte / 3,
    }
    young = max(work.young_bytes for work in works)
    collected = [work for work in works if work.collections_per_s > 0]
    if young and collected:
        request, per_byte = _non_negative(
            [(sum(w.requests_per_s.values()), w.bytes_in_per_s) for w in collected],
            [w.collections_per_s * young for w in collected],
        )
        pauses = [w.collection_ms for w in collected if w.collection_ms is not None]
        costs |= {
            "heap_request_bytes": request,
            "heap_per_byte": per_byte,
            "heap_young_bytes": float(young),
            "heap_pause": float(np.mean(pauses)) / 1000,
        }
    return costs
