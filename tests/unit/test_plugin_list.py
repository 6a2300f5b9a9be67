"""The list of installed plug-ins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.plugins import plugins as command
from penstock.domain.plugins import WORDS


def test_every_group_has_its_kinds_with_a_sentence() -> None:
    listed = penstock.plugins()
    assert {f"penstock.{one.group}" for one in listed} == set(WORDS)
    assert all(one.summary and one.module and not one.problem for one in listed)


@pytest.mark.parametrize("group", ["arrivals", "penstock.arrivals"])
def test_one_group(group: str) -> None:
    listed = penstock.plugins(group)
    assert {"bursts", "constant", "poisson", "recorded"} <= {one.name for one in listed}
    assert {one.group for one in listed} == {"arrivals"}


@pytest.mark.parametrize("group", ["arival", 3])
def test_a_group_that_does_not_exist(group: str) -> None:
    with pytest.raises(penstock.BadInput, match="use one of adaptive_policies, arrivals, "):
        penstock.plugins(group)


def test_those_of_other_packages_are_listed_and_broken_ones_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[penstock.arrivals]\ntides = nowhere:Tides\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tides,) = (one for one in penstock.plugins("arrivals") if one.name == "tides")
    assert "others 1.0 cannot be loaded" in tides.problem
    shown = CliRunner().invoke(command, ["arrivals"])
    assert "tides" in shown.output and "(broken)" in shown.output


def test_the_command_prints_json() -> None:
    shown = CliRunner().invoke(command, ["sizes", "--json"], catch_exceptions=False)
    assert [one["group"] for one in json.loads(shown.output)][:1] == ["sizes"]
