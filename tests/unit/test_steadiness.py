"""Whether a run was steady: how often `judge` is right about runs of which we made the truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.signal import lfilter

from penstock import specs
from penstock.domain.steadiness import Steadiness
from penstock.stats import steadiness
from penstock.stats.steadiness import judge

Floats = npt.NDArray[np.float64]
RUNS = 200


@dataclass(frozen=True)
class Run:
    """What `judge` takes."""

    latency_sums_ms: Floats
    counts: Floats
    due: Floats
    done: Floats
    slice_s: float
    waiting_first: int = 0

    def judged(self) -> Steadiness:
        return judge(
            self.latency_sums_ms,
            self.counts,
            self.due,
            self.done,
            self.slice_s,
            waiting_first=self.waiting_first,
        )


Family = Callable[[np.random.Generator], Run]


def alarms(family: Family, state: str = "unsteady") -> int:
    judged = [family(np.random.default_rng(seed)).judged() for seed in range(RUNS)]
    return sum(result.state == state for result in judged)


def at_most(share: float) -> int:
    """So many of RUNS, or more, come once in a thousand times if the true share is `share`."""
    return int(stats.binom.ppf(0.999, RUNS, share))


def at_least(share: float) -> int:
    return int(stats.binom.ppf(0.001, RUNS, share))


# --- made-up runs --------------------------------------------------------------------------------

WARM_UP_S = 3.0


def of_messages(due_s: Floats, received_s: Floats, length_s: float, slices: int = 256) -> Run:
    """The slices after the warm-up."""

    def per_slice(at_s: Floats, weights: Floats | None = None) -> Floats:
        # One more at each end, for what lies outside.
        number = np.clip((at_s - WARM_UP_S) * (slices / length_s) + 1, 0, slices + 1).astype(int)
        return np.bincount(number, weights, slices + 2)[1:-1].astype(np.float64)

    due = per_slice(due_s)
    return Run(
        latency_sums_ms=per_slice(due_s, 1000 * (received_s - due_s)),
        counts=due,
        due=due,
        done=per_slice(received_s),
        slice_s=length_s / slices,
        waiting_first=int(np.sum((due_s < WARM_UP_S) & (received_s >= WARM_UP_S))),
    )


def poisson(rng: np.random.Generator, per_s: float, length_s: float) -> Floats:
    return np.sort(rng.uniform(0, length_s, rng.poisson(per_s * length_s)))


def served(arrivals_s: Floats, service_s: Floats) -> Floats:
    """When a single server is done with each (Lindley): max(its arrival, the one before) + work."""
    work_s = np.cumsum(service_s)
    return work_s + np.maximum.accumulate(arrivals_s - (work_s - service_s)) + 0.002


def queue(
    rng: np.random.Generator,
    load: float,
    length_s: float = 12,
    per_s: float = 1100,
    arrivals: str = "poisson",
    service: str = "exponential",
) -> Run:
    total_s = WARM_UP_S + length_s
    due_s = (
        poisson(rng, per_s, total_s)
        if arrivals == "poisson"
        else (np.arange(per_s * total_s) + rng.random()) / per_s
    )
    n, mean_s = len(due_s), load / per_s
    service_s = {
        "exponential": lambda: rng.exponential(mean_s, n),
        "erlang": lambda: rng.gamma(4, mean_s / 4, n),
        "lognormal": lambda: mean_s * rng.lognormal(-0.5, 1, n),
    }[service]()
    return of_messages(due_s, served(due_s, service_s), length_s)


def bursts(
    rng: np.random.Generator,
    on_s: float,
    off_s: float,
    load: float,
    peak: float,
    length_s: float = 12,
) -> Run:
    """A thousand messages/s, `peak` times that in phases of `on_s` and few in those of `off_s`."""
    total_s, at_s, is_on = WARM_UP_S + length_s, 0.0, bool(rng.random() < 0.5)
    rest = (on_s + off_s - peak * on_s) / off_s
    phases = []
    while at_s < total_s:
        phase_s = rng.exponential(on_s if is_on else off_s)
        phases.append(at_s + poisson(rng, 1000 * (peak if is_on else rest), phase_s))
        at_s, is_on = at_s + phase_s, not is_on
    due_s = np.concatenate(phases)
    return of_messages(due_s, served(due_s, rng.exponential(load / 1000, len(due_s))), length_s)


def pauses(rng: np.random.Generator, every_s: float, jitter: float = 0.1) -> Run:
    """A server at half load that stops for 20 to 60 ms."""
    due_s = poisson(rng, 1000, WARM_UP_S + 12)
    service_s = rng.exponential(0.0005, len(due_s))
    at_s = rng.uniform(0, every_s)
    while at_s < due_s[-1]:
        service_s[np.searchsorted(due_s, at_s)] += rng.uniform(0.02, 0.06)
        at_s += every_s * rng.uniform(1 - jitter, 1 + jitter)
    return of_messages(due_s, served(due_s, service_s), 12)


def independent(
    rng: np.random.Generator, sigma: float, per_s: float = 1000, length_s: float = 12
) -> Run:
    due_s = poisson(rng, per_s, WARM_UP_S + length_s)
    return of_messages(due_s, due_s + 0.005 * rng.lognormal(0, sigma, len(due_s)), length_s)


def shaped(
    rng: np.random.Generator,
    tau_s: float,
    sigma: float,
    level_ms: Callable[[Floats], Floats] = lambda at: np.full_like(at, 10.0),
    length_s: float = 12,
) -> Run:
    """A level over time (0 to 1), times noise of that correlation time, times each message's."""
    slices = 256
    correlation = math.exp(-length_s / slices / tau_s)
    noise = rng.standard_normal(slices)
    noise[1:] *= math.sqrt(1 - correlation**2)
    wander = np.exp(sigma * np.asarray(lfilter([1], [1, -correlation], noise)))
    due = 1.0 + rng.poisson(1000 * length_s / slices, slices).astype(np.float64)
    sums = rng.gamma(due) * wander * level_ms((np.arange(slices) + 0.5) / slices)
    return Run(sums, due, due, due, length_s / slices, 10)


