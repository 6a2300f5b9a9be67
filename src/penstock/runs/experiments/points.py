"""The points of an experiment's grid, each with its repeats; and what a measured one is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Annotated, Any, Literal

from penstock.domain import plugins
from penstock.domain.facts import FACTS_FORMAT, Coordinate, PointConditions
from penstock.domain.grid import EXPERIMENTS, ExperimentGrid
from penstock.domain.metrics import Distribution, Estimate
from penstock.domain.value import Choice, Doc, FieldError, Value

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


@dataclass(frozen=True)
class PointRepeat:
    """One measurement that is to be made."""

    number: int  # of the conditions, from 1
    repeat: int  # from 0
    conditions: PointConditions
    label: str

    @property
    def folder(self) -> str:
        return f"{self.number:03d}-r{self.repeat + 1}"


@dataclass(frozen=True, kw_only=True)
class PointResult(Value):
    """The result of a point (`point.json`), written when it has ended."""

    format: int = FACTS_FORMAT
    experiment: Annotated[str, Choice(EXPERIMENTS)]
    conditions: PointConditions
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


def points(kind: str, grid: ExperimentGrid) -> tuple[PointRepeat, ...]:
    """Every point × repeat. Repeats come last, so that each spreads over the whole time."""
    every = conditions(kind, grid)
    labels = _labels(every)
    return tuple(
        PointRepeat(number, repeat, where, labels[number - 1])
        for repeat in range(grid.repeats)
        for number, where in enumerate(every, 1)
    )


def base(kind: str, grid: ExperimentGrid) -> PointConditions:
    """The middle of the star: the first of every axis, the middle one of the partitions."""
    return _with_policy(_conditions(_middle(kind, grid)), grid)


def sweep(kind: str, grid: ExperimentGrid) -> tuple[PointConditions, ...]:
    """The base with every number of partitions: what lines are fitted over."""
    return tuple(replace(base(kind, grid), partitions=p) for p in sorted(grid.partitions))


def conditions(kind: str, grid: ExperimentGrid) -> tuple[PointConditions, ...]:
    """All points of the grid, none twice. More replicas than brokers are impossible and left out."""
    every = _star(kind, grid) if grid.design == "star" else _full(kind, grid)
    possible = [c for c in every if c.replication <= c.brokers]
    if not possible:
        raise FieldError("replication", list(grid.replication), "exceeds every number of brokers")
    return tuple(dict.fromkeys(_with_policy(c, grid) for c in possible))


def _axes(kind: str, grid: ExperimentGrid) -> dict[str, Sequence[Any]]:
    """The axes that it has, with their values."""
    axes: tuple[str, ...] = plugins.get(EXPERIMENTS, kind).axes
    return {axis: getattr(grid, axis) for axis in axes} | dict(grid.further)


def _middle(kind: str, grid: ExperimentGrid) -> dict[str, Any]:
    return {axis: _first(axis, values) for axis, values in _axes(kind, grid).items()}


def _conditions(values: Mapping[str, Any]) -> PointConditions:
    """The point with these values, by axis of the grid."""
    further = [Coordinate(axis=a, value=value) for a, value in values.items() if a not in _NAMES]
    own = {name: values[axis] for axis, name in _NAMES.items() if axis in values}
    return PointConditions(**own, further=tuple(further))


def _star(kind: str, grid: ExperimentGrid) -> list[PointConditions]:
    middle = _middle(kind, grid)
    every = [_conditions({**middle, "partitions": p}) for p in sorted(grid.partitions)]
    for axis, values in _axes(kind, grid).items():
        if axis == "brokers":
            values = (*values, *_policy_brokers(grid, middle["replication"]))
        every += [_conditions({**middle, axis: value}) for value in values]
    return every


def _full(kind: str, grid: ExperimentGrid) -> list[PointConditions]:
    axes = _axes(kind, grid)
    every = []
    for combination in product(*axes.values()):
        point = _conditions(dict(zip(axes, combination, strict=True)))
        every.append(point)
        every += [replace(point, brokers=b) for b in _policy_brokers(grid, point.replication)]
    return every


def _policy_brokers(grid: ExperimentGrid, replicas: int) -> list[int]:
    """S4's two strategies for a given number of partitions: the fewest brokers that can hold the
    replicas, or all there are. (Limits on latency and handles are the planner's to add.)"""
    chosen = {"bro-min": replicas, "bro-max": max(grid.brokers)}
    return [chosen[policy] for policy in grid.policies]


def _with_policy(where: PointConditions, grid: ExperimentGrid) -> PointConditions:
    if "bro-min" in grid.policies and where.brokers == where.replication:
        return replace(where, policy="bro-min")
    if "bro-max" in grid.policies and where.brokers == max(grid.brokers):
        return replace(where, policy="bro-max")
    return replace(where, policy="")


def _first(axis: str, values: Sequence[Any]) -> Any:
    if axis == "partitions":
        return sorted(values)[len(values) // 2]
    return values[0]


def _labels(every: Sequence[PointConditions]) -> list[str]:
    """What tells each point from the others: partitions=48, message_bytes=1000."""
    all_of_them = [c.coordinates for c in every]
    names = [name for name in all_of_them[0] if name != "policy"]
    varying = [n for n in names if len({c[n] for c in all_of_them}) > 1] or ["partitions"]
    return [", ".join(f"{n}={c[n]}" for n in varying) for c in all_of_them]
