"""The design of a calibration: which runs, at which rates, on whose cluster."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from made_up_machine import observed, run_spec
from penstock.analysis import background
from penstock.api import calibration as api
from penstock.api.calibration import calibrate
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.network import NetworkSpec
from penstock.domain.run import Existing
from penstock.models import calibration as fitting
from penstock.models.design import LIGHT_PER_S, Place, capacity_per_s, first_run, further_runs
from penstock.runs import campaign as campaigns

PLAIN = Place(ClusterSpec())
LINKED = Place(ClusterSpec(place="namespaces", network=NetworkSpec()))
OTHERS = Place(ClusterSpec(), Existing(bootstrap_servers="kafka:9092"), cap_per_s=50)


def test_the_first_run_is_light() -> None:
    assert first_run(PLAIN).workload.messages_per_s == LIGHT_PER_S
    assert first_run(OTHERS).workload.messages_per_s == 50


def test_rates_follow_from_what_the_first_run_used() -> None:
    assert capacity_per_s(2, 0.5) == 4 * LIGHT_PER_S
    slow, fast = (
        {s.name: s.workload.messages_per_s for s in further_runs(PLAIN, full)}
        for full in (1_000, 10_000)
    )
    assert slow["calibrate-heavy"] == 600
    assert {name: 10 * rate for name, rate in slow.items()} == pytest.approx(fast, rel=0.01)


def test_links_need_an_emulated_network() -> None:
    names = {s.name for s in further_runs(LINKED, 1_000)} - {
        s.name for s in further_runs(PLAIN, 1_000)
    }
    assert names == {"calibrate-linked", "calibrate-keyed"}
    linked = next(s for s in further_runs(LINKED, 1_000) if s.name == "calibrate-linked")
    assert linked.cluster.network is not None and len(linked.cluster.network.links) == 1


def test_a_cluster_of_others_is_not_loaded_beyond_the_cap() -> None:
    runs = further_runs(OTHERS, 1_000)
    assert len(runs) >= 2
    assert all(one.workload.messages_per_s <= 50 for one in runs)
    assert all(one.existing is not None for one in runs)


def test_fewer_runs_are_the_first_of_the_design() -> None:
    every = further_runs(PLAIN, 1_000)
    assert further_runs(PLAIN, 1_000, most=5) == every[:3]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"testbed": "a", "cluster": ClusterSpec()}, "one of"),
        ({"saturate": True}, "existing"),
        ({"rate_cap_per_s": 10}, "existing"),
        ({"existing": OTHERS.existing, "saturate": True, "rate_cap_per_s": 5}, "no rate cap"),
        ({"existing": OTHERS.existing, "rate_cap_per_s": 0}, "too low"),
        ({"most_runs": 3}, "too few"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_anything_starts(
    arguments: dict[str, object], named: str
) -> None:
    with pytest.raises(BadInput, match=named):
        calibrate(**arguments)  # type: ignore[arg-type]


# --- carrying it out ---------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Runs that are not carried out: what was asked for, and what each shows."""
    done: dict[str, Any] = {"scenarios": [], "bad": (), "ended": [], "observed": 0}
    known = [run_spec(rate, acks=acks) for rate, acks in ((100, "all"), (300, "1"), (200, "all"))]

    def create(scenario: Any, _name: str, out: Path) -> Any:
        done["scenarios"].append(scenario)
        return SimpleNamespace(directories=[SimpleNamespace(path=out / scenario.name)])

    def observation(directory: Any) -> Any:
        if directory.path.name in done["bad"]:
            raise BadInput(f"{directory.path}: the run was not steady")
        place = [s.name for s in done["scenarios"]].index(directory.path.name)
        done["observed"] += 1
        name = f"{directory.path.name}-{done['observed']}"
        return replace(observed(known[place % len(known)]), run=name)

    class Spark:
        def __init__(self, _master: str) -> None: ...

        def get(self) -> None: ...

        def stop(self) -> None:
            done["ended"].append("spark")

    monkeypatch.setattr(background, "BackgroundSpark", Spark)
    monkeypatch.setattr(campaigns, "create", create)
    monkeypatch.setattr(campaigns, "carry_on", lambda *_, **__: None)
    monkeypatch.setattr(api, "count_outcomes", lambda *_: ())
    monkeypatch.setattr(api, "observation", observation)
    monkeypatch.setattr(api, "used_cores", lambda _: (2.0, 0.5))
    monkeypatch.setattr(fitting, "_RADII", (0.3,))
    monkeypatch.setattr(fitting, "_RADII_AGAIN", ())
    monkeypatch.setattr(fitting, "_MESSAGES", 1_000)
    return done


