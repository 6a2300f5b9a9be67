"""Run directories on the command line: labels, failures, exit codes and `compare --json`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from report_runs import COLD, GREW, OBJECTIVE, UNSTEADY, acks, metrics, run, shown

from penstock.api.evidence import Evidence, read_back
from penstock.cli.compare import compare
from penstock.cli.demo import _sentence
from penstock.cli.evidence import exit_code, show
from penstock.domain.run import Run
from penstock.report import tables
from penstock.report.formatting import NOT_STEADY
from penstock.report.reported_run import ReportedRun
from penstock.runs.run_directory import CELLS, RunDirectory


def written(parent: Path, name: str, one: ReportedRun, **of_run: Any) -> RunDirectory:
    directory = RunDirectory(parent / CELLS / name)
    directory.path.mkdir(parents=True)
    directory.write_run(replace(one.run, id=name, **of_run))
    assert one.verdict is not None
    directory.write_metrics(one.metrics)
    directory.write_verdict(one.verdict)
    return directory


def campaign(parent: Path, again_ms: float = 24.0, **of_again: Any) -> list[RunDirectory]:
    cold = {"cluster_state": COLD}
    return [
        written(parent, "001-r1", acks("1", 24.0)),
        written(parent, "002-r1", acks("all", 48.0), **cold),
        written(parent, "001-again", acks("1", again_ms), is_again=True, **of_again),
    ]


def test_labels_mark_cold_runs_and_the_run_again(tmp_path: Path) -> None:
    labels = [one.label for one in read_back(campaign(tmp_path))]
    assert labels == ["acks=1", "acks=all (cold)", "acks=1, again"]


def test_a_failed_repeat_of_the_first_cell_is_not_a_failed_cell(tmp_path: Path) -> None:
    directories = campaign(tmp_path, status="failed", reason="no broker came up")
    evidence = Evidence(read_back(directories[:2]), tuple(directories))
    assert evidence.failed == ()
    [drift] = evidence.drift
    assert drift.state == "not judged" and "no broker came up" in drift.sentence
    cold = directories[1].run()
    directories[1].write_run(replace(cold, status="failed", reason="why\nmore"))
    assert Evidence((), tuple(directories)).failed == (("acks=all (cold)", "why"),)


def test_terminal_shows_ten_figures_and_all_of_them_with_details(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directories = campaign(tmp_path)
    evidence = Evidence(read_back(directories), tuple(directories))
    show(evidence)
    brief = capsys.readouterr().out
    for title in ("sent", "acknowledged yet lost", "p99 latency, ms", "goodput, MB/s"):
        assert title in brief
    assert "p99.9" not in brief
    assert len(brief.splitlines()) < 20
    show(evidence, details=True)
    assert "p99.9 latency" in capsys.readouterr().out


def test_summary_withholds_latencies_of_a_run_that_was_not_steady() -> None:
    table = tables.summary([shown(of=replace(metrics(), steadiness=UNSTEADY)), shown()])
    row = next(row for row in table.rows if "p99 latency" in str(row[0]))
    assert str(row[1]) == NOT_STEADY != str(row[2])


def test_compare_leaves_the_run_again_out_and_reports_drift(tmp_path: Path) -> None:
    campaign(tmp_path, again_ms=48.0)
    done = CliRunner().invoke(compare, [str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert [d["state"] for d in data["drift"]] == ["drift"]
    assert data["disagreements"] == []
    assert [s["label"] for s in data["comparison"]["sides"]] == ["acks=1", "acks=all (cold)"]
    assert data["outcome"].startswith(data["drift"][0]["sentence"] + " Cold: 1 of 2 runs;")


def test_compare_says_on_the_terminal_what_must_be_known(tmp_path: Path) -> None:
    campaign(tmp_path)
    written(tmp_path, "003-r1", acks("0", 99.0, steadiness=UNSTEADY))
    done = CliRunner().invoke(compare, [str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert f"acks=0: NOT STEADY: {GREW}" in done.stderr
    assert "acks=all (cold): COLD: " in done.stderr
    assert "agrees with its first run" in done.stdout
    assert "99 ms" not in done.stdout


def test_runs_as_data_say_how_far_to_trust_them(tmp_path: Path) -> None:
    directories = campaign(tmp_path)
    first, second = Evidence(read_back(directories), tuple(directories)).to_data()["runs"]
    assert (first["coldness"], second["label"]) == ("", "acks=all (cold)")
    assert second["coldness"] and second["cluster_state"].age_s == 123.4
    unsteady = shown(of=metrics(steadiness=UNSTEADY))
    assert Evidence((unsteady,), ()).to_data()["runs"][0]["unsteadiness"] == GREW


@pytest.mark.parametrize(
    ("one", "code"),
    [
        (shown(), 0),
        (shown(of=metrics(steadiness=UNSTEADY)), 0),
        (shown(of=metrics(steadiness=UNSTEADY), made=run(objective=OBJECTIVE)), 10),
        (shown(made=run(invalid=("late",), is_again=True)), 10),
    ],
    ids=["fine", "no objective to judge", "not judged", "alone"],
)
def test_exit_codes(one: ReportedRun, code: int) -> None:
    assert exit_code(Evidence((one,), ())) == code


def test_the_run_again_decides_no_exit_code() -> None:
    again = shown("again", made=run(invalid=("late",), is_again=True))
    assert exit_code(Evidence((shown(), again), ())) == 0


def test_the_sentence_of_the_demo_has_no_median_of_a_run_that_was_not_steady() -> None:
    sound, unsteady = acks("1", 24.0), acks("all", 777.0, steadiness=UNSTEADY)
    assert "acks=1 #1 lost no acknowledged messages (median ack 22 ms);" in _sentence(
        [sound, unsteady], ()
    )
    sentence = _sentence([sound, unsteady], ())
    assert sentence.startswith(f"Not steady: 1 of 2 runs; acks=all #1: {GREW}.")
    assert "699 ms" not in sentence
    assert "699 ms" in _sentence([acks("all", 777.0)], ())
    cold = replace(sound, run=_cold(sound.run))
    assert _sentence([cold, unsteady], ()).startswith("Cold: 1 of 2 runs;")


def _cold(finished_run: Run) -> Run:
    return replace(finished_run, cluster_state=COLD)