def decaying(at: Floats, length: float, ratio: float) -> Floats:
    """A transient of that length (0 to 1): the first quarter is `ratio` times the last one."""
    first, last = (
        float(np.exp(-np.linspace(a, a + 0.25, 1000) / length).mean()) for a in (0, 0.75)
    )
    return 10 * (1 + (ratio - 1) / (first - ratio * last) * np.exp(-at / length))


# --- steady runs ---------------------------------------------------------------------------------

STEADY: dict[str, Family] = {
    "independent, σ .5": partial(independent, sigma=0.5),
    "independent, σ 1": partial(independent, sigma=1),
    "independent, heavy tail": partial(independent, sigma=2),
    "independent, 20 per s": partial(independent, sigma=1, per_s=20, length_s=15),
    "correlated, 0.05 s": partial(shaped, tau_s=0.05, sigma=0.5),
    "correlated, 1/100 of the run": partial(shaped, tau_s=0.12, sigma=0.5),
    "correlated, 1/50 of the run": partial(shaped, tau_s=0.24, sigma=0.5),
    "correlated, 1/30 of the run": partial(shaped, tau_s=0.4, sigma=0.5),
    "correlated, 1/30 of 30 s": partial(shaped, tau_s=1, sigma=0.5, length_s=30),
    "correlated, 1/30, heavy tail": partial(shaped, tau_s=0.4, sigma=1.2),
    "queue, load .5": partial(queue, load=0.5),
    "queue, load .8": partial(queue, load=0.8),
    "queue, load .9": partial(queue, load=0.9),
    "queue, load .9, 30 s": partial(queue, load=0.9, length_s=30),
    "queue, load .8, 5 s": partial(queue, load=0.8, length_s=5),
    "queue, load .8, uneven work": partial(queue, load=0.8, service="lognormal"),
    # Also with a peak that the server cannot do: load · peak > 1.
    "bursts of 0.2 s": partial(bursts, on_s=0.2, off_s=0.2, load=0.7, peak=1.8),
    "bursts of 0.2 s every 1.2 s": partial(bursts, on_s=0.2, off_s=1, load=0.7, peak=1.8),
    "bursts of 0.3 s every 0.9 s": partial(bursts, on_s=0.3, off_s=0.6, load=0.5, peak=2.8),
    "bursts of 0.5 s": partial(bursts, on_s=0.5, off_s=0.5, load=0.6, peak=1.8),
    "bursts of 0.5 s, 30 s": partial(bursts, on_s=0.5, off_s=0.5, load=0.7, peak=1.8, length_s=30),
    "bursts of 1 s": partial(bursts, on_s=1, off_s=1, load=0.5, peak=1.8),
    "bursts of 1 s with short gaps": partial(bursts, on_s=1, off_s=0.2, load=0.8, peak=1.15),
    "pauses every 1 s": partial(pauses, every_s=1),
    "pauses every 1.5 s": partial(pauses, every_s=1.5),
    "pauses every 2 s": partial(pauses, every_s=2),
    "pauses like clockwork": partial(pauses, every_s=0.74, jitter=0),
}


