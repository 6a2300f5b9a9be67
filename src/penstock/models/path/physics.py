"""The physical parameters of the path: what machine and software cost.

Each has a unit and a way to measure it. Everything that follows from settings, load and links is
simulated and needs no parameter.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

import numpy as np
import numpy.typing as npt

from penstock.domain.value import Bound, Doc, Value


@dataclass(frozen=True, kw_only=True)
class Physics(Value):
    """Costs of the path. CPU times are those of one core."""

    client_produce: Annotated[
        float, Bound(ge=0), Doc("s of CPU to make a message and hand it to the client")
    ] = 0.0
    client_request: Annotated[
        float, Bound(ge=0), Doc("s of CPU to form and send a request: producers' CPU per request")
    ] = 0.0
    client_message: Annotated[
        float, Bound(ge=0), Doc("s of CPU per message of it: producers' CPU against messages/s")
    ] = 0.0
    client_byte: Annotated[float, Bound(ge=0), Doc("s of CPU per byte; with compression")] = 0.0
    client_answer: Annotated[float, Bound(ge=0), Doc("s of CPU to read an answer")] = 0.0
    client_answer_message: Annotated[
        float, Bound(ge=0), Doc("s of CPU to report one message's outcome")
    ] = 0.0
    broker_request: Annotated[
        float,
        Bound(ge=0),
        Doc("s of CPU to handle a produce request: its LocalTimeMs, and the broker's CPU/request"),
    ] = 0.0
    broker_message: Annotated[float, Bound(ge=0), Doc("s of CPU per message of it")] = 0.0
    broker_byte: Annotated[float, Bound(ge=0), Doc("s of CPU per byte of it")] = 0.0
    broker_answer: Annotated[
        float, Bound(ge=0), Doc("s of CPU to answer it: ResponseSendTimeMs and queue times")
    ] = 0.0
    follower_fetch: Annotated[
        float, Bound(ge=0), Doc("s of CPU of a leader per fetch of a follower: its LocalTimeMs")
    ] = 0.0
    follower_answer: Annotated[
        float, Bound(ge=0), Doc("s of CPU of a leader to answer a follower")
    ] = 0.0
    follower_append: Annotated[
        float, Bound(ge=0), Doc("s of CPU of a follower per answer with records")
    ] = 0.0
    follower_byte: Annotated[float, Bound(ge=0), Doc("s of CPU of a follower per byte")] = 0.0
    reader_fetch: Annotated[
        float, Bound(ge=0), Doc("s of CPU of a leader per fetch of a consumer: its LocalTimeMs")
    ] = 0.0
    reader_answer: Annotated[
        float, Bound(ge=0), Doc("s of CPU of a leader to answer a consumer")
    ] = 0.0
    reader_request: Annotated[
        float, Bound(ge=0), Doc("s of CPU of a consumer per answer: its CPU per fetch")
    ] = 0.0
    reader_message: Annotated[
        float, Bound(ge=0), Doc("s of CPU of a consumer per message: its CPU against messages/s")
    ] = 0.0
    wake: Annotated[
        float, Bound(ge=0), Doc("s until a thread runs that has something to do: fitted")
    ] = 0.0
    spread: Annotated[
        float, Bound(ge=0, le=3), Doc("standard deviation of the logarithm of CPU times: fitted")
    ] = 0.0
    tick: Annotated[
        float, Bound(ge=0), Doc("s by which the linger timer is late at most: client's wake-ups")
    ] = 0.0
    cold: Annotated[
        float,
        Bound(ge=1),
        Doc("CPU time of a process that did nothing for long, relative to a busy one: fitted"),
    ] = 1.0
    warming: Annotated[float, Bound(gt=0), Doc("s of CPU after which it is warm again; fitted")] = (
        1e-9
    )
    cooling: Annotated[
        float,
        Bound(gt=0),
        Doc("s after which a process is cold: the others took its caches; fitted"),
    ] = 1e-3
    contention: Annotated[
        float,
        Bound(ge=1),
        Doc("CPU time while all other cores work, relative to one that works alone: fitted"),
    ] = 1.0
    after: Annotated[
        float, Bound(ge=0), Doc("CPU spent after the result is out, as a share of what was before")
    ] = 0.0
    client_delay: Annotated[
        float,
        Bound(ge=0),
        Doc("s on the way between clients and brokers, beside links in the spec: fitted"),
    ] = 0.0
    broker_delay: Annotated[
        float, Bound(ge=0), Doc("s on the way between brokers, beside links in the spec: fitted")
    ] = 0.0
    heap_request_bytes: Annotated[
        float, Bound(ge=0), Doc("bytes that a broker allocates per request: its GC log")
    ] = 0.0
    heap_per_byte: Annotated[
        float, Bound(ge=0), Doc("bytes that a broker allocates per byte that it receives: GC log")
    ] = 0.0
    heap_young_bytes: Annotated[
        float, Bound(ge=0), Doc("bytes of a broker's young generation; 0: collections not modelled")
    ] = 0.0
    heap_pause: Annotated[float, Bound(ge=0), Doc("s of a young collection: GC log")] = 0.0
    background_per_s: Annotated[
        float, Bound(ge=0), Doc("bursts of other work per machine and second: fitted")
    ] = 0.0
    background_burst: Annotated[float, Bound(ge=0), Doc("s of CPU of such a burst, mean")] = 0.0

    def table(self) -> npt.NDArray[np.void]:
        """The same for the engine: one row."""
        values = {f.name: float(getattr(self, f.name)) for f in fields(self)}
        return np.array([tuple(values.values())], [(name, np.float64) for name in values])
