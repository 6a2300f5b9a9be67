"""Mistakes in arguments of the public API: found before anything is made or started."""

# mypy: disable-error-code="arg-type"

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

import penstock
from penstock.analysis import background, session
from penstock.cli.main import penstock as command
from penstock.domain.errors import TestbedError
from penstock.lake.audit import _then
from penstock.lake.metrics import serve


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "scoped", refuse)
    monkeypatch.setattr(background, "BackgroundSpark", refuse)


def scenario() -> penstock.Scenario:
    return penstock.Scenario(
        name="orders",
        topic=penstock.TopicSpec(name="orders"),
        workload=penstock.Workload(arrivals=penstock.ConstantArrivals(rate_per_s=1), duration_s=1),
    )


def pipeline(lake: Path) -> penstock.Pipeline:
    return penstock.Pipeline(
        name="p",
        bootstrap_servers="127.0.0.1:1",
        lake=str(lake),
        streams=[penstock.Stream(topics=["orders"], table="orders")],
    )


@pytest.mark.parametrize("verb", [penstock.analyze, penstock.compare])
def test_runs_that_are_none(verb: Any, tmp_path: Path) -> None:
    with pytest.raises(penstock.BadInput, match=r"paths: 'nope' must be a list: write \['nope'\]"):
        verb("nope")
    with pytest.raises(penstock.BadInput, match=r"paths: .* must be a list"):
        verb(tmp_path)
    with pytest.raises(penstock.BadInput, match="no directory of a run is given"):
        verb([])
    with pytest.raises(penstock.BadInput, match=r"has no run\.json"):
        verb([tmp_path])


@pytest.mark.parametrize("limit_ms", [-3, 0, float("nan"), "5"])
def test_latency_limits(limit_ms: Any, tmp_path: Path) -> None:
    with pytest.raises(penstock.BadInput, match=r"latency_limits_ms: .* above 0"):
        penstock.run(scenario(), out=tmp_path / "runs", latency_limits_ms=[limit_ms])
    with pytest.raises(penstock.BadInput, match="latency_limits_ms"):
        penstock.analyze([tmp_path], latency_limits_ms=[limit_ms])
    assert not (tmp_path / "runs").exists()


def test_a_testbed_that_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="there is no testbed 'nope'"):
        penstock.run(scenario(), out=tmp_path / "runs", testbed="nope")
    assert not (tmp_path / "runs").exists()
    file = tmp_path / "scenario.yaml"
    file.write_text(penstock.dump_yaml(scenario()))
    arguments = ["run", str(file), "--out", str(tmp_path / "runs"), "--testbed", "nope"]
    assert isinstance(CliRunner().invoke(command, arguments).exception, TestbedError)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "s.yaml", "--latency-limit", "-3"],
        ["analyze", "x", "--latency-limit", "0"],
        ["pipeline", "run", "p.yaml", "--metrics-port", "99999999"],
        ["autoscaler", "run", "p.yaml", "--metrics-port", "0"],
    ],
)
def test_numbers_of_the_command_line(arguments: list[str]) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2 and "not in the range" in result.output


def test_a_port_that_is_none() -> None:
    with pytest.raises(penstock.BadInput, match="metrics port 99999999 cannot be used"):
        serve(CollectorRegistry(), 99999999)


def test_where_the_autoscaler_decides(tmp_path: Path) -> None:
    with pytest.raises(penstock.BadInput, match="did you mean 'inside'"):
        penstock.land(pipeline(tmp_path), autoscale="insde")


def test_one_name_is_not_a_list_of_names(tmp_path: Path) -> None:
    with pytest.raises(penstock.BadInput, match="kinds: 'no-table' must be a list"):
        penstock.reland(pipeline(tmp_path), kinds="no-table")
    with pytest.raises(penstock.BadInput, match="topics: 'orders' must be a list"):
        penstock.reland(pipeline(tmp_path), topics="orders")
    with pytest.raises(penstock.BadInput, match="gone_writers: 'x' must be a list"):
        penstock.compact(pipeline(tmp_path), gone_writers="x")


def test_tidying_up_does_not_hide_why_an_audit_ended() -> None:
    def fail() -> None:
        raise RuntimeError("py4j does not exist in the JVM")

    with pytest.raises(SystemExit), _then(fail):
        raise SystemExit(143)
    with pytest.raises(RuntimeError), _then(fail):
        pass
