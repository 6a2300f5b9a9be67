"""Cluster facts: what experiments measured of a cluster, as input for planning.

Not the experiments themselves (`penstock.runs.experiments`) and not a model: figures with their
95 % intervals, straight lines with the range that they were measured in, and what they hold for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import Annotated, Literal

from penstock.domain.grid import EXPERIMENTS, ExperimentGrid
from penstock.domain.metrics import Distribution, Estimate
from penstock.domain.value import Choice, Doc, FieldError, Value

# Of `facts.json` and of the files of an experiment's points.
FACTS_FORMAT = 2
# How a warning of a point begins whose brokers were not warm.
COLD = "cold: "

Over = Literal["partitions", "replicas_per_broker", "led_partitions"]


@dataclass(frozen=True, kw_only=True)
class Coordinate(Value):
    """The value of a point on an axis that its experiment adds."""

    axis: str
    value: str | int | float


@dataclass(frozen=True, kw_only=True)
class PointConditions(Value):
    """Coordinates of a point of the grid. 0 or empty: the experiment does not have that axis."""

    message_bytes: int
    partitions: int
    replication: int
    brokers: int
    producers: int = 0
    consumers: int = 0
    assignor: str = ""
    policy: Annotated[
        str, Doc("bro-min or bro-max, if that policy would choose this number of brokers")
    ] = ""
    # Not a mapping, since conditions are keys.
    further: Annotated[tuple[Coordinate, ...], Doc("on axes that the experiment adds")] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        taken = {f.name for f in fields(self)}
        for axis in (coordinate.axis for coordinate in self.further):
            if axis in taken or not axis.isidentifier():
                raise FieldError("further", axis, "must be a name (a-z, 0-9, _) that is not taken")
            taken.add(axis)

    @property
    def coordinates(self) -> dict[str, str | int | float]:
        """Those of all axes, by name."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "further"}
        return own | {coordinate.axis: coordinate.value for coordinate in self.further}

    @property
    def replicas_per_broker(self) -> float:
        """P·r / b."""
        return self.partitions * self.replication / self.brokers


@dataclass(frozen=True, kw_only=True)
class FactPoint(Value):
    """One point of the grid: the mean over its repeats, each on its own cluster."""

    experiment: Annotated[str, Choice(EXPERIMENTS)]
    conditions: PointConditions
    figures: Annotated[Mapping[str, Estimate], Doc("the unit is in the name")]
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    repeats: Annotated[int, Doc("that gave figures")]
    failed: Annotated[tuple[str, ...], Doc("why the other repeats gave none")] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FittedLine(Value):
    """A figure as intercept + slope · x, by least squares over every repeat of every point.

    Assumes that repeats differ by independent noise of one size. R² near 0 with a narrow interval
    of the slope means that the figure hardly depends on x, which is a fact too.
    """

    figure: Annotated[str, Doc("y: its name in the points, with its unit")]
    over: Annotated[
        Over,
        Doc(
            "x: partitions P of the topic; replicas_per_broker P·r/b; led_partitions, of the broker "
            "that was killed"
        ),
    ]
    intercept: Estimate
    slope: Annotated[Estimate, Doc("per unit of x")]
    r_squared: float
    residual: Annotated[float, Doc("standard deviation of the repeats around the line")]
    observations: int
    valid_from: Annotated[float, Doc("least x that was measured")]
    valid_to: Annotated[float, Doc("largest x that was measured")]
    conditions: Annotated[PointConditions, Doc("of the line's middle point; x varied")]

    def at(self, x: float) -> float:
        return self.intercept.value + self.slope.value * x

    def covers(self, x: float) -> bool:
        """Whether x is within what was measured; beyond, the line is a guess."""
        return self.valid_from <= x <= self.valid_to


