"""Brokers and partitions of a topic as an optimisation problem (S4, 3), solved exactly.

Symbols:

    P, b        partitions and brokers: what is decided
    T           MB/s that the topic must carry
    T_p, T_c    MB/s that one partition takes from producers, and gives to a consumer
    c           consumers of a group, each of which needs a partition
    r           replicas of each partition
    B           brokers that there may be
    H           replicas that a broker may hold (its open handles)
    l_r, L      ms of replication latency per replica on a broker, and the most that is allowed
    u, U        ms of unavailability per partition that a broker leads, and the most that is allowed

    P ≥ max(T/T_p, T/T_c, c)      P·r ≤ b·H      P·r·l_r ≤ b·L      P·u ≤ b·U      r ≤ b ≤ B

For given brokers the most partitions is a closed form that never falls with b, and the fewest does
not depend on b. So the set of solutions is known from one pass over b, and every question about it
(the fewest brokers, the most partitions, what is missing) is answered in O(B).

Latency and unavailability are straight lines over replicas and led partitions where they were measured,
so each limit is taken less its intercept. (The document has none: 0.) The time in which a dead broker
is noticed is not in u: it does not depend on partitions (`detection_ms` is added where unavailability
is shown).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from penstock.domain.errors import BadInput
from penstock.domain.value import Bound, Doc, Value

# What Kafka's own limit is far above, and no topic needs.
MOST_PARTITIONS = 100_000


@dataclass(frozen=True, kw_only=True)
class Partitioning(Value):
    """The problem of one topic. A limit that is not given does not bind."""

    throughput_mb_per_s: Annotated[float, Bound(ge=0), Doc("[T] that the topic must carry")]
    partition_mb_per_s: Annotated[
        float, Bound(gt=0), Doc("[T_p] that one partition takes from producers")
    ]
    consumer_mb_per_s: Annotated[
        float, Bound(gt=0), Doc("[T_c] that one consumer reads of one partition")
    ]
    consumers: Annotated[int, Bound(ge=0), Doc("[c] that need a partition each")] = 1
    replication: Annotated[int, Bound(ge=1), Doc("[r] replicas of each partition")] = 3
    most_brokers: Annotated[int, Bound(ge=1), Doc("[B] that there may be")] = 3
    most_replicas: Annotated[
        float | None, Bound(gt=0), Doc("[H] replicas that a broker may hold, by its open handles")
    ] = None
    replication_ms_per_replica: Annotated[float, Bound(ge=0), Doc("[l_r]")] = 0.0
    replication_base_ms: Annotated[float, Bound(ge=0), Doc("with no replica: the intercept")] = 0.0
    most_replication_ms: Annotated[float | None, Bound(gt=0), Doc("[L]")] = None
    unavailable_ms_per_partition: Annotated[
        float, Bound(ge=0), Doc("[u] per partition that the dead broker led")
    ] = 0.0
    unavailable_base_ms: Annotated[float, Bound(ge=0), Doc("with none: the intercept")] = 0.0
    most_unavailable_ms: Annotated[float | None, Bound(gt=0), Doc("[U]")] = None
    detection_ms: Annotated[
        float, Bound(ge=0), Doc("until a dead broker is noticed: broker.session.timeout.ms")
    ] = 0.0

    # --- bounds ----------------------------------------------------------------------------------

    @property
    def needs(self) -> Mapping[str, int]:
        """What asks for partitions → how many."""
        return {
            "production throughput": _up(self.throughput_mb_per_s / self.partition_mb_per_s),
            "consumption throughput": _up(self.throughput_mb_per_s / self.consumer_mb_per_s),
            "consumers": self.consumers,
        }

    @property
    def fewest_partitions(self) -> int:
        return max(1, *self.needs.values())

    def limits(self, brokers: int) -> Mapping[str, int]:
        """What limits partitions on so many brokers → how many it allows; 0: none at all."""
        allowed: dict[str, float] = {"partitions of a topic": MOST_PARTITIONS}
        if self.most_replicas is not None:
            allowed["open handles"] = brokers * self.most_replicas / self.replication
        if self.most_replication_ms is not None:
            room_ms = self.most_replication_ms - self.replication_base_ms
            per_partition = self.replication_ms_per_replica * self.replication
            allowed["replication latency"] = _quotient(brokers * room_ms, per_partition)
        if self.most_unavailable_ms is not None:
            room_ms = self.most_unavailable_ms - self.unavailable_base_ms
            allowed["unavailability"] = _quotient(
                brokers * room_ms, self.unavailable_ms_per_partition
            )
        return {name: max(0, _down(count)) for name, count in allowed.items()}

    def most_partitions(self, brokers: int) -> int:
        """The most on so many brokers; it never falls with them."""
        return min(self.limits(brokers).values())

    def is_possible(self, brokers: int) -> bool:
        return (
            self.replication <= brokers <= self.most_brokers
            and self.most_partitions(brokers) >= self.fewest_partitions
        )

    # --- solutions -------------------------------------------------------------------------------

    @property
    def fewest_brokers(self) -> int | None:
        """The fewest brokers with a solution; None: there is none. Solutions exist from there on."""
        if not self.is_possible(self.most_brokers):
            return None
        low, high = self.replication - 1, self.most_brokers
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.is_possible(middle) else (middle, high)
        return high

    def plan(self, brokers: int, partitions: int) -> PartitioningSolution:
        """The outcome of a choice, a solution or not."""
        replicas = partitions * self.replication / brokers
        led = partitions / brokers
        limits = self.limits(brokers)
        broken = [name for name, most in limits.items() if partitions > most]
        broken += [name for name, least in self.needs.items() if partitions < least]
        if brokers < self.replication:
            broken.append("brokers for all replicas")
        if brokers > self.most_brokers:
            broken.append("brokers that there may be")
        return PartitioningSolution(
            brokers=brokers,
            partitions=partitions,
            replicas_per_broker=replicas,
            replication_ms=self.replication_base_ms + self.replication_ms_per_replica * replicas,
            unavailable_ms=(
                self.detection_ms
                + self.unavailable_base_ms
                + self.unavailable_ms_per_partition * led
            ),
            binding=min(limits, key=lambda name: limits[name]),
            broken=tuple(broken),
        )

    def impossible(self) -> Impossible | None:
        """Why there is no solution, and what would help; None if there is one."""
        if self.is_possible(self.most_brokers):
            return None
        brokers = max(self.most_brokers, self.replication)
        if self.most_brokers < self.replication:
            sentence = (
                f"{self.replication} replicas need {self.replication} brokers, and there may be "
                f"{self.most_brokers}"
            )
        else:
            limits, needs = self.limits(brokers), self.needs
            limit = min(limits, key=lambda name: limits[name])
            need = max(needs, key=lambda name: needs[name])
            sentence = (
                f"{need} needs {self.fewest_partitions:,} partitions, and {limit} allows "
                f"{limits[limit]:,} on {brokers} brokers"
            )
        return Impossible(sentence=sentence, changes=_changes(self))


@dataclass(frozen=True, kw_only=True)
class PartitioningSolution(Value):
    """A choice of brokers and partitions, and what follows from it."""

    brokers: int
    partitions: int
    replicas_per_broker: float
    replication_ms: float
    unavailable_ms: Annotated[float, Doc("with the time in which a dead broker is noticed")]
    binding: Annotated[str, Doc("what limits partitions on so many brokers")]
    broken: Annotated[tuple[str, ...], Doc("constraints that it breaks; empty: a solution")] = ()

    @property
    def is_solution(self) -> bool:
        return not self.broken


@dataclass(frozen=True, kw_only=True)
class Impossible(Value):
    """Why a problem has no solution."""

    sentence: str
    changes: Annotated[
        Mapping[str, float],
        Doc("input → the nearest value with which alone there would be a solution"),
    ]

    def check(self) -> None:
        """Raise it as an error."""
        nearest = "; or ".join(f"{name}: {value:g}" for name, value in self.changes.items())
        raise BadInput(self.sentence, nearest or "change several of the inputs")


# --- what would help -------------------------------------------------------------------------------------


def _changes(problem: Partitioning) -> dict[str, float]:
    """Input → the nearest value that alone makes it possible; inputs that cannot are left out."""
    changes: dict[str, float] = {}
    brokers = max(problem.most_brokers, problem.replication)
    fewest = problem.fewest_partitions
    others_ok = problem.most_brokers >= problem.replication
    # Whole numbers: the nearest one by search, since each is monotone.
    whole: tuple[tuple[str, range], ...] = (
        ("most_brokers", range(problem.most_brokers + 1, 100 * problem.most_brokers + 1_000)),
        ("replication", range(problem.replication - 1, 0, -1)),
        ("consumers", range(problem.consumers - 1, -1, -1)),
    )
    for name, values in whole:
        if (value := _first(values, lambda v, n=name: _ok(_with(problem, n, v)))) is not None:  # type: ignore[misc]
            changes[name] = value
    if not others_ok:
        return changes
    exact = {
        "most_replicas": fewest * problem.replication / brokers,
        "most_replication_ms": problem.replication_base_ms
        + problem.replication_ms_per_replica * fewest * problem.replication / brokers,
        "most_unavailable_ms": problem.unavailable_base_ms
        + problem.unavailable_ms_per_partition * fewest / brokers,
        "throughput_mb_per_s": problem.most_partitions(brokers)
        * min(problem.partition_mb_per_s, problem.consumer_mb_per_s),
        "partition_mb_per_s": problem.throughput_mb_per_s
        / max(1, problem.most_partitions(brokers)),
        "consumer_mb_per_s": problem.throughput_mb_per_s / max(1, problem.most_partitions(brokers)),
    }
    for name, number in exact.items():
        given = getattr(problem, name)
        if given is None or not number > 0 or number == given:
            continue
        # Rounding must not make it impossible again.
        slack = 1 - 1e-9 if number < given else 1 + 1e-9
        if _ok(_with(problem, name, number * slack)):
            changes[name] = number
    return changes


def _with(problem: Partitioning, name: str, value: float) -> Partitioning:
    changed: dict[str, Any] = {name: value}
    return replace(problem, **changed)


def _ok(problem: Partitioning) -> bool:
    return problem.is_possible(problem.most_brokers)


def _first(values: range, is_good: Callable[[int], bool]) -> int | None:
    """The first good one of values that are bad up to some point and good from there on."""
    if not values or not is_good(values[-1]):
        return None
    low, high = -1, len(values) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_good(values[middle]) else (middle, high)
    return values[high]


def _quotient(above: float, below: float) -> float:
    """Without a cost there is no limit; without room there is no solution."""
    if above < 0:
        return -1.0
    return above / below if below else math.inf


def _down(number: float) -> int:
    """To a whole number; 3 · 40 / 3 is 40, whatever floats say."""
    return MOST_PARTITIONS if number == math.inf else math.floor(number + 1e-9)


def _up(number: float) -> int:
    return math.ceil(number - 1e-9)
