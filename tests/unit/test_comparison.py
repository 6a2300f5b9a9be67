"""Comparisons of hand-made runs: what exceeds the noise, what does not, and what cannot be told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_runs import acks, estimate, metrics, run, shown, spec

from penstock import specs
from penstock.domain.errors import BadInput
from penstock.domain.settings import ProducerSettings
from penstock.report import tables
from penstock.report.comparison import ComparedValue, Comparison, compare
from penstock.report.reported_run import ReportedRun, sides

T_2 = 4.302653  # 97.5 % quantile of Student's t with two degrees of freedom


def measured(comparison: Comparison, figure: str, side: int = 1) -> ComparedValue:
    [row] = [row for row in comparison.rows if row.figure == figure]
    return row.values[side]


def test_a_difference_beyond_the_noise() -> None:
    comparison = compare([acks("1", 24.0), acks("all", 48.0)])
    p50 = measured(comparison, "latency.p50_ms")
    assert p50.difference == pytest.approx(24)
    assert p50.ratio == pytest.approx(2)
    assert p50.low is not None and p50.high is not None
    assert 22 < p50.low < 24 < p50.high < 26
    assert p50.exceeds_noise and p50.is_judged
    assert "acks=all #1 against acks=1 #1: p50 latency +24 ms (×2.0)" in comparison.sentence
    assert "lost share, duplicated share and goodput: no difference beyond the noise" in (
        comparison.sentence
    )


def test_a_difference_within_the_noise() -> None:
    comparison = compare([acks("1", 24.0, half=5.0), acks("all", 25.0, half=5.0)])
    p50 = measured(comparison, "latency.p50_ms")
    assert p50.is_judged and not p50.exceeds_noise
    assert p50.low is not None and p50.high is not None and p50.low < 0 < p50.high
    assert "p50 latency" in comparison.sentence.partition("no difference beyond the noise")[0]


def test_without_intervals_nothing_is_judged() -> None:
    comparison = compare([acks("1", 24.0, half=None), acks("all", 48.0, half=None)])
    p50 = measured(comparison, "latency.p50_ms")
    assert p50.difference == pytest.approx(24)
    assert not p50.is_judged and not p50.exceeds_noise and p50.low is None
    assert "too little to tell" in comparison.sentence
    assert "beyond the noise" not in comparison.sentence


def test_one_side_without_an_interval_is_enough_to_judge_nothing() -> None:
    comparison = compare([acks("1", 24.0), acks("all", 48.0, half=None)])
    assert not measured(comparison, "latency.p50_ms").is_judged


def test_a_side_where_nothing_arrived() -> None:
    comparison = compare([acks("1", 24.0), acks("all", None, lost=1000)])  # type: ignore[arg-type]
    assert measured(comparison, "latency.p50_ms") == ComparedValue(None)
    assert measured(comparison, "lost_share").exceeds_noise
    assert "lost share +100 points" in comparison.sentence
    assert "p50 latency, p99 latency and goodput: not measured on both sides" in comparison.sentence


def test_nothing_was_sent_at_all() -> None:
    empty = metrics(p50_ms=None, sent=0, seconds=())
    comparison = compare([shown("a", empty), shown("b", empty, name="other")])
    assert measured(comparison, "throughput_per_s").difference == 0
    assert all(row.figure != "lost_share" for row in comparison.rows)
    assert "nothing to compare" in comparison.sentence


@settings(max_examples=25)
@given(st.floats(1, 1000), st.floats(0.1, 100), st.floats(1, 1000), st.floats(0.1, 100))
def test_the_other_way_round_it_is_the_same_difference(
    a: float, half_a: float, b: float, half_b: float
) -> None:
    there = measured(compare([acks("1", a, half=half_a), acks("all", b, half=half_b)]), P50)
    back = measured(compare([acks("all", b, half=half_b), acks("1", a, half=half_a)]), P50)
    assert there.exceeds_noise == back.exceeds_noise
    assert back.difference is not None and back.high is not None
    assert there.difference == pytest.approx(-back.difference)
    assert there.low == pytest.approx(-back.high)


P50 = "latency.p50_ms"


# --- repeats -------------------------------------------------------------------------------------


def test_repeats_are_one_side_with_the_interval_over_repeats() -> None:
    runs = [acks("1", p50, i, half=0.01) for i, p50 in enumerate((10.0, 12.0, 14.0))]
    runs += [acks("all", p50, i, half=0.01) for i, p50 in enumerate((30.0, 32.0, 34.0))]
    comparison = compare(runs)
    assert [side.label for side in comparison.sides] == ["acks=1", "acks=all"]
    assert comparison.sides[0].runs == ("acks=1 #1", "acks=1 #2", "acks=1 #3")
    base = measured(comparison, P50, 0).estimate
    assert base is not None and base.low is not None and base.high is not None
    # s = 2, n = 3
    assert base.value == pytest.approx(12)
    assert base.high - 12 == pytest.approx(T_2 * 2 / 3**0.5, rel=1e-4)
    assert 12 - base.low == pytest.approx(T_2 * 2 / 3**0.5, rel=1e-4)
    assert measured(comparison, P50).difference == pytest.approx(20)
    assert measured(comparison, P50).exceeds_noise
    assert "repeat to repeat" in comparison.notes[0]


def test_what_varies_between_repeats_is_noise_even_if_each_run_is_sure_of_itself() -> None:
    narrow: dict[str, Any] = {"half": 0.1}
    one, other = acks("1", 20.0, **narrow), acks("all", 25.0, **narrow)
    assert measured(compare([one, other]), P50).exceeds_noise
    runs = [acks("1", p50, i, **narrow) for i, p50 in enumerate((15.0, 20.0, 25.0))]
    runs += [acks("all", p50, i, **narrow) for i, p50 in enumerate((20.0, 25.0, 30.0))]
    comparison = compare(runs)
    assert measured(comparison, P50).is_judged and not measured(comparison, P50).exceeds_noise


def test_two_repeats_that_differ_tell_little() -> None:
    runs = [acks("1", p50, i) for i, p50 in enumerate((1.0, 1.1))]
    runs += [acks("all", p50, i) for i, p50 in enumerate((74.0, 90.0))]
    comparison = compare(runs)
    assert not measured(comparison, P50).is_judged
    assert "p50 latency" in comparison.sentence and "too little to tell" in comparison.sentence


def test_repeats_may_come_in_any_order() -> None:
    runs = [acks(a, 10.0 + i, i) for i in range(3) for a in ("1", "all")]
    assert [len(side.runs) for side in sides(runs)] == [3, 3]


def test_runs_of_another_campaign_are_not_repeats() -> None:
    first = [acks("1", 10.0 + i, i) for i in range(2)]
    again = [replace(s, label=f"again/{s.label}", origin="again") for s in first]
    campaign_sides = sides([*first, *again])
    assert [[s.label for s in side.runs] for side in campaign_sides] == [
        ["acks=1 #1", "acks=1 #2"],
        ["again/acks=1 #1", "again/acks=1 #2"],
    ]
    assert len({side.label for side in campaign_sides}) == 2


def test_runs_with_different_settings_are_not_repeats() -> None:
    one = shown("a", made=run(settings=ProducerSettings(acks="1")))
    other = shown("b", made=run(settings=ProducerSettings(acks="all"), repeat=1))
    assert len(sides([one, other])) == 2


def test_repeats_of_a_run_without_a_matrix_are_called_by_its_name() -> None:
    campaign_sides = sides([shown(f"orders #{i + 1}", repeat=i) for i in range(3)])
    assert [(side.label, len(side.runs)) for side in campaign_sides] == [("orders", 3)]


def test_less_than_two_sides_cannot_be_compared() -> None:
    with pytest.raises(BadInput, match="at least two runs that are not repeats"):
        compare([acks("1", 10.0, i) for i in range(3)])


# --- runs that must not be used ------------------------------------------------------------------


def spoilt(value: str, p50_ms: float, repeat: int = 0) -> ReportedRun:
    original = acks(value, p50_ms, repeat)
    return replace(original, run=replace(original.run, invalid=("the generator was late",)))


def test_an_invalid_repeat_counts_in_nothing() -> None:
    runs = [acks("1", 10.0, 0), acks("1", 12.0, 1), spoilt("1", 500.0, 2), acks("all", 30.0, 0)]
    comparison = compare(runs)
    base = measured(comparison, P50, 0).estimate
    assert base is not None and base.value == pytest.approx(11)
    assert any("acks=1 #3" in note for note in comparison.notes)
    assert not any(side.problems for side in comparison.sides)


def test_an_invalid_side_is_shown_and_not_judged() -> None:
    comparison = compare([acks("1", 10.0), spoilt("all", 500.0)])
    assert not measured(comparison, P50).is_judged and not measured(comparison, P50).exceeds_noise
    assert comparison.sides[1].problems == ("the generator was late",)
    assert "not compared: the generator was late" in comparison.sentence


def test_an_invalid_run_cannot_be_the_base() -> None:
    comparison = compare([spoilt("1", 10.0), acks("all", 500.0)])
    assert not any(value.exceeds_noise for row in comparison.rows for value in row.values)
    assert comparison.sentence == "acks=1 #1 cannot be the base: the generator was late."


def test_a_failed_run_is_not_used() -> None:
    original = acks("all", 20.0)
    failed = replace(
        original, run=replace(original.run, status="failed", reason="broker 2 never came up")
    )
    comparison = compare([acks("1", 10.0), failed])
    assert "the run failed: broker 2 never came up" in comparison.sentence


# --- words, rows, JSON ---------------------------------------------------------------------------


def test_a_broken_promise_is_in_the_sentence() -> None:
    comparison = compare([acks("1", 24.0, lost=20, acknowledged_yet_lost=15), acks("all", 24.0)])
    assert "acknowledged yet lost: 0 % against 1.5 %" in comparison.sentence
    assert "acknowledged yet lost" not in compare([acks("1", 24.0), acks("all", 24.0)]).sentence


def test_many_sides_are_summarised_by_ranges() -> None:
    runs = [
        shown(f"batch={b}", metrics(p50_ms=10.0 * b), run({"b": str(b)}, settings=batch(b)))
        for b in range(1, 8)
    ]
    comparison = compare(runs)
    assert comparison.sentence.startswith("Of 6 against batch=1, a difference beyond the noise:")
    assert "p50 latency in 6 (+10 ms to +60 ms)" in comparison.sentence
    assert "lost share in none" in comparison.sentence
    assert any("by chance" in note for note in comparison.notes)


def batch(size: int) -> ProducerSettings:
    return ProducerSettings(batch_num_messages=size)


def test_the_rows_of_few_sides_have_a_column_for_each() -> None:
    table = tables.compared(compare([acks("1", 24.0), acks("all", 48.0)]))
    assert table.columns == ["figure", "acks=1 #1", "acks=all #1", "difference", "beyond the noise"]
    first = [str(cell) for cell in table.rows[0]]
    assert first[:3] == ["p50 latency", "24 ms [23, 25]", "48 ms [47, 49]"]
    assert first[3].startswith("+24 ms (×2.0) [")
    assert first[4] == "yes"
    by_name = {str(row[0]): [str(cell) for cell in row] for row in table.rows}
    assert by_name["p99.9 latency"][4] == "cannot tell"
    assert by_name["lost share"][4] == "no"


def test_the_rows_of_many_sides_are_the_sides() -> None:
    runs = [
        shown(f"batch={b}", metrics(p50_ms=10.0 * b), run({"b": str(b)}, settings=batch(b)))
        for b in range(1, 6)
    ]
    table = tables.compared(compare(runs))
    assert [str(row[0]) for row in table.rows] == [f"batch={b}" for b in range(1, 6)]
    assert str(table.rows[1][1]) == "20 ms · +10 ms (×2.0)"


def test_it_can_be_written_as_json_without_the_batches() -> None:
    comparison = compare([acks("1", 24.0), acks("all", None, lost=1000)])  # type: ignore[arg-type]
    written = specs.dump_json(comparison)
    assert '"exceeds_noise": true' in written
    assert '"batches": [' not in written


def test_figures_that_nobody_can_compare_do_not_stop_the_others() -> None:
    broken = replace(metrics(), goodput_mb_per_s=estimate(float("nan")))
    comparison = compare([shown("a", broken), shown("b", broken, name="b")])
    assert all(row.figure != "goodput_mb_per_s" for row in comparison.rows)
    assert spec("a") != spec("b")