@dataclass(frozen=True, kw_only=True)
class MeasuredRange(Value):
    """From the least to the largest value that was measured."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class ClusterFacts(Value):
    """Measured facts about a cluster (`facts.json`). Facts that were not measured are absent.

    Symbols of the topic partitioning problem (S4) are in brackets. The single figures are those of
    the base point of the grid, or as said.
    """

    format: int = FACTS_FORMAT
    made_at: Annotated[str, Doc("ISO 8601, UTC")]
    machine: Mapping[str, str | int | float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    grids: Annotated[Mapping[str, ExperimentGrid], Doc("experiment → what was measured")] = field(
        default_factory=dict
    )
    valid: Annotated[
        Mapping[str, MeasuredRange], Doc("experiment.axis → the values that its facts rest on")
    ] = field(default_factory=dict)
    caveats: Annotated[tuple[str, ...], Doc("limitations to know before using them")] = ()

    partition_mb_per_s: Annotated[
        Estimate | None, Doc("[T_p] most that one partition accepted: the point with one partition")
    ] = None
    producer_mb_per_s: Annotated[
        Estimate | None, Doc("most that the whole topic accepted, at the base")
    ] = None
    producer_records_per_s: Estimate | None = None
    producer_latency_ms: Annotated[
        Estimate | None, Doc("[l_p] mean, intended → acknowledged by all, at a moderate load")
    ] = None
    consumer_mb_per_s: Annotated[
        Estimate | None, Doc("[T_c] most that one consumer read: the point with one consumer")
    ] = None
    group_mb_per_s: Annotated[
        Estimate | None, Doc("most that the whole group read, at the base")
    ] = None
    group_records_per_s: Estimate | None = None
    rebalance_ms: Annotated[
        Estimate | None,
        Doc("[τ_R] a member joins → every partition is assigned, evenly, and read again"),
    ] = None
    end_to_end: Annotated[Distribution | None, Doc("[l_e2e] intended → received")] = None
    replication: Annotated[
        FittedLine | None,
        Doc("[l_r = slope, ms] what acks=all waits for beyond acks=1, over replicas"),
    ] = None
    detection_ms: Annotated[Estimate | None, Doc("kill of a broker → the controller fences it")] = (
        None
    )
    election: Annotated[
        FittedLine | None,
        Doc("[u = slope, ms] fenced → the last of its partitions accepts messages again"),
    ] = None
    handles: Annotated[
        FittedLine | None, Doc("open handles of a broker, over the replicas it has")
    ] = None
    handles_limit: Annotated[
        int | None, Doc("[H_max] most open handles the system allows a broker")
    ] = None

    further: Annotated[
        Mapping[str, Estimate], Doc("facts that experiments add; the unit is in the name")
    ] = field(default_factory=dict)

    lines: Annotated[
        tuple[FittedLine, ...], Doc("every figure that was fitted over partitions")
    ] = ()
    points: tuple[FactPoint, ...] = ()


def merged(first: ClusterFacts, *others: ClusterFacts) -> ClusterFacts:
    """The facts of several experiments on one kind of cluster; later ones win."""
    return reduce(_merge, others, first)


_GATHERED = {"grids", "valid", "caveats", "further", "lines", "points", "format"}


def _merge(earlier: ClusterFacts, later: ClusterFacts) -> ClusterFacts:
    newer = {
        f.name: value
        for f in fields(ClusterFacts)
        if f.name not in _GATHERED and (value := getattr(later, f.name)) not in (None, {}, "")
    }
    again = {point.experiment for point in later.points}
    fitted = {(line.figure, line.over) for line in later.lines}
    caveats = dict.fromkeys((*earlier.caveats, *later.caveats))
    for what in ("cores", "memory_mb"):
        if earlier.machine.get(what) != later.machine.get(what):
            caveats["the experiments were made on different machines"] = None
    for part in ("kafka", "librdkafka"):
        if earlier.versions.get(part) != later.versions.get(part):
            caveats[f"the experiments were made with different versions of {part}"] = None
    return replace(
        earlier,
        **newer,
        grids={**earlier.grids, **later.grids},
        valid={**earlier.valid, **later.valid},
        caveats=tuple(caveats),
        further={**earlier.further, **later.further},
        lines=(*(x for x in earlier.lines if (x.figure, x.over) not in fitted), *later.lines),
        points=(*(p for p in earlier.points if p.experiment not in again), *later.points),
    )
