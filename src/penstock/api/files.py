"""Public API: files as values; `dump_yaml` is the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.scenario import Scenario
from penstock.domain.value import Value
from penstock.specs import loader

T = TypeVar("T", bound=Value)


def read(path: str | Path, kind: type[T]) -> T:
    """Read a file as a value of `kind`, such as `Scenario`, with the files that it names."""
    if not (isinstance(kind, type) and issubclass(kind, Value)):
        raise BadInput(f"{kind!r} is not a kind of value", "use a class such as penstock.Scenario")
    file = Path(path)
    # Imported here, since they need more than files do.
    value: Any
    if issubclass(kind, Pipeline):
        from penstock.lake import pipeline_file

        value = pipeline_file.load(file)
    elif issubclass(kind, Scenario):
        from penstock.load import schedule

        value = schedule.resolve_scenario(loader.load(file, kind), file.parent)
    else:
        value = loader.load(file, kind)
    read: T = value
    return read
