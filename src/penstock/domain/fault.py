"""Faults as data: what is done to a broker or a link, when, and for how long."""

from __future__ import annotations

import re
from abc import ABC
from dataclasses import dataclass
from typing import Annotated

from penstock.domain.network import LinkCondition
from penstock.domain.value import Bound, Doc, FieldError, Value

_LEADER = re.compile(r"leader of (?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")


@dataclass(frozen=True)
class LeaderOf:
    """The broker that leads a partition at the moment the fault strikes."""

    topic: str
    partition: int


def parse_broker(text: int | str) -> int | LeaderOf | None:
    """A broker's id, a partition whose leader is meant, or None for the active controller."""
    if isinstance(text, int):
        return text
    if text == "controller":
        return None
    if match := _LEADER.fullmatch(text):
        return LeaderOf(match["topic"], int(match["partition"]))
    raise FieldError(
        "broker", text, "must be a broker's id, 'controller' or 'leader of TOPIC-PARTITION'"
    )


@dataclass(frozen=True, kw_only=True)
class When(Value):
    """A condition: a signal that has reached a level.

    Signals are named by whoever watches: the testbed offers `messages_in`, `bytes_in`,
    `under_replicated_partitions` (over all brokers); a run adds its own (`acknowledged`, …).
    """

    signal: Annotated[str, Doc("name of the signal")]
    at_least: Annotated[float, Doc("level that sets it off")]
    within_s: Annotated[float, Bound(gt=0), Doc("give up, as an error, after this time")] = 300


@dataclass(frozen=True, kw_only=True)
class Fault(Value, ABC):
    """Something that goes wrong on purpose, at a time or on a condition."""

    at_s: Annotated[float | None, Bound(ge=0), Doc("seconds from the start")] = None
    when: Annotated[When | None, Doc("or: as soon as this holds")] = None
    for_s: Annotated[float | None, Bound(gt=0), Doc("undone after this time; never if absent")] = (
        None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            self.at_s is None or self.when is None, "at_s", "cannot be given together with `when`"
        )

    @property
    def is_undone(self) -> bool:
        """Whether the cluster is afterwards as it was before."""
        return self.for_s is not None


@dataclass(frozen=True, kw_only=True)
class BrokerFault(Fault, ABC):
    """A fault of one broker."""

    broker: Annotated[
        int | str, Doc("id, 'controller' or 'leader of TOPIC-PARTITION' at that moment")
    ]

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_broker(self.broker)


@dataclass(frozen=True, kw_only=True)
class Kill(BrokerFault):
    """The process is killed (SIGKILL). Undone by starting it again on the same data."""

    kind = "kill"


@dataclass(frozen=True, kw_only=True)
class Stop(BrokerFault):
    """An orderly shutdown (SIGTERM): leadership is handed over first. Undone by starting it."""

    kind = "stop"


@dataclass(frozen=True, kw_only=True)
class Pause(BrokerFault):
    """The process is frozen (SIGSTOP): its connections stay open and nothing answers."""

    kind = "pause"


@dataclass(frozen=True, kw_only=True)
class Restart(BrokerFault):
    """An orderly shutdown and a start, as in a rolling upgrade. Takes until it is in sync."""

    kind = "restart"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.for_s is None, "for_s", "has no meaning here; use `stop` with for_s")

    @property
    def is_undone(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class SlowCpu(BrokerFault):
    """The broker gets only this much CPU."""

    kind = "slow-cpu"
    cores: Annotated[float, Bound(ge=0.01, le=64), Doc("cores it may use, such as 0.1")]


@dataclass(frozen=True, kw_only=True)
class SlowLink(BrokerFault):
    """Every link of the broker, both ways, gets this condition on top of nothing else."""

    kind = "slow-link"
    condition: LinkCondition


@dataclass(frozen=True, kw_only=True)
class CutLink(Fault):
    """Nothing passes between two hosts or groups of hosts."""

    kind = "cut-link"
    src: Annotated[str, Doc("host or group: broker-1, producers, …")]
    dst: Annotated[str, Doc("host or group")]
    both_ways: bool = True


@dataclass(frozen=True, kw_only=True)
class PauseClient(Fault):
    """A client of the run is frozen (SIGSTOP), as by a long garbage collection."""

    kind = "pause-client"
    client: Annotated[str, Doc("producer-1, consumer-2, …: the processes of a run, counted from 1")]


@dataclass(frozen=True, kw_only=True)
class FaultPlan(Value):
    """The faults of one run."""

    faults: tuple[Fault, ...]
