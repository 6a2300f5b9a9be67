"""The path simulator: how fast it is on one core, and whether it agrees with theory.

Speed: acks=all, three replicas, jitter on every link, two shared cores; batches of one message, and of
a hundred. Compiling is not counted.

Theory: queues and waits with a known mean, each simulated several times with other random numbers. A
deviation is (simulated − theory) / standard error, where the error is that of the repeats' mean.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness import Figure, Row, main
from penstock.models.path import (
    Arrivals,
    Line,
    Lines,
    PathSpec,
    PathTimes,
    Physics,
    SimulatedMachines,
    simulate,
)
from penstock.models.queueing import pollaczek_khinchine

JITTER = Lines(*(Line(np.linspace(0.001, 0.002, 4096)) for _ in range(6)))
# A hundredth of a millisecond each: a machine that is busy and not full.
COSTS = Physics(
    client_request=1e-5,
    client_answer=1e-5,
    broker_request=1e-5,
    broker_answer=1e-5,
    follower_fetch=1e-5,
    follower_answer=1e-5,
    follower_append=1e-5,
    reader_fetch=1e-5,
    reader_answer=1e-5,
    reader_request=1e-5,
    wake=1e-5,
    spread=0.4,
    contention=1.3,
    heap_request_bytes=25_000,
    heap_young_bytes=1e8,
    heap_pause=0.01,
)
# One broker, so that nothing is replicated; batches of one; answers as soon as it is appended.
PLAIN = PathSpec(brokers=1, replication=1, acks="1", linger_s=0, batch_messages=1)
# As many standard errors as one of some ten cases exceeds once in a thousand benches.
MOST_ERRORS = 4.0


def measure(quick: bool, say: Callable[[str], None]) -> tuple[dict[str, Any], list[Row]]:
    speeds = {
        f"batch_{batch}": _speed(batch, per_s, count // (4 if quick else 1), 3 if quick else 7, say)
        for batch, per_s, count in ((1, 500.0, 100_000), (100, 50_000.0, 1_000_000))
    }
    deviations = {}
    for case in CASES:
        say(f"theory: {case.name}")
        deviations[case.name] = case.deviation(repeats=6 if quick else 20)
    worst = max(deviations, key=lambda name: abs(deviations[name]))
    keys = {
        "messages_per_s": {name: figure.median for name, figure in speeds.items()},
        "messages_per_s_range": speeds,
        "agrees_with_theory": {
            "cases": len(CASES),
            "worst": worst,
            "worst_deviation": deviations[worst],
            "deviations": deviations,
        },
    }
    aims = {"batch_1": 200_000, "batch_100": 1_000_000}
    rows = [
        Row(
            f"messages/s, {name.replace('_', ' of ')}",
            figure,
            f"≥ {aims[name]:,}",
            figure.median >= aims[name],
        )
        for name, figure in speeds.items()
    ]
    rows.append(
        Row(
            f"worst deviation of {len(CASES)} cases, standard errors ({worst})",
            f"{deviations[worst]:.1f}",
            f"within {MOST_ERRORS:g}",
            abs(deviations[worst]) <= MOST_ERRORS,
        )
    )
    return keys, rows


def _speed(
    batch: int, per_s: float, count: int, repeats: int, say: Callable[[str], None]
) -> Figure:
    spec = PathSpec(partitions=6, linger_s=0 if batch == 1 else 1, batch_messages=batch)
    arrivals = _poisson(per_s, count, np.random.default_rng(1), partitions=6)
    machines = SimulatedMachines(cores=2)
    simulate(spec, _poisson(per_s, 100, np.random.default_rng(1), partitions=6), COSTS)
    speeds = []
    for turn in range(repeats):
        say(f"speed at batches of {batch}: {turn + 1} of {repeats}")
        begin_s = time.perf_counter()
        simulate(spec, arrivals, COSTS, lines=JITTER, machines=machines, seed=turn)
        speeds.append(count / (time.perf_counter() - begin_s))
    return Figure.of(speeds)


def _poisson(
    per_s: float,
    count: int,
    rng: np.random.Generator,
    *,
    producers: int = 1,
    partitions: int = 1,
    size: float = 100.0,
) -> Arrivals:
    return Arrivals(
        np.cumsum(rng.exponential(1 / per_s, count)),
        rng.integers(0, producers, count),
        rng.integers(0, partitions, count),
        np.full(count, size),
    )


@dataclass(frozen=True)
class Case:
    """Something with a known mean."""

    name: str
    expected_s: float
    simulated: Callable[[np.random.Generator, int], np.ndarray[Any, np.dtype[np.float64]]]

    def deviation(self, repeats: int) -> float:
        means = [
            float(np.mean(self.simulated(np.random.default_rng(100 + turn), turn)))
            for turn in range(repeats)
        ]
        error = float(np.std(means, ddof=1) / np.sqrt(repeats))
        off = float(np.mean(means)) - self.expected_s
        return off / error if error > 1e-12 else (0.0 if abs(off) < 1e-9 else np.inf)


def _linger() -> Case:
    per_s, linger_s = 300.0, 0.02

    def wait(rng: np.random.Generator, seed: int) -> Any:
        spec = replace(PLAIN, linger_s=linger_s, batch_messages=10_000)
        return simulate(spec, _poisson(per_s, 30_000, rng), Physics(), seed=seed).parts_s["wait"]

    # The first of a batch waits for all of it, and those that follow for half of it.
    expected = (linger_s + per_s * linger_s**2 / 2) / (1 + per_s * linger_s)
    return Case("linger", expected, wait)


def _full_batches() -> Case:
    def wait(rng: np.random.Generator, seed: int) -> Any:
        spec = replace(PLAIN, linger_s=100.0, batch_messages=10)
        return simulate(spec, _poisson(1_000, 30_000, rng), Physics(), seed=seed).parts_s["wait"]

    return Case("full batches", 9 / 2 / 1_000, wait)


def _queue(
    name: str,
    per_s: float,
    service_s: float,
    second_moment: float,
    run: Callable[[Arrivals, int], PathTimes],
    *,
    count: int = 100_000,
    producers: int = 1,
) -> Case:
    """A single server, by Pollaczek and Khinchine."""

    def produce(rng: np.random.Generator, seed: int) -> Any:
        return run(_poisson(per_s, count, rng, producers=producers), seed).produce_s

    return Case(name, pollaczek_khinchine(per_s, service_s, second_moment), produce)


def _connection(spread: float) -> Case:
    service_s = 0.002
    physics = Physics(broker_request=service_s, spread=spread)
    return _queue(
        f"connection, spread {spread:g}",
        350.0,
        service_s,
        service_s**2 * float(np.exp(spread**2)),
        lambda arrivals, seed: simulate(PLAIN, arrivals, physics, seed=seed),
    )


def _window() -> Case:
    round_s = 0.01
    lines = Lines(to_broker=Line.constant(round_s / 2), to_producer=Line.constant(round_s / 2))
    spec = replace(PLAIN, in_flight=1)
    return _queue(
        "window of one request",
        60.0,
        round_s,
        round_s**2,
        lambda arrivals, seed: simulate(spec, arrivals, Physics(), lines=lines, seed=seed),
    )


def _core() -> Case:
    service_s = 0.002
    physics, spec = Physics(broker_request=service_s), replace(PLAIN, producers=300)
    return _queue(
        "one core, 300 connections",
        350.0,
        service_s,
        service_s**2,
        lambda arrivals, seed: simulate(
            spec, arrivals, physics, machines=SimulatedMachines(cores=1), seed=seed
        ),
        producers=300,
    )


def _rate() -> Case:
    spec = replace(PLAIN, request_bytes=0)
    lines = Lines(to_broker=Line(rate_bytes_per_s=100_000))
    return _queue(
        "rate of a link",
        600.0,
        0.001,
        0.001**2,
        lambda arrivals, seed: simulate(spec, arrivals, Physics(), lines=lines, seed=seed),
    )


def _replication(acks: Any, expected_s: float) -> Case:
    lines = Lines(*(Line.constant(ms / 1000) for ms in (3, 3, 10, 10, 5, 5)))

    def produce(rng: np.random.Generator, seed: int) -> Any:
        none = np.zeros(200, np.int64)
        arrivals = Arrivals(np.arange(1.0, 201.0) / 10, none, none, np.full(200, 100.0))
        spec = PathSpec(acks=acks, linger_s=0)
        return simulate(spec, arrivals, Physics(), lines=lines, seed=seed).produce_s

    return Case(f"replication over links, acks={acks}", expected_s, produce)


def _time_outs() -> Case:
    lines = Lines(to_broker=Line(loss=0.1))

    def produce(rng: np.random.Generator, seed: int) -> Any:
        none = np.zeros(20_000, np.int64)
        arrivals = Arrivals(20.0 * np.arange(1.0, 20_001.0), none, none, np.full(20_000, 100.0))
        return simulate(PLAIN, arrivals, Physics(), lines=lines, seed=seed).produce_s

    # TCP's time-out doubles with every loss: 0.2 s × Σ l^k·2^(k−1)
    return Case("TCP's time-outs", 0.2 * 0.1 / (1 - 2 * 0.1), produce)


def _fetch_wait() -> Case:
    def fetch(rng: np.random.Generator, seed: int) -> Any:
        spec = replace(PLAIN, fetch_min_bytes=1e9, fetch_wait_s=0.1)
        return simulate(spec, _poisson(200, 20_000, rng), Physics(), seed=seed).parts_s["fetch"]

    return Case("fetch.wait.max.ms", 0.05, fetch)


CASES = (
    _linger(),
    _full_batches(),
    _connection(0.0),
    _connection(0.5),
    _window(),
    _core(),
    _rate(),
    _replication("1", 0.006),
    _replication("all", 0.026),
    _time_outs(),
    _fetch_wait(),
)


if __name__ == "__main__":
    main("simulator", measure)
