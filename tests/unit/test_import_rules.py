"""scripts/import_rules.py: what it makes of the tables of ARCHITECTURE.md, and what it refuses."""

from __future__ import annotations

import sys
import tomllib
from configparser import ConfigParser
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

import penstock

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


@cache
def script() -> ModuleType:
    spec = spec_from_file_location("import_rules", ROOT / "scripts" / "import_rules.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for their annotations
    spec.loader.exec_module(module)
    return module


def contracts(text: str) -> dict[str, dict[str, str]]:
    """Name of a contract → its settings."""
    parser = ConfigParser()
    parser.read_string(script().rules(text))
    sections = [dict(parser[name]) for name in parser.sections() if ":contract:" in name]
    return {section["name"]: section for section in sections}


def changed(old: str, new: str) -> str:
    assert TEXT.count(old) == 1, old
    return TEXT.replace(old, new)


SPECS = "files written whole or not at all | `domain`, `lazy` |"


@pytest.mark.parametrize("other", ["kafka", "cli", "specs"])
def test_packages_that_may_import_each_other_are_refused(other: str) -> None:
    text = changed(SPECS, SPECS.replace("`lazy`", f"`lazy`, `{other}`"))
    with pytest.raises(SystemExit, match=f"import each other: .*specs → {other}"):
        script().rules(text)


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        (SPECS, SPECS.replace("lazy", "lasy"), "lasy"),
        ("`planner`, `producer.policies`,", "`planner`, `producer.polices`,", "producer.polices"),
        ("all but `analysis`, `lake`", "all but `analysis`, `lakes`", "lakes"),
        ("`penstock.autoscaler.*` |", "`penstock.autoscalers.*` |", "autoscalers"),
        ("| `version` | the", "| `versions` |  |  |\n| `version` | the", "versions"),
    ],
)
def test_a_name_that_is_no_package_is_refused(old: str, new: str, wrong: str) -> None:
    with pytest.raises(SystemExit, match=f"names {wrong}, which penstock does not have"):
        script().rules(changed(old, new))


def test_a_package_without_a_line_is_refused() -> None:
    with pytest.raises(SystemExit, match="has no line for version"):
        script().rules(changed("| `version` | the", "| `domain` | the"))


def test_what_is_pure_is_pure_by_way_of_others_too() -> None:
    made = contracts(TEXT)
    [pure] = [rule for name, rule in made.items() if "pure" in name]
    assert "allow_indirect_imports" not in pure
    [core] = [rule for name, rule in made.items() if "core of the autoscaler" in name]
    assert "penstock.autoscaler.*" in core["forbidden_modules"].split()
    assert "allow_indirect_imports" in made["specs imports domain, lazy"]


def test_only_the_command_line_imports_the_package_itself() -> None:
    [root] = [rule for rule in contracts(TEXT).values() if rule.get("as_packages") == "False"]
    assert root["forbidden_modules"].split() == ["penstock"]
    sources = root["source_modules"].split()
    assert {"penstock.runs", "penstock.runs.**"} <= set(sources)
    assert not [source for source in sources if "cli" in source]


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert penstock.__version__ == project["project"]["version"]
