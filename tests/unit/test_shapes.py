"""Every kind of shape, on figures that show it and on figures that do not."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import specs
from penstock.domain.errors import BadInput
from penstock.domain.scenario import Scenario
from penstock.domain.shapes import CurvePoint, Shape
from penstock.domain.shapes.between import BetweenShape
from penstock.domain.shapes.difference import DifferenceShape
from penstock.domain.shapes.flat import FlatShape
from penstock.domain.shapes.knee import KneeShape
from penstock.domain.shapes.places import find
from penstock.domain.shapes.ratio import RatioShape
from penstock.domain.value import FieldError, kinds

LOST: dict[str, Any] = {"figure": "lost_share", "over": "settings.batch.num.messages"}


def along(**figures: float) -> list[CurvePoint]:
    """Points at x1=…, x2=…, in this order; `xall` stands at the word `all`."""
    places = (name.removeprefix("x") for name in figures)
    return [
        CurvePoint(float(place) if place.isdigit() else place, (value,))
        for place, value in zip(places, figures.values(), strict=True)
    ]


def shape(kind: str, **fields: object) -> Shape:
    """As a scenario would have it."""
    scenario = specs.parse(
        {
            "name": "a",
            "topic": {"name": "a"},
            "workload": {"arrivals": {"kind": "constant", "rate_per_s": 1}},
            "matrix": {LOST["over"]: [1, 2, 10]},
            "expect": [{"kind": kind, **LOST, **fields}],
        },
        Scenario,
    )
    (only,) = scenario.expect
    return only


def test_every_kind_can_be_written_in_a_scenario() -> None:
    known = {
        "between": {"at_most": 0.1},
        "difference": {"of": 10, "to": 1, "at_most": -0.1},
        "falls": {},
        "flat": {"within": 0.1},
        "knee": {"at": 2, "before": 0.05, "after": 0.3},
        "ratio": {"of": 10, "to": 1, "at_most": 0.5},
        "rises": {},
    }
    assert set(known) <= set(kinds(Shape))
    for kind, fields in known.items():
        assert type(shape(kind, **fields)).kind == kind


# --- places ---------------------------------------------------------------------------------------


def test_a_place_is_a_number_or_a_word() -> None:
    points = [CurvePoint(1.0, (0.5,)), CurvePoint("all", (0.25,)), CurvePoint("true", (0.75,))]
    for place in (1, 1.0, "1"):
        assert find(points, place) is points[0]
    assert find(points, "all") is points[1]
    assert find(points, True) is points[2]
    assert find(points, 2) is None
    assert find(points, "none") is None


def test_a_place_is_found_by_the_six_digits_of_a_cell() -> None:
    points = [CurvePoint(float(f"{1 / 3:g}"), (0.5,)), CurvePoint(0.334, (0.25,))]
    assert find(points, 1 / 3) is points[0]


@pytest.mark.parametrize(
    "named",
    [
        BetweenShape(**LOST, at=(1, 7), at_most=1),
        RatioShape(**LOST, of=7, to=1, at_least=0),
        DifferenceShape(**LOST, of=1, to=7, at_most=1),
        FlatShape(**LOST, within=0.5, first=7),
        KneeShape(**LOST, at=7, before=1, after=0.1),
    ],
    ids=lambda shape: str(shape.kind),
)
def test_a_place_missing_from_the_axis_is_not_evidence(named: Shape) -> None:
    finding = named.check(along(x1=0.5, x2=0.5))
    assert not finding.holds
    assert "has no 7, only 1, 2" in finding.sentence


# --- between --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "holds"),
    [
        ({"at_least": 0.2}, True),
        ({"at_least": 0.21}, False),
        ({"at_most": 0.6}, True),
        ({"at_most": 0.59}, False),
        ({"at_least": 0.2, "at_most": 0.6}, True),
        ({"at_least": 0.3, "at_most": 0.6}, False),
    ],
)
def test_between_holds_if_every_point_is_within(limits: dict[str, Any], holds: bool) -> None:
    finding = BetweenShape(**LOST, **limits).check(along(x1=0.6, x2=0.4, x10=0.2))
    assert finding.holds == holds, finding.sentence
    assert "0.6, 0.4, 0.2" in finding.sentence


def test_between_checks_only_its_places() -> None:
    points = along(x1=0.6, x2=0.4, x10=0.2)
    assert BetweenShape(**LOST, at=(2, 10), at_most=0.4).check(points).holds
    assert not BetweenShape(**LOST, at=(1, 10), at_most=0.4).check(points).holds


def test_limits_must_be_there_and_in_order() -> None:
    with pytest.raises(FieldError, match="at_least"):
        BetweenShape(**LOST)
    with pytest.raises(FieldError, match=r"must not be less than at_least \(0\.5\)"):
        BetweenShape(**LOST, at_least=0.5, at_most=0.4)
    with pytest.raises(BadInput, match="at_most"):
        shape("ratio", of=1, to=2, at_least=2, at_most=1)


# --- ratio and difference -------------------------------------------------------------------------


def test_a_ratio_of_two_places() -> None:
    points = along(x1=2, x20=13.5, x40=18.5)
    assert RatioShape(**LOST, of=20, to=1, at_least=6, at_most=7).check(points).holds
    too_little = RatioShape(**LOST, of=40, to=20, at_least=1.5).check(points)
    assert not too_little.holds
    assert "is 1.37 times that at 20" in too_little.sentence


def test_a_ratio_to_zero_is_not_evidence() -> None:
    for limits in ({"at_least": 1.0}, {"at_most": 1e9}):
        finding = RatioShape(**{**LOST, **limits}, of=2, to=1).check(along(x1=0, x2=0.5))
        assert not finding.holds
        assert "no ratio" in finding.sentence


def test_a_difference_has_a_sign() -> None:
    points = along(x0=0.6, xall=0.4)
    assert DifferenceShape(**LOST, of="all", to=0, at_most=-0.1).check(points).holds
    assert not DifferenceShape(**LOST, of=0, to="all", at_most=-0.1).check(points).holds
    finding = DifferenceShape(**LOST, of=0, to="all", at_least=0.3).check(points)
    assert not finding.holds
    assert "0.6 against 0.4" in finding.sentence


def test_repeats_are_averaged_before_they_are_compared() -> None:
    points = [CurvePoint(1.0, (1.0, 3.0)), CurvePoint(2.0, (8.0, 4.0))]
    assert RatioShape(**LOST, of=2, to=1, at_least=3, at_most=3).check(points).holds


# --- flat -----------------------------------------------------------------------------------------


def test_flat_is_judged_by_the_distance_from_the_mean() -> None:
    points = along(x1=95, x2=100, x10=105)
    assert FlatShape(**LOST, within=0.05).check(points).holds
    assert not FlatShape(**LOST, within=0.04).check(points).holds


def test_a_part_of_the_axis_may_be_flat() -> None:
    points = along(x1=80, x10=500, x20=600, x40=610)
    assert not FlatShape(**LOST, within=0.1).check(points).holds
    finding = FlatShape(**LOST, within=0.1, first=20).check(points)
    assert finding.holds, finding.sentence
    assert "20 … 40: 600 → 610" in finding.sentence
    assert not FlatShape(**LOST, within=0.05, first=10, last=20).check(points).holds


def test_one_point_is_not_flat() -> None:
    assert not FlatShape(**LOST, within=0.5, first=2).check(along(x1=1, x2=1)).holds


# --- knee -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "holds"),
    [
        ((0, 0.01, 0.02, 0.7), True),
        ((0, 0.2, 0.02, 0.7), False),  # not calm before
        ((0, 0.01, 0.02, 0.3), False),  # too little after
        ((0.7, 0.7, 0.7, 0.0), False),  # the other way
    ],
)
def test_a_knee_is_calm_before_and_steep_after(figures: tuple[float, ...], holds: bool) -> None:
    points = [CurvePoint(float(x), (y,)) for x, y in enumerate(figures)]
    finding = KneeShape(**LOST, at=2, before=0.05, after=0.4).check(points)
    assert finding.holds == holds, finding.sentence


def test_a_knee_may_turn_downwards_and_needs_something_after_it() -> None:
    fall = KneeShape(**LOST, at=2, before=0.05, after=-0.4)
    assert fall.check(along(x1=0.9, x2=0.9, x3=0.1)).holds
    assert not fall.check(along(x1=0.9, x2=0.9, x3=0.6)).holds
    assert not fall.check(along(x1=0.9, x2=0.9)).holds
    with pytest.raises(FieldError, match="must not be 0"):
        KneeShape(**LOST, at=2, before=0.1, after=0)
