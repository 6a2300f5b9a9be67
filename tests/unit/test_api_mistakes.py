"""Mistakes in arguments of the public API: found before anything is made or started."""

# mypy: disable-error-code="arg-type"

from __future__ import annotations

from collections.abc import Callable
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


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: penstock.observe(3), "cluster: 3 must be a Cluster"),
        (lambda: penstock.health(3), "cluster: 3 must be a Cluster or an ExistingCluster"),
        (lambda: penstock.calibrate(cluster=3), "cluster: 3 must be a ClusterSpec"),
        (lambda: penstock.calibrate(existing="x:1"), "existing: 'x:1' must be an Existing"),
        (lambda: penstock.calibrate(repeats="a"), "repeats: 'a' must be a whole number"),
        (lambda: penstock.calibrate(most_runs="a"), "most_runs: 'a' must be a whole number"),
        (lambda: penstock.experiment("production", grid=3), "grid: 3 must be a file or an Exper"),
        (lambda: penstock.compact("x", file_mb="a"), "file_mb: 'a' must be a whole number"),
        (lambda: penstock.compact("x", file_mb=0), "file_mb: 0 must be 1 or more"),
        (lambda: penstock.compact("x", vacuum_hours="a"), "vacuum_hours: 'a' must be a whole"),
        (lambda: penstock.capacity(lanes="a"), "lanes: 'a' must be a whole number"),
        (lambda: penstock.predict(other=3), "other: 3 must be an OtherTraffic"),
        (lambda: penstock.predict(settings=3), "settings: 3 must be a mapping"),
        (lambda: penstock.predict_runs("x"), "paths: 'x' must be a list"),
        (lambda: penstock.manifests("x", 3), "place: 3 must be a KubernetesPlace"),
        (lambda: penstock.land("x", spark_config=3), "spark_config: 3 must be a mapping"),
        (lambda: penstock.land("x", listener=3), "listener: 3 must be a Listener"),
        (lambda: penstock.Cluster(3), "spec: 3 must be a ClusterSpec"),
        (lambda: penstock.ExistingCluster(3), "bootstrap_servers: 3 must be text"),
        (
            lambda: penstock.ExistingCluster("x:1").create_topic("x"),
            "topic: 'x' must be a TopicSpec",
        ),
        (lambda: penstock.FaultInjector(3, []), "cluster: 3 must be a Cluster"),
        (lambda: penstock.ProfilePlayer(3, 4), "network: 3 must be a network, such as cluster"),
    ],
)
def test_what_a_function_does_not_take_is_refused_by_its_argument(
    call: Callable[[], object], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(penstock.FieldError, match=f"^{problem}"):
        call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("as_option", [False, True])
def test_a_secret_of_sparks_is_refused(as_option: bool, tmp_path: Path) -> None:
    name, secret = "spark.authenticate.secret", "quiet"
    file = tmp_path / "pipeline.yaml"
    file.write_text(penstock.dump_yaml(pipeline(tmp_path)))
    with pytest.raises(penstock.BadInput, match=f"^{name}: would be on Spark's") as refused:
        if as_option:
            arguments = ["pipeline", "run", str(file), "--conf", f"{name}={secret}"]
            CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)
        else:
            penstock.land(pipeline(tmp_path), spark_config={name: secret})
    assert secret not in str(refused.value)


def test_tidying_up_does_not_hide_why_an_audit_ended() -> None:
    def fail() -> None:
        raise RuntimeError("py4j does not exist in the JVM")

    with pytest.raises(SystemExit), _then(fail):
        raise SystemExit(143)
    with pytest.raises(RuntimeError), _then(fail):
        pass
