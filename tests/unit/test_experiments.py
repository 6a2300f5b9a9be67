"""Experiments without a cluster: grids and their points, fits, and facts from results."""

from __future__ import annotations

import html
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from penstock import specs
from penstock.cli.experiment import experiment
from penstock.domain import plugins
from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.facts import FittedLine, PointConditions
from penstock.domain.grid import EXPERIMENTS, ExperimentGrid, complete, quick
from penstock.domain.metrics import Estimate
from penstock.domain.value import FieldError
from penstock.report import formatting
from penstock.report.facts import points as points_table
from penstock.report.facts import render, sentence
from penstock.runs.experiments import series as experiments
from penstock.runs.experiments.assemble import assemble
from penstock.runs.experiments.points import (
    PointRepeat,
    PointResult,
    base,
    conditions,
    points,
    sweep,
)
from penstock.runs.experiments.unavailability import choose_victim, fenced_after_s
from penstock.stats.fit import distribution, fit_line, merged_distribution
from penstock.stats.histogram import Histogram

KINDS = plugins.names(EXPERIMENTS)

WHERE = PointConditions(message_bytes=1000, partitions=48, replication=3, brokers=3, producers=1)


# --- grids and points ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_grid_reaches_the_minimum_and_the_quick_one_says_that_it_does_not(
    kind: str,
) -> None:
    grid = complete(kind)
    assert not grid.is_below_minimum
    assert len(sweep(kind, grid)) >= 5
    assert grid.repeats >= 3
    assert quick(grid).is_below_minimum
    assert len(points(kind, quick(grid))) <= 3


@pytest.mark.parametrize(
    ("kind", "axes"),
    [
        ("production", ("message_bytes", "partitions", "replication", "brokers", "producers")),
        ("consumption", ("message_bytes", "partitions", "replication", "brokers", "consumers")),
        ("end-to-end", ("partitions", "brokers", "producers", "consumers")),
    ],
)
def test_every_axis_is_varied_by_default(kind: str, axes: tuple[str, ...]) -> None:
    combinations = conditions(kind, complete(kind))
    for axis in (*axes, "policy"):
        assert len({getattr(c, axis) for c in combinations}) > 1, axis


def test_a_star_changes_one_axis_at_a_time() -> None:
    grid = complete("production", ExperimentGrid(partitions=(1, 12, 48)))
    centre = base("production", grid)
    assert centre.partitions == 12
    names = ("message_bytes", "partitions", "replication", "brokers", "producers")
    for combination in conditions("production", grid):
        assert sum(getattr(combination, n) != getattr(centre, n) for n in names) <= 1


def test_a_full_grid_has_every_combination_that_can_be() -> None:
    grid = complete(
        "production",
        ExperimentGrid(
            design="full",
            partitions=(1, 2),
            message_bytes=(10, 20),
            replication=(1, 3),
            brokers=(1, 3),
            policies=("bro-max",),
            producers=(1,),
        ),
    )
    combinations = conditions("production", grid)
    # 2 partitions × 2 sizes × (1 copy on 1 or 3 brokers, 3 copies on 3).
    assert len(combinations) == 2 * 2 * 3
    assert len(set(combinations)) == len(combinations)


def test_policies_name_and_add_their_brokers() -> None:
    grid = complete(
        "production",
        ExperimentGrid(
            partitions=(6,),
            replication=(2,),
            brokers=(3, 5),
            policies=("bro-min", "bro-max"),
            message_bytes=(100,),
            producers=(1,),
        ),
    )
    assert {c.brokers: c.policy for c in conditions("production", grid)} == {
        2: "bro-min",
        3: "",
        5: "bro-max",
    }


def test_repeats_come_last_and_have_directories_of_their_own() -> None:
    grid = complete("consumption", ExperimentGrid(partitions=(1, 2), repeats=2))
    grid_points = points("consumption", grid)
    assert [p.repeat for p in grid_points] == sorted(p.repeat for p in grid_points)
    assert len({p.folder for p in grid_points}) == len(grid_points)
    assert "partitions=1" in grid_points[0].label


def test_what_a_file_leaves_out_is_the_experiments_own() -> None:
    file_grid = specs.parse("partitions: [2, 4]\nrepeats: 5\n", ExperimentGrid)
    grid = complete("consumption", file_grid)
    assert grid.partitions == (2, 4)
    assert grid.repeats == 5
    assert grid.consumers == complete("consumption").consumers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partitions: [0]", "partitions"),
        ("partitions: [3, 3]", "repeat"),
        ("message_bytes: [4]", "8 or more"),
        ("replication: [5]\nbrokers: [3]", "at most"),
        ("policies: [bro-mid]", "bro-min"),
        ("assignors: [sticky]", "cooperative-sticky"),
    ],
)
def test_grids_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        specs.parse(text, ExperimentGrid)


