"""Packing: the document's twelve algorithms and ours, on its streams of changing write speeds.

Every partition's speed takes a random step of at most δ % of a lane's capacity, 500 times, and stays
within [0, C]. Each algorithm follows the same stream with its own assignments. CBS is the mean
excess of lanes over the fewest that any of them used, Rscore the load that changes its lane per
step, in capacities (without the first step, when everything is new).

One of the twelve is dominated if a setting of ours is nowhere worse and somewhere better. Where
nothing moves and the lanes are as few as a bound says is possible, nobody can be better: a tie.
"""

from __future__ import annotations

import math
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from harness import Figure, Row, main
from penstock.autoscaler.core.packing import Assignment, Pack, Problem
from penstock.autoscaler.core.packing.keep import KeepPacking, pack
from penstock.autoscaler.core.packing.problem import fewest_lanes, lanes_of, moved_load
from penstock.domain import plugins
from penstock.domain.lake.partition import Partition

TWELVE = ("NF", "FF", "BF", "WF", "NFD", "FFD", "BFD", "WFD", "MWF", "MBF", "MWFP", "MBFP")
PRICES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.2, 1.6, 4.0, math.inf)
DELTAS = (0, 5, 10, 15, 20, 25)
# Where all partitions begin, as a share of C; None: each somewhere.
STARTS = {"random": None, "0": 0.0, "50": 0.5, "100": 1.0}
PARTITIONS, STEPS, SEED = 200, 500, 2
DECISIONS = {32: 1.0, 1000: 100.0, 10_000: 2000.0}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Score:
    """One algorithm on one stream."""

    algorithm: str
    cbs: float
    rscore: float
    lanes: float
    # Mean excess over a bound that no packing can be below.
    gap: float
    is_optimal: bool


@dataclass(frozen=True)
class Stream:
    start: str
    delta: int
    scores: tuple[Score, ...]

    def of(self, name: str) -> Score:
        return next(score for score in self.scores if score.algorithm == name)


def ours(price: float) -> str:
    return f"ours ρ={price:g}"


def measure(quick: bool, say: Say) -> tuple[dict[str, Any], list[Row]]:
    steps = 100 if quick else STEPS
    asked = [(start, delta, steps) for start in STARTS for delta in DELTAS]
    streams: list[Stream] = []
    with multiprocessing.get_context("spawn").Pool() as pool:
        for done in pool.imap_unordered(_follow, asked):
            streams.append(done)
            say(f"{len(streams)} of {len(asked)} streams")
    streams.sort(key=lambda s: (s.start, s.delta))
    undominated, ties = _undominated(streams)
    findings = _findings(streams)
    decision_ms = {count: _decision_ms(count, quick, say) for count in DECISIONS}
    default = ours(math.inf)
    keys = {
        "dominated_all": not undominated,
        "undominated": undominated,
        "ties_at_the_optimum": ties,
        "default": default,
        "streams": [asdict(stream) for stream in streams],
        "findings": findings,
        "decision_ms": {count: figure.median for count, figure in decision_ms.items()},
        "decision_ms_spread": decision_ms,
        "partitions": PARTITIONS,
        "steps": steps,
        "seed": SEED,
    }
    rows = [
        Row(f"CBS / Rscore, δ={delta} %, random start: {name}", _shown(stream.of(name)))
        for delta in (5, 15, 25)
        for stream in streams
        if (stream.start, stream.delta) == ("random", delta)
        for name in ("BFD", "MBFP", "MBF", "MWF", default, ours(0.2), ours(0.05))
    ]
    rows.append(
        Row(
            "dominated_all",
            f"{not undominated} ({len(ties)} of {12 * len(streams)} ties at the optimum)",
            "true",
            not undominated,
        )
    )
    rows += [Row(name, f"{held} of {of} streams") for name, (held, of) in findings.items()]
    rows += [
        Row(
            f"decision_ms, {count:,} partitions",
            figure,
            f"< {DECISIONS[count]:,.0f}",
            figure.median < DECISIONS[count],
        )
        for count, figure in decision_ms.items()
    ]
    return keys, rows


def _shown(score: Score) -> str:
    return f"{score.cbs:.4f} / {score.rscore:.2f}"


# --- following a stream ---------------------------------------------------------------------------


def speeds(
    start: float | None, delta: int, steps: int, count: int
) -> Iterator[dict[Partition, float]]:
    """In capacities."""
    rng = random.Random(f"{SEED} {start} {delta}")
    names = [Partition("s", i) for i in range(count)]
    now = {name: rng.random() if start is None else start for name in names}
    for _ in range(steps):
        yield now
        now = {p: min(1.0, max(0.0, s + rng.uniform(-delta, delta) / 100)) for p, s in now.items()}


def _ours(price: float, problem: Problem) -> Assignment:
    return pack(problem, price)


