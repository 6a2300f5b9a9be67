"""Fitted models: their file, where they come from, what they were taught, and predictions by them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from made_up_machine import FITTED, MODEL, RUNS, observed, run_spec
from penstock import specs
from penstock.api.models import Fit, new_model, plot_model, read_model
from penstock.api.prediction import axis, forecast, predict, values_of
from penstock.cli.model import model as model_command
from penstock.cli.predict import predict as predict_command
from penstock.domain.errors import BadInput
from penstock.domain.metrics import Estimate
from penstock.domain.scenario import Scenario
from penstock.models import calibration
from penstock.models.fitted import blind, check_alike, fit_model, outside, summary
from penstock.models.forecast import judge
from penstock.models.observation import MeasuredSending
from penstock.models.other_traffic import OtherTraffic
from penstock.models.path.predict import (
    CURVE_SHARES,
    PredictedLatency,
    Prediction,
    Saturated,
)
from penstock.models.throughput import FittedRequestInterval, RequestInterval
from penstock.report import forecast_page, forecasts
from penstock.testbed.faults.kill import Kill


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.json"
    path.write_text(specs.dump_json(FITTED))
    return path


# --- the file ----------------------------------------------------------------------------------------


def test_a_model_is_read_as_it_was_written(file: Path) -> None:
    assert read_model(file) == FITTED


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "there is no model"),
        ("{}", "format 1"),
        ("[]", "format 1"),
        ("not json", "format 1"),
        ('{"format": 99}', "format 99"),
        ('{"format": 1}', "made_at"),
    ],
)
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, text: str | None, named: str) -> None:
    path = tmp_path / "model.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput, match=named):
        read_model(path)


def test_a_model_is_not_replaced_by_chance(file: Path) -> None:
    with pytest.raises(BadInput, match="exists already"):
        new_model(file, add=False)
    assert new_model(file, add=True) == FITTED


# --- what it was taught --------------------------------------------------------------------------------


def test_more_runs_are_added_to_those_that_a_model_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_RADII", (0.5, 0.2))
    monkeypatch.setattr(calibration, "_RADII_AGAIN", (0.15,))
    monkeypatch.setattr(calibration, "_MESSAGES", 1_000)
    new = observed(run_spec(500, acks="all", linger_ms=20))
    found = fit_model([new, RUNS[0]], "later", previous=FITTED)
    assert [one.run for one in found.observations] == [*(one.run for one in RUNS), new.run]
    assert found.history == (FITTED.record,)
    assert found.path.runs == 4
    # Of a run that it has not seen, before it learns from it.
    assert 0 < blind(FITTED, [new, RUNS[0]])["end_to_end_mean"] < 0.3


def test_typical_errors_are_medians() -> None:
    assert summary(FITTED.left_out)["end_to_end_mean"] == pytest.approx(0.105, abs=0.001)
    assert summary(FITTED.left_out)["end_to_end_p99"] == pytest.approx(0.221, abs=0.001)
    assert "produce_mean" not in summary(FITTED.left_out)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"versions": {"kafka": "3.9.0", "librdkafka": "2.16.0"}}, "kafka 3.9.0"),
        ({"machine": {"cores": 8, "memory_mb": 24_000, "processor": "made up"}}, "cores 8"),
        ({"is_local": False}, "cluster elsewhere"),
    ],
)
def test_runs_of_another_machine_or_version_are_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        check_alike([RUNS[0], replace(RUNS[1], **change)])


def test_no_runs_are_refused() -> None:
    with pytest.raises(BadInput, match="no runs"):
        fit_model([], "now")


def test_what_the_calibration_did_not_cover_is_named_with_by_how_much() -> None:
    known = [one.spec for one in RUNS]
    assert outside(run_spec(1_000), known) == ()
    found = outside(run_spec(8_000, size_bytes=50, compression_type="zstd"), known)
    assert [note.partition(":")[0] for note in found] == [
        "8000 messages/s",
        "50 bytes per message",
        "compression.type=zstd",
    ]
    assert "4.0 times beyond the 100 to 2000" in found[0]
    assert "2.0 times beyond the 100" in found[1]


# --- predictions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("5", [5]),
        ("0,1,all", [0, 1, "all"]),
        ("true,false", [True, False]),
        ("0.5,2", [0.5, 2]),
    ],
)
def test_values_of_a_list(text: str, values: list[object]) -> None:
    assert values_of(text) == values


def test_values_of_a_range() -> None:
    linger = values_of("0..100")
    assert (linger[0], linger[-1], len(linger)) == (0, 100, 16)
    wide = values_of("1..1000")  # by factors
    assert wide[0] == 1 and wide[-1] == 1000 and wide[1] - wide[0] < wide[-1] - wide[-2]  # type: ignore[operator]
    assert values_of("0..1")[1] == pytest.approx(0.06667)
    for text in ("a..b", "5..1", "3..3"):
        with pytest.raises(BadInput):
            values_of(text)


def test_kafkas_names_are_enough() -> None:
    assert axis("linger.ms") == "settings.linger.ms"
    assert axis("fetch.min.bytes") == "consumers.settings.fetch.min.bytes"
    assert axis("partitions") == "topic.partitions"
    assert axis("cluster.brokers") == "cluster.brokers"


def scenario() -> Scenario:
    return specs.parse(specs.to_data(run_spec(200)), Scenario)


def test_a_scenario_is_predicted_with_changed_settings() -> None:
    [plain] = predict(scenario(), model=FITTED)
    [lingering] = predict(scenario(), model=FITTED, settings={"linger.ms": 50})
    assert isinstance(plain.answer, Prediction) and isinstance(lingering.answer, Prediction)
    fast, slow = (one.answer.latencies["end_to_end"].mean_ms for one in (plain, lingering))  # type: ignore[union-attr]
    assert fast.value < 10 < slow.value
    assert slow.low is not None and slow.high is not None and slow.low < slow.value < slow.high
    late = lingering.late_share(10)
    assert late is not None and 0.3 < late < 1


def test_a_matrix_is_predicted_cell_by_cell_and_a_sweep_along_its_axis() -> None:
    several = replace(scenario(), matrix={"settings.acks": ("1", "all")})
    found = predict(several, model=FITTED)
    assert [one.label for one in found] == ["settings.acks=1", "settings.acks=all"]
    swept = predict(scenario(), model=FITTED, sweep={"linger.ms": [0, 20, 80]})
    assert swept.over == "settings.linger.ms"
    means = [one.answer.latencies["end_to_end"].mean_ms.value for one in swept]  # type: ignore[union-attr]
    assert means == sorted(means)
    with pytest.raises(BadInput, match="one name"):
        predict(scenario(), model=FITTED, sweep={"linger.ms": [0], "acks": ["1"]})


def test_without_a_scenario_that_of_the_model_is_changed() -> None:
    [one] = predict(model=FITTED, settings={"rate_per_s": 50, "acks": "1"})
    assert one.spec.workload.messages_per_s == 50
    assert one.spec.settings.acks == "1"


def test_compression_is_measured_on_the_content() -> None:
    spec = run_spec(200, linger_ms=100, size_bytes=500, compression_type="zstd")
    content = specs.parse(
        {**specs.to_data(spec), "workload": {**specs.to_data(spec)["workload"], "payload": {"content": {"kind": "web-log"}, "size_bytes": 500}}},
        Scenario,
    )  # fmt: skip
    assert forecast(FITTED, content, messages=2_000).compression_ratio > 3
    assert forecast(FITTED, spec, messages=2_000).compression_ratio == pytest.approx(1, abs=0.05)


def test_networks_and_disks_follow_from_the_predicted_requests() -> None:
    one = forecast(FITTED, run_spec(600, linger_ms=10, acks="all", size_bytes=1_000))
    found = one.traffic
    assert found is not None
    assert found.payload_mb_per_s == pytest.approx(0.6, rel=0.05)
    assert 0.02 < found.overhead_share < 0.2
    assert found.sent_mb_per_s == pytest.approx(found.payload_mb_per_s / (1 - found.overhead_share))
    # Three copies on three brokers: each has everything.
    assert found.disk_mb_per_s == pytest.approx([found.sent_mb_per_s] * 3, rel=0.05)
    assert found.imbalance == pytest.approx(1)
    assert found.days_until_full(500) == pytest.approx(500e3 / max(found.disk_mb_per_s) / 86_400)


def test_keys_that_are_few_load_brokers_unevenly() -> None:
    spec = run_spec(200)
    skewed = replace(
        spec,
        workload=replace(spec.workload, keys=1),
        topic=replace(spec.topic, replication=1),
    )
    found = forecast(FITTED, skewed).traffic
    assert found is not None
    assert found.imbalance == pytest.approx(3)


def test_the_share_of_late_messages_is_right_in_the_tail() -> None:
    """One message of 20,000 far out must not look like one of 250."""
    times = np.sort(np.r_[np.linspace(1, 10, 19_999), 500.0])
    latency = PredictedLatency(
        mean_ms=Estimate(value=5.5),
        percentiles_ms={},
        curve_ms=tuple(np.quantile(times, CURVE_SHARES).tolist()),
    )
    assert latency.late_share(100) < 2e-4
    assert latency.late_share(5.5) == pytest.approx(0.5, abs=0.001)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"fetch.min.bytes": "abc"}, "fetch.min.bytes=abc"),
        ({"fetch.wait.max.ms": "x"}, "fetch.wait.max.ms=x"),
        ({"settings.sticky.partitioning.linger.ms": -1}, "sticky.partitioning.linger.ms=-1"),
        ({"rate_per_s": 0.02}, "0.02 messages/s: too few"),
    ],
)
def test_values_that_make_no_sense_are_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(BadInput, match=re.escape(named)):
        predict(scenario(), model=FITTED, settings=settings)


def test_extreme_values_are_answered() -> None:
    [polling] = predict(
        scenario(), model=FITTED, settings={"fetch.min.bytes": 100_000, "fetch.wait.max.ms": 0}
    )
    assert polling.prediction is not None
    [much] = predict(scenario(), model=FITTED, settings={"rate_per_s": 1e8})
    assert isinstance(much.answer, Saturated)
    # A long linger is a sawtooth, not a queue that grows.
    long = {"linger.ms": 4_000, "rate_per_s": 800}
    [slow] = predict(scenario(), model=FITTED, settings=long)
    assert slow.prediction is not None
    assert slow.prediction.latencies["produce"].mean_ms.value == pytest.approx(2_000, rel=0.1)


@pytest.mark.parametrize("text", ["0..inf", "5..1", "nan..3"])
def test_ranges_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="two numbers"):
        values_of(text)


def test_whole_numbers_stay_whole() -> None:
    assert values_of("1..2") == [1, 2]


def test_faults_are_left_out_with_a_warning() -> None:
    faulty = replace(scenario(), faults=(Kill(broker=1, at_s=1.0),))
    [one] = predict(faulty, model=FITTED)
    assert one.prediction is not None
    assert one.outside[0].startswith("faults: left out")


def test_what_no_run_measured_is_named() -> None:
    blind = [replace(o, latencies={"produce": o.latencies["produce"]}) for o in RUNS]
    only = replace(FITTED, observations=tuple(blind))
    assert "latency end to end: no run" in " ".join(only.outside(RUNS[0].spec))


def test_settings_of_brokers_that_were_not_calibrated_are_named() -> None:
    spec = RUNS[0].spec
    other = replace(
        spec,
        topic=replace(spec.topic, config={"flush.messages": "1"}),
        cluster=replace(spec.cluster, heap_mb=512),
    )
    notes = " ".join(outside(other, [spec]))
    assert "topic.config=flush.messages=1" in notes and "cluster.heap_mb=512" in notes


def test_runs_of_another_cluster_elsewhere_are_refused() -> None:
    away = [replace(one, is_local=False, cluster="a:9092") for one in RUNS]
    check_alike(away)
    with pytest.raises(BadInput, match="b:9092"):
        check_alike([*away, replace(away[0], cluster="b:9092")])


def test_other_traffic_takes_cores() -> None:
    spec = RUNS[0].spec
    alone = forecast(FITTED, spec)
    other = OtherTraffic(requests_per_s=500, mb_per_s=0.1)
    # Of a request: the broker 0.3 ms, two followers 0.3 ms each, a reader 0.3 ms; bytes cost nothing.
    assert other.cores(MODEL.physics, 3) == pytest.approx(500 * 1.2e-3)
    beside = forecast(FITTED, spec, other=other)
    assert alone.prediction is not None and beside.prediction is not None
    assert alone.prediction.cpu_share is not None and beside.prediction.cpu_share is not None
    more = beside.prediction.cpu_share - alone.prediction.cpu_share
    assert more == pytest.approx(0.6 / 2, rel=0.1)
    means = [
        one.latencies["end_to_end"].mean_ms.value for one in (alone.prediction, beside.prediction)
    ]
    assert means[1] > 1.1 * means[0]
    full = forecast(FITTED, spec, other=OtherTraffic(requests_per_s=1_500))
    assert isinstance(full.answer, Saturated)
    with pytest.raises(BadInput, match=r"2\.4 of the 2 cores by itself"):
        forecast(FITTED, spec, other=OtherTraffic(requests_per_s=2_000))


def test_other_traffic_needs_cores_that_are_known() -> None:
    unknown = replace(FITTED, path=replace(FITTED.path, cores=0))
    assert forecast(unknown, RUNS[0].spec).prediction is not None
    with pytest.raises(BadInput, match="other traffic"):
        forecast(unknown, RUNS[0].spec, other=OtherTraffic(mb_per_s=1))


def test_a_prediction_stands_beside_its_measurement() -> None:
    seen = RUNS[0]
    judged = judge(forecast(FITTED, seen.spec, messages=6_000), seen)
    mean = next(f for f in judged.figures if (f.latency, f.statistic) == ("end_to_end", "mean"))
    assert mean.ratio == pytest.approx(1, abs=0.1) and mean.is_inside
    parts = {part.name.strip(): part for part in judged.parts}
    assert parts["wait"].measured_ms is None
    assert parts["until appended"].measured_ms == pytest.approx(
        parts["until appended"].predicted_ms, rel=0.2
    )
    assert sum(1 for f in judged.figures if f.latency == "commit") == 1
    assert "lie in the 90 % intervals" in forecasts.judged_outcome([judged])


# --- pages and commands ----------------------------------------------------------------------------------


def invoke(command: Any, *arguments: str) -> Any:
    return CliRunner().invoke(command, list(arguments), catch_exceptions=True)


def test_the_command_shows_the_outcome_first(file: Path, tmp_path: Path) -> None:
    plot = tmp_path / "plot.html"
    result = invoke(
        predict_command,
        *(
            "--model",
            str(file),
            "--set",
            "linger.ms=20",
            "--latency-limit",
            "5",
            "--plot",
            str(plot),
        ),
        *("--disk-gb", "500"),
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Predicted end to end: half within ")
    for text in (
        "wait for its batch",
        "later than 5 ms",
        "Model fitted to 3 runs",
        "days until 500 GB are full",
    ):
        assert text in result.stdout
    assert "<title>Prediction</title>" in plot.read_text()


def test_the_command_sweeps(file: Path) -> None:
    result = invoke(predict_command, "--model", str(file), "--sweep", "linger.ms=0..40", "--json")
    data = json.loads(result.stdout)
    assert data["over"] == "settings.linger.ms"
    assert len(data["forecasts"]) == 16
    assert "linger.ms=" in data["outcome"]


def test_a_load_that_is_too_high_exits_with_its_own_code(file: Path) -> None:
    result = invoke(
        predict_command,
        *("--model", str(file), "--set", "rate_per_s=50000", "--set", "batch.num.messages=1"),
    )
    assert result.exit_code == 10
    assert "grows without bound above" in result.stdout
    assert "50000 messages/s: 25.0 times beyond" in result.stderr


def test_a_pair_that_is_none_is_named(file: Path) -> None:
    result = invoke(predict_command, "--model", str(file), "--set", "linger.ms")
    assert isinstance(result.exception, BadInput)
    assert "NAME=VALUE" in str(result.exception)


def test_show_explains_parameters_and_errors(file: Path) -> None:
    result = invoke(model_command, "show", "--model", str(file))
    assert result.exit_code == 0, result.output
    for text in ("client_produce", "s of CPU", "typical error on left-out runs"):
        assert text in result.stdout
    assert json.loads(invoke(model_command, "show", "--model", str(file), "--json").stdout)


def test_the_page_of_a_model_has_what_follows_for_throughput_and_disks(tmp_path: Path) -> None:
    interval = FittedRequestInterval(
        interval=RequestInterval(base_s=3e-4, per_partition_s=1e-5, per_byte_s=3e-8),
        r_squared=0.99,
        sizes_bytes=(200, 12_000),
        partitions=(3, 12),
    )
    seen = MeasuredSending(
        run="full",
        spec=run_spec(1_000),
        messages_per_s=30_000,
        request_messages=10,
        request_bytes=1_200,
    )
    with_it = replace(FITTED, sending=interval, sendings=(seen,))
    file, page = tmp_path / "model.json", tmp_path / "model.html"
    file.write_text(specs.dump_json(with_it))
    assert read_model(file) == with_it
    result = invoke(model_command, "show", "--model", str(file), "--plot", str(page))
    assert result.exit_code == 0, result.output
    text = page.read_text()
    for part in ("Fig. 4.9", "Fig. 4.10", "Largest batches at 3 partitions", "hours until 500 GB"):
        assert part in text
    page.unlink()
    assert plot_model(page, model=file) == page and page.read_text() == text
    page.unlink()
    assert Fit(with_it, file).plot(str(page)) == page and page.read_text() == text
    [one] = predict(scenario(), model=with_it)
    assert one.most is not None and one.most.messages_per_s > 1_000


def test_a_saturated_answer_has_a_page_too() -> None:
    one = forecast(FITTED, run_spec(50_000, batch_num_messages=1), messages=1_000)
    assert isinstance(one.answer, Saturated)
    page = forecast_page.render([one], FITTED)
    assert "grows without bound" in page
