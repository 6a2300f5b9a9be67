"""The campaigns that are shipped: every cell is valid, every shape can be judged, all are listed."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from penstock import specs
from penstock.domain.scenario import Scenario
from penstock.domain.shapes import CurvePoint, Shape
from penstock.domain.shapes.places import find
from penstock.runs import preflight
from penstock.runs.matrix import cells

FOLDER = Path(__file__).parents[2] / "examples" / "campaigns"
FILES = sorted(FOLDER.glob("*.yaml"))
# S0's list of experiments to ship (SYSTEMS.md).
SECTIONS = {"4.3.2", "5.4.1", "5.4.2", "5.4.3", "5.4.4", "6.1.2", "6.2.1"}
# Without what a cell takes beside its load, which doubles it.
MOST_MINUTES = 8

every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def load(file: Path) -> Scenario:
    return specs.load(file, Scenario)


def points(scenario: Scenario, path: str) -> list[CurvePoint]:
    """The places of an axis, as a finding would have them."""
    places = []
    for text in dict.fromkeys(cell.values[path] for cell in cells(scenario, "x")):
        try:
            places.append(CurvePoint(float(text), (0.0,)))
        except ValueError:
            places.append(CurvePoint(text, (0.0,)))
    return places


def named(shape: Shape) -> list[object]:
    """The places that a shape names on its axis."""
    places: list[object] = []
    for field in fields(shape):
        value = getattr(shape, field.name)
        if field.name == "at":
            places += value if isinstance(value, tuple) else [value]
        elif field.name in ("of", "to", "first", "last") and value is not None:
            places.append(value)
    return places


def test_every_experiment_of_the_list_is_there() -> None:
    assert {file.stem.partition("-")[0] for file in FILES} == SECTIONS


@every_file
def test_the_campaign_is_named_as_its_file(file: Path) -> None:
    assert load(file).name == file.stem


@every_file
def test_every_cell_could_be_carried_out(file: Path) -> None:
    for cell in cells(load(file), str(file)):
        preflight.check(cell.spec)


@every_file
def test_cells_differ_and_take_no_longer_than_promised(file: Path) -> None:
    campaign = cells(load(file), str(file))
    assert len({cell.folder for cell in campaign}) == len(campaign)
    values = [(tuple(cell.values.items()), cell.repeat) for cell in campaign if not cell.is_again]
    assert len(set(values)) == len(values)
    seconds = sum(c.spec.warm_up_s + c.spec.workload.duration_s for c in campaign)
    assert seconds <= 60 * MOST_MINUTES


@every_file
def test_every_shape_names_places_that_are_there_and_its_source(file: Path) -> None:
    scenario = load(file)
    assert scenario.expect
    for shape in scenario.expect:
        assert shape.source
        axis = points(scenario, shape.over)
        for place in named(shape):
            assert find(axis, place) is not None, f"{shape.over} has no {place}"  # type: ignore[arg-type]
        for path, value in shape.where.items():
            assert find(points(scenario, path), value) is not None, f"{path} has no {value}"


@every_file
def test_the_document_stands_beside_what_is_expected(file: Path) -> None:
    head = file.read_text().partition("\nname:")[0]
    assert head.startswith(f"# S0, {file.stem.partition('-')[0]}: ")
    assert "The document" in head
    assert all(line.startswith("#") for line in head.splitlines())


@every_file
def test_the_readme_lists_it(file: Path) -> None:
    assert f"`{file.name}`" in (FOLDER / "README.md").read_text()
