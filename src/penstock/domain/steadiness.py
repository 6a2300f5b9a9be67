"""Whether the load of a run came to rest: only then are its figures those of its setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from penstock.domain.value import Doc, Value

State = Literal["steady", "unsteady", "not meant to be", "not tested"]


@dataclass(frozen=True, kw_only=True)
class Disturbance(Value):
    """From when on a run was not meant to be steady, and why."""

    at_s: float
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Steadiness(Value):
    """Whether a run's latency is a property of its setting: no trend, no queue that grows."""

    state: Annotated[
        State,
        Doc("not meant to be: the load or the cluster was changed on purpose during the run"),
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
