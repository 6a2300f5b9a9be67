"""The points of an experiment's grid, each with its repeats; and what a measured one is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Annotated, Any, Literal

from penstock.domain.facts import FACTS_FORMAT, Conditions
from penstock.domain.grid import ExperimentGrid, Kind
from penstock.domain.metrics import Distribution, Estimate
from penstock.domain.value import Doc, FieldError, Value

# Axis of the grid → name in the conditions.
_NAMES = {
    "partitions": "partitions",
    "message_bytes": "message_bytes",
    "replication": "replication",
    "brokers": "brokers",
    "producers": "producers",
    "consumers": "consumers",
    "assignors": "assignor",
}
_SHARED = ("partitions", "message_bytes", "replication", "brokers")
AXES: Mapping[Kind, tuple[str, ...]] = {
    "production": (*_SHARED, "producers"),
    "consumption": (*_SHARED, "consumers", "assignors"),
    "end-to-end": (*_SHARED, "producers", "consumers"),
}


@dataclass(frozen=True)
class Point:
    """One measurement that is to be made."""

    number: int  # of the conditions, from 1
    repeat: int  # from 0
    conditions: Conditions
    label: str

    @property
    def folder(self) -> str:
        return f"{self.number:03d}-r{self.repeat + 1}"


@dataclass(frozen=True, kw_only=True)
class PointResult(Value):
    """What became of a point. `point.json` in its directory, written when it has ended."""

    format: int = FACTS_FORMAT
    experiment: Kind
    conditions: Conditions
    repeat: int
    status: Literal["complete", "failed"] = "complete"
    reason: Annotated[str, Doc("why it failed")] = ""
    warnings: tuple[str, ...] = ()
    figures: Annotated[Mapping[str, Estimate], Doc("the unit is in the name")] = field(
        default_factory=dict
    )
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    handles_limit: int | None = None
    started_at: Annotated[str, Doc("ISO 8601, UTC")] = ""
    took_s: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str | int | float] = field(default_factory=dict)


def points(kind: Kind, grid: ExperimentGrid) -> tuple[Point, ...]:
    """Every point × repeat. Repeats come last, so that each spreads over the whole time."""
    found = conditions(kind, grid)
    labels = _labels(found)
    return tuple(
        Point(number, repeat, where, labels[number - 1])
        for repeat in range(grid.repeats)
        for number, where in enumerate(found, 1)
    )


def base(kind: Kind, grid: ExperimentGrid) -> Conditions:
    """The middle of the star: the first of every axis, the middle one of the partitions."""
    first = {_NAMES[axis]: _first(axis, getattr(grid, axis)) for axis in AXES[kind]}
    return _with_policy(Conditions(**first), grid)


def sweep(kind: Kind, grid: ExperimentGrid) -> tuple[Conditions, ...]:
    """The base with every number of partitions: what lines are fitted over."""
    return tuple(replace(base(kind, grid), partitions=p) for p in sorted(grid.partitions))


def conditions(kind: Kind, grid: ExperimentGrid) -> tuple[Conditions, ...]:
    """All points of the grid, none twice. More copies than brokers cannot be and is left out."""
    found = _star(kind, grid) if grid.design == "star" else _full(kind, grid)
    possible = [c for c in found if c.replication <= c.brokers]
    if not possible:
        raise FieldError("replication", list(grid.replication), "exceeds every number of brokers")
    return tuple(dict.fromkeys(_with_policy(c, grid) for c in possible))


def _star(kind: Kind, grid: ExperimentGrid) -> list[Conditions]:
    middle = replace(base(kind, grid), policy="")
    found = [replace(c, policy="") for c in sweep(kind, grid)]
    for axis in AXES[kind]:
        values = getattr(grid, axis)
        if axis == "brokers":
            values = (*values, *_policy_brokers(grid, middle.replication))
        found += [replace(middle, **{_NAMES[axis]: value}) for value in values]
    return found


def _full(kind: Kind, grid: ExperimentGrid) -> list[Conditions]:
    axes = AXES[kind]
    found = []
    for combination in product(*(getattr(grid, axis) for axis in axes)):
        values = {_NAMES[axis]: value for axis, value in zip(axes, combination, strict=True)}
        one = Conditions(**values)
        found.append(one)
        found += [replace(one, brokers=b) for b in _policy_brokers(grid, one.replication)]
    return found


def _policy_brokers(grid: ExperimentGrid, copies: int) -> list[int]:
    """S4's two strategies for a given number of partitions: the fewest brokers that can hold the
    copies, or all there are. (Limits on latency and handles are the planner's to add.)"""
    chosen = {"bro-min": copies, "bro-max": max(grid.brokers)}
    return [chosen[policy] for policy in grid.policies]


def _with_policy(where: Conditions, grid: ExperimentGrid) -> Conditions:
    if "bro-min" in grid.policies and where.brokers == where.replication:
        return replace(where, policy="bro-min")
    if "bro-max" in grid.policies and where.brokers == max(grid.brokers):
        return replace(where, policy="bro-max")
    return replace(where, policy="")


def _first(axis: str, values: Sequence[Any]) -> Any:
    if axis == "partitions":
        return sorted(values)[len(values) // 2]
    return values[0]


def _labels(found: Sequence[Conditions]) -> list[str]:
    """What tells each point from the others: partitions=48, message_bytes=1000."""
    names = [f.name for f in fields(Conditions) if f.name != "policy"]
    varying = [n for n in names if len({getattr(c, n) for c in found}) > 1] or ["partitions"]
    return [", ".join(f"{n}={getattr(c, n)}" for n in varying) for c in found]
