"""Faults of brokers, links and clients: what, when, and for how long.

The abstract word; the kinds are in `testbed.faults`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from penstock.domain.network.condition import HostNames
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

    The watcher names the signals: the testbed offers `messages_in`, `bytes_in`,
    `under_replicated_partitions` (over all brokers); a run adds its own (`acknowledged`, …).
    """

    signal: Annotated[str, Doc("name of the signal")]
    at_least: Annotated[float, Doc("level that triggers the fault")]
    within_s: Annotated[
        float, Bound(gt=0), Doc("error if the level is not reached within this time")
    ] = 300


@dataclass(frozen=True)
class Struck:
    """A fault that took effect: what was done, and how to undo it."""

    sentence: str
    undo: Callable[[], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Fault(Value, ABC):
    """A fault to inject, at a time or on a condition."""

    plugin_group = "penstock.faults"
    # Whether it changes links, which a cluster on loopback does not have.
    needs_network: ClassVar[bool] = False

    at_s: Annotated[
        float | None, Bound(ge=0), Doc("seconds from the start; without it and `when`: at once")
    ] = None
    when: Annotated[When | None, Doc("or as soon as this condition holds")] = None
    for_s: Annotated[float | None, Bound(gt=0), Doc("undone after this time; default: never")] = (
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

    def check(self, spec: Any) -> None:
        """Raise a `FieldError` for what the run of a `penstock.RunSpec` does not have."""
        return

    def check_hosts(self, hosts: HostNames) -> None:
        """Raise a `FieldError` for a host that the network does not have."""
        return

    @abstractmethod
    def strike(self, cluster: Any) -> Struck:
        """Carry it out now, on a `penstock.Cluster`, and check that it took effect:
        otherwise raise `FaultDidNotTake`."""


@dataclass(frozen=True, kw_only=True)
class BrokerFault(Fault, ABC):
    """A fault of one broker."""

    broker: Annotated[
        int | str, Doc("id, 'controller' or 'leader of TOPIC-PARTITION' at that moment")
    ]

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_broker(self.broker)

    def check(self, spec: Any) -> None:
        meant, brokers, topic = parse_broker(self.broker), spec.cluster.brokers, spec.topic
        if isinstance(meant, int):
            is_there = 1 <= meant <= brokers
            self.require(is_there, "broker", f"is not a broker of the run; they are 1 to {brokers}")
        if isinstance(meant, LeaderOf):
            self.require(
                meant.topic == topic.name and meant.partition < topic.partitions,
                "broker",
                f"names no partition of the run; they are {topic.name}-0 to "
                f"{topic.name}-{topic.partitions - 1}",
            )


@dataclass(frozen=True, kw_only=True)
class FaultPlan(Value):
    """The faults of one run."""

    faults: tuple[Fault, ...]