def _follow(asked: tuple[str, int, int]) -> Stream:
    start, delta, steps = asked
    stream = list(speeds(STARTS[start], delta, steps, PARTITIONS))
    packs: dict[str, Pack] = {name: plugins.get("penstock.packing", name)() for name in TWELVE}
    packs |= {ours(price): partial(_ours, price) for price in PRICES}
    least = [fewest_lanes(Problem(speeds=now, capacity=1.0)) for now in stream]
    followed = {name: _carry_out(found, stream) for name, found in packs.items()}
    fewest = [
        min(counts) for counts in zip(*(lanes for lanes, _ in followed.values()), strict=True)
    ]
    scores = tuple(
        Score(
            algorithm=name,
            cbs=_excess(lanes, fewest),
            rscore=moved,
            lanes=sum(lanes) / len(lanes),
            gap=_excess(lanes, least),
            is_optimal=lanes == least and moved == 0.0,
        )
        for name, (lanes, moved) in followed.items()
    )
    return Stream(start, delta, scores)


def _carry_out(found: Pack, stream: list[dict[Partition, float]]) -> tuple[list[int], float]:
    """Lanes at each step, and the mean load that moved."""
    current: dict[Partition, int] = {}
    lanes, moved = [], 0.0
    for step, now in enumerate(stream):
        problem = Problem(speeds=now, capacity=1.0, current=current)
        current = found(problem)
        lanes.append(lanes_of(current))
        moved += moved_load(problem, current) if step else 0.0
    return lanes, moved / max(1, len(stream) - 1)


def _excess(lanes: list[int], over: list[int]) -> float:
    return sum((n - least) / least for n, least in zip(lanes, over, strict=True)) / len(lanes)


# --- what it shows ----------------------------------------------------------------------------------


def _undominated(streams: list[Stream]) -> tuple[list[str], list[str]]:
    """Those of the twelve that no setting of ours is better than; and those that nobody can be."""
    standing: list[str] = []
    ties: list[str] = []
    for stream in streams:
        family = [score for score in stream.scores if score.algorithm.startswith("ours")]
        for theirs in (stream.of(name) for name in TWELVE):
            if any(_is_better(mine, theirs) for mine in family):
                continue
            is_tie = theirs.is_optimal and any(mine.is_optimal for mine in family)
            name = f"{theirs.algorithm}, start {stream.start}, δ={stream.delta}"
            (ties if is_tie else standing).append(name)
    return standing, ties


def _is_better(mine: Score, theirs: Score) -> bool:
    no_worse = mine.cbs <= theirs.cbs and mine.rscore <= theirs.rscore
    return no_worse and (mine.cbs < theirs.cbs or mine.rscore < theirs.rscore)


def _findings(streams: list[Stream]) -> dict[str, tuple[int, int]]:
    """The document's, with the number of streams (that change at all) in which each holds."""
    moving = [stream for stream in streams if stream.delta]

    def holds(found: Callable[[Stream], bool]) -> tuple[int, int]:
        return sum(map(found, moving)), len(moving)

    def by_cbs(stream: Stream, names: tuple[str, ...] = TWELVE) -> list[str]:
        return sorted(names, key=lambda name: stream.of(name).cbs)

    modified = ("MWF", "MBF", "MWFP", "MBFP")
    return {
        "BFD has the best CBS of the twelve": holds(
            lambda s: s.of("BFD").cbs == min(s.of(name).cbs for name in TWELVE)
        ),
        "NF has the worst CBS, then NFD": holds(lambda s: by_cbs(s)[-1:-3:-1] == ["NF", "NFD"]),
        "MWF has the best Rscore of the twelve": holds(
            lambda s: s.of("MWF").rscore == min(s.of(name).rscore for name in TWELVE)
        ),
        "MBFP has the best CBS of the modified": holds(lambda s: by_cbs(s, modified)[0] == "MBFP"),
        "MWFP is off the front of the twelve": holds(
            lambda s: any(_is_better(s.of(name), s.of("MWFP")) for name in TWELVE)
        ),
    }


# --- how long it takes ------------------------------------------------------------------------------


def _decision_ms(count: int, quick: bool, say: Say) -> Figure:
    """Of the default, for a step of a stream that has been followed for a while."""
    say(f"decisions for {count:,} partitions")
    repeats = (
        {32: 200, 1000: 20, 10_000: 3}[count] if quick else {32: 2000, 1000: 60, 10_000: 8}[count]
    )
    default = KeepPacking()
    current: dict[Partition, int] = {}
    took = []
    for step, now in enumerate(speeds(None, 10, repeats + 3, count)):
        problem = Problem(speeds=now, capacity=1.0, current=current)
        began = time.perf_counter()
        current = default(problem)
        if step >= 3:
            took.append(1000 * (time.perf_counter() - began))
    return Figure.of(took)


if __name__ == "__main__":
    main("packing", measure)
