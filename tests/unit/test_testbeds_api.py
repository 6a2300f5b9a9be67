"""Testbeds in Python: what is refused before anything starts, and what a spec asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import penstock
from penstock.api import runs, testbeds
from penstock.cli.main import penstock as command
from penstock.domain.warm_up import RequestKind
from penstock.testbed.attached import sole_user
from penstock.testbed.lease import Lease

SCENARIO = """
name: orders
topic: {name: orders, partitions: 2}
workload:
  arrivals: {kind: constant, rate_per_s: 10}
"""


def test_a_cluster_is_asked_for_by_a_value_a_file_or_nothing(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("brokers: 2\n")
    spec = penstock.ClusterSpec(brokers=2)
    assert testbeds.asked_for(file) == testbeds.asked_for(str(file)) == (spec, {})
    assert testbeds.asked_for(spec) == (spec, {})
    assert testbeds.asked_for(None) == (penstock.ClusterSpec(), {})


def test_a_scenario_says_what_to_warm_up_for(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(
        SCENARIO + "cluster: {brokers: 2}\n"
        "cluster_warm_up: {limit_s: 33}\n"
        "matrix: {settings.acks: [1, all], settings.linger.ms: [0, 5]}\n"
    )
    spec, kinds = testbeds.asked_for(file)
    assert spec.brokers == 2
    assert all(isinstance(kind, RequestKind) for kind in kinds)
    assert {limits.limit_s for limits in kinds.values()} == {33}
    # What the matrix changes and the brokers notice.
    assert len(kinds) >= 2


@pytest.mark.parametrize("as_value", [False, True])
def test_a_scenario_on_an_existing_cluster_has_none_to_start(
    as_value: bool, tmp_path: Path
) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO + "existing: {bootstrap_servers: 'somewhere:9092'}\n")
    spec = penstock.read(file, penstock.Scenario) if as_value else file
    with pytest.raises(penstock.BadInput, match="uses an existing cluster") as error:
        penstock.start_testbed(spec)
    assert as_value or "scenario.yaml" in str(error.value)


@pytest.mark.parametrize("matrix", [{}, {"workload.arrivals": [{"kind": "recorded", "file": "t"}]}])
def test_a_value_may_name_files_in_the_working_directory(
    matrix: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = penstock.Scenario(
        name="orders",
        topic=penstock.TopicSpec(name="orders"),
        workload=penstock.Workload(arrivals=penstock.RecordedArrivals(file="t"), duration_s=5),
        matrix=matrix,
    )
    with pytest.raises(penstock.BadInput, match="t: no such file"):
        runs.begin(scenario)
    Path("t").write_text("0\n1\n4\n")
    for cell in runs.begin(scenario).cells:
        assert isinstance(cell.spec.workload.arrivals, penstock.RecordedArrivals)
        assert cell.spec.workload.arrivals.at_s == (0, 1, 4)
    assert testbeds.asked_for(scenario)[1]


def test_a_limit_needs_a_warm_up() -> None:
    with pytest.raises(penstock.BadInput, match="needs warm=True"):
        penstock.start_testbed(warm_limit_s=5)


def test_a_limited_rate_keeps_no_testbed_warm(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO + "cluster_warm_up: {rate_per_s: 100}\n")
    with pytest.raises(penstock.BadInput, match="limits its warm-up to 100 messages/s"):
        penstock.start_testbed(file, warm=True)


def test_a_testbed_that_does_not_run_is_not_there() -> None:
    for refused in (penstock.attach_testbed, penstock.remove_testbed):
        with pytest.raises(penstock.TestbedError, match="no testbed 'nobody-has-this-name'"):
            refused("nobody-has-this-name")
    assert "nobody-has-this-name" not in penstock.testbeds()


def test_schemas_of_files() -> None:
    assert "scenario" in penstock.file_kinds()
    assert "workload" in str(penstock.schema("scenario"))
    with pytest.raises(penstock.BadInput, match="use one of cluster, "):
        penstock.schema("secnario")


def test_doctor_names_what_is_missing() -> None:
    able = penstock.doctor()
    assert able.is_ready == (not able.missing)
    assert {check.name for check in (*able.missing, *able.partly)} == {
        check.name for check in able.checks if not check.ok
    }
    assert all(check.fix for check in (*able.missing, *able.partly))


def test_what_cannot_be_a_spec_is_refused() -> None:
    wrong: tuple[Any, ...] = (5, {}, [])
    for spec in wrong:
        with pytest.raises(penstock.FieldError, match=r"spec: .* must be a file, a ClusterSpec"):
            penstock.start_testbed(spec)
    with pytest.raises(penstock.FieldError, match=r"limit_s: -1 must be"):
        penstock.start_testbed(warm=True, warm_limit_s=-1)


def test_a_testbed_that_another_command_removed_is_not_there(tmp_path: Path) -> None:
    gone = Lease("0123", tmp_path / "gone")
    with pytest.raises(penstock.TestbedError, match="another command has removed"), sole_user(gone):
        pass


def test_health_is_of_a_cluster_that_runs() -> None:
    with pytest.raises(penstock.FieldError, match="cluster: 'mine' must be a Cluster"):
        penstock.health("mine")  # type: ignore[arg-type]


class Clients:
    """What clients of an existing cluster see."""

    def __init__(self, out_of_sync: list[str]) -> None:
        self._out_of_sync = out_of_sync

    def broker_ids(self, timeout_s: float) -> set[int]:
        return {2, 1}

    def out_of_sync(self) -> list[str]:
        return self._out_of_sync


@pytest.mark.parametrize(
    ("lagging", "outcome"),
    [
        ([], "2 brokers answer; all replicas are in sync."),
        (["t-0: leader 1"], "2 brokers answer; 1 partitions lag, such as t-0: leader 1."),
    ],
)
def test_health_of_an_existing_cluster(
    lagging: list[str], outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(penstock.ExistingCluster, "admin", Clients(lagging))
    state = penstock.health(penstock.ExistingCluster("somewhere:9092"))
    assert (state.outcome, state.is_good) == (outcome, not lagging)
    assert (state.brokers, state.out_of_sync, state.down) == ((1, 2), lagging, [])
    assert state.bootstrap_servers == "somewhere:9092"
    assert not state.views and not state.rates and "only on a testbed" in state.unseen
    assert state.to_data()["brokers"] == [1, 2]
    arguments = ["testbed", "status", "--bootstrap-servers", "somewhere:9092"]
    shown = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert shown.output.startswith(outcome) and "only on a testbed" in shown.output
    assert shown.return_value == (4 if lagging else 0)


def test_an_existing_cluster_takes_a_file_of_properties(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nkey.serializer=x\n")
    cluster = penstock.ExistingCluster("somewhere:9092", file)
    assert cluster.client_config["security.protocol"].upper() == "SASL_SSL"
    assert any("key.serializer" in warning for warning in cluster.warnings)


@pytest.mark.parametrize("path", [None, 5, b"x", "", "a\0b"])
def test_what_is_not_a_path_is_refused_by_its_argument(path: object) -> None:
    wrong: Any = path
    for call, argument in (
        (lambda: penstock.read(wrong, penstock.TopicSpec), "path"),
        (lambda: penstock.run(wrong), "scenario"),
        (lambda: penstock.resume(wrong), "directory"),
        (lambda: penstock.analyze([wrong]), "paths"),
        (lambda: penstock.land(wrong), "pipeline"),
        (lambda: penstock.audit(wrong), "pipeline"),
    ):
        with pytest.raises(penstock.FieldError, match=f"^{argument}: .* must be a path"):
            call()
    with pytest.raises(penstock.BadInput, match="is not a kind of file"):
        penstock.schema([])  # type: ignore[arg-type]
    with pytest.raises(penstock.BadInput, match="cannot be written as YAML"):
        penstock.dump_yaml(object())


def test_a_place_on_kubernetes_is_checked() -> None:
    with pytest.raises(penstock.FieldError, match="namespace: 'A B' must be a Kubernetes name"):
        penstock.KubernetesPlace(image="x", namespace="A B")
    with pytest.raises(penstock.FieldError, match="image"):
        penstock.KubernetesPlace(image=" ")
