"""Steadiness of a run: only a steady run's times describe its setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from penstock.domain.value import Doc, Value

State = Literal["steady", "unsteady", "changed on purpose", "not tested"]


@dataclass(frozen=True, kw_only=True)
class Disturbance(Value):
    """The first planned change of a run: when, and what."""

    at_s: float
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Steadiness(Value):
    """Whether a run's latency is a property of its setting: no trend, no queue that grows."""

    state: Annotated[
        State,
        Doc("changed on purpose: by a fault, a network profile, or the load of the scenario"),
    ]
    sentence: Annotated[str, Doc("why, with its numbers; empty if steady")] = ""
    judged_s: Annotated[float, Doc("how much of the measured time the test looked at")] = 0.0
    latency_first_ms: Annotated[float | None, Doc("mean over the first eighth of that time")] = None
    latency_last_ms: Annotated[float | None, Doc("mean over the last eighth of that time")] = None
    offered_per_s: Annotated[float | None, Doc("messages that were due in that time")] = None
    done_per_s: Annotated[float | None, Doc("messages that were received in that time")] = None
    waiting_first: Annotated[
        int | None, Doc("due and not yet received when that time began; lost ones do not wait")
    ] = None
    waiting_last: Annotated[int | None, Doc("the same when it ended")] = None
