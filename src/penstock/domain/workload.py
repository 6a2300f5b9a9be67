"""The workload: payload, arrivals, keys, producers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from penstock.domain.arrivals import Arrivals
from penstock.domain.content import Content, random_content
from penstock.domain.sizes import Sizes
from penstock.domain.sizes.sizes import ID_BYTES, MOST_BYTES
from penstock.domain.value import Bound, Doc, Value

# One number per message is kept while a producer runs: 400 MB at this many.
MOST_MESSAGES_PER_PRODUCER = 50_000_000


@dataclass(frozen=True, kw_only=True)
class Payload(Value):
    """Content and size of messages. Compression depends on the content."""

    content: Annotated[
        Content,
        Doc("random bytes, web server log lines, car telemetry as JSON, point-of-sale records"),
    ] = field(default_factory=random_content)
    size_bytes: Annotated[
        int, Bound(ge=ID_BYTES, le=MOST_BYTES), Doc("size of the value; the first 8 are its number")
    ] = 100
    sizes: Annotated[Sizes | None, Doc("if given, sizes vary and size_bytes is ignored")] = None

    @property
    def mean_bytes(self) -> float:
        return self.sizes.mean_bytes if self.sizes is not None else self.size_bytes


@dataclass(frozen=True, kw_only=True)
class Workload(Value):
    """The load sent to the cluster."""

    arrivals: Arrivals
    payload: Payload = field(default_factory=Payload)
    producers: Annotated[int, Bound(ge=1, le=1_000), Doc("producers, each with its arrivals")] = 1
    keys: Annotated[
        int | None, Bound(ge=1), Doc("number of distinct keys; default: messages have no key")
    ] = None
    loop: Annotated[
        Literal["open", "closed"],
        Doc(
            "open: send when due; closed: wait for each answer first (only to compare with such tools)"
        ),
    ] = "open"
    duration_s: Annotated[float, Bound(gt=0), Doc("length of the measured time")] = 10.0

    @property
    def messages_per_s(self) -> float:
        """Of all producers, in the long run."""
        return self.producers * self.arrivals.mean_per_s