def test_copies_on_too_few_brokers_are_refused_even_with_the_experiments_own_brokers() -> None:
    with pytest.raises(FieldError, match="brokers"):
        complete("production", ExperimentGrid(replication=(7,)))


# --- fits ----------------------------------------------------------------------------------------


def line(x: Any, y: Any) -> FittedLine:
    fit = fit_line(list(x), list(y), figure="f_ms", over="partitions", conditions=WHERE)
    assert fit is not None
    return fit


def test_a_line_without_noise_is_found_exactly() -> None:
    fit = line([1, 12, 48, 96], [2 + 0.5 * x for x in (1, 12, 48, 96)])
    assert fit.intercept.value == pytest.approx(2)
    assert fit.slope.value == pytest.approx(0.5)
    assert fit.r_squared == pytest.approx(1)
    assert (fit.valid_from, fit.valid_to) == (1, 96)


def test_a_fit_agrees_with_scipy() -> None:
    rng = np.random.default_rng(7)
    x = np.repeat([1.0, 12, 48, 96, 192], 3)
    y = 9000 + 5 * x + rng.normal(0, 40, len(x))
    fit, second = line(x, y), stats.linregress(x, y)
    t = stats.t.ppf(0.975, len(x) - 2)
    assert fit.slope.value == pytest.approx(second.slope)
    assert fit.intercept.value == pytest.approx(second.intercept)
    assert fit.r_squared == pytest.approx(second.rvalue**2)
    assert fit.slope.high == pytest.approx(second.slope + t * second.stderr)
    assert fit.intercept.low == pytest.approx(second.intercept - t * second.intercept_stderr)
    assert fit.observations == 15


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """95 % of 600 fits, give or take four standard errors of such a share."""
    rng = np.random.default_rng(11)
    x = np.repeat([1.0, 12, 48, 96, 192], 3)
    held = np.zeros(2)
    tries = 600
    for _ in range(tries):
        fit = line(x, 20 + 0.3 * x + rng.normal(0, 8, len(x)))
        for i, (estimate, truth) in enumerate(((fit.intercept, 20), (fit.slope, 0.3))):
            assert estimate.low is not None
            assert estimate.high is not None
            held[i] += estimate.low <= truth <= estimate.high
    assert np.all(np.abs(held / tries - 0.95) < 4 * (0.95 * 0.05 / tries) ** 0.5)


def test_what_does_not_vary_has_no_line_and_two_points_no_interval() -> None:
    options: dict[str, Any] = {"figure": "f", "over": "partitions", "conditions": WHERE}
    assert fit_line([3, 3], [1, 2], **options) is None
    assert fit_line([], [], **options) is None
    two = line([1, 2], [1, 2])
    assert two.slope == Estimate(value=1.0)


def test_a_flat_line_is_a_line() -> None:
    fit = line([1, 2, 3], [4, 4, 4])
    assert fit.slope.value == 0
    assert fit.r_squared == 1


def test_distributions_of_repeats_are_joined_bucket_by_bucket() -> None:
    first, second = Histogram.of([1_000_000] * 9), Histogram.of([3_000_000] * 9)
    one, two = distribution([first]), distribution([second])
    assert one is not None
    assert two is not None
    both = merged_distribution([one, two])
    assert both is not None
    assert both.count == 18
    assert both.mean_ms.value == pytest.approx(2.0, rel=0.001)
    assert both.mean_ms.low is not None  # from the two repeats
    assert (both.min_ms, both.max_ms) == (1.0, 3.0)
    assert distribution([]) is None


# --- facts from results --------------------------------------------------------------------------

GRID = complete(
    "production",
    ExperimentGrid(
        partitions=(1, 12, 48, 96, 192),
        message_bytes=(1000,),
        replication=(3,),
        brokers=(3, 5),
        policies=("bro-min", "bro-max"),
        producers=(1,),
        repeats=3,
    ),
)