def test_the_design_is_measured_and_fitted(measured: dict[str, Any], tmp_path: Path) -> None:
    found = calibrate(most_runs=4, model=tmp_path / "model.json", out=tmp_path)
    first, *rest, last = measured["scenarios"]
    assert first.name == last.name == "calibrate-light"
    assert [one.workload.messages_per_s for one in rest] == [0.6 * 1_200, 1.2 * 1_200]
    assert (tmp_path / "model.json").exists()
    assert len(found.directories) == 4
    # The first only says how much the others may load.
    assert len(found.fit.model.observations) == 3
    assert measured["ended"] == ["spark"]


def test_the_design_may_be_repeated(measured: dict[str, Any], tmp_path: Path) -> None:
    found = calibrate(most_runs=4, repeats=2, model=tmp_path / "model.json", out=tmp_path)
    names = [one.name for one in measured["scenarios"]]
    assert names[1:4] == names[4:]
    assert len(found.fit.model.observations) == 6


def test_runs_that_cannot_be_used_are_left_out_and_named(
    measured: dict[str, Any], tmp_path: Path
) -> None:
    measured["bad"] = ("calibrate-window",)
    found = calibrate(most_runs=5, model=tmp_path / "model.json", out=tmp_path)
    assert len(found.fit.model.observations) == 3
    assert "calibrate-window: the run was not steady" in found.fit.skipped[0]
    measured["bad"] = ("calibrate-window", "calibrate-heavy")
    with pytest.raises(TestbedError, match="2 of 4 calibration runs cannot be used"):
        calibrate(most_runs=5, model=tmp_path / "other.json", out=tmp_path)
    assert not (tmp_path / "other.json").exists()


def test_a_cluster_that_suffers_is_left_alone(
    measured: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind: list[list[str]] = [[], ["orders-0: leader 1, 2 of 3 in sync"]]
    admin = SimpleNamespace(out_of_sync=lambda **_: behind.pop(0))
    cluster = SimpleNamespace(admin=admin, check_reachable=lambda: {1, 2, 3})
    monkeypatch.setattr(api, "existing_cluster", lambda _: cluster)
    with pytest.raises(TestbedError, match="1 partitions are under-replicated: orders-0"):
        calibrate(existing=OTHERS.existing, model=tmp_path / "model.json", out=tmp_path)
    [only] = measured["scenarios"]
    assert only.workload.messages_per_s == 200
    assert measured["ended"] == ["spark"]


def test_a_lapse_during_a_run_ends_the_calibration_too(
    measured: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind: list[list[str]] = [[], ["orders-0: leader 1, 2 of 3 in sync"], []]
    admin = SimpleNamespace(out_of_sync=lambda **_: behind.pop(0))
    cluster = SimpleNamespace(admin=admin, check_reachable=lambda: {1, 2, 3})

    def carry_on(_campaign: Any, *, on_progress: Any, **_: Any) -> None:
        # A run that fails is written down as failed.
        with suppress(TestbedError):
            on_progress("100 sent")

    monkeypatch.setattr(api, "existing_cluster", lambda _: cluster)
    monkeypatch.setattr(api, "_LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(campaigns, "carry_on", carry_on)
    with pytest.raises(TestbedError, match="1 partitions are under-replicated: orders-0"):
        calibrate(existing=OTHERS.existing, model=tmp_path / "model.json", out=tmp_path)
    assert behind == []
