"""A shape: how a figure changes from cell to cell of a campaign. The abstract class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from penstock.domain.metric_path import check_name
from penstock.domain.value import Doc, Value


@dataclass(frozen=True)
class CurvePoint:
    """One cell: its value on the axis, and the figure of each of its repeats."""

    x: float | str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)


@dataclass(frozen=True, kw_only=True)
class Finding(Value):
    """Whether the shape was found, in one sentence with its numbers."""

    holds: bool
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Shape(Value, ABC):
    """Expected behaviour of a metric along one matrix axis."""

    plugin_group = "penstock.shapes"
    figure: Annotated[str, Doc("lost_share, latency.p99_ms, throughput_mb_per_s, …")]
    over: Annotated[str, Doc("the axis, as the matrix calls it")]
    where: Annotated[
        Mapping[str, str | int | float | bool], Doc("values of the other axes; all if absent")
    ] = field(default_factory=dict)
    source: Annotated[str, Doc("where the document states it")] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.figure)

    @property
    def places(self) -> tuple[str | int | float | bool, ...]:
        """Values of the axis that the shape names; they must exist."""
        return ()

    @abstractmethod
    def check(self, points: Sequence[CurvePoint]) -> Finding:
        """Judge the points, which are in the order of the axis."""
