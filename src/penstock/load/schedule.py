"""When each message is due: a workload's arrivals as an array, fixed before the load begins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.domain.arrivals import Arrivals, RecordedArrivals
from penstock.domain.errors import BadInput
from penstock.domain.scenario import Scenario
from penstock.domain.value import FieldError
from penstock.domain.workload import MOST_MESSAGES_PER_PRODUCER, Workload
from penstock.specs.files import read_text

_BLOCK = 1 << 16


def resolve(workload: Workload, base: Path) -> Workload:
    """The same, with the file of recorded arrivals read; its name counts from `base`."""
    arrivals = workload.arrivals
    if not isinstance(arrivals, RecordedArrivals) or arrivals.file is None:
        return workload
    return replace(workload, arrivals=arrivals.with_times(_read_times(base / arrivals.file)))


def resolve_scenario(scenario: Scenario, base: Path) -> Scenario:
    """The same for a whole scenario and its matrix; `base` is the directory of the scenario file.
    The path of client properties is resolved too; that file is read when the cluster is used."""
    matrix = {
        path: tuple(_with_times(value, base) for value in values)
        for path, values in scenario.matrix.items()
    }
    existing = scenario.existing
    if existing is not None and existing.client_properties is not None:
        properties = (base / existing.client_properties).resolve()
        existing = replace(existing, client_properties=str(properties))
    return replace(
        scenario, workload=resolve(scenario.workload, base), matrix=matrix, existing=existing
    )


def _with_times(value: Any, base: Path) -> Any:
    """A value of a matrix, which is still as it was written, with every recording in it read."""
    if isinstance(value, (list, tuple)):
        return [_with_times(item, base) for item in value]
    if not isinstance(value, Mapping):
        return value
    if value.get("kind") == RecordedArrivals.kind and isinstance(value.get("file"), str):
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


def check(workload: Workload, length_s: float) -> None:
    """Refuse a schedule that would not fit into memory, before it is made."""
    arrivals = workload.arrivals
    try:
        expected = arrivals.mean_per_s * length_s
    except FieldError as error:
        raise BadInput(f"arrivals.{error}", "read the file first (schedule.resolve)") from None
    if not expected >= 0:  # nor a number
        raise BadInput(
            f"arrivals: {arrivals.kind} has {arrivals.mean_per_s} messages/s",
            "mean_per_s of a plug-in must be 0 or more",
        )
    # A stream that varies may have a few more; `due_ns` checks again.
    if expected > MOST_MESSAGES_PER_PRODUCER:
        raise _too_many(expected)


def due_ns(arrivals: Arrivals, length_s: float, rng: Random) -> npt.NDArray[np.int64]:
    """When the messages of one producer are due, in ns from its start, up to `length_s`."""
    # Not one time more than is asked for is drawn: the next one may be long in coming.
    times = takewhile(length_s.__gt__, arrivals.times_s(rng))
    blocks: list[npt.NDArray[np.int64]] = []
    count = 0
    while True:
        block = np.fromiter(islice(times, _BLOCK), dtype=np.float64)
        blocks.append(np.rint(block * 1e9).astype(np.int64))
        count += len(block)
        if count > MOST_MESSAGES_PER_PRODUCER:
            raise _too_many(count)
        if len(block) < _BLOCK:
            return np.concatenate(blocks)


def _too_many(count: float) -> BadInput:
    return BadInput(
        f"one producer would have {count:,.0f} messages to send; the limit is "
        f"{MOST_MESSAGES_PER_PRODUCER:,}",
        "use more producers, a lower rate or a shorter duration",
    )


def random_stream(seed: int, producer: int, purpose: str) -> Random:
    """Random numbers of one purpose: to draw more of one kind changes no other."""
    return Random(f"{seed}.{producer}.{purpose}")
