"""What counters show of costs: CPU per request, message and byte; garbage collections. Pure.

CPU that clients and brokers used is divided among what they did by least squares that allow no
negative cost. A part that does not depend on the load is work in the background. These are averages
over the runs: what work takes depends on what else the machine does (`calibration`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import nnls

from penstock.domain.broker_view import RequestClass
from penstock.models.observation import BrokerWork, Observation
from penstock.models.path.spec import Floats

# With fewer runs than this, bytes of producers cannot be told from messages.
_RUNS_FOR_BYTES = 6


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of CPU of one core, on average; None: no counters."""

    producer_message_s: float | None = None
    producer_request_s: float = 0.0
    producer_byte_s: float = 0.0
    consumer_message_s: float | None = None
    consumer_request_s: float = 0.0
    # Of all brokers, per request whatever its class, and per byte of each replica.
    broker_request_s: float | None = None
    broker_byte_s: float = 0.0
    # Class → its share of the requests.
    request_shares: Mapping[str, float] = field(default_factory=dict)
    # Cores that are used without any load.
    background_cores: float = 0.0
    heap_request_bytes: float = 0.0
    heap_per_byte: float = 0.0
    heap_young_bytes: float = 0.0
    heap_pause_s: float = 0.0


def used_cores(one: Observation) -> float:
    """Of brokers, producers and consumers, as far as they were observed."""
    brokers = 0.0 if one.brokers is None else one.brokers.cores
    return brokers + (one.producer_cores or 0.0) + (one.consumer_cores or 0.0)


def costs(observations: Sequence[Observation]) -> Costs:
    """The costs that explain the runs' CPU."""

    def divided(uses: Sequence[tuple[Observation, float, Sequence[float]]]) -> list[float]:
        """Of runs, the CPU used and what was done: a cost for each that was done, after that of
        doing nothing."""
        return _non_negative([(1.0, *done) for _, _, done in uses], [used for _, used, _ in uses])

    found: dict[str, float] = {}
    background = 0.0
    produced = [
        (one, one.producer_cores, [one.messages_per_s, requests, _payload_per_s(one)])
        for one in observations
        if one.producer_cores is not None and (requests := _requests_per_s(one)) is not None
    ]
    if produced:
        if len(produced) < _RUNS_FOR_BYTES:
            produced = [(one, used, done[:2]) for one, used, done in produced]
        idle, message, request, *byte = divided(produced)
        background += idle
        found |= {"producer_message_s": message, "producer_request_s": request}
        found["producer_byte_s"] = byte[0] if byte else 0.0
    observed = [(one, one.brokers) for one in observations if one.brokers is not None]
    if consumed := [
        # With a watcher, about half of the fetches are the consumers'.
        (one, one.consumer_cores, [one.messages_per_s, _fetches(work) / (1 + one.spec.is_watched)])
        for one, work in observed
        if one.consumer_cores is not None
    ]:
        idle, message, request = divided(consumed)
        background += idle
        found |= {"consumer_message_s": message, "consumer_request_s": request}
    shares: dict[str, float] = {}
    if observed:
        idle, request, byte_s = divided(
            [
                (one, work.cores, [sum(work.requests_per_s.values()), _stored(one)])
                for one, work in observed
            ]
        )
        background += idle
        found |= {"broker_request_s": request, "broker_byte_s": byte_s}
        total = {kind: sum(w.requests_per_s[kind] for _, w in observed) for kind in RequestClass}
        every = sum(total.values())
        shares = {str(kind): count / every if every else 1 / 3 for kind, count in total.items()}
    return Costs(**found, request_shares=shares, background_cores=background, **_heap(observations))


def _heap(observations: Sequence[Observation]) -> dict[str, float]:
    observed = [(one, one.brokers) for one in observations if one.brokers is not None]
    young = max((work.young_bytes for _, work in observed), default=0)
    collected = [(one, work) for one, work in observed if work.collections_per_s > 0]
    if not young or not collected:
        return {}
    request, per_byte = _non_negative(
        [(sum(work.requests_per_s.values()), _stored(one)) for one, work in collected],
        [work.collections_per_s * young for _, work in collected],
    )
    pauses = [work.collection_ms for _, work in collected if work.collection_ms is not None]
    return {
        "heap_request_bytes": request,
        "heap_per_byte": per_byte,
        "heap_young_bytes": float(young),
        "heap_pause_s": float(np.mean(pauses)) / 1000,
    }


def _requests_per_s(one: Observation) -> float | None:
    if one.produce_requests_per_s is not None:
        return one.produce_requests_per_s
    return None if one.brokers is None else one.brokers.requests_per_s[RequestClass.PRODUCE]


def _stored(one: Observation) -> float:
    """Bytes/s of all replicas."""
    return 0.0 if one.brokers is None else one.brokers.bytes_in_per_s * one.spec.topic.replication


def _payload_per_s(one: Observation) -> float:
    return one.spec.workload.payload.mean_bytes * one.messages_per_s


def _fetches(work: BrokerWork) -> float:
    return work.requests_per_s[RequestClass.CONSUMER_FETCH]


def _non_negative(rows: Sequence[Sequence[float]], totals: Sequence[float]) -> list[float]:
    """Least squares relative to the totals, with no negative coefficient."""
    design, target = np.asarray(rows, np.float64), np.asarray(totals, np.float64)
    # Columns of one size: their units differ by orders of magnitude.
    sizes = np.maximum(np.abs(design).max(axis=0), 1e-300)
    weights = 1 / np.maximum(target, 1e-9)
    found, _ = nnls(design / sizes * weights[:, None], target * weights)
    values: Floats = found / sizes
    return [float(value) for value in values]