def result(where: PointConditions, repeat: int, noise: float = 0.0, **more: Any) -> PointResult:
    """Replication of 2 + .1 ms per copy, election of 30 + 4 ms per partition led, 20 MB/s."""
    led = where.partitions / where.brokers
    figures = {
        "replication_ms": 2 + 0.1 * where.replicas_per_broker + noise,
        "detection_ms": 9000.0 + 500 * repeat,
        "election_longest_ms": 30 + 4 * led + noise,
        "led_partitions": led,
        "moderate_broker_open_handles": 100 + 2 * where.replicas_per_broker,
        "throughput_mb_per_s": 20.0 + repeat,
        "throughput_records_per_s": 20_000.0,
        "latency_ms": 5.0,
    }
    return PointResult(
        experiment="production",
        conditions=where,
        repeat=repeat,
        figures={name: Estimate(value=value) for name, value in figures.items()},
        machine={"cores": 2},
        versions={"kafka": "4.3.1"},
        handles_limit=1024,
        **more,
    )


def all_results() -> list[PointResult]:
    rng = np.random.default_rng(3)
    return [result(p.conditions, p.repeat, rng.normal(0, 0.5)) for p in points("production", GRID)]


def test_facts_have_the_coefficients_that_the_results_were_made_with() -> None:
    facts = assemble("production", GRID, all_results(), "now")
    for fit, intercept, slope in (
        (facts.replication, 2, 0.1),
        (facts.election, 30, 4),
        (facts.handles, 100, 2),
    ):
        assert fit is not None
        for estimate, truth in ((fit.intercept, intercept), (fit.slope, slope)):
            assert estimate.low is not None
            assert estimate.high is not None
            assert estimate.low - 1e-9 <= truth <= estimate.high + 1e-9
        assert fit.observations == 15  # the sweep only; other brokers are not mixed in
    assert facts.election is not None
    assert facts.election.valid_to == pytest.approx(64)
    assert facts.detection_ms is not None
    assert facts.detection_ms.value == pytest.approx(9500)
    assert facts.producer_mb_per_s is not None
    assert facts.producer_mb_per_s.value == pytest.approx(21)
    assert facts.producer_mb_per_s.low is not None
    assert facts.partition_mb_per_s is not None
    assert facts.handles_limit == 1024
    assert facts.valid["production.partitions"].high == 192
    assert {p.conditions.policy for p in facts.points} == {"bro-min", "bro-max"}
    assert not any("minimum" in caveat for caveat in facts.caveats)


def test_failed_repeats_are_excluded_with_a_caveat() -> None:
    results = all_results()
    results[0] = replace(results[0], status="failed", reason="it rained", figures={})
    facts = assemble("production", GRID, results, "now")
    spoilt = next(p for p in facts.points if p.conditions == results[0].conditions)
    assert spoilt.repeats == 2
    assert spoilt.failed == ("it rained",)
    assert any("1 of" in caveat for caveat in facts.caveats)


def test_a_busy_machine_is_a_caveat() -> None:
    results = all_results()
    assert not any("other work" in c for c in assemble("production", GRID, results, "now").caveats)
    results[2] = replace(results[2], machine={"cores": 2, "busy_share": 0.8})
    caveats = [c for c in assemble("production", GRID, results, "now").caveats if "other work" in c]
    assert "1 of 18" in caveats[0]
    assert "80%" in caveats[0]


def test_facts_need_a_result() -> None:
    failed = [replace(r, status="failed", reason="it rained") for r in all_results()]
    with pytest.raises(PenstockError, match="it rained"):
        assemble("production", GRID, failed, "now")


def test_a_small_grid_is_a_caveat() -> None:
    grid = quick(GRID)
    results = [result(p.conditions, p.repeat) for p in points("production", grid)]
    facts = assemble("production", grid, results, "now")
    assert any("minimum" in caveat for caveat in facts.caveats)


# --- directories ---------------------------------------------------------------------------------


def test_an_experiment_resumes_where_it_stopped(tmp_path: Path) -> None:
    begun = experiments.create("production", GRID, tmp_path)
    first, second, *_ = begun.points
    ended: list[tuple[PointRepeat, Literal["complete", "failed"]]]
    ended = [(first, "complete"), (second, "failed")]
    for point, status in ended:
        directory = begun.directory(point)
        directory.mkdir(parents=True)
        point_result = replace(
            result(point.conditions, point.repeat), status=status, reason="it rained"
        )
        (directory / experiments.POINT).write_text(specs.dump_json(point_result))
    third = begun.points[2]
    begun.directory(third).mkdir(parents=True)  # begun, and killed

    again = experiments.reopen(begun.path)
    assert again == begun
    assert experiments.to_do(again) == list(begun.points[2:])
    assert experiments.to_do(again, retry_failed=True) == list(begun.points[1:])
    assert [r.status for r in experiments.results(again)] == ["complete", "failed"]


