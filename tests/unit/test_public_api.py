"""`import penstock`: what it offers, and what it costs."""

from __future__ import annotations

import ast
import compileall
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import penstock
from penstock import extras
from penstock.domain.errors import MissingPart


def declared() -> dict[str, str]:
    """Name → module, as type checkers read it."""
    assert penstock.__file__ is not None
    tree = ast.parse(Path(penstock.__file__).read_text(encoding="utf-8"))
    [typed] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in typed.body if isinstance(node, ast.ImportFrom)]
    assert len(imports) == len(typed.body)
    # `name as name` is what makes it an export to a type checker.
    assert all(alias.asname == alias.name for node in imports for alias in node.names)
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_every_name_is_there_and_known_to_type_checkers() -> None:
    places = declared()
    assert dir(penstock) == sorted([*places, "__version__"])
    for name, place in places.items():
        assert getattr(penstock, name) is getattr(import_module(place), name)


def test_what_needs_more_than_the_base_installation_has_an_extra() -> None:
    packages = {place.split(".")[1] for place in declared().values()}
    assert packages - set(penstock._EXTRAS) == {"domain", "kafka", "planner", "producer"}
    assert not set(penstock._EXTRAS) & {"domain", "kafka"}


def test_a_name_that_is_not_offered_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'advise'"):
        penstock.advise  # noqa: B018


def test_it_is_loaded_only_when_it_is_used() -> None:
    heavy = {
        "pyspark",
        "deltalake",
        "pandas",
        "plotly",
        "scipy",
        "cattrs",
        "yaml",
        "click",
        "psutil",
    }
    code = (
        "import sys, penstock, penstock.kafka.client_properties\n"
        f"print(sorted({heavy!r} & set(sys.modules)))\n"
        "penstock.Scenario, penstock.Pipeline, penstock.Link\n"
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


def test_names_are_found_without_sources(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "till.py").write_text("OPEN = True")
    (package / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "from penstock import lazy\n"
        "if TYPE_CHECKING:\n"
        "    from shop.till import OPEN as OPEN\n"
        "__getattr__, __dir__ = lazy.exports(__name__, {})\n"
    )
    compileall.compile_dir(package, legacy=True, quiet=1)
    for source in package.glob("*.py"):
        source.unlink()
    code = "import shop; print(dir(shop), shop.OPEN, shop.__file__.endswith('.pyc'))"
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, text=True, cwd=tmp_path) == "['OPEN'] True True\n"


def test_a_missing_extra_is_named() -> None:
    extras.require("lake", "json")
    with pytest.raises(MissingPart, match=r"not_there: not installed\n.*'penstock\[lake\]'"):
        extras.require("lake", "json", "not_there")


def test_files_are_read_as_values(tmp_path: Path) -> None:
    file = tmp_path / "topic.yaml"
    topic = penstock.TopicSpec(name="orders", partitions=3)
    file.write_text(penstock.dump_yaml(topic))
    assert penstock.read(file, penstock.TopicSpec) == topic == penstock.read(str(file), type(topic))
    with pytest.raises(penstock.BadInput, match="is not a kind of value"):
        penstock.read(file, dict)  # type: ignore[type-var]
    times = tmp_path / "times.txt"
    times.write_text("0\n1\n")
    scenario = penstock.Scenario(
        name="s",
        topic=topic,
        workload=penstock.Workload(
            arrivals=penstock.RecordedArrivals(file="times.txt"), duration_s=5
        ),
    )
    file.write_text(penstock.dump_yaml(scenario))
    arrivals = penstock.read(file, penstock.Scenario).workload.arrivals
    assert isinstance(arrivals, penstock.RecordedArrivals) and arrivals.at_s == (0, 1)


def test_an_experiment_is_resumed_with_its_own_grid_and_kind(tmp_path: Path) -> None:
    with pytest.raises(penstock.BadInput, match="already has a grid"):
        penstock.experiment("production", quick=True, resume=tmp_path)
    with pytest.raises(penstock.BadInput, match="is not an experiment"):
        penstock.experiment("production", resume=tmp_path)


def test_plain_consumers_need_the_file() -> None:
    pipeline = penstock.Pipeline(
        name="p",
        bootstrap_servers="127.0.0.1:1",
        lake="/nowhere",
        streams=(penstock.Stream(topics=("t",), table="t"),),
    )
    with pytest.raises(penstock.BadInput, match="must be a file"):
        penstock.autoscale(pipeline, consumers=True)
