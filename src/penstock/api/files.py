"""Public API: files as values (`dump_yaml` is the way back), and their JSON schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from penstock.api.arguments import as_path
from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.scenario import Scenario
from penstock.domain.value import Value
from penstock.specs import loader
from penstock.specs.loader import FILE_KINDS
from penstock.specs.schema import json_schema, summary

T = TypeVar("T", bound=Value)


def read(path: str | Path, kind: type[T]) -> T:
    """Read a file as a value of `kind`, such as `Scenario`, with the files that it names."""
    if not (isinstance(kind, type) and issubclass(kind, Value)):
        raise BadInput(f"{kind!r} is not a kind of value", "use a class such as penstock.Scenario")
    file = as_path("path", path)
    # Imported here, since they need more than files do.
    value: Any
    if issubclass(kind, Pipeline):
        from penstock.lake import pipeline_file

        value = pipeline_file.load(file)
    elif issubclass(kind, Scenario):
        from penstock.load import scenario_file

        value = scenario_file.completed(loader.load(file, kind), file.parent)
    else:
        value = loader.load(file, kind)
    read: T = value
    return read


def file_kinds() -> dict[str, str]:
    """The kinds of files by name, each with what it is about."""
    return {name: summary(kind) for name, kind in sorted(FILE_KINDS.items())}


def schema(name: str) -> dict[str, Any]:
    """The JSON schema of a kind of file, such as `scenario`."""
    if not isinstance(name, str) or name not in FILE_KINDS:
        raise BadInput(
            f"{name!r} is not a kind of file", f"use one of {', '.join(sorted(FILE_KINDS))}"
        )
    return json_schema(FILE_KINDS[name])
