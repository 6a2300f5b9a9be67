"""The design of a calibration: which runs, at which rates, on whose cluster."""

from __future__ import annotations

import pytest

from penstock.api.calibration import calibrate
from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput
from penstock.domain.network import NetworkSpec
from penstock.domain.run import Existing
from penstock.models.design import LIGHT_PER_S, Place, capacity_per_s, first_run, further_runs

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
    assert further_runs(PLAIN, 1_000, most=4) == every[:3]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"testbed": "a", "cluster": ClusterSpec()}, "one of"),
        ({"saturate": True}, "existing"),
        ({"rate_cap_per_s": 10}, "existing"),
        ({"existing": OTHERS.existing, "saturate": True, "rate_cap_per_s": 5}, "no rate cap"),
        ({"existing": OTHERS.existing, "rate_cap_per_s": 0}, "above 0"),
        ({"most_runs": 2}, "too few"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_anything_starts(
    arguments: dict[str, object], named: str
) -> None:
    with pytest.raises(BadInput, match=named):
        calibrate(**arguments)  # type: ignore[arg-type]
