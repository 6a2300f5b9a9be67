"""Whether a cluster is warm, from made-up seconds of load."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.stats.flatness import WINDOW, Interval, compiler_share, cost_ms, reasons

NEEDED = 2 * WINDOW


def second(cost_ms: float = 0.5, latency_ms: float = 20.0, compiling: float = 0.0) -> Interval:
    """A second in which three brokers used 1.5 cores."""
    return Interval(round(1500 / cost_ms), latency_ms, cpu_s=1.5, compiler_s=1.5 * compiling)


def test_a_flat_cluster_is_warm_as_soon_as_the_test_has_enough() -> None:
    assert reasons([second()] * NEEDED) == []
    (short,) = reasons([second()] * (NEEDED - 1))
    assert f"{NEEDED - 1} s" in short
    assert f"{NEEDED} s" in short


def test_the_first_minute_of_three_brokers() -> None:
    """CPU per request as it was measured, every second one: warm after 40 s and not before."""
    measured = [18.4, 5.2, 3.7, 3.1, 1.9, 1.7, 1.4, 0.99, 0.90, 0.89, 0.76, 0.81, 0.72, 0.64, 0.64]
    measured += [0.48, 0.57, 0.55, 0.53, 0.42, 0.49, 0.48, 0.50, 0.50, 0.51, 0.57, 0.49, 0.46, 0.45]
    compiling = [0.3] * 15 + [0.2] * 4 + [0.04] * 10
    seconds = [
        second(cost, 40 * cost, share)
        for cost, share in zip(np.repeat(measured, 2), np.repeat(compiling, 2), strict=True)
    ]
    warm_after = next(n for n in range(1, len(seconds)) if not reasons(seconds[:n]))
    assert 38 <= warm_after <= 50


def test_running_compilers_are_not_warm_even_with_flat_figures() -> None:
    (why,) = reasons([second(compiling=0.2)] * NEEDED)
    assert "20%" in why


def test_under_a_light_load_a_little_compiling_does_not_count() -> None:
    light = Interval(30, 4.0, cpu_s=0.1, compiler_s=0.02)
    assert reasons([light] * NEEDED) == []
    busy = Interval(30, 4.0, cpu_s=0.1, compiler_s=0.05)
    assert reasons([busy] * NEEDED) != []


@pytest.mark.parametrize("figure", ["cost_ms", "latency_ms"])
def test_what_falls_is_not_warm_and_what_rises_is(figure: str) -> None:
    falling = [second(**{figure: 10 * 0.95**n}) for n in range(NEEDED)]
    assert reasons(falling)
    # A queue that grows is not warmth's fault: the run says so itself.
    assert reasons(falling[::-1]) == []


def test_one_slow_second_among_the_earlier_ones_does_not_count() -> None:
    seconds = [second(latency_ms=500.0), *[second()] * (NEEDED - 1)]
    assert reasons(seconds) == []


def test_a_cluster_whose_processes_cannot_be_seen_is_judged_by_its_latency() -> None:
    unseen = [Interval(100, 20.0)] * NEEDED
    assert reasons(unseen) == []
    assert cost_ms(unseen) is None
    assert compiler_share(unseen) is None
    assert reasons([Interval(100, 20.0 - n) for n in range(NEEDED)])


def test_brokers_that_do_not_answer_are_not_warm() -> None:
    stuck = [second()] * WINDOW + [Interval(0, 0.0, 0.1, 0.0)] * WINDOW
    assert any("no request" in why for why in reasons(stuck))


def test_a_message_now_and_then_is_enough() -> None:
    """One a second, in half seconds: every other interval has no answer, and no latency."""
    rare = [Interval(n % 2, 4.0 * (n % 2), 0.02, 0.0) for n in range(NEEDED)]
    assert reasons(rare, 0.5) == []
    cooling = [Interval(n % 2, (40.0 - 3 * n) * (n % 2), 0.02, 0.0) for n in range(NEEDED)]
    assert any("latency" in why for why in reasons(cooling, 0.5))


def test_noise_of_ten_percent_does_not_keep_a_cluster_from_being_warm() -> None:
    rng = np.random.default_rng(3)
    needed = []
    for _ in range(200):
        costs = 0.5 * (1 + 0.1 * rng.standard_normal(60))
        seconds = [second(float(c), 20 * float(c), 0.02) for c in costs]
        needed.append(next(n for n in range(1, 60) if not reasons(seconds[:n])))
    assert np.mean(np.array(needed) == NEEDED) > 0.85
    assert max(needed) <= NEEDED + 2 * WINDOW


def test_without_requests_before_there_is_nothing_to_compare() -> None:
    quiet, busy = Interval(0, 0.0), Interval(3, 4.0)
    (why,) = reasons([*[quiet] * WINDOW, *[busy] * WINDOW])
    assert "to compare with" in why
