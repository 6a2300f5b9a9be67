"""The grid of an experiment: which clusters and loads to measure. Not the results.

An axis that is left out has the values that suit the experiment (`complete`); an axis that an
experiment does not have (consumers, for production) is not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from penstock.domain import plugins
from penstock.domain.cluster import ClusterSpec
from penstock.domain.settings import ProducerSettings
from penstock.domain.sizes.sizes import ID_BYTES
from penstock.domain.value import Bound, Doc, FieldError, Value
from penstock.domain.warm_up import WarmUpLimits

Policy = Literal["bro-min", "bro-max"]
# The last is not an assignor of the client: the brokers assign (KIP-848, group.protocol=consumer).
Assignor = Literal["range", "roundrobin", "cooperative-sticky", "broker"]

# The group of plug-ins that has the experiments.
EXPERIMENTS = "penstock.experiments"
# With less, a slope has no interval worth the name.
LEAST_PARTITION_COUNTS, LEAST_REPEATS = 5, 3
# Messages of end-to-end experiments vary between this share of the size and the size.
LEAST_SIZE_SHARE = 0.01


@dataclass(frozen=True, kw_only=True)
class ExperimentGrid(Value):
    """Grid of an experiment: what to measure and for how long.

    The first value of an axis is its base; of `partitions`, the middle one.
    """

    design: Annotated[
        Literal["star", "full"],
        Doc("star: one axis at a time, from the base; full: every possible combination"),
    ] = "star"
    partitions: Annotated[tuple[int, ...], Doc("partition counts; 5 or more for a fit")] = ()
    message_bytes: Annotated[
        tuple[int, ...],
        Doc("sizes of the value; end-to-end: uniform from 1 % of the size up to the size"),
    ] = ()
    replication: Annotated[tuple[int, ...], Doc("replicas of each partition")] = ()
    brokers: Annotated[tuple[int, ...], Doc("brokers of the cluster")] = ()
    policies: Annotated[
        tuple[Policy, ...],
        Doc("adds broker counts: bro-min, one per replica; bro-max, the largest in `brokers`"),
    ] = ()
    producers: Annotated[tuple[int, ...], Doc("producers, each a process")] = ()
    consumers: Annotated[tuple[int, ...], Doc("consumers of one group, each a process")] = ()
    assignors: Annotated[
        tuple[Assignor, ...],
        Doc("who assigns partitions to consumers: an assignor of the client, or the broker"),
    ] = ()
    further: Annotated[
        Mapping[str, tuple[str | int | float, ...]],
        Doc("axes that the experiment adds: name → values"),
    ] = field(default_factory=dict)
    repeats: Annotated[
        int, Bound(ge=1, le=1000), Doc("repeats per point, each on its own cluster")
    ] = 3
    seconds: Annotated[float, Bound(ge=1, le=3600), Doc("length of every measurement")] = 8.0
    warm_up_s: Annotated[
        float, Bound(ge=0, le=3600), Doc("load before the measurement; excluded")
    ] = 3.0
    cluster_warm_up: Annotated[
        WarmUpLimits, Doc("load of the same kind on a new cluster, until its brokers are warm")
    ] = field(default_factory=WarmUpLimits)
    latency_per_s: Annotated[
        float, Bound(gt=0), Doc("production: messages/s of all producers while latency is measured")
    ] = 100.0
    latency_mb_per_s: Annotated[
        float, Bound(gt=0), Doc("production: or this many MB/s, whichever is less")
    ] = 2.0
    stream_per_s: Annotated[float, Bound(gt=0), Doc("end-to-end: messages/s of each producer")] = (
        30.0
    )
    start_spread_s: Annotated[
        float, Bound(ge=0, le=600), Doc("consumption: members start within this time, at random")
    ] = 1.0
    unavailability: Annotated[
        bool, Doc("production: kill a broker at the end and measure when its partitions are back")
    ] = True
    schedule_lag_ms: Annotated[
        float,
        Bound(gt=0),
        Doc("a latency is not used if the generator lags its schedule by more than this (p99)"),
    ] = 10.0
    settings: Annotated[ProducerSettings, Doc("of the producers")] = field(
        default_factory=lambda: ProducerSettings(acks="all")
    )
    cluster: Annotated[
        ClusterSpec, Doc("all but the number of brokers: place, network, properties, heap_mb")
    ] = field(default_factory=ClusterSpec)
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least, most in (
            ("partitions", 1, 100_000),
            ("message_bytes", ID_BYTES, 100_000_000),
            ("replication", 1, 16),
            ("brokers", 1, 16),
            ("producers", 1, 200),
            ("consumers", 1, 200),
        ):
            _check_axis(name, getattr(self, name), least, most)
        for name in ("policies", "assignors"):
            values: Sequence[str] = getattr(self, name)
            self.require(len(set(values)) == len(values), name, "must not repeat a value")
        for name, added in self.further.items():
            if not added or len(set(added)) != len(added):
                raise FieldError(f"further.{name}", list(added), "must have values, none twice")
        if self.cluster.brokers != ClusterSpec().brokers:
            fix = "is not used here: list the broker counts in `brokers`"
            raise FieldError("cluster.brokers", self.cluster.brokers, fix)
        if not self.cluster.observe:
            fix = "must be true: the experiment reads the brokers' own timings"
            raise FieldError("cluster.observe", False, fix)
        if self.brokers and self.replication:
            fix = f"must begin with at most the first number of brokers ({self.brokers[0]})"
            self.require(self.replication[0] <= self.brokers[0], "replication", fix)

    @property
    def is_below_minimum(self) -> bool:
        """Too few partition counts or repeats for intervals that say something."""
        return len(self.partitions) < LEAST_PARTITION_COUNTS or self.repeats < LEAST_REPEATS


def _check_axis(name: str, values: Sequence[int], least: int, most: int) -> None:
    for i, value in enumerate(values):
        if problem := Bound(ge=least, le=most).problem(value):
            raise FieldError(f"{name}.{i}", value, problem)
    if len(set(values)) != len(values):
        raise FieldError(name, list(values), "must not repeat a value")


_AXES = (
    "partitions", "message_bytes", "replication", "brokers", "policies", "producers", "consumers",
    "assignors",
)  # fmt: skip


def complete(kind: str, grid: ExperimentGrid | None = None) -> ExperimentGrid:
    """With the experiment's own values for every axis that the file leaves out."""
    own: ExperimentGrid = plugins.get(EXPERIMENTS, kind).grid
    if grid is None:
        return own
    if unknown := sorted(set(grid.further) - set(own.further)):
        known = ", ".join(own.further) or "none"
        raise FieldError("further", unknown[0], f"is not an axis of {kind}; it adds {known}")
    axes = {a: getattr(grid, a) or getattr(own, a) for a in _AXES}
    return replace(grid, **axes, further={**own.further, **grid.further})


def quick(grid: ExperimentGrid) -> ExperimentGrid:
    """The base only, over few partition counts, once and short: to see that it works."""
    counts = sorted(grid.partitions)
    few = tuple(dict.fromkeys((counts[0], counts[len(counts) // 2 - 1], counts[len(counts) // 2])))
    base = {axis: getattr(grid, axis)[:1] for axis in _AXES}
    seconds, warm_up_s = min(grid.seconds, 4.0), min(grid.warm_up_s, 2.0)
    further = {axis: values[:1] for axis, values in grid.further.items()}
    axes = base | {"partitions": few, "policies": (), "further": further}
    return replace(grid, **axes, repeats=1, seconds=seconds, warm_up_s=warm_up_s)
