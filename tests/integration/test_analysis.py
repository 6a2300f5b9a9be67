"""Figures from traces: times and their parts, percentiles, seconds, rates, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hand_made import MS, ZERO_NS, HandMade, anchors, ns, write_trace
from pyspark.sql import functions as F

from penstock import specs
from penstock.analysis import buckets
from penstock.analysis.analyze import analyze, warm
from penstock.analysis.timeline import Timeline, WallClock
from penstock.domain.arrivals import Arrivals, ConstantArrivals, PoissonArrivals
from penstock.domain.errors import BadInput
from penstock.domain.kpi import timely_throughput
from penstock.domain.metrics import Estimate, RunMetrics
from penstock.domain.objective import KpiWeights, Objective
from penstock.domain.run import ClockAnchor, Run, RunEvent
from penstock.load.produce_log import FRAMING_BYTES
from penstock.stats.histogram import bucket_index


@pytest.fixture
def run(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path / "run")


def metrics(spark: Any, run: HandMade, limits_ms: Sequence[float] = (), **of: Any) -> RunMetrics:
    directory = run.write(**of)
    return analyze(spark, [directory], limits_ms)[directory]


def at(ms: float) -> Any:
    """Within the last digit of a histogram."""
    return pytest.approx(ms, rel=2**-10)


# --- buckets -------------------------------------------------------------------------------------


def test_buckets_are_those_of_the_histograms(spark: Any) -> None:
    edges = [value for bits in range(63) for value in (2**bits - 1, 2**bits, 2**bits + 1)]
    random = np.random.default_rng().integers(0, 2**63, 500) >> np.arange(500) % 60
    values = [*edges, *random.tolist(), 2**63 - 1]
    frame = spark.createDataFrame(pa.table({"value": pa.array(values, pa.int64())}))
    frame = frame.withColumn("bits", F.expr(buckets.bit_length("value")))
    table = frame.select(
        "bits",
        F.expr(buckets.bucket("value", "bits", "true")).alias("three"),
        F.expr(buckets.bucket("value", "bits", "false")).alias("two"),
    ).toArrow()
    assert table["bits"].to_pylist() == [max(8, value.bit_length()) for value in values]
    assert table["three"].to_pylist() == bucket_index(values).tolist()
    # Of two digits: what the numbers of three digits say, with an eighth of the steps.
    shifts = [max(0, value.bit_length() - 8) for value in values]
    expected = [(v >> shift) + 128 * shift for v, shift in zip(values, shifts, strict=True)]
    assert table["two"].to_pylist() == expected
    assert all(
        buckets.rounded_down(v, 2) == v >> s << s for v, s in zip(values, shifts, strict=True)
    )


# --- times ---------------------------------------------------------------------------------------


def test_the_parts_of_one_latency(spark: Any, run: HandMade) -> None:
    number = run.send(100, sent_ms=102, reported_ms=115)
    offset = run.receive(number, 130, appended_ms=110.4)  # the broker says 110; taken for 110.5
    run.see(118, offset=offset)
    figures = metrics(spark, run)
    assert figures.latency is not None
    assert figures.acknowledgement is not None
    assert figures.latency.min_ms == figures.latency.max_ms == pytest.approx(30)
    assert figures.latency.deviation_ms == pytest.approx(0, abs=0.05)
    assert figures.acknowledgement.max_ms == pytest.approx(15)
    assert {name: part.max_ms for name, part in figures.parts.items()} == pytest.approx(
        {"waiting": 2, "produce": 8.5, "commit": 7.5, "fetch": 12, "answer": 13}
    )


def test_every_distribution_has_its_standard_deviation(spark: Any, run: HandMade) -> None:
    for i in range(100):
        wait_ms = 10 if i % 2 else 30
        number = run.send(i * 100, sent_ms=i * 100 + wait_ms, reported_ms=i * 100 + 2 * wait_ms)
        run.receive(number, i * 100 + 5 * wait_ms)
    figures = metrics(spark, run, loop="closed", arrivals=ConstantArrivals(rate_per_s=10))
    assert figures.latency and figures.acknowledgement and figures.corrected
    assert figures.latency.deviation_ms == at(50)
    assert figures.acknowledgement.deviation_ms == at(20)
    assert figures.corrected.deviation_ms == at(20)
    assert figures.parts["waiting"].deviation_ms == pytest.approx(10, rel=0.01)


def test_without_a_watcher_commit_and_fetch_are_one(spark: Any, run: HandMade) -> None:
    number = run.send(100, sent_ms=102, reported_ms=115)
    run.receive(number, 130, appended_ms=110)
    figures = metrics(spark, run)
    assert {name: part.max_ms for name, part in figures.parts.items()} == pytest.approx(
        {"waiting": 2, "produce": 8.5, "commit+fetch": 19.5, "answer": 13}
    )


def test_times_are_those_of_the_first_copy(spark: Any, run: HandMade) -> None:
    number = run.send(100)
    second = run.receive(number, 900, partition=1, appended_ms=800)
    first = run.receive(number, 120, partition=0, appended_ms=110)
    run.receive(number, 950, partition=0, offset=first, appended_ms=110)
    run.see(115, partition=0, offset=first)
    run.see(850, partition=1, offset=second)
    figures = metrics(spark, run)
    assert figures.latency is not None
    assert figures.latency.count == 1
    assert figures.latency.max_ms == pytest.approx(20)
    assert {n: figures.parts[n].max_ms for n in ("produce", "commit", "fetch")} == pytest.approx(
        {"produce": 10.5, "commit": 4.5, "fetch": 5}
    )


@pytest.mark.parametrize("is_watched", [False, True])
def test_the_parts_add_up_to_the_latency(spark: Any, run: HandMade, is_watched: bool) -> None:
    rng = np.random.default_rng()
    for due_ms in range(0, 2000):
        sent_ms = due_ms + rng.exponential(1)
        appended_ms = sent_ms + rng.exponential(5)
        # Often before the end of the millisecond that the broker gives: it is moved to its place.
        visible_ms = appended_ms + rng.exponential(0.3)
        number = run.send(due_ms, sent_ms=sent_ms)
        received_ms = visible_ms + rng.exponential(0.3)
        offset = run.receive(number, received_ms, appended_ms=appended_ms)
        if is_watched:
            # The watcher may be told later than the consumer.
            run.see(visible_ms + rng.normal(0, 0.1), offset=offset)
    figures = metrics(spark, run, seconds=2)
    assert not figures.warnings
    assert figures.latency is not None
    names = ("waiting", "produce", *(("commit", "fetch") if is_watched else ("commit+fetch",)))
    assert {*names, "answer"} == {*figures.parts}
    assert {figures.parts[name].count for name in names} == {figures.latency.count} == {2000}
    total = sum(figures.parts[name].mean_ms.value for name in names)
    assert total == pytest.approx(figures.latency.mean_ms.value, rel=1e-9)
    assert all(part.min_ms >= 0 for part in figures.parts.values())


def test_the_answer_includes_bad_news_and_the_acknowledgement_does_not(
    spark: Any, run: HandMade
) -> None:
    run.deliver(100, 5, reported_ms=103)
    run.send(200, outcome="failed", reported_ms=1200)
    run.send(300, outcome="unknown")
    figures = metrics(spark, run)
    assert figures.acknowledgement is not None
    assert figures.acknowledgement.count == 1
    assert figures.acknowledgement.max_ms == pytest.approx(3)
    assert figures.parts["answer"].count == 2
    assert figures.parts["answer"].max_ms == pytest.approx(1000)


def test_percentiles_are_those_of_the_raw_values(spark: Any, run: HandMade) -> None:
    rng = np.random.default_rng()
    latencies_ms = rng.lognormal(2, 1, 20_000)
    due_ms = np.sort(rng.uniform(0, 10_000, 20_000))
    for due, latency in zip(due_ms, latencies_ms, strict=True):
        run.deliver(float(due), float(latency))
    distribution = metrics(spark, run).latency
    assert distribution is not None
    sent = [row["intended_ns"] for row in run.rows["sent"]]
    received = [row["received_ns"] for row in run.rows["received"]]
    values = np.sort(np.array(received) - np.array(sent)) / MS
    assert distribution.count == len(values) == sum(count for _, count in distribution.buckets)
    assert (distribution.min_ms, distribution.max_ms) == pytest.approx((values[0], values[-1]))
    assert distribution.mean_ms.value == pytest.approx(values.mean())
    for name in ("50", "90", "95", "99", "99.9", "99.99"):
        # By hand, since .999 as a float is a little more, and numpy then takes the next value.
        exact = float(values[math.ceil(round(len(values) * float(name) / 100, 6)) - 1])
        assert distribution.percentiles_ms[name].value == at(exact), name
    edges = bucket_index((values * MS).round().astype(np.int64))
    expected = dict(zip(*np.unique(edges, return_counts=True), strict=True))
    assert (
        dict(
            zip(
                bucket_index([e for e, _ in distribution.buckets]),
                [c for _, c in distribution.buckets],
                strict=True,
            )
        )
        == expected
    )
    assert_holds(distribution.percentiles_ms["50"], 1.0)
    assert_holds(distribution.percentiles_ms["99"], 2.0)


def assert_holds(estimate: Estimate, widest: float) -> None:
    """An interval around its value, not absurdly wide."""
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low <= estimate.value <= estimate.high
    assert estimate.high - estimate.low < widest * estimate.value


def test_a_narrow_distribution_still_has_an_interval(spark: Any, run: HandMade) -> None:
    for i in range(2000):
        run.deliver(i * 5.0, 20.0 + (i * 7 % 100) * 0.001)
    latency = metrics(spark, run).latency
    assert latency is not None
    assert_holds(latency.percentiles_ms["50"], 0.01)
    assert latency.percentiles_ms["99.99"].low is None  # nothing was seen of what lies beyond


# --- shares, rates, seconds ----------------------------------------------------------------------


def test_violations_and_timely_throughput(spark: Any, run: HandMade) -> None:
    for i in range(100):
        run.deliver(i * 100, 10 if i % 10 else 60, size_bytes=1000)
    run.send(5000, outcome="failed", size_bytes=1000)
    twice = run.deliver(5001, 10, size_bytes=1000)
    run.receive(twice, 9000)
    figures = metrics(spark, run, (5, 10, 59.5, 60), objective=Objective(latency_ms=50.0))
    shares = {limit: share.value for limit, share in figures.violation_share.items()}
    late = 10 / 101
    assert shares == pytest.approx({"5": 1, "10": late, "50": late, "59.5": late, "60": 0})
    high = figures.violation_share["60"].high
    assert high is not None and 0 < high < 0.5
    assert figures.goodput_mb_per_s is not None
    assert figures.timely_mb_per_s is not None
    assert figures.goodput_mb_per_s.value == pytest.approx(101 * 1000 / 1e6 / 10)
    assert figures.timely_mb_per_s.value == pytest.approx(91 * 1000 / 1e6 / 10)


def test_without_a_latency_limit_all_that_arrives_is_timely(spark: Any, run: HandMade) -> None:
    run.deliver(10, 5)
    run.deliver(20, 5000)
    run.send(30, outcome="failed")
    figures = metrics(spark, run)
    assert figures.timely_mb_per_s is not None
    assert figures.timely_mb_per_s == figures.goodput_mb_per_s
    assert figures.timely_mb_per_s.value == pytest.approx(200 / 1e6 / 10)
    assert {second.timely_bytes for second in figures.seconds} == {None}


def test_timely_throughput_is_that_of_the_formula(spark: Any, run: HandMade) -> None:
    for i in range(100):
        if i % 5:
            run.deliver(i * 90, 10 if i % 4 else 60, size_bytes=1000)
        else:
            run.send(i * 90, outcome="failed", size_bytes=1000)
    figures = metrics(spark, run, objective=Objective(latency_ms=50.0))
    sent_mb_per_s = 100 * 1000 / 1e6 / 10
    expected = timely_throughput(
        sent_mb_per_s, figures.violation_share["50"].value, figures.lost_share.value
    )
    assert figures.timely_mb_per_s is not None
    assert figures.timely_mb_per_s.value == pytest.approx(expected) == pytest.approx(0.006)


def test_gamma_with_the_defaults_and_with_weights_of_ones_own(spark: Any, run: HandMade) -> None:
    for i in range(10):
        run.deliver(i * 100, 5, size_bytes=1000)
    run.receive(run.deliver(1000, 5, size_bytes=1000), 1500)
    for i in range(9):
        run.send(2000 + i * 100, outcome="failed", size_bytes=1000)
    # 1,000 messages/s are offered for 10 s, 11 of the 20 sent were acknowledged, one is twice there.
    kpi = metrics(spark, run).kpi
    assert kpi is not None
    assert kpi.weights == KpiWeights()
    assert (kpi.bandwidth_share, kpi.best_per_s) == (None, 1000)
    assert kpi.rate_share == pytest.approx(0.0011)
    assert kpi.gamma == pytest.approx((0.3 * 0.0011 + 0.3 * 11 / 20 + 0.1 * 19 / 20) / 0.7)
    weights = KpiWeights(bandwidth=0.4, throughput=0.3, no_loss=0.2, no_duplication=0.1)
    objective = Objective(weights=weights, best_per_s=2.2, bandwidth_mb_per_s=0.0055)
    kpi = metrics(spark, run, objective=objective).kpi
    assert kpi is not None
    assert (kpi.weights, kpi.best_per_s) == (weights, 2.2)
    assert kpi.rate_share == pytest.approx(0.5)
    assert kpi.bandwidth_share == pytest.approx(0.2)  # values only, as no request was recorded
    assert kpi.gamma == pytest.approx(0.4 * 0.2 + 0.3 * 0.5 + 0.2 * 11 / 20 + 0.1 * 19 / 20)
    request = {"partition": 0, "first": 1, "messages": 20, "at_ns": ns(1), "producer": 1}
    around = FRAMING_BYTES + len("by-hand")
    run.rows["requests"] = [{**request, "size_bytes": 27_500 - around}]
    kpi = metrics(spark, run, objective=objective).kpi
    assert kpi is not None
    assert kpi.bandwidth_share == pytest.approx(0.5)


def test_throughput_is_what_the_cluster_accepted(spark: Any, run: HandMade) -> None:
    for i in range(400):
        run.deliver(i * 10, 5, size_bytes=500)
    for i in range(100):
        run.send(i * 40, outcome="failed", size_bytes=500)
    run.deliver(-10, 5, size_bytes=10**6)
    figures = metrics(spark, run, seconds=4)
    assert figures.seconds_measured == 4
    assert figures.throughput_per_s is not None
    assert figures.throughput_mb_per_s is not None
    assert figures.throughput_per_s.value == pytest.approx(100)
    assert figures.throughput_mb_per_s.value == pytest.approx(0.05)
    assert figures.lost_share.value == pytest.approx(0.2)
    assert_holds(figures.throughput_per_s, 0.5)
    assert_holds(figures.lost_share, 1.0)


def test_a_backlog_drained_after_the_end_does_not_count_as_throughput(
    spark: Any, run: HandMade
) -> None:
    for i in range(100):  # each is told and received 2 s after it was due
        run.deliver(i * 40, 2000, reported_ms=i * 40 + 2000, size_bytes=500)
    run.deliver(
        -1000, 2000, reported_ms=1000, size_bytes=500
    )  # due in the warm-up, accepted after it
    figures = metrics(spark, run, seconds=4, objective=Objective(latency_ms=2500.0))
    for rate in (figures.throughput_mb_per_s, figures.goodput_mb_per_s, figures.timely_mb_per_s):
        assert rate is not None
        assert rate.value == pytest.approx(51 * 500 / 1e6 / 4)
    assert figures.counts.acknowledged == figures.counts.delivered == 100


def test_overhead_is_what_requests_carry_beside_values(spark: Any, run: HandMade) -> None:
    for i in range(20):
        run.deliver(i * 10, 5, size_bytes=100)
    row = {"partition": 0, "first": 1, "messages": 10, "producer": 1}
    around = FRAMING_BYTES + len("by-hand")
    run.rows["requests"] = [
        {**row, "size_bytes": 2000 - around, "at_ns": ns(10)},
        {**row, "size_bytes": 2000 - around, "at_ns": ns(20)},
        {**row, "size_bytes": 9, "at_ns": ns(-10)},  # the warm-up's
    ]
    overhead = metrics(spark, run).overhead_share
    assert overhead is not None
    assert overhead.value == pytest.approx(0.5)


@pytest.mark.parametrize("loop", ["open", "closed"])
def test_a_closed_loop_is_corrected_for_what_it_did_not_send(
    spark: Any, run: HandMade, loop: Literal["open", "closed"]
) -> None:
    # Every millisecond, but for one answer that takes 100 of them.
    for i in range(900):
        run.deliver(i, 0.5, reported_ms=i + 0.5)
    run.deliver(900, 100, reported_ms=1000)
    figures = metrics(spark, run, loop=loop)
    assert figures.acknowledgement is not None
    assert figures.acknowledgement.count == 901
    if loop == "open":
        assert figures.corrected is None
        return
    assert figures.corrected is not None
    assert figures.corrected.count == 1000  # 99, 98, … 1 ms
    assert figures.corrected.percentiles_ms["95"].value == at(50.0)


@pytest.mark.parametrize(
    "arrivals", [ConstantArrivals(rate_per_s=100_000), PoissonArrivals(rate_per_s=1000)]
)
def test_a_closed_loop_without_a_schedule_is_not_corrected(
    spark: Any, run: HandMade, arrivals: Arrivals
) -> None:
    """It sends as fast as answers come, or has no one interval: none may be made up."""
    for i in range(100):
        run.deliver(i, 0.5, reported_ms=i + 0.5)
    run.deliver(100, 100, reported_ms=200)
    figures = metrics(spark, run, loop="closed", arrivals=arrivals)
    assert figures.acknowledgement is not None
    assert figures.corrected is None


def test_messages_that_share_a_request_share_their_fate(spark: Any, run: HandMade) -> None:
    for i in range(1000):
        run.deliver(i * 10, 5)
    alone = metrics(spark, run).lost_share
    request = {"partition": 0, "first": 1, "messages": 10, "size_bytes": 1, "at_ns": ns(1)}
    run.rows["requests"] = [{**request, "producer": 1} for _ in range(100)]
    together = metrics(spark, run).lost_share
    assert alone.value == together.value == 0
    assert alone.high is not None
    assert together.high == pytest.approx(3 / 100, rel=0.05)
    assert together.high != alone.high


def test_seconds_show_warm_up_freeze_and_what_came_late(spark: Any, run: HandMade) -> None:
    run.deliver(-1500, 5)
    run.deliver(-1, 5)
    for i in range(100):
        run.deliver(i * 10 + 1, 7 if i < 98 else 300, size_bytes=10)
    run.send(1500, outcome="failed")
    twice = run.send(1600, outcome="unknown", size_bytes=10)
    for at_ms in (4100, 4200):
        run.receive(twice, at_ms)
    run.send(1700, sent_ms=None, outcome="unknown")
    seconds = {second.at_s: second for second in metrics(spark, run, seconds=2).seconds}
    assert [*seconds] == [-2, -1, 0, 1, 2, 3, 4]
    first = seconds[0]
    assert (first.due, first.acknowledged, first.failed, first.lost) == (100, 100, 0, 0)
    # One of the warm-up came in this second, two of it in the next.
    assert (first.received, first.received_bytes) == (98 + 1, 98 * 10 + 100)
    assert first.p50_ms == pytest.approx(7, rel=0.01)
    assert first.p99_ms == pytest.approx(300, rel=0.01)
    assert first.max_ms == pytest.approx(300)
    second = seconds[1]
    assert (second.due, second.failed, second.lost, second.duplicated) == (3, 1, 1, 1)
    assert (second.received, seconds[4].received, seconds[4].received_bytes) == (2, 1, 10)
    assert (seconds[3].due, seconds[3].received, seconds[3].p50_ms) == (0, 0, None)
    assert (seconds[-2].due, seconds[-2].acknowledged) == (1, 1)
    assert seconds[-1].max_ms == pytest.approx(5)


def test_a_run_whose_latency_grows_is_not_steady(spark: Any, run: HandMade) -> None:
    """100 messages/s are due and 80 are done: the last of 4 s waits for a second."""
    for i in range(400):
        run.deliver(i * 10, 5 + i * 2.5)
    steadiness = metrics(spark, run, seconds=4).steadiness
    assert steadiness is not None
    assert steadiness.state == "unsteady"
    assert "80" in steadiness.sentence
    assert "100 messages/s" in steadiness.sentence
    assert steadiness.waiting_last == pytest.approx(80, abs=3)
    assert (steadiness.latency_last_ms or 0) > 5 * (steadiness.latency_first_ms or 0)


def test_messages_waiting_from_the_warm_up_are_not_growth(spark: Any, run: HandMade) -> None:
    for i in range(-100, 400):
        run.deliver(i * 10, 200 + 50 * (i % 3))
    steadiness = metrics(spark, run, seconds=4).steadiness
    assert steadiness is not None
    assert steadiness.state == "steady"
    assert steadiness.waiting_first == pytest.approx(25, abs=2)
    assert steadiness.waiting_last == pytest.approx(25, abs=2)


def test_a_run_is_tested_up_to_a_fault(spark: Any, run: HandMade) -> None:
    """Those on their way when the broker died waited for its successor; they are no trend."""
    for i in range(1000):
        run.deliver(i * 10, 5 if i < 485 else 4000 + i)
    event = RunEvent(at_s=5.0, took_s=0.1, sentence="killed broker 2")
    steadiness = metrics(spark, run, seconds=10, events=(event,)).steadiness
    assert steadiness is not None
    assert steadiness.state == "changed on purpose"
    assert steadiness.sentence.endswith("; steady until then")
    assert "killed broker 2" in steadiness.sentence
    assert steadiness.judged_s == pytest.approx(4.85, abs=0.1)
    # The same without a fault is not steady.
    alone = metrics(spark, run, seconds=10).steadiness
    assert alone is not None and alone.state == "unsteady"


def test_a_run_that_grew_before_a_fault_is_not_steady(spark: Any, run: HandMade) -> None:
    for i in range(1000):
        run.deliver(i * 10, 5 + i)
    event = RunEvent(at_s=9.0, took_s=0.1, sentence="killed broker 2")
    steadiness = metrics(spark, run, seconds=10, events=(event,)).steadiness
    assert steadiness is not None and steadiness.state == "unsteady"


def test_a_run_that_is_too_short_is_not_tested(spark: Any, run: HandMade) -> None:
    for i in range(40):
        run.deliver(i * 10, 5)
    steadiness = metrics(spark, run, seconds=1).steadiness
    assert steadiness is not None
    assert steadiness.state == "not tested"
    assert "40 messages in 1 s" in steadiness.sentence


def test_an_interrupted_run_is_measured_until_its_last_message(spark: Any, run: HandMade) -> None:
    for i in range(401):
        run.deliver(i * 10, 5)
    figures = metrics(spark, run, seconds=60, status="interrupted")
    assert figures.seconds_measured == pytest.approx(4, rel=1e-6)
    assert figures.throughput_per_s is not None
    assert figures.throughput_per_s.value == pytest.approx(100, rel=0.01)
    assert metrics(spark, run, seconds=60).seconds_measured == 60


@pytest.mark.parametrize("seconds", [0.01, 0.9, 1, 10, 59.999, 100, 1000, 86_400])
def test_a_timeline_has_whole_slices_in_a_second(tmp_path: Path, seconds: float) -> None:
    HandMade(tmp_path).write(seconds=seconds)
    run = specs.load(tmp_path / "run.json", Run)
    line = Timeline.of(run, None)
    assert line.slices_per_second * line.slice_ns == 10**9
    assert (line.slices - 1) * line.slice_ns < line.to_ns - line.from_ns
    assert line.slices * line.slice_ns >= line.to_ns - line.from_ns
    assert math.ceil(line.slices / line.slices_per_batch) <= 240
    assert line.slices >= 128 or line.slices_per_second == 512


# --- several runs, few messages, none ------------------------------------------------------------


def test_several_runs_in_one_call_are_the_same_as_one_by_one(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng()
    directories = []
    for i in range(4):
        # Names as campaigns have them, and worse: Spark must not take them for patterns or columns.
        hand_made = HandMade(tmp_path / f"acks={i} [x]{{a,b}} ü%20#?")
        for due_ms in rng.uniform(-500, 3000, 300):
            number = hand_made.deliver(float(due_ms), float(rng.exponential(10 + i)))
            if i % 2:
                hand_made.see(float(due_ms), offset=hand_made.rows["received"][-1]["offset"])
            if rng.random() < 0.1:
                hand_made.receive(number, 4000)
        objective = Objective(latency_ms=20.0 + i) if i else None
        directories.append(hand_made.write(seconds=3, objective=objective))
    together = analyze(spark, directories, (7.5,))
    assert [*together] == directories
    for directory in directories:
        assert analyze(spark, [directory], (7.5,)) == {directory: together[directory]}
    assert len({m.counts.duplicated for m in together.values()} - {0}) > 0
    assert [*together[directories[2]].violation_share] == ["7.5", "22"]


def test_no_directories_no_metrics(spark: Any) -> None:
    assert analyze(spark, []) == {}


def test_a_run_without_messages(spark: Any, run: HandMade) -> None:
    figures = metrics(spark, run, (5.0,), objective=Objective(latency_ms=9.0))
    assert figures.counts == type(figures.counts)()
    assert (figures.latency, figures.acknowledgement, figures.parts, figures.seconds) == (
        None,
        None,
        {},
        (),
    )
    assert figures.violation_share == {}
    assert figures.throughput_per_s is not None
    assert figures.throughput_per_s.value == 0
    assert (figures.lost_share.value, figures.lost_share.low, figures.lost_share.high) == (0, 0, 1)
    _reads_back(figures)


def test_files_without_rows(spark: Any, run: HandMade) -> None:
    directory = run.write()
    for trace in ("sent", "received", "seen", "requests"):
        write_trace(directory / trace / "1.parquet", trace, [])
    assert analyze(spark, [directory])[directory].counts.sent == 0


def test_a_run_of_no_time(spark: Any, run: HandMade) -> None:
    run.deliver(0, 5)
    figures = metrics(spark, run, measured_from_ns=0, measured_to_ns=0)
    assert (figures.counts.sent, figures.seconds_measured, figures.throughput_per_s) == (0, 0, None)
    _reads_back(figures)


def test_a_consumer_that_never_got_a_message(spark: Any, run: HandMade) -> None:
    for i in range(50):
        run.send(i * 100)
    figures = metrics(spark, run, (5.0,))
    assert (figures.counts.lost, figures.counts.acknowledged_yet_lost) == (50, 50)
    assert (figures.lost_share.value, figures.lost_share.high) == (1, 1)
    assert (figures.latency, figures.violation_share) == (None, {})
    assert figures.acknowledgement is not None
    assert [*figures.parts] == ["answer"]
    assert figures.goodput_mb_per_s is not None
    assert figures.goodput_mb_per_s.value == 0
    _reads_back(figures)


def test_one_message(spark: Any, run: HandMade) -> None:
    run.deliver(5, 10)
    figures = metrics(spark, run, seconds=0.02)
    assert figures.latency is not None
    median = figures.latency.percentiles_ms["50"]
    assert median.value == pytest.approx(10)
    assert (median.low, median.high) == (None, None)
    _reads_back(figures)


def test_metrics_of_a_run_can_be_written_and_read_back(spark: Any, run: HandMade) -> None:
    for i in range(200):
        run.deliver(i * 20, 3 + i % 7)
    _reads_back(metrics(spark, run, (5.0,), seconds=4, objective=Objective(latency_ms=4.0)))


def _reads_back(figures: RunMetrics) -> None:
    assert specs.parse(specs.dump_json(figures), RunMetrics, "metrics.json") == figures


def test_warming_up_leaves_nothing_behind(spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    warm(spark)
    assert [*tmp_path.iterdir()] == []


# --- clocks --------------------------------------------------------------------------------------


def test_a_wall_clock_that_was_set_leaves_the_parts_out(spark: Any, run: HandMade) -> None:
    for i in range(100):
        run.deliver(i * 10, 10)
    figures = metrics(spark, run, anchors=anchors(10, drift_ms=80))
    assert {*figures.parts} == {"waiting", "answer"}
    assert figures.latency is not None
    assert figures.latency.count == 100
    assert len(figures.warnings) == 1
    assert "set by +80 ms" in figures.warnings[0]


def test_a_slow_drift_is_taken_out(spark: Any, run: HandMade) -> None:
    # 4 ms in 70 s, as far as the anchors show; the run is at 6/7 of the way.
    drift_ms = 4.0
    number = run.send(0)
    run.receive(number, 100, appended_ms=50.0 + drift_ms * 60_000 / 130_000)
    figures = metrics(spark, run, seconds=10, anchors=anchors(10, drift_ms=drift_ms))
    assert not figures.warnings
    assert figures.parts["produce"].max_ms == pytest.approx(50, abs=0.51)
    assert abs(figures.parts["produce"].max_ms - (50 + drift_ms * 60 / 130)) > 0.9


def test_without_anchors_latency_has_no_parts(spark: Any, run: HandMade) -> None:
    run.deliver(0, 10)
    assert {*metrics(spark, run, anchors=()).parts} == {"waiting", "answer"}


def test_contradicting_append_times_are_excluded_with_a_warning(spark: Any, run: HandMade) -> None:
    for i in range(10):
        run.deliver(i * 100, 10)
    for i in range(3):
        number = run.send(2000 + i)
        run.receive(number, 2010 + i, appended_ms=1500)
    figures = metrics(spark, run)
    assert figures.parts["produce"].count == 10
    assert figures.latency is not None
    assert figures.latency.count == 13
    assert ["of 3 messages" in warning for warning in figures.warnings] == [True]


def test_backward_times_give_a_warning(spark: Any, run: HandMade) -> None:
    run.deliver(100, 10)
    number = run.send(5000)
    run.receive(number, 200)
    figures = metrics(spark, run)
    assert figures.latency is not None
    assert figures.latency.count == 1
    assert ["1 messages have a time before" in warning for warning in figures.warnings] == [True]
    assert figures.counts.delivered == 2


def test_a_clock_is_tied_by_its_first_and_last_anchor() -> None:
    def anchor(monotonic_ns: int, wall_ns: int) -> ClockAnchor:
        return ClockAnchor(monotonic_ns=monotonic_ns, wall_ns=wall_ns)

    assert WallClock.of(()) is None
    assert WallClock.of((anchor(10, 500),)) == WallClock(500, 10, 1.0)
    twice = WallClock.of((anchor(0, 10**9), anchor(10**9, 2 * 10**9 + 10**6)))
    assert twice is not None and (twice.wall_ns, twice.monotonic_ns) == (10**9, 0)
    assert twice.rate == pytest.approx(1 / 1.001)
    # Set and set back between the first and the last: what lies in between cannot be placed.
    jump = 10**8
    there_and_back = (anchor(0, 0), anchor(10**9, 10**9 + jump), anchor(2 * 10**9, 2 * 10**9))
    assert WallClock.of(there_and_back) is None


# --- what is refused -----------------------------------------------------------------------------


def test_a_directory_without_a_run_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"has no run\.json"):
        analyze(spark, [tmp_path])


def test_a_run_of_another_format(spark: Any, run: HandMade) -> None:
    directory = run.write()
    data = json.loads((directory / "run.json").read_text())
    (directory / "run.json").write_text(json.dumps({**data, "format": 99}))
    with pytest.raises(BadInput, match="is a run of format 99"):
        analyze(spark, [directory])


def test_two_directories_with_one_run(spark: Any, tmp_path: Path) -> None:
    one = HandMade(tmp_path / "one").write(id="same")
    other = HandMade(tmp_path / "other").write(id="same")
    with pytest.raises(BadInput, match="are both the run 'same'"):
        analyze(spark, [one, other])


def test_a_trace_that_is_still_a_journal(spark: Any, run: HandMade) -> None:
    run.deliver(0, 5)
    directory = run.write()
    (directory / "received" / "consumer-2.journal").write_bytes(b"ARROW")
    with pytest.raises(BadInput, match=r"consumer-2\.journal: is still a journal") as caught:
        analyze(spark, [directory])
    assert "recover" in caught.value.fix


def test_a_trace_that_is_cut_off(spark: Any, run: HandMade) -> None:
    run.deliver(0, 5)
    file = run.write() / "sent" / "producer-1.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(BadInput, match=r"producer-1\.parquet: is not a complete Parquet file"):
        analyze(spark, [run.directory])


def test_a_trace_with_other_columns(spark: Any, run: HandMade) -> None:
    directory = run.write()
    (directory / "sent").mkdir()
    pq.write_table(pa.table({"id": [1]}), directory / "sent" / "producer-1.parquet")
    with pytest.raises(BadInput, match="is not a trace of what was sent: it has id int64"):
        analyze(spark, [directory])


@pytest.mark.parametrize("limit_ms", [0.0, -1.0, math.nan, math.inf])
def test_limits_that_say_nothing(spark: Any, run: HandMade, limit_ms: float) -> None:
    with pytest.raises(BadInput, match="is not positive"):
        metrics(spark, run, (limit_ms,))


def test_hand_made_times_are_what_they_say() -> None:
    assert ns(1.5) - ZERO_NS == 1_500_000
