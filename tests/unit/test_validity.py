"""Which runs are valid, from what was read and what the brokers hold. No cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import report_runs

from penstock.domain.run import Run
from penstock.runs.validity import checked, uncounted


def run(ends: dict[str, int], markers: int = 0, **changed: Any) -> Run:
    base = report_runs.run(end_offsets=ends, **changed)
    [producer] = base.producers
    return replace(base, producers=(replace(producer, control_markers=markers),))


def reasons(finished_run: Run, records: int) -> tuple[str, ...]:
    return checked(finished_run, report_runs.metrics(records=records)).invalid


def test_all_that_the_brokers_hold_was_read() -> None:
    finished_run = run({"0": 600, "1": 400})
    assert checked(finished_run, report_runs.metrics(records=1000)) is finished_run


@pytest.mark.parametrize("records", [999, 1001])
def test_another_number_of_records_than_the_brokers_hold(records: int) -> None:
    finished_run = run({"0": 600, "1": 400})
    expected = (f"{records} records were read, but the brokers have 1000",)
    assert reasons(finished_run, records) == expected
    again = replace(finished_run, invalid=expected)
    assert reasons(again, records) == expected  # not a second time


def test_control_markers_are_held_and_not_read() -> None:
    finished_run = run({"0": 606, "1": 404}, markers=10)
    assert reasons(finished_run, 1000) == ()
    assert reasons(finished_run, 1010) == (
        "1010 records were read, but the brokers have 1000 beside 10 control markers",
    )
    # Markers do not make up for records that were not read.
    assert reasons(run({"0": 1010}), 1000) == ("1000 records were read, but the brokers have 1010",)


def test_messages_do_not_count_but_records_do() -> None:
    """Duplicates are records of their own, foreign ones and those of the warm-up are read too."""
    of = report_runs.metrics(duplicated=7, lost=3, foreign=2, warm_up=100, records=1106)
    assert checked(run({"0": 1106}), of).invalid == ()


def test_what_could_not_be_read_is_reported_elsewhere() -> None:
    assert reasons(run({"0": 10}, unreadable=(1,)), 5) == ()
    assert reasons(run({"0": 10}, unread=(0,)), 5) == ()


@pytest.mark.parametrize("name", ["cleanup.policy", "retention.ms", "delete.retention.ms"])
def test_a_topic_that_forgets_is_not_judged_by_its_ends(name: str) -> None:
    finished_run = run({"0": 10})
    topic = replace(finished_run.spec.topic, config={name: "1"})
    assert reasons(replace(finished_run, spec=replace(finished_run.spec, topic=topic)), 5) == ()


def test_an_interrupted_run_is_invalid_whatever_it_read() -> None:
    [reason] = reasons(run({"0": 10}, status="interrupted"), 10)
    assert reason.startswith("the run was interrupted")


def test_records_read_again_do_not_make_up_for_an_exact_count() -> None:
    finished_run = run({"0": 600, "1": 400})
    assert uncounted(finished_run, 1003, is_exact=False) is None
    assert uncounted(finished_run, 1003, is_exact=True) is not None
    assert uncounted(finished_run, 997, is_exact=False) == (
        "997 records were read, but the brokers have 1000"
    )
