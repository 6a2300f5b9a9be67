"""Which combinations of a matrix a design runs."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import specs
from penstock.domain import plugins
from penstock.domain.designs.full import FullDesign
from penstock.domain.designs.star import StarDesign
from penstock.domain.scenario import Scenario
from penstock.runs.matrix import cells

MATRIX = {"a": (1, 2), "b": ("x", "y", "z"), "c": (True,)}


def test_full_is_every_combination_the_last_axis_fastest() -> None:
    combinations = FullDesign().combinations(MATRIX, 1)
    assert [(m["a"], m["b"]) for m in combinations] == [
        (1, "x"), (1, "y"), (1, "z"), (2, "x"), (2, "y"), (2, "z"),
    ]  # fmt: skip


def test_star_varies_each_axis_alone_around_the_first_values() -> None:
    assert StarDesign().combinations(MATRIX, 1) == [
        {"a": 1, "b": "x", "c": True},
        {"a": 2, "b": "x", "c": True},
        {"a": 1, "b": "y", "c": True},
        {"a": 1, "b": "z", "c": True},
    ]


@pytest.mark.parametrize("kind", plugins.names("penstock.designs"))
def test_any_design_gives_every_axis_a_value_and_no_cell_twice(kind: str) -> None:
    design = plugins.get("penstock.designs", kind)()
    for matrix in (MATRIX, {}, {"a": (7,)}):
        combinations = design.combinations(matrix, 3)
        assert combinations
        assert all(dict(m).keys() == matrix.keys() for m in combinations)
        assert all(m[axis] in values for m in combinations for axis, values in matrix.items())
        assert len({tuple(m.items()) for m in combinations}) == len(combinations)
        assert combinations == design.combinations(matrix, 3)


def test_a_campaign_runs_the_cells_of_its_design() -> None:
    def scenario(**more: Any) -> Scenario:
        return specs.parse(
            {
                "name": "screen",
                "topic": {"name": "t"},
                "workload": {"arrivals": {"kind": "constant", "rate_per_s": 1}},
                "matrix": {"settings.acks": ["1", "all"], "settings.linger.ms": [0, 5, 10]},
                "repeat_first": False,
                **more,
            },
            Scenario,
        )

    assert len(cells(scenario(), "s.yaml")) == 6
    screened = cells(scenario(design={"kind": "star"}), "s.yaml")
    assert [tuple(cell.values.values()) for cell in screened] == [
        ("1", "0"), ("all", "0"), ("1", "5"), ("1", "10"),
    ]  # fmt: skip
