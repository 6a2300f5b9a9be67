"""The consumers of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from penstock.domain.client import check_properties
from penstock.domain.client_kind import ReaderKind, plain_reader
from penstock.domain.value import Bound, Doc, Value

# What a run decides itself; to change them is to ask for something else.
_RESERVED = {
    "auto.offset.reset": "a run reads its topic from the beginning",
    "bootstrap.servers": "see `cluster` or `existing`",
    "enable.auto.commit": "consumers commit, as applications do; see auto.commit.interval.ms",
    "enable.partition.eof": "set by the run",
    "group.id": "each run has its own group",
}


@dataclass(frozen=True, kw_only=True)
class Consumers(Value):
    """One consumer group that reads the topic while it is written to."""

    count: Annotated[int, Bound(ge=1, le=200), Doc("consumers in the group, each a process")] = 1
    settings: Annotated[
        Mapping[str, str | int | float | bool], Doc("any consumer property, by Kafka's name")
    ] = field(default_factory=dict)
    reader: Annotated[ReaderKind, Doc("how messages are unpacked from records")] = field(
        default_factory=plain_reader
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        fix = "is a secret: put it in a client.properties file, since this file is stored with runs"
        check_properties("settings", self.settings, fix, _RESERVED)
