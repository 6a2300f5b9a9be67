"""A scenario's matrix as cells."""

from __future__ import annotations

import pytest

from penstock import specs
from penstock.domain.errors import BadInput
from penstock.domain.scenario import Scenario
from penstock.runs import preflight
from penstock.runs.matrix import cells, short

BASE = {
    "name": "orders",
    "topic": {"name": "orders", "partitions": 3},
    "workload": {"arrivals": {"kind": "constant", "rate_per_s": 100}},
    "settings": {"acks": "all", "linger.ms": 5},
}


def scenario(**more: object) -> Scenario:
    return specs.parse({**BASE, **more}, Scenario)


def test_without_a_matrix_there_is_one_cell() -> None:
    (only,) = cells(scenario(), "s.yaml")
    assert only.values == {}
    assert only.spec.name == "orders"
    assert only.spec.settings.linger_ms == 5


def test_every_combination_and_repeat_is_a_cell() -> None:
    *campaign, again = cells(
        scenario(
            repeats=2,
            seed=7,
            matrix={"settings.acks": ["1", "all"], "workload.payload.size_bytes": [100, 1000]},
        ),
        "s.yaml",
    )
    assert [(c.number, c.repeat) for c in campaign] == [
        (n, r) for r in range(2) for n in range(1, 5)
    ]
    assert [c.spec.settings.acks for c in campaign[:4]] == ["1", "1", "all", "all"]
    assert [c.spec.workload.payload.size_bytes for c in campaign[:4]] == [100, 1000, 100, 1000]
    # The rest stays as it was, and a repeat draws its own random numbers.
    assert {c.spec.settings.linger_ms for c in campaign} == {5}
    assert {c.spec.seed for c in campaign[:4]} == {7}
    assert {c.spec.seed for c in campaign[4:]} == {8}
    assert campaign[1].label == "acks=1, size_bytes=1000"
    assert len({c.folder for c in (*campaign, again)}) == 9


def test_the_first_cell_comes_again_at_the_end() -> None:
    matrix = {"settings.acks": ["1", "all"]}
    *campaign, again = cells(scenario(repeats=2, matrix=matrix), "s.yaml")
    assert again.is_again
    assert not any(c.is_again for c in campaign)
    assert again.spec == campaign[0].spec
    assert again.folder not in {c.folder for c in campaign}
    assert again.label == "acks=1, again"
    # Where there is nothing that could drift apart, or the user does without, it does not.
    assert len(cells(scenario(repeats=3), "s.yaml")) == 3
    assert len(cells(scenario(matrix=matrix, repeat_first=False), "s.yaml")) == 2


def test_kafkas_own_names_keep_their_dots() -> None:
    *campaign, _ = cells(
        scenario(
            matrix={
                "settings.batch.num.messages": [1, 10],
                "topic.config.retention.ms": [1000],
                "settings.queue.buffering.max.kbytes": [64],
            }
        ),
        "s.yaml",
    )
    assert [c.spec.settings.batch_num_messages for c in campaign] == [1, 10]
    assert campaign[0].spec.topic.config == {"retention.ms": 1000}
    assert campaign[0].spec.settings.other == {"queue.buffering.max.kbytes": 64}


def test_a_place_in_a_list_and_a_whole_part() -> None:
    network = {
        "links": [
            {
                "src": "producers",
                "dst": "brokers",
                "condition": {"loss": {"kind": "bernoulli", "share": 0.1}},
            }
        ]
    }
    path = "cluster.network.links.0.condition.loss.share"
    campaign = cells(
        scenario(
            cluster={"brokers": 3, "place": "namespaces", "network": network},
            matrix={
                path: [0.0, 0.2],
                "workload.arrivals": [{"kind": "poisson", "rate_per_s": 5.0}],
            },
        ),
        "s.yaml",
    )
    cell_network = campaign[1].spec.cluster.network
    assert cell_network is not None
    assert specs.to_data(cell_network)["links"][0]["condition"]["loss"]["share"] == 0.2
    assert campaign[0].values == {path: "0", "workload.arrivals": "poisson(rate_per_s=5)"}
    assert short(path) == "loss.share"


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ({"settings.acks": ["2"]}, ["matrix: settings.acks=2", "settings.acks"]),
        ({"workload.payload.colour": [1]}, ["workload.payload.colour", "unknown"]),
        ({"topic.name.x": [1]}, ["matrix.topic.name.x", "its parent has no fields"]),
        ({"faults.3.at_s": [1]}, ["matrix: faults.3.at_s=1", "expected a list"]),
        ({"settings.acks": []}, ["matrix.settings.acks", "at least one"]),
    ],
)
def test_a_mistake_is_found_before_anything_runs(
    matrix: dict[str, list[object]], words: list[str]
) -> None:
    with pytest.raises(BadInput) as error:
        cells(scenario(matrix=matrix), "s.yaml")
    for word in words:
        assert word in str(error.value)


def test_what_is_expected_must_be_over_an_axis() -> None:
    with pytest.raises(BadInput, match=r"settings\.linger\.ms.* is not an axis"):
        scenario(
            matrix={"settings.acks": ["1"]},
            expect=[{"kind": "falls", "figure": "lost_share", "over": "settings.linger.ms"}],
        )


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"kind": "between", "at": [8, 7], "at_most": 1}, r"7.* is not a value of .*\(8, 16\)"),
        (
            {"kind": "falls", "where": {"settings.acks": "0"}},
            r"0.* is not a value of settings\.acks",
        ),
    ],
)
def test_what_is_expected_must_be_at_values_of_the_axis(
    shape: dict[str, object], words: str
) -> None:
    matrix = {"workload.payload.size_bytes": [8, 16], "settings.acks": ["1", "all"]}
    expected = {"figure": "lost_share", "over": "workload.payload.size_bytes", **shape}
    with pytest.raises(BadInput, match=words):
        scenario(matrix=matrix, expect=[expected])


def test_a_value_may_change_other_fields_along_with_it() -> None:
    values = [
        {"value": size, "with": {"workload.arrivals.rate_per_s": rate, "settings.linger.ms": 7}}
        for size, rate in ((50, 600), (100, 300))
    ]
    *campaign, _ = cells(scenario(matrix={"workload.payload.size_bytes": values}), "s.yaml")
    assert [c.label for c in campaign] == ["size_bytes=50", "size_bytes=100"]
    assert [c.spec.workload.payload.size_bytes for c in campaign] == [50, 100]
    assert [c.spec.workload.arrivals.mean_per_s for c in campaign] == [600, 300]
    assert {c.spec.settings.linger_ms for c in campaign} == {7}


def test_a_matrix_may_add_the_latency_that_the_share_of_late_messages_needs() -> None:
    late = {"violation_share": 0.1}
    for cell in cells(
        scenario(objective=late, matrix={"objective.latency_ms": [10, 50]}), "s.yaml"
    ):
        preflight.check(cell.spec)
    (alone,) = cells(scenario(objective=late), "s.yaml")
    with pytest.raises(BadInput, match=r"objective\.violation_share: .* add latency_ms"):
        preflight.check(alone.spec)
