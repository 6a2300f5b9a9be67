"""Values of the autoscaler: its settings, and the messages that its parts exchange."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from penstock.domain import plugins
from penstock.domain.lake.cycle import LaneCycle
from penstock.domain.lake.partition import Partition, check_name
from penstock.domain.value import Bound, Doc, Value


@dataclass(frozen=True, kw_only=True)
class Policy(Value, ABC):
    """Decides which lane reads which partition. Its fields are its own settings.

    The kinds are in `autoscaler.core.policies`.
    """

    plugin_group = "penstock.policies"

    @abstractmethod
    def decider(self, settings: Autoscaling) -> Any:
        """A `penstock.Decider`, for one life of a controller."""


@dataclass(frozen=True, kw_only=True)
class Algorithm(Value, ABC):
    """Assigns partitions to lanes. It keeps no state from one problem to the next.

    The kinds are in `autoscaler.core.packing`.
    """

    plugin_group = "penstock.packing"

    @abstractmethod
    def __call__(self, problem: Any) -> dict[Partition, int]:
        """A lane for every partition of a `penstock.Problem`."""


def packing_policy() -> Policy:
    """The default: our own policy."""
    kind: Policy = plugins.get("penstock.policies", "packing")()
    return kind


@dataclass(frozen=True, kw_only=True)
class Autoscaling(Value):
    """How lanes scale with the write speed. Shares are of the measured capacity of a lane."""

    policy: Annotated[
        Policy, Doc("how lanes are chosen: packing, or a policy to compare it with")
    ] = field(default_factory=packing_policy)
    lanes: Annotated[
        int | None,
        Bound(ge=1, le=1000),
        Doc("fixed number of lanes; partitions are only rebalanced"),
    ] = None
    most_lanes: Annotated[int, Bound(ge=1, le=1000), Doc("upper limit of the number of lanes")] = 16
    lane_capacity_bytes_per_s: Annotated[
        float,
        Bound(gt=0),
        Doc(
            "assumed capacity of a lane, in bytes as the brokers store them, until one is measured; "
            "`penstock pipeline capacity` measures it"
        ),
    ] = 5_000_000
    plan_at: Annotated[
        float, Bound(gt=0, le=1), Doc("lanes are filled up to this share of their capacity")
    ] = 0.75
    headroom: Annotated[
        float,
        Bound(ge=0, le=10),
        Doc("a lane is too full if it has this share more than `plan_at` allows"),
    ] = 0.25
    scale_in_s: Annotated[
        float, Bound(gt=0), Doc("after this time without a change, try fewer lanes")
    ] = 60.0
    drain_s: Annotated[
        float, Bound(gt=0), Doc("the backlog should be read within this time, beside new records")
    ] = 30.0
    answer_s: Annotated[
        float, Bound(gt=0), Doc("a command that is not acknowledged within this time is resent")
    ] = 10.0
    stale_s: Annotated[
        float, Bound(gt=0), Doc("write speeds older than this are not used; the plan stays")
    ] = 10.0

    @property
    def exceeded_at(self) -> float:
        """The share of a lane's capacity above which partitions move."""
        return self.plan_at * (1 + self.headroom)


# --- from the monitor -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PartitionSpeed(Value):
    """The write speed of a partition."""

    records_per_s: float
    bytes_per_record: Annotated[
        float | None, Doc("as stored; none if the cluster does not report the size of its logs")
    ] = None
    end: Annotated[int, Doc("the offset after its last record")]


@dataclass(frozen=True, kw_only=True)
class SpeedMeasurement(Value):
    """All partitions of a pipeline, at one moment."""

    at_ms: Annotated[int, Doc("when, in Unix time")]
    partitions: Mapping[str, PartitionSpeed] = field(default_factory=dict)


# --- between controller and hosts -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Message(Value):
    """Any message that the controllers and hosts of a group write to its topic."""

    group: Annotated[str, Doc("the random id of the group, which its checkpoint keeps")] = ""
    term: Annotated[
        int, Doc("of the controller that sent it, or of the newest one that the host has heard")
    ] = 0


@dataclass(frozen=True, kw_only=True)
class Claim(Message):
    """States which process controls the group, until another one claims a higher term."""

    kind: ClassVar[str | None] = "claim"

    incarnation: Annotated[str, Doc("random, one per process life")]
    at_ms: Annotated[int, Doc("when it was last known to hold, in Unix time")] = 0


@dataclass(frozen=True, kw_only=True)
class Command(Message):
    """A command to a host. It lists everything to hold, so it stays valid and may arrive twice."""

    kind: ClassVar[str | None] = "command"

    verb: Annotated[
        Literal["hold", "tell", "end"],
        Doc("hold exactly these; only report what is held; or end"),
    ] = "hold"
    version: Annotated[int, Doc("counts up; the highest one is valid")] = 0
    lanes: Annotated[
        Mapping[int, tuple[str, ...]], Doc("lane → its partitions; other lanes of the host: none")
    ] = field(default_factory=dict)
    incarnation: Annotated[
        str | None, Doc("the only process of the host that it is for; default: whichever runs")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_names(self.lanes)


@dataclass(frozen=True, kw_only=True)
class HostAnswer(Message):
    """A host's answer: what it holds now, the position of each partition, its lanes' cycles."""

    kind: ClassVar[str | None] = "answer"

    host: int
    incarnation: Annotated[str, Doc("random, one per process life")] = ""
    version: Annotated[int, Doc("of the command that it acts on; -1: of none")] = -1
    lanes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    positions: Annotated[Mapping[str, int], Doc("partition → the next offset to read")] = field(
        default_factory=dict
    )
    cycles: tuple[LaneCycle, ...] = ()
    most_lanes: Annotated[int | None, Doc("upper limit of its lanes at the moment")] = None
    busy_s: Annotated[
        float, Doc("since its main thread last finished a turn, or since its micro-batch began")
    ] = 0.0
    at_ms: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_names({**self.lanes, -1: tuple(self.positions)})


def _check_names(lanes: Mapping[int, tuple[str, ...]]) -> None:
    for lane, held in lanes.items():
        for name in held:
            check_name(f"lanes.{lane}", name)
