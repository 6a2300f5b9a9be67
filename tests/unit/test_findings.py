"""Expected shapes, judged on figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.domain.findings import findings
from penstock.domain.metric_path import check_name, figure
from penstock.domain.metrics import Distribution, Estimate, MessageCounts, RunMetrics
from penstock.domain.shapes.monotone import FallsShape, RisesShape
from penstock.domain.steadiness import Steadiness
from penstock.domain.value import FieldError

AXES = {"settings.acks": ("1", "all"), "workload.payload.size_bytes": ("50", "200", "1000")}


def metrics(lost: float, p99: float | None = None) -> RunMetrics:
    latency = None
    if p99 is not None:
        latency = Distribution(
            count=10,
            mean_ms=Estimate(value=p99 / 2),
            deviation_ms=p99 / 4,
            percentiles_ms={"99": Estimate(value=p99)},
            min_ms=1,
            max_ms=2 * p99,
        )
    return RunMetrics(
        run="a",
        seconds_measured=1,
        counts=MessageCounts(sent=1000, acknowledged_yet_lost=5),
        lost_share=Estimate(value=lost),
        duplicated_share=Estimate(value=0),
        latency=latency,
    )


def results(**lost: Sequence[float]) -> list[tuple[dict[str, str], RunMetrics]]:
    sizes = AXES["workload.payload.size_bytes"]
    return [
        ({"settings.acks": acks, "workload.payload.size_bytes": size}, metrics(share))
        for acks, shares in lost.items()
        for size, share in zip(sizes, shares, strict=True)
    ]


def test_a_shape_is_judged_for_every_value_of_the_other_axes() -> None:
    shape = FallsShape(figure="lost_share", over="workload.payload.size_bytes", by=0.1)
    judgements = findings(
        [shape], AXES, results(**{"1": [0.5, 0.3, 0.1], "all": [0.5, 0.45, 0.44]})
    )
    assert [f.holds for f in judgements] == [True, False]
    assert "acks=1" in judgements[0].sentence
    assert "0.5 → 0.45 → 0.44" in judgements[1].sentence


def test_where_holds_an_axis_and_repeats_are_averaged() -> None:
    shape = RisesShape(
        figure="lost_share",
        over="workload.payload.size_bytes",
        where={"settings.acks": "all"},
        tolerance=0.05,
    )
    one = results(all=[0.1, 0.2, 0.3])
    other = results(all=[0.3, 0.16, 0.5])
    (finding,) = findings([shape], AXES, one + other)
    assert finding.holds, finding.sentence
    assert "0.2 → 0.18 → 0.4" in finding.sentence


def test_a_cell_without_a_figure_is_not_evidence() -> None:
    shape = FallsShape(figure="latency.p99_ms", over="workload.payload.size_bytes")
    (one, two) = findings([shape], AXES, results(**{"1": [0, 0, 0], "all": [0, 0, 0]}))
    assert not one.holds
    assert not two.holds
    assert "3 of 3 cells have no valid run" in one.sentence


def unsteady(result: tuple[dict[str, str], RunMetrics]) -> tuple[dict[str, str], RunMetrics]:
    cell, of = result
    return cell, replace(of, steadiness=Steadiness(state="unsteady", sentence="latency grew"))


def test_times_of_unsteady_runs_are_not_evidence() -> None:
    sizes = AXES["workload.payload.size_bytes"]
    cells = [{"settings.acks": "1", "workload.payload.size_bytes": size} for size in sizes]
    runs = [(cell, metrics(0.0, p99=p99)) for cell, p99 in zip(cells, (30, 20, 10), strict=True)]
    shape = FallsShape(
        figure="latency.p99_ms", over="workload.payload.size_bytes", where={"settings.acks": "1"}
    )
    spoilt = unsteady((cells[2], metrics(0.0, p99=1000)))
    (with_another,) = findings([shape], AXES, [*runs, spoilt])
    assert with_another.holds and "30 → 20 → 10" in with_another.sentence
    (alone,) = findings([shape], AXES, [*runs[:2], spoilt])
    assert not alone.holds
    assert "1 of 3 cells have no valid run with it; 1 run was not steady" in alone.sentence


def test_other_figures_of_runs_that_were_not_steady_stay() -> None:
    shape = FallsShape(
        figure="lost_share", over="workload.payload.size_bytes", where={"settings.acks": "1"}
    )
    unsteady_results = [unsteady(result) for result in results(**{"1": [0.5, 0.3, 0.1]})]
    (finding,) = findings([shape], AXES, unsteady_results)
    assert finding.holds and "0.5 → 0.3 → 0.1" in finding.sentence


def test_figures_have_names() -> None:
    run_metrics = metrics(0.25, p99=40)
    assert figure(run_metrics, "lost_share") == Estimate(value=0.25)
    assert figure(run_metrics, "latency.p99_ms") == Estimate(value=40)
    assert figure(run_metrics, "latency.max_ms") == Estimate(value=80)
    assert figure(run_metrics, "parts.commit.p50_ms") is None
    assert figure(run_metrics, "share.acknowledged_yet_lost") == Estimate(value=0.005)
    for name in ("lost", "latency", "latency.p_ms", "counts.nothing", "parts.commit"):
        with pytest.raises(FieldError, match="is not a figure"):
            check_name(name)
