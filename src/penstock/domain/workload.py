"""What is sent: payload, arrivals, keys, producers."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field
from typing import Annotated, Literal

from penstock.domain.value import Bound, Doc, Value


@dataclass(frozen=True, kw_only=True)
class Arrivals(Value, ABC):
    """When messages are due. The schedule is fixed in advance: load is open loop."""


@dataclass(frozen=True, kw_only=True)
class ConstantArrivals(Arrivals):
    """One message every 1 / rate_per_s."""

    kind = "constant"
    rate_per_s: Annotated[float, Bound(gt=0), Doc("messages per second of one producer")]


@dataclass(frozen=True, kw_only=True)
class PoissonArrivals(Arrivals):
    """Independent messages: exponential gaps."""

    kind = "poisson"
    rate_per_s: Annotated[float, Bound(gt=0), Doc("mean messages per second of one producer")]


@dataclass(frozen=True, kw_only=True)
class BurstArrivals(Arrivals):
    """A two-state Markov-modulated Poisson process (MMPP): calm and busy."""

    kind = "bursts"
    calm_per_s: Annotated[float, Bound(ge=0), Doc("messages per second while calm")]
    busy_per_s: Annotated[float, Bound(gt=0), Doc("messages per second while busy")]
    calm_s: Annotated[float, Bound(gt=0), Doc("mean length of a calm spell")]
    busy_s: Annotated[float, Bound(gt=0), Doc("mean length of a busy spell")]


@dataclass(frozen=True, kw_only=True)
class Payload(Value):
    """What one message is made of. Compression depends on the content."""

    content: Literal["random", "web-log", "telemetry", "sales"] = "random"
    size_bytes: Annotated[int, Bound(ge=1, le=100_000_000), Doc("size of the value")] = 100
    max_size_bytes: Annotated[
        int | None, Bound(ge=1, le=100_000_000), Doc("if given, sizes are U[size, max_size]")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            self.max_size_bytes is None or self.max_size_bytes >= self.size_bytes,
            "max_size_bytes",
            f"must be at least size_bytes ({self.size_bytes})",
        )


@dataclass(frozen=True, kw_only=True)
class Workload(Value):
    """The stream that is put on the cluster."""

    arrivals: Arrivals
    payload: Payload = field(default_factory=Payload)
    producers: Annotated[int, Bound(ge=1, le=1_000), Doc("producers, each with its arrivals")] = 1
    keys: Annotated[
        int | None, Bound(ge=1), Doc("number of distinct keys; without, messages have none")
    ] = None
    duration_s: Annotated[float, Bound(gt=0), Doc("how long")] = 10.0