@pytest.mark.parametrize("name", STEADY)
def test_of_steady_runs_one_in_twenty_alarms_at_most(name: str) -> None:
    assert alarms(STEADY[name]) <= at_most(0.05)


@pytest.mark.parametrize("name", STEADY)
def test_steady_runs_are_tested(name: str) -> None:
    result = STEADY[name](np.random.default_rng(1)).judged()
    assert result.state in ("steady", "unsteady")
    assert (result.sentence == "") == (result.state == "steady")


# --- unsteady runs -------------------------------------------------------------------------------

overloaded = partial(queue, per_s=1200)
moderate = partial(shaped, tau_s=0.05, sigma=0.2)
UNSTEADY: dict[str, tuple[Family, float]] = {
    "overload 1.02, even arrivals": (partial(overloaded, load=1.02, arrivals="even"), 0.95),
    "overload 1.02, even work": (partial(overloaded, load=1.02, service="erlang"), 0.9),
    "overload 1.02, 30 s": (partial(overloaded, load=1.02, length_s=30), 0.95),
    "overload 1.05": (partial(overloaded, load=1.05), 0.95),
    "overload 1.15": (partial(overloaded, load=1.15), 0.95),
    "overload 2": (partial(overloaded, load=2), 0.95),
    "growth by half": (partial(moderate, level_ms=lambda at: 10 + 5 * at), 0.9),
    "twice as high from .9 on": (partial(moderate, level_ms=lambda at: 10 + 10 * (at > 0.9)), 0.9),
    **{
        f"decay in {length} of the run": (
            partial(
                shaped,
                tau_s=0.1,
                sigma=0.3,
                level_ms=partial(decaying, length=length, ratio=2),
            ),
            0.95,
        )
        for length in (0.06, 0.12, 0.25)
    },
    "short decay": (partial(moderate, level_ms=partial(decaying, length=0.03, ratio=2)), 0.95),
}


@pytest.mark.parametrize("name", UNSTEADY)
def test_growth_and_decay_are_detected(name: str) -> None:
    family, share = UNSTEADY[name]
    assert alarms(family) >= at_least(share)


def test_a_slight_overload_is_detected_if_the_queue_grew() -> None:
    """With random arrivals and random work, a twelfth of these runs end as they began."""
    judged = [overloaded(np.random.default_rng(seed), load=1.02).judged() for seed in range(RUNS)]
    grew = [
        result.state == "unsteady"
        for result in judged
        if result.latency_last_ms is not None
        and result.latency_first_ms is not None
        and result.latency_last_ms > 1.5 * result.latency_first_ms
    ]
    assert len(grew) > 0.8 * RUNS
    assert sum(grew) >= stats.binom.ppf(0.001, len(grew), 0.95)


# --- what it says --------------------------------------------------------------------------------


def numbers(sentence: str) -> list[float]:
    words = (word.rstrip(":,") for word in sentence.split())
    return [float(word.replace(",", "")) for word in words if word[0].isdigit()]


def test_a_queue_that_grows_is_explained_by_the_rates() -> None:
    result = overloaded(np.random.default_rng(1), load=1.15).judged()
    first, last, done, offered = numbers(result.sentence)
    assert result.latency_first_ms is not None
    assert result.latency_last_ms is not None
    assert first == pytest.approx(result.latency_first_ms, rel=0.01)  # ms
    assert last == pytest.approx(result.latency_last_ms / 1000, rel=0.01)  # s
    assert (done, offered) == pytest.approx((1200 / 1.15, 1200), rel=0.05)
    assert (result.done_per_s, result.offered_per_s) == pytest.approx((done, offered), rel=0.001)
    assert "the brokers handle" in result.sentence
    assert result.waiting_first is not None
    assert result.waiting_last is not None
    # Little's law: who waits at the end waits as long as the last ones do.
    assert result.waiting_last == pytest.approx(last * done, rel=0.15)
    assert result.waiting_last - result.waiting_first == pytest.approx(12 * (offered - done), abs=1)
    assert result.judged_s == pytest.approx(12)
    assert not result.sentence.endswith(".")
    assert specs.to_data(result)["state"] == "unsteady"


def test_who_does_the_work_has_a_name() -> None:
    run = overloaded(np.random.default_rng(1), load=1.15)
    result = judge(
        run.latency_sums_ms, run.counts, run.due, run.done, run.slice_s, done_name="the consumers"
    )
    assert "the consumers handle 1,0" in result.sentence
    assert result.waiting_first == 0


