"""Runs that were not steady, and clusters that were cold: marked wherever they are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from report_runs import COLD, GREW, OBJECTIVE, STILL_WARMING, UNSTEADY, acks, metrics, run, shown
from test_report import page

from penstock.domain.run import ObserverCost
from penstock.domain.steadiness import State, Steadiness
from penstock.report import outcome, tables
from penstock.report.charts import latency_parts
from penstock.report.comparison import compare
from penstock.report.conditions import conditions
from penstock.report.figures import Figure, figures
from penstock.report.formatting import NOT_STEADY
from penstock.report.matrix_charts import flat_figures, over_matrix
from penstock.report.notices import notices
from penstock.report.percentiles import latency_by_percentile
from penstock.report.reported_run import ReportedRun, sides
from penstock.report.tables import Table

P50, GOODPUT = "latency.p50_ms", "goodput_mb_per_s"


def unsteady(
    value: str = "all", p50_ms: float = 1_234.0, repeat: int = 0, **of: Any
) -> ReportedRun:
    return acks(value, p50_ms, repeat, steadiness=UNSTEADY, **of)


def texts(table: Table) -> list[list[str]]:
    return [[str(cell) for cell in row] for row in table.rows]


def figure(runs: list[ReportedRun], name: str) -> Figure:
    [match] = [f for f in figures([s.metrics for s in runs]) if f.name == name]
    return match


# --- which figures -------------------------------------------------------------------------------


def test_times_and_shares_of_late_messages_need_a_steady_run_and_counts_do_not() -> None:
    is_time_like = {f.name: f.is_time_like for f in figures([metrics(stale=3)])}
    for name in ("latency.mean_ms", "parts.commit.mean_ms", "violation_share.50", "share.stale"):
        assert is_time_like[name]
    for name in ("lost_share", "duplicated_share", "throughput_per_s", "goodput_mb_per_s"):
        assert not is_time_like[name]


def test_a_side_takes_its_times_from_the_steady_repeats_and_the_rest_from_all() -> None:
    runs = [
        acks("1", 10.0, 0, lost=0),
        acks("1", 20.0, 1, lost=0),
        unsteady("1", 9_000.0, 2, lost=300),
    ]
    [side] = sides(runs)
    p50 = side.estimate(figure(runs, P50))
    lost = side.estimate(figure(runs, "lost_share"))
    assert p50 is not None and p50.value == pytest.approx(15)
    assert lost is not None and lost.value == pytest.approx(0.1)
    assert not side.unsteadiness


def test_a_side_without_a_steady_run_has_no_times() -> None:
    runs = [unsteady(repeat=0), unsteady(repeat=1)]
    [side] = sides(runs)
    assert side.estimate(figure(runs, P50)) is None
    assert side.estimate(figure(runs, GOODPUT)) is not None
    assert side.text(figure(runs, P50)) == NOT_STEADY
    assert side.unsteadiness == GREW


# --- sentence and tables -------------------------------------------------------------------------


def test_the_sentence_of_an_unsteady_run_begins_with_why_and_has_no_times() -> None:
    one = shown(of=metrics(lost=3, steadiness=UNSTEADY), made=run(objective=OBJECTIVE))
    sentence = outcome.of_run(one)
    assert sentence.startswith(f"Not steady: {GREW}. The objective is not judged. Of 1,000 ")
    assert "3 (0.3 %) were lost" in sentence
    assert "within" not in sentence


@pytest.mark.parametrize("state", ["steady", "not tested", "changed on purpose"])
def test_the_other_states_change_no_figure(state: State) -> None:
    plain = shown(made=run(objective=OBJECTIVE))
    marked = shown(
        of=metrics(steadiness=Steadiness(state=state, sentence="why")),
        made=run(objective=OBJECTIVE),
    )
    first = "Steadiness was not tested: why. " if state == "not tested" else ""
    assert outcome.of_run(marked) == first + outcome.of_run(plain)
    assert marked.verdict == plain.verdict
    assert tables.latencies([marked]) == tables.latencies([plain])
    notes = notices([marked])
    assert [(n.kind, "why" in n.text) for n in notes] == (
        [] if state == "steady" else [("note", True)]
    )


def test_the_times_of_an_unsteady_run_are_in_no_table() -> None:
    one = shown(of=metrics(p50_ms=1_234.0, steadiness=UNSTEADY))
    for row in texts(tables.latencies([one])):
        assert row[1] == "1,000"
        assert set(row[2:]) == {NOT_STEADY}
    by_name = {row[0]: row[1] for row in texts(tables.throughputs([one]))}
    assert by_name["share later than 50 ms"] == by_name["timely throughput"] == NOT_STEADY
    assert by_name["goodput"].startswith("0.01 MB/s")
    assert texts(tables.states([one])) == texts(tables.states([shown(of=metrics())]))


def test_of_several_runs_only_those_that_were_not_steady_lose_their_times() -> None:
    runs = [acks("1", 24.0), unsteady("all", 1_234.0)]
    for row in texts(tables.latencies(runs)):
        assert row[1] != NOT_STEADY and row[2] == NOT_STEADY
    overview = tables.overview(runs)
    place = overview.columns.index("p50 latency")
    assert [row[place] for row in texts(overview)] == ["24 ms [23, 25]", NOT_STEADY]
    assert "1,234" not in page(*runs).text


def test_the_page_of_an_unsteady_run_warns_before_any_figure() -> None:
    document = page(shown(of=metrics(p50_ms=1_234.0, steadiness=UNSTEADY)))
    assert document.words.index("Not steady: latency figures are omitted") < document.words.index(
        "p50 latency"
    )
    assert f"p50 latency {NOT_STEADY}" in document.text
    assert "1,234" not in document.text
    assert f"tested for steadiness, s {12.5:g}" in document.text


def test_the_histogram_of_an_unsteady_run_stays_and_is_marked() -> None:
    chart = latency_by_percentile(sides([acks("1", 24.0), unsteady()]))
    assert chart is not None
    lines = {t["name"] for t in chart.figure["data"] if t["mode"] == "lines"}
    assert "acks=1 #1" in lines and "acks=all #1 (not steady)" in lines
    marks = [t["meta"]["side"] for t in chart.figure["data"] if t["mode"] == "markers"]
    assert marks == [0]  # percentiles with their intervals are those of a setting


def test_the_mean_parts_are_those_of_steady_runs() -> None:
    assert latency_parts(sides([unsteady()])) is None
    chart = latency_parts(sides([acks("1", 24.0), unsteady()]))
    assert chart is not None
    assert {tuple(t["y"]) for t in chart.figure["data"]} == {("acks=1 #1",)}


def test_over_the_matrix_a_cell_that_was_not_steady_has_no_time() -> None:
    runs = [
        acks("0", 10.0),
        acks("1", 20.0),
        unsteady("all", 9_000.0),
    ]
    charts = {chart.id: chart.figure["data"][0] for chart in over_matrix(sides(runs))}
    assert charts["matrix-latency.p50_ms"]["y"] == [10.0, 20.0]
    assert len(charts["matrix-goodput_mb_per_s"]["y"]) == 3
    every = [unsteady(value) for value in ("0", "1", "all")]
    assert "p50 latency" not in flat_figures(sides(every))
    assert "lost share" in flat_figures(sides(every))


# --- comparison ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 1], ids=["base", "other"])
def test_times_of_a_side_that_was_not_steady_are_not_compared_with_the_reason(
    place: int,
) -> None:
    runs = [acks("1", 24.0, lost=0), acks("all", 48.0, lost=200)]
    spoilt = replace(runs[place].metrics, steadiness=UNSTEADY)
    runs[place] = replace(runs[place], metrics=spoilt)
    comparison = compare(runs)
    rows = {row.figure: row for row in comparison.rows}
    assert rows[P50].values[place].estimate is None
    assert rows[P50].values[place].withheld == NOT_STEADY
    assert rows[P50].values[1].difference is None and not rows[P50].values[1].is_judged
    assert rows["lost_share"].values[1].exceeds_noise
    assert comparison.sides[place].unsteadiness == GREW
    assert f"since {runs[place].label} was not steady: {GREW}" in comparison.sentence
    assert "lost share +20 points" in comparison.sentence
    first = texts(tables.compared(comparison))[0]
    assert first[0] == "p50 latency" and first[1 + place] == NOT_STEADY


def test_the_comparison_counts_sides_without_times() -> None:
    runs = [
        shown(f"b={b}", metrics(p50_ms=10.0 * b), run({"b": str(b)}, name=f"b{b}"))
        for b in range(1, 7)
    ]
    runs[3] = replace(runs[3], metrics=replace(runs[3].metrics, steadiness=UNSTEADY))
    comparison = compare(runs)
    assert "p50 latency in 4 (" in comparison.sentence
    assert f"The times of 1 are not compared, since they were not steady (b=4: {GREW})" in (
        comparison.sentence
    )
    runs[0] = replace(runs[0], metrics=replace(runs[0].metrics, steadiness=UNSTEADY))
    assert "p50 latency not compared" in compare(runs).sentence


def test_repeats_that_were_not_steady_are_named_as_left_out() -> None:
    runs = [acks("1", 24.0, 0), unsteady("1", 1_234.0, 1), acks("all", 48.0, 0)]
    [note] = [n for n in compare(runs).notes if "not steady" in n]
    assert "acks=1 #2" in note and "acks=1 #1" not in note


# --- objectives ----------------------------------------------------------------------------------


def test_an_objective_that_is_not_judged_is_neither_met_nor_missed_in_any_table() -> None:
    one = shown(of=metrics(steadiness=UNSTEADY), made=run(objective=OBJECTIVE))
    assert one.verdict is not None
    [row] = texts(tables.verdict(one.verdict))
    assert row[tables.verdict(one.verdict).columns.index("met")] == "not judged"
    assert texts(tables.overview([one]))[0][-1] == "not judged"
    text = page(one).text
    assert f"The objective is not judged: {GREW}." in text
    assert "not met" not in text


def test_the_outcome_counts_runs_not_judged() -> None:
    late = metrics(lost=100)
    runs = [
        shown("orders #1", late, run(objective=OBJECTIVE)),
        shown("orders #2", replace(late, steadiness=UNSTEADY), run(repeat=1, objective=OBJECTIVE)),
    ]
    assert "None of 2 runs meets the objective; 1 is not judged." in outcome.of_runs(runs)
    assert texts(tables.overview(runs))[0][-1] == "met by 0 of 2, 1 not judged"


# --- cold clusters -------------------------------------------------------------------------------


def test_a_cold_run_warns_first_and_keeps_its_figures() -> None:
    one = shown(made=run(cluster_state=COLD, objective=OBJECTIVE))
    sentence = outcome.of_run(one)
    assert sentence.startswith(f"Cold: {STILL_WARMING}. The objective is not met")
    assert "half within 24 ms" in sentence
    document = page(one)
    heading = "Cold cluster: the brokers were not warm yet"
    assert document.words.index(heading) < document.words.index("p50 latency")
    # In the outcome, and in the section of the objective.
    assert document.text.count(f"Cold: {STILL_WARMING}. The objective is not met") == 2


def test_of_several_runs_the_cold_ones_are_counted_first() -> None:
    runs = [
        acks("1", 24.0, of_run={"cluster_state": COLD}),
        acks("all", 48.0),
    ]
    assert outcome.of_runs(runs).startswith(
        f"Cold: 1 of 2 runs; acks=1 #1: {STILL_WARMING}. acks=all #1 against"
    )


def test_repeats_are_labelled_by_how_many_of_them_were_cold() -> None:
    def labelled(cold: int) -> str:
        states = [COLD] * cold + [None] * (3 - cold)
        runs = [acks("1", 24.0, i, {"cluster_state": s}) for i, s in enumerate(states)]
        return sides(runs)[0].label

    assert [labelled(k) for k in (0, 1, 3)] == ["acks=1", "acks=1 (1 of 3 cold)", "acks=1 (cold)"]


def test_an_unsteady_run_on_a_cold_cluster_is_both() -> None:
    one = shown(of=metrics(steadiness=UNSTEADY), made=run(cluster_state=COLD))
    assert outcome.of_run(one).startswith(f"Cold: {STILL_WARMING}. Not steady: {GREW}. Of ")
    assert [n.kind for n in notices([one])] == ["cold", "unsteady"]


# --- evidence ------------------------------------------------------------------------------------


def test_the_conditions_of_a_run_are_in_the_evidence() -> None:
    one = shown(
        of=metrics(steadiness=UNSTEADY),
        made=run(
            cluster_state=COLD,
            observer=ObserverCost(looks=7, cpu_s=0.21, share=0.0085),
        ),
    )
    table = conditions([one])
    assert table is not None
    assert [row[1] for row in texts(table)] == [
        "123", "45,678", "still warming up", "91.2", "9.87", "1.23", "1.5",
        "unsteady", "12.5", "14,400", "18,600", "17", "1,817",
        "7", "0.21", "0.85 %",
    ]  # fmt: skip
    evidence = page(one).text.partition("How it was measured")[2]
    assert "requests it had served 45,678" in evidence
    assert "observer: samples in the measured time 7" in evidence


def test_runs_that_recorded_no_conditions_have_no_table_of_them() -> None:
    assert conditions([shown()]) is None
    table = conditions([shown("old"), shown("new", made=run(cluster_state=COLD))])
    assert table is not None and {row[1] for row in texts(table)} == {"–"}
