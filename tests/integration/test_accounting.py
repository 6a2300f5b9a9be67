"""What became of every message: counted on traces made by hand, and against a second count."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_made import MS, WALL_NS, ZERO_NS, HandMade, ns

from penstock.analysis.analyze import analyze
from penstock.domain.metrics import MessageCounts

SECONDS = 10.0


@pytest.fixture
def run(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path / "run")


def counts(spark: Any, run: HandMade, **of_run: Any) -> MessageCounts:
    directory = run.write(seconds=SECONDS, **of_run)
    return analyze(spark, [directory])[directory].counts


def test_delivered_at_the_first_try_and_after_retries(spark: Any, run: HandMade) -> None:
    run.deliver(10, 5, tries=1)
    run.deliver(20, 5, tries=2)
    run.deliver(30, 5, tries=7)
    run.deliver(40, 5, tries=None)
    run.deliver(50, 5, tries=0)  # it cannot be in the topic and have stayed at home
    assert counts(spark, run) == MessageCounts(
        sent=5,
        acknowledged=5,
        delivered=5,
        copies=5,
        records=5,
        first_try=1,
        after_retries=2,
        tries_unknown=2,
    )


def test_loss_by_retries_and_reported_outcome(spark: Any, run: HandMade) -> None:
    run.send(10, outcome="failed", tries=1)
    run.send(20, outcome="failed", tries=3)
    run.send(30, outcome="failed", tries=0)  # timed out in the queue
    run.send(40, outcome="acknowledged", tries=1)
    run.send(50, outcome="unknown", tries=None)
    assert counts(spark, run) == MessageCounts(
        sent=5,
        lost=5,
        acknowledged=1,
        failed=3,
        unknown=1,
        acknowledged_yet_lost=1,
        never_left=1,
        lost_first_try=2,
        lost_after_retries=1,
        tries_unknown=1,
    )


def test_reported_failed_yet_delivered_once_or_twice(spark: Any, run: HandMade) -> None:
    run.deliver(10, 5, outcome="failed", tries=2)
    twice = run.deliver(20, 5, outcome="failed", tries=2)
    run.receive(twice, 900)
    assert counts(spark, run) == MessageCounts(
        sent=2,
        failed=2,
        delivered=1,
        duplicated=1,
        copies=3,
        records=3,
        failed_yet_delivered=2,
        after_retries=1,
    )


def test_duplicates_within_and_across_partitions(spark: Any, run: HandMade) -> None:
    within, across, thrice = run.send(10), run.send(20), run.send(30)
    for at_ms in (15, 16):
        run.receive(within, at_ms, partition=0)
    for partition in (1, 2):
        # The same offset of another partition is another record.
        run.receive(across, 25, partition=partition, offset=7, consumer=partition)
    for partition in (0, 1, 1):
        run.receive(thrice, 35, partition=partition)
    assert counts(spark, run) == MessageCounts(
        sent=3, acknowledged=3, duplicated=3, copies=7, records=7, delivered=0
    )


def test_the_same_record_again_is_a_redelivery_and_no_duplicate(spark: Any, run: HandMade) -> None:
    number = run.send(10)
    offset = run.receive(number, 15, consumer=1)
    run.receive(number, 500, offset=offset, consumer=2)  # another consumer got the partition
    run.receive(number, 900, offset=offset, consumer=2)
    both = run.send(20)
    first = run.receive(both, 25, partition=1)
    run.receive(both, 26, partition=1)
    for at_ms in (30, 40, 50):
        run.receive(both, at_ms, partition=1, offset=first)
    assert counts(spark, run) == MessageCounts(
        sent=2,
        acknowledged=2,
        delivered=1,
        duplicated=1,
        copies=3,
        records=3,
        redelivered=5,
        first_try=1,
    )


def test_foreign_records_are_counted_once_each(spark: Any, run: HandMade) -> None:
    run.deliver(10, 5)
    for number in (-1, -1, 0, 2**62, (1 << 40) + 1):
        offset = run.receive(number, 100)
    run.receive(number, 200, offset=offset)
    totals = counts(spark, run)
    assert (totals.foreign, totals.records, totals.sent, totals.copies) == (5, 6, 1, 1)
    assert totals.redelivered == 0  # of this run's messages


def test_messages_of_several_producers_are_distinguished(spark: Any, run: HandMade) -> None:
    first, second = run.send(10, producer=1), run.send(10, producer=2)
    assert first != second
    run.receive(second, 15)
    totals = counts(spark, run)
    assert (totals.sent, totals.delivered, totals.lost) == (2, 1, 1)


def test_only_the_measured_time_counts(spark: Any, run: HandMade) -> None:
    lost_in_warm_up = run.send(-20)
    assert lost_in_warm_up
    twice = run.send(-10)
    for at_ms in (-5, 15):
        run.receive(twice, at_ms)
    run.receive(twice, 20, offset=0)
    run.send(-5, sent_ms=None, outcome="unknown")
    run.deliver(-0.000001, 5)  # one nanosecond too early
    run.deliver(0, 5)
    run.deliver(SECONDS * 1000 - 0.000001, 5)
    run.deliver(SECONDS * 1000, 5)
    assert counts(spark, run) == MessageCounts(
        sent=2,
        acknowledged=2,
        delivered=2,
        copies=2,
        first_try=2,
        warm_up=3,
        records=6,
    )


def test_what_the_generator_never_got_to_is_not_lost(spark: Any, run: HandMade) -> None:
    run.deliver(10, 5)
    run.send(20, sent_ms=None, outcome="unknown", tries=None)
    totals = counts(spark, run)
    assert (totals.sent, totals.unsent, totals.lost, totals.unknown, totals.tries_unknown) == (
        1,
        1,
        0,
        0,
        0,
    )


def test_stale_is_persisted_too_late_after_it_was_due(spark: Any, run: HandMade) -> None:
    def send(due_ms: float, appended_ms: float | None, received_ms: float) -> int:
        number = run.send(due_ms, sent_ms=due_ms + 40)
        run.receive(number, received_ms, appended_ms=appended_ms)
        return number

    send(10, appended_ms=59, received_ms=900)  # late for the reader, in the topic in time
    send(20, appended_ms=71, received_ms=72)
    twice = send(30, appended_ms=75, received_ms=76)
    run.receive(twice, 5000, appended_ms=4000)  # the first copy counts
    # Without an append time, it was in the topic when it was received at the latest.
    send(100, appended_ms=None, received_ms=150)
    send(200, appended_ms=None, received_ms=250.000001)
    assert counts(spark, run, timeliness_ms=50.0).stale == 2
    assert counts(spark, run).stale == 0


def test_a_watcher_changes_no_count(spark: Any, run: HandMade) -> None:
    twice = run.deliver(10, 5)
    offset = run.receive(twice, 20)
    run.receive(twice, 30, offset=offset)
    run.deliver(20, 5)
    run.receive(-1, 40)
    before = counts(spark, run)
    for offset in range(4):
        run.see(5, offset=offset)
    run.see(6, offset=0)  # twice, after a reconnection
    run.see(9, offset=4)  # and a record that no consumer was given
    assert counts(spark, run) == before
    assert (before.duplicated, before.delivered, before.redelivered, before.foreign) == (1, 1, 1, 1)


@pytest.mark.parametrize("is_watched", [False, True])
def test_the_order_of_the_rows_does_not_matter(
    spark: Any, tmp_path: Path, is_watched: bool
) -> None:
    rng = random.Random(4)
    one, other = HandMade(tmp_path / "one"), HandMade(tmp_path / "other")
    _make_random(one, rng, 2000, is_watched)
    for trace, rows in one.rows.items():
        other.rows[trace] = rng.sample(rows, len(rows))
    metrics = analyze(spark, [one.write(), other.write()])
    first, second = metrics.values()
    assert first == replace(second, run=first.run)


def test_many_random_runs_at_once_agree_with_a_second_count(spark: Any, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    runs = [HandMade(tmp_path / f"run-{i}") for i in range(12)]
    for i, hand_made in enumerate(runs):
        _make_random(hand_made, rng, rng.choice([0, 1, 30, 3000]), is_watched=i % 2 == 0)
    directories = [hand_made.write(seconds=SECONDS, timeliness_ms=40.0) for hand_made in runs]
    metrics = analyze(spark, directories)
    for hand_made, directory in zip(runs, directories, strict=True):
        assert metrics[directory].counts == _second_count(hand_made, 40.0), f"seed {seed}"


def _make_random(run: HandMade, rng: random.Random, messages: int, is_watched: bool) -> None:
    """Anything that can become of a message, often."""
    offsets: dict[int, int] = defaultdict(int)
    for _ in range(messages):
        outcome = rng.choice(["acknowledged"] * 5 + ["failed", "unknown"])
        due_ms = rng.uniform(-1000, SECONDS * 1000 + 200)
        sent_ms = None if rng.random() < 0.05 else due_ms + rng.expovariate(1)
        number = run.send(
            due_ms,
            sent_ms=sent_ms,
            outcome="unknown" if sent_ms is None else outcome,
            producer=rng.randint(1, 3),
            tries=rng.choice([None, 0, 1, 1, 1, 2, 5]),
        )
        if sent_ms is None:
            continue
        for _ in range(rng.choice([0, 1, 1, 1, 1, 1, 2, 3])):
            partition = rng.randrange(3)
            offset, appended_ms = offsets[partition], sent_ms + rng.expovariate(0.1)
            offsets[partition] += 1
            if is_watched and rng.random() < 0.9:
                run.see(appended_ms + 1, partition=partition, offset=offset)
            for _ in range(rng.choice([1] * 8 + [2, 4])):
                at_ms = appended_ms + 1 + rng.expovariate(0.1)
                run.receive(
                    number,
                    at_ms,
                    partition=partition,
                    offset=offset,
                    appended_ms=appended_ms,
                    consumer=rng.randint(1, 2),
                )
        if rng.random() < 0.01:
            run.receive(rng.choice([-1, 7 << 40, rng.getrandbits(62)]), due_ms, partition=9)


def _second_count(run: HandMade, timeliness_ms: float) -> MessageCounts:
    """The same by dictionaries, message by message."""
    receipts: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in run.rows["received"]:
        receipts[row["id"]].append(row)
    totals: dict[str, int] = defaultdict(int)
    end_ns = ns(SECONDS * 1000)
    for row in run.rows["sent"]:
        mine = receipts.pop(row["id"], [])
        copies = len({(r["partition"], r["offset"]) for r in mine})
        totals["records"] += copies
        is_sent = row["sent_ns"] is not None
        if not ZERO_NS <= row["intended_ns"] < end_ns:
            totals["warm_up"] += is_sent and row["intended_ns"] < ZERO_NS
            continue
        if not is_sent:
            totals["unsent"] += 1
            continue
        totals["sent"] += 1
        totals[row["outcome"]] += 1
        totals["copies"] += copies
        totals["redelivered"] += len(mine) - copies
        totals["acknowledged_yet_lost"] += row["outcome"] == "acknowledged" and not mine
        totals["failed_yet_delivered"] += row["outcome"] == "failed" and copies > 0
        if mine:
            first_ms = min(r["appended_ms"] for r in mine) + 0.5 - WALL_NS / MS
            totals["stale"] += first_ms - (row["intended_ns"] - ZERO_NS) / MS > timeliness_ms
        if copies > 1:
            totals["duplicated"] += 1
            continue
        totals["delivered" if copies else "lost"] += 1
        tries = row["tries"]
        if tries is None or (tries == 0 and copies):
            totals["tries_unknown"] += 1
        elif tries == 0:
            totals["never_left"] += 1
        elif copies:
            totals["after_retries" if tries > 1 else "first_try"] += 1
        else:
            totals["lost_after_retries" if tries > 1 else "lost_first_try"] += 1
    for rows in receipts.values():
        foreign = len({(r["partition"], r["offset"]) for r in rows})
        totals["foreign"] += foreign
        totals["records"] += foreign
    return MessageCounts(**totals)


def test_records_that_hold_several_messages_are_counted_apart_from_them(
    spark: Any, run: HandMade
) -> None:
    numbers = [run.send(10 * i) for i in range(7)]
    first = run.receive(numbers[0], 100)
    for index in (1, 2):
        run.receive(numbers[index], 100, offset=first, index=index)
    second = run.receive(numbers[3], 110)
    run.receive(numbers[4], 110, offset=second, index=1)
    run.receive(numbers[4], 110, offset=second, index=2)  # twice in one record
    for index in range(3):  # the first record again, to another consumer
        run.receive(numbers[index], 500, offset=first, index=index, consumer=2)
    run.receive(numbers[5], 120, partition=1)  # packed alone
    expected = MessageCounts(
        sent=7,
        acknowledged=7,
        delivered=5,
        duplicated=1,
        lost=1,
        acknowledged_yet_lost=1,
        copies=7,
        records=3,
        redelivered=3,
        first_try=5,
        lost_first_try=1,
    )
    assert counts(spark, run) == expected
    # The watcher sees records, not messages: all of a record become visible together.
    for partition, offset in ((0, first), (0, second), (1, 0)):
        run.see(90, partition=partition, offset=offset)
    assert counts(spark, run) == expected