def test_growth_without_a_queue_names_no_rates() -> None:
    result = moderate(np.random.default_rng(1), level_ms=lambda at: 10 + 10 * at).judged()
    assert result.state == "unsteady"
    assert numbers(result.sentence) == pytest.approx([10.6, 19.4], rel=0.2)
    assert "during the run" in result.sentence
    assert " ms" in result.sentence


def test_a_transient_is_named_as_one() -> None:
    falling = partial(decaying, length=0.1, ratio=20)
    result = moderate(np.random.default_rng(1), level_ms=falling).judged()
    assert "latency fell from" in result.sentence
    assert "warming up" in result.sentence
    first, last = numbers(result.sentence)
    assert first > 20 * last


@pytest.mark.parametrize("direction", ["grew", "fell"])
def test_a_load_that_changed_is_named_as_the_cause(direction: str) -> None:
    due = np.linspace(8, 16, 120) if direction == "grew" else np.linspace(16, 8, 120)
    due = np.round(due)
    result = judge(due * due, due, due, due, 0.01 * 10)
    assert result.state == "unsteady"
    assert f"latency {direction} from" in result.sentence
    assert "the load itself went from" in result.sentence
    assert "warming up" not in result.sentence
    first, last = numbers(result.sentence)[2:]
    ends = sorted((first, last))
    assert ends == pytest.approx([85, 155], rel=0.05)
    assert (first < last) == (direction == "grew")


def test_each_time_has_its_unit() -> None:
    def sentence(factor: float) -> str:
        run = moderate(np.random.default_rng(1), level_ms=lambda at: factor * (1 + 9 * at))
        return run.judged().sentence

    assert " s during" in sentence(2000)
    assert " ms to " in sentence(200)
    assert " ms" not in sentence(2000)
    assert "1e+" not in sentence(1e7)


def test_who_was_waiting_when_the_reading_ended_counts_though_it_never_arrived() -> None:
    run = overloaded(np.random.default_rng(1), load=2.0)
    # Only the first half of the messages is done in time.
    is_late = np.arange(256) >= 120
    cut = replace(
        run,
        counts=np.where(is_late, 0, run.counts),
        latency_sums_ms=np.where(is_late, 0, run.latency_sums_ms),
    )
    result = cut.judged()
    assert result.state == "unsteady"
    assert "handle 6" in result.sentence
    assert result.waiting_last == run.judged().waiting_last


def test_a_stop_at_the_end_leaves_messages_waiting() -> None:
    run = queue(np.random.default_rng(1), 0.5)
    is_late = np.arange(256) >= 200
    stopped = replace(
        run,
        done=np.where(is_late, 0, run.done),
        counts=np.where(is_late, 0, run.counts),
        latency_sums_ms=np.where(is_late, 0, run.latency_sums_ms),
    )
    result = stopped.judged()
    assert result.state == "unsteady"
    last, first, done, offered = numbers(result.sentence)
    assert "were waiting at the end" in result.sentence
    assert (last, first) == (result.waiting_last, result.waiting_first)
    assert last == pytest.approx(56 / 256 * 12 * 1100, rel=0.1)
    assert done == pytest.approx(offered * 200 / 256, rel=0.05)


def test_what_is_lost_on_the_way_does_not_wait() -> None:
    rng = np.random.default_rng(1)
    run = queue(rng, 0.5)
    kept = rng.binomial(run.due.astype(int), 0.8).astype(np.float64)
    lossy = replace(run, counts=kept, done=kept, latency_sums_ms=run.latency_sums_ms * 0.8)
    result = lossy.judged()
    assert result.state == "steady"
    assert result.waiting_last == result.waiting_first
    assert result.done_per_s == pytest.approx(0.8 * 1100, rel=0.05)


def test_a_small_change_is_not_worth_an_alarm() -> None:
    def run(first_ms: float, last_ms: float) -> Run:
        rng = np.random.default_rng(1)

        def level(at: Floats) -> Floats:
            return np.interp(at, [0, 1], [first_ms, last_ms])

        return shaped(rng, tau_s=0.05, sigma=0.01, level_ms=level)

    assert run(10, 11).judged().state == "steady"
    assert run(0.5, 0.8).judged().state == "steady"
    assert run(10, 14).judged().state == "unsteady"
    assert run(14, 10).judged().state == "unsteady"


# --- too little to test --------------------------------------------------------------------------


def even(messages: int, length_s: float, slices: int = 128) -> Run:
    at = np.linspace(0, messages, slices + 1).round()
    each = np.diff(at)
    return Run(5 * each, each, each, each, length_s / slices)