def test_resume_refuses_a_directory_without_experiment(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not an experiment"):
        experiments.reopen(tmp_path)
    (tmp_path / experiments.EXPERIMENT).write_text('{"format": 99, "experiment": "production"}')
    with pytest.raises(BadInput, match="format 99"):
        experiments.reopen(tmp_path)


def test_two_experiments_of_one_name_have_two_directories(tmp_path: Path) -> None:
    paths = {experiments.create("end-to-end", ExperimentGrid(), tmp_path).path for _ in range(2)}
    assert {path.name for path in paths} == {"end-to-end", "end-to-end-2"}


# --- small parts ---------------------------------------------------------------------------------


def test_the_controller_is_spared_and_the_busiest_leader_is_struck() -> None:
    leaders = {0: 1, 1: 1, 2: 1, 3: 2, 4: 3, 5: 3}
    assert choose_victim(leaders, spared=1) == 3
    assert choose_victim(leaders, spared=2) == 1
    assert choose_victim({0: 1, 1: 2}, spared=3) == 1
    assert choose_victim({0: 1}, spared=1) is None


LOG = """\
2026-11-16T05:14:15,001 WARN [RaftManager id=2] Connection to node 1 could not be established.
2026-11-16T05:14:16,350 INFO [QuorumController id=2] Fencing broker 3 at epoch 88 because its
2026-11-16T05:14:17,250 INFO [QuorumController id=2] Fencing broker 1 at epoch 88 because its
"""


@pytest.mark.parametrize("zone_h", [-9.5, 0, 1, 5.75])
def test_the_log_tells_when_a_broker_was_taken_for_dead_in_any_time_zone(zone_h: float) -> None:
    killed = datetime(2026, 11, 16, 5, 14, 7, tzinfo=UTC).timestamp() - zone_h * 3600
    assert fenced_after_s(LOG, 1, killed) == pytest.approx(10.25)
    assert fenced_after_s(LOG, 2, killed) is None


# --- examples and pages --------------------------------------------------------------------------

EXAMPLES = Path(__file__).parents[2] / "examples" / "experiments"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_examples_can_be_measured_and_reach_the_minimum(path: Path) -> None:
    file_grid = specs.load(path, ExperimentGrid)
    kind: str = next((k for k in KINDS if k == path.stem), "production")
    grid = complete(kind, file_grid)
    assert not grid.is_below_minimum
    assert len(points(kind, grid)) >= 15


def test_the_page_has_every_figure_and_no_text_of_others_as_markup() -> None:
    results = all_results()
    results[0] = replace(results[0], status="failed", reason="<script>alert(1)</script>")
    facts = assemble("production", GRID, results, "now")
    page = render(facts, "production", "production")
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    for column in points_table(facts, "production").columns:
        assert column in page
    assert sentence(facts, "production") in html.unescape(page)


def test_the_sentence_has_the_slopes_with_their_intervals() -> None:
    facts = assemble("production", GRID, all_results(), "now")
    assert facts.election is not None
    text = sentence(facts, "production")
    assert formatting.estimate(facts.election.slope, "ms") in text
    assert "[" in text


# --- the command ---------------------------------------------------------------------------------


def command(*arguments: str) -> BaseException | None:
    return CliRunner().invoke(experiment, arguments).exception


def test_an_experiment_is_resumed_as_what_it_is(tmp_path: Path) -> None:
    begun = experiments.create("production", GRID, tmp_path)
    error = command("consumption", "--resume", str(begun.path))
    assert isinstance(error, BadInput)
    assert f"experiment production --resume {begun.path}" in str(error)
    error = command("production", "--quick", "--resume", str(begun.path))
    assert isinstance(error, BadInput)


def test_a_mistake_in_the_grid_makes_no_directory(tmp_path: Path) -> None:
    spec = tmp_path / "grid.yaml"
    spec.write_text("partitions: [1, 2]\nrepeats: 0\nsizes: [3]\n")
    error = command("end-to-end", str(spec), "--out", str(tmp_path / "runs"))
    assert isinstance(error, BadInput)
    assert "repeats" in str(error)
    assert "sizes" in str(error)
    assert not (tmp_path / "runs").exists()


def test_copies_that_the_default_brokers_cannot_hold_are_bad_input(tmp_path: Path) -> None:
    spec = tmp_path / "grid.yaml"
    spec.write_text("replication: [7]\n")
    error = command("production", str(spec), "--out", str(tmp_path / "runs"))
    assert isinstance(error, BadInput)
    assert "brokers" in str(error)
