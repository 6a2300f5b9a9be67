"""Completes a scenario, from a file or a value: reads the recordings that it names, resolves paths.

The result is complete, since it is stored with its runs and may be resumed from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from penstock import specs
from penstock.domain.arrivals import RecordedArrivals
from penstock.domain.errors import BadInput
from penstock.domain.scenario import Scenario
from penstock.domain.workload import Workload
from penstock.specs.files import read_text

S = TypeVar("S", bound=Scenario)


def load(path: Path) -> Scenario:
    """Read the file; relative paths in it are relative to its directory."""
    return completed(specs.load(path, Scenario), path.parent)


def completed(scenario: S, base: Path = Path()) -> S:
    """The same with the recordings that it and its matrix name; relative paths count from `base`, or
    the working directory.

    The path of client properties is resolved too; that file is read when the cluster is used. One
    that is complete is not changed.
    """
    matrix = {
        path: tuple(_with_times(value, base) for value in values)
        for path, values in scenario.matrix.items()
    }
    existing = scenario.existing
    if existing is not None and existing.client_properties is not None:
        properties = (base / existing.client_properties).resolve()
        existing = replace(existing, client_properties=str(properties))
    workload = with_recording(scenario.workload, base)
    return replace(scenario, workload=workload, matrix=matrix, existing=existing)


def with_recording(workload: Workload, base: Path) -> Workload:
    """The same, with the file of recorded arrivals read; its name counts from `base`."""
    arrivals = workload.arrivals
    # With times it was read before, and the file may be gone.
    if not isinstance(arrivals, RecordedArrivals) or arrivals.file is None or arrivals.at_s:
        return workload
    return replace(workload, arrivals=arrivals.with_times(_read_times(base / arrivals.file)))


def _with_times(value: Any, base: Path) -> Any:
    """A value of a matrix, which is still as it was written, with every recording in it read."""
    if isinstance(value, (list, tuple)):
        return [_with_times(item, base) for item in value]
    if not isinstance(value, Mapping):
        return value
    is_recording = value.get("kind") == RecordedArrivals.kind and isinstance(value.get("file"), str)
    if is_recording and not value.get("at_s"):
        return {**value, "at_s": _read_times(base / value["file"])}
    return {name: _with_times(item, base) for name, item in value.items()}


def _read_times(path: Path) -> list[float]:
    times: list[float] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            time_s = float(text)
        except ValueError:
            time_s = math.nan
        if not math.isfinite(time_s):
            raise BadInput(
                f"{path}:{number}: {text!r} is not a time", "give one time in seconds per line"
            )
        if times and time_s < times[-1]:
            raise BadInput(
                f"{path}:{number}: {text} is earlier than the time before it ({times[-1]:g})",
                "sort the times",
            )
        times.append(time_s)
    if not times:
        raise BadInput(f"{path}: has no times in it", "give one time in seconds per line")
    return times