@pytest.mark.parametrize(
    ("messages", "length_s"), [(40, 2.0), (5000, 2.0), (199, 60.0), (0, 12.0), (0, 0.5)]
)
def test_a_short_run_is_not_tested_and_says_what_it_takes(messages: int, length_s: float) -> None:
    result = even(messages, length_s).judged()
    assert result.state == "not tested"
    assert numbers(result.sentence) == [messages, length_s, 200, 3]
    assert result.judged_s == length_s


def test_the_shortest_run_is_tested() -> None:
    result = even(200, 3.0, slices=100).judged()
    assert (result.state, result.sentence) == ("steady", "")
    assert (result.latency_first_ms, result.latency_last_ms) == (5, 5)
    assert (steadiness.LEAST_MESSAGES, steadiness.LEAST_S) == (200, 3)


def test_a_run_without_slices_is_not_tested() -> None:
    result = judge([], [], [], [], 0.1)
    assert result.state == "not tested"
    assert numbers(result.sentence) == [0, 0, 200, 3]
    assert result.offered_per_s is None


def test_a_run_that_lost_everything_is_not_tested() -> None:
    nothing = np.zeros(128)
    result = judge(nothing, nothing, nothing + 10, nothing, 0.1)
    assert result.state == "not tested"
    assert numbers(result.sentence) == [1280]
    assert result.latency_first_ms is None
    assert result.offered_per_s == pytest.approx(100)


def test_too_few_arrivals_are_not_tested() -> None:
    run = even(50, 12)
    result = replace(run, due=run.due + 10).judged()
    assert result.state == "not tested"
    assert numbers(result.sentence) == [50, 12, 200, 3]


def test_messages_that_come_all_at_once_are_not_tested() -> None:
    at_once = np.where(np.arange(128) % 16 == 0, 100.0, 0.0)
    result = judge(5 * at_once, at_once, at_once, at_once, 0.1)
    assert result.state == "not tested"
    assert numbers(result.sentence) == [800, 8, 20]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="differ in number"):
        judge([1.0], [1, 2], [1, 2], [1, 2], 0.1)
    with pytest.raises(ValueError, match="negative"):
        judge([1.0], [1], [-1], [1], 0.1)
    with pytest.raises(ValueError, match="not finite"):
        judge([math.nan], [1], [1], [1], 0.1)
    with pytest.raises(ValueError, match="0 s"):
        judge([1.0], [1], [1], [1], 0)


# --- whatever comes ------------------------------------------------------------------------------

slices = st.lists(
    st.tuples(st.floats(0, 1e9), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000)),
    max_size=150,
)


@given(slices, st.floats(0.001, 100), st.integers(0, 10**6))
def test_every_run_has_a_result(
    rows: list[tuple[float, int, int, int]], slice_s: float, waiting: int
) -> None:
    sums, counts, due, done = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        result = judge(sums, counts, due, done, slice_s, waiting_first=waiting)
    assert result.state in ("steady", "unsteady", "not tested")
    assert (result.sentence == "") == (result.state == "steady")
    assert "nan" not in result.sentence
    assert "inf" not in result.sentence
    for figure in (result.latency_first_ms, result.latency_last_ms, result.done_per_s):
        assert figure is None or math.isfinite(figure)


@settings(max_examples=30)
@given(st.sampled_from([*STEADY, *UNSTEADY]), st.integers(0, 10**6), st.floats(1, 1000))
def test_the_unit_of_time_does_not_matter(name: str, seed: int, factor: float) -> None:
    """A run that is slower in everything but its latency is as steady."""
    family = STEADY[name] if name in STEADY else UNSTEADY[name][0]
    run = family(np.random.default_rng(seed))
    result, slower = run.judged(), replace(run, slice_s=run.slice_s * factor).judged()
    assert slower.state == result.state
    assert slower.judged_s == pytest.approx(factor * result.judged_s)
    assert slower.waiting_last == result.waiting_last
    assert slower.latency_last_ms == result.latency_last_ms
    assert slower.done_per_s == pytest.approx((result.done_per_s or 0) / factor)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 5.0, 10.0]))
def test_backwards_growth_is_decay(seed: int, growth_ms: float) -> None:
    run = moderate(np.random.default_rng(seed), level_ms=lambda at: 10 + growth_ms * at)
    backwards = Run(
        run.latency_sums_ms[::-1], run.counts[::-1], run.due[::-1], run.done[::-1], run.slice_s, 10
    )
    result, other = run.judged(), backwards.judged()
    assert result.state == other.state
    assert result.latency_first_ms == pytest.approx(other.latency_last_ms)
    assert ("grew" in result.sentence) == ("fell" in other.sentence)
