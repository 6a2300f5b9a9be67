"""Warm-up of a cluster before it is measured: kind of requests, limits, result.

A broker's first minute is Java's compiler at work: on two cores a request costs over thirty times
what it costs a minute later. What was measured then says nothing about the setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from penstock.domain.value import Bound, Doc, Value

# Requests that differ by less than this factor in size run through the same compiled code.
_ALIKE = 4.0


@dataclass(frozen=True, kw_only=True)
class WarmUpLimits(Value):
    """Limits of the warm-up of a cluster."""

    limit_s: Annotated[
        float,
        Bound(ge=0, le=3600),
        Doc(
            "seconds for both steps of the warm-up; a run that was not warm by then is marked. Below "
            "17 a cold testbed cannot pass the test. 0: no warm-up; a testbed that was not warmed up "
            "before is marked"
        ),
    ] = 90.0
    rate_per_s: Annotated[
        float | None,
        Bound(gt=0),
        Doc(
            "highest rate of the warm-up. Without it a testbed is warmed at full speed; an existing "
            "cluster is only warmed by the load of the run itself"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RequestKind(Value):
    """What the requests of a load look like to a broker: the code that it must have compiled."""

    acks: Literal["0", "1", "all"] = "all"
    message_bytes: Annotated[int, Bound(ge=1)] = 200
    messages_per_request: Annotated[int, Bound(ge=1)] = 1
    partitions: Annotated[int, Bound(ge=1)] = 6
    replication: Annotated[int, Bound(ge=1)] = 3
    compression: str = "none"
    is_idempotent: bool = False

    def __str__(self) -> str:
        many = self.messages_per_request
        return (
            f"acks={self.acks}, {self.message_bytes:,} B × {many:,} per request, "
            f"{self.partitions} partitions"
            + (", idempotent" if self.is_idempotent else "")
            + ("" if self.compression == "none" else f", {self.compression}")
        )

    @property
    def request_bytes(self) -> int:
        return self.message_bytes * self.messages_per_request

    def covers(self, other: RequestKind) -> bool:
        """Whether brokers that are warm for this kind are warm for the other one too."""
        return (
            self.acks == other.acks
            and self.compression == other.compression
            and self.is_idempotent == other.is_idempotent
            and (self.replication > 1) == (other.replication > 1)
            and _alike(self.request_bytes, other.request_bytes)
            and _alike(self.messages_per_request, other.messages_per_request)
            and _alike(self.partitions, other.partitions)
        )


@dataclass(frozen=True, kw_only=True)
class WarmUp(Value):
    """The result of warming a cluster up."""

    state: Annotated[
        Literal["warm", "still warming up", "not warmed up"],
        Doc(
            "warm: the cost of a request and its latency were flat, by the test in docs/warm-up.md"
        ),
    ]
    sentence: Annotated[str, Doc("why it is not warm, with its numbers; empty if it is")] = ""
    took_s: float = 0.0
    requests: Annotated[
        int, Doc("produce requests of the warm-up; those of the run's own load are an estimate")
    ] = 0
    first_cpu_ms_per_request: Annotated[
        float | None, Doc("the brokers' CPU per produce request in the first seconds of step 1")
    ] = None
    cpu_ms_per_request: Annotated[float | None, Doc("and in its last seconds")] = None
    run_cpu_ms_per_request: Annotated[
        float | None, Doc("the same in the last seconds of step 2, under the run's own load")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ClusterState(Value):
    """State of a cluster at the start of the measured time, after the warm-up."""

    age_s: Annotated[
        float | None, Doc("since its youngest broker was started; None where it cannot be seen")
    ] = None
    requests_served: Annotated[
        int | None, Doc("produce and fetch requests of all brokers since they were started")
    ] = None
    warm_up: Annotated[
        WarmUp | None,
        Doc("for this kind of load; None: the brokers were warm already, or it cannot be known"),
    ] = None


def _alike(a: float, b: float) -> bool:
    return max(a, b) <= _ALIKE * min(a, b)
