"""Which runs are valid, from what was read and what the brokers hold. No cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import report_runs

from penstock.domain.run import ClientCounters, ClockAnchor, Run
from penstock.runs.validity import checked, unchecked, uncounted


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


def of_topic(
    config: dict[str, Any], properties: dict[str, Any] | None = None, sent_bytes: int | None = 1000
) -> Run:
    """A run of 10 s, whose warm-up may take 95 s."""
    finished_run = run({"0": 10})
    topic = replace(finished_run.spec.topic, config=config)
    cluster = replace(finished_run.spec.cluster, properties=properties or {})
    counters = sent_bytes and ClientCounters(
        messages=10, message_bytes=900, requests=1, sent_bytes=sent_bytes, received_bytes=0
    )
    return replace(
        finished_run,
        spec=replace(finished_run.spec, topic=topic, cluster=cluster),
        producers=tuple(replace(p, counters=counters or None) for p in finished_run.producers),
    )


@pytest.mark.parametrize(
    "config",
    [
        {"cleanup.policy": "delete"},
        {"retention.ms": -1, "retention.bytes": "-1"},
        {"retention.ms": "604800000"},
        {"retention.ms": 211_000},
        {"retention.bytes": 2001},
        {"delete.retention.ms": 1, "retention.s": "no property of Kafka's"},
    ],
)
def test_a_topic_that_keeps_its_records_is_judged_by_its_ends(config: dict[str, Any]) -> None:
    finished_run = of_topic(config)
    assert unchecked(finished_run) is None
    assert reasons(finished_run, 5) == ("5 records were read, but the brokers have 10",)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            {"cleanup.policy": "compact"},
            "cleanup.policy is compact, and compaction removes records",
        ),
        ({"cleanup.policy": "compact,delete"}, "compaction removes records"),
        ({"retention.ms": "5000"}, "deleted after 5 s, and the run may have taken 105 s"),
        ({"retention.ms": 209_000}, "a retention of more than 210 s would be enough"),
        ({"retention.bytes": 1999}, "a partition keeps 1,999 bytes, and 1,000 bytes were sent"),
    ],
)
def test_a_topic_that_forgets_is_not_judged_by_its_ends_and_says_so(
    config: dict[str, Any], why: str
) -> None:
    finished_run = of_topic(config)
    assert uncounted(finished_run, 5, is_exact=True) is None
    once = checked(finished_run, report_runs.metrics(records=5))
    assert once.invalid == ()
    [warning] = once.warnings
    assert warning.startswith("the records read were not compared") and why in warning
    assert checked(once, report_runs.metrics(records=5)) is once  # not a second time


def test_bytes_that_were_not_counted_may_be_too_many() -> None:
    warning = unchecked(of_topic({"retention.bytes": 10**9}, sent_bytes=None))
    assert warning is not None and "an unknown number of bytes" in warning


@pytest.mark.parametrize(
    "properties",
    [
        {"log.cleanup.policy": "compact"},
        {"log.retention.minutes": 1},
        {"log.retention.hours": 0.01},
        {"log.retention.bytes": 1},
    ],
)
def test_what_the_brokers_are_told_counts_unless_the_topic_says_otherwise(
    properties: dict[str, Any],
) -> None:
    assert unchecked(of_topic({}, properties)) is not None
    own = {"cleanup.policy": "delete", "retention.ms": -1, "retention.bytes": -1}
    assert unchecked(of_topic(own, properties)) is None


def test_a_run_that_took_longer_needs_a_longer_retention() -> None:
    finished_run = of_topic({"retention.ms": 300_000})
    assert unchecked(finished_run) is None
    anchors = tuple(ClockAnchor(monotonic_ns=int(s * 1e9), wall_ns=0) for s in (1000, 1100))
    assert unchecked(replace(finished_run, anchors=anchors)) is not None


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
