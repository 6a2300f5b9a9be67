"""Repeats that disagree, and the first cell of a campaign run again at its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from report_runs import COLD, STILL_WARMING, UNSTEADY, acks, metrics, run, shown
from test_report import page

from penstock import specs
from penstock.domain.errors import BadInput
from penstock.report import outcome, tables
from penstock.report.comparison import compare
from penstock.report.disagreement import disagreements
from penstock.report.drift import Drift, drifts
from penstock.report.reported_run import ReportedRun, counted, sides

AGAIN = {"is_again": True}


def repeats(*p50s_ms: float, value: str = "all", **of: Any) -> list[ReportedRun]:
    return [acks(value, p50_ms, i, **of) for i, p50_ms in enumerate(p50s_ms)]


# --- repeats -------------------------------------------------------------------------------------


def test_disagreeing_repeats_are_reported_first() -> None:
    runs = repeats(10.0, 100.0, 1_000.0, half=2.0)
    [disagreement] = disagreements(sides(runs))
    assert (disagreement.label, disagreement.repeats) == ("acks=all", 3)
    ranges = {each.figure: (each.smallest, each.largest) for each in disagreement.ranges}
    # Throughput and loss are the same in all of them.
    assert ranges == {
        "latency.mean_ms": pytest.approx((13.0, 1300.0)),
        "latency.p50_ms": pytest.approx((10.0, 1000.0)),
        "latency.p99_ms": pytest.approx((80.0, 8000.0)),
    }
    assert all(each.p_value < 0.01 for each in disagreement.ranges)
    assert disagreement.sentence.startswith("The 3 repeats of acks=all disagree")
    assert "mean latency 13 to 1,300 ms, p50 latency 10 to 1,000 ms" in disagreement.sentence
    assert outcome.of_runs(runs).startswith(disagreement.sentence)


def test_repeats_that_agree_within_their_intervals_are_not_mentioned() -> None:
    runs = repeats(24.0, 26.0, 25.0, half=3.0)
    assert disagreements(sides(runs)) == ()
    assert "disagree" not in page(*runs).text


def test_only_runs_that_may_be_used_can_disagree() -> None:
    wide = repeats(10.0, 100.0, half=2.0)
    steady = [replace(s, metrics=replace(s.metrics, steadiness=UNSTEADY)) for s in wide[1:]]
    assert disagreements(sides([wide[0], *steady])) == ()
    invalid = [replace(s, run=replace(s.run, invalid=("late",))) for s in wide]
    assert disagreements(sides([wide[0], invalid[1]])) == ()
    assert disagreements(sides(invalid)) == ()
    assert len(disagreements(sides(wide))) == 1


def test_unsteady_repeats_can_disagree_in_what_they_lost() -> None:
    runs = [
        acks("1", 24.0, i, lost=lost, half=5.0, steadiness=UNSTEADY)
        for i, lost in enumerate((10, 500))
    ]
    [disagreement] = disagreements(sides(runs))
    assert [each.figure for each in disagreement.ranges] == ["lost_share"]
    assert "lost share 1 to 50 %" in disagreement.sentence


def test_the_page_alarms_of_every_side_and_the_sentence_of_a_few() -> None:
    runs = [
        shown(
            f"b={b} #{i + 1}",
            metrics(p50_ms=p50_ms, half=1.0),
            run({"b": str(b)}, i, name=f"b{b}"),
        )
        for b in range(5)
        for i, p50_ms in enumerate((10.0, 100.0))
    ]
    document = page(*runs)
    assert document.having(role="alert") == ["div"]
    alarm = document.text.partition("Repeats disagree")[2].partition("Overview")[0]
    assert all(f"The 2 repeats of b={b} disagree" in alarm for b in range(5))
    sentence = outcome.of_runs(runs)
    assert sentence.count(" disagree by more") == 3
    assert "So do the repeats of 2 more cells." in sentence


# --- drift ---------------------------------------------------------------------------------------


def campaign(again_ms: float = 24.0, **of: Any) -> list[ReportedRun]:
    """Two cells, and the first again."""
    again = acks("1", again_ms, of_run=AGAIN, **of)
    return [acks("1", 24.0), acks("all", 48.0), replace(again, label="acks=1, again")]


def drift_of(runs: list[ReportedRun]) -> Drift:
    [drift] = drifts(runs)
    return drift


def test_a_first_cell_that_was_repeated_later_says_nothing_of_drift() -> None:
    first, other, again = campaign()
    later = replace(first, run=replace(first.run, started_at="2026-01-03T00:00:00+00:00"))
    drift = drift_of([later, other, again])
    assert drift.state == "not judged"
    assert "repeated after" in drift.sentence


def test_drift_is_reported_with_numbers() -> None:
    runs = campaign(48.0)
    drift = drift_of(runs)
    assert (drift.state, drift.cell) == ("drift", "acks=1")
    changes = {c.figure: c for c in drift.changes}
    assert changes["latency.mean_ms"].has_drifted
    assert changes["latency.mean_ms"].ratio == pytest.approx(2)
    assert not changes["throughput_per_s"].has_drifted
    assert "mean latency 62.4 ms instead of 31.2 ms and p50 latency 48 ms instead of 24 ms" in (
        drift.sentence
    )
    assert outcome.of_runs(runs).startswith(drift.sentence)
    assert page(*runs).having(role="alert") == ["div"]


def test_faster_at_the_end_is_drift_too() -> None:
    assert drift_of(campaign(12.0)).state == "drift"


@pytest.mark.parametrize(
    ("again_ms", "half"),
    [(25.0, 0.01), (48.0, 60.0)],
    ids=["less than a tenth", "within the noise"],
)
def test_small_or_noisy_differences_are_not_drift(again_ms: float, half: float) -> None:
    runs = campaign(again_ms, half=half)
    drift = drift_of(runs)
    assert drift.state == "no drift"
    assert not any(change.has_drifted for change in drift.changes)
    assert "Drift" not in outcome.of_runs(runs)
    text = page(*runs).text
    assert drift.sentence in text.partition("Notes")[2]


def test_what_was_not_lost_before_and_is_now_drifted() -> None:
    drift = drift_of(campaign(24.0, lost=100))
    [lost] = [c for c in drift.changes if c.figure == "lost_share"]
    assert lost.has_drifted and lost.ratio is None
    assert "lost share 10 % instead of 0 %" in drift.sentence


def test_drift_is_reported_after_disagreements() -> None:
    runs = [
        acks("1", 24.0),
        acks("1", 240.0, 1),
        acks("all", 48.0, of_run={"cluster_state": COLD}),
        campaign(48.0)[2],
    ]
    sentence = outcome.of_runs(runs)
    places = [sentence.index(word) for word in ("disagree", "Drift:", "Cold:", "against")]
    assert places == sorted(places)


@pytest.mark.parametrize("place", [0, 2], ids=["first", "again"])
@pytest.mark.parametrize("why", ["invalid", "cold", "unsteady", "failed"])
def test_drift_cannot_be_judged_by_a_run_that_cannot_be_used(place: int, why: str) -> None:
    runs = campaign(48.0)
    one = runs[place]
    unanalysed = []
    if why == "invalid":
        runs[place] = replace(one, run=replace(one.run, invalid=("the generator was late",)))
        reason = "the generator was late"
    elif why == "cold":
        runs[place] = replace(one, run=replace(one.run, cluster_state=COLD))
        reason = STILL_WARMING
    elif why == "unsteady":
        runs[place] = replace(one, metrics=replace(one.metrics, steadiness=UNSTEADY))
        reason = UNSTEADY.sentence
    else:
        del runs[place]
        failed = replace(one.run, status="failed", reason="broker 2 never came up\nmore")
        unanalysed = [(one.origin, failed)]
        reason = "failed: broker 2 never came up."
    [drift] = drifts(runs, unanalysed)
    assert drift.state == "not judged" and drift.changes == ()
    assert reason in drift.sentence
    assert ("the first run of" if place == 0 else "at the end") in drift.sentence
    text = page(*runs, drift=[drift]).text
    assert drift.sentence in text.partition("Warnings")[2]


def test_drift_cannot_be_judged_without_intervals_or_without_the_first_run() -> None:
    short = [replace(s, metrics=metrics(half=None)) for s in campaign()]
    assert drift_of(short).state == "not judged"
    assert drift_of(campaign()[1:]).state == "not judged"


def test_the_first_run_is_that_of_the_same_campaign_cell_and_repeat() -> None:
    runs = campaign(24.0)
    others = [acks("1", 500.0, 1), replace(acks("1", 500.0), origin="another campaign")]
    assert drift_of([*others, *runs]).state == "no drift"
    elsewhere = [replace(s, origin="another campaign") for s in campaign(48.0)]
    assert [d.state for d in drifts([*runs, *elsewhere])] == ["no drift", "drift"]


def test_without_a_run_again_there_is_nothing_to_say_of_drift() -> None:
    assert drifts(campaign()[:2]) == ()


def test_the_run_again_is_on_no_side_and_in_no_table() -> None:
    runs = campaign(777.0)
    assert [side.label for side in sides(runs)] == ["acks=1 #1", "acks=all #1"]
    assert compare(runs).sides == compare(runs[:2]).sides
    assert tables.overview(runs) == tables.overview(runs[:2])
    document = page(*runs)
    assert "2 runs of" in document.text
    assert "acks=1, again" not in document.text
    assert document.text.count("777 ms") == 2  # in the outcome and in the alarm
    with pytest.raises(BadInput):
        compare([runs[0], runs[2]])


def test_a_run_again_that_is_shown_alone_is_a_run() -> None:
    assert counted(campaign()[2:]) == campaign()[2:]
    assert "Of 1,000 messages" in outcome.of_runs(campaign()[2:])


def test_both_can_be_written_as_json() -> None:
    assert '"has_drifted": true' in specs.dump_json(drifts(campaign(48.0)))
    written = specs.dump_json(disagreements(sides(repeats(10.0, 100.0))))
    assert '"p_value"' in written and '"smallest": 13.0' in written
