"""A pipeline as a user writes it down: which topics go to which tables, how, and how fresh."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from penstock.domain.autoscaling import Autoscaling
from penstock.domain.client import is_secret
from penstock.domain.lake.decoder import Decoder, RawDecoder
from penstock.domain.value import Bound, Doc, FieldError, Value

# What a pipeline decides itself, with the way to get what is meant.
_RESERVED = {
    "auto.offset.reset": "see `start` and `lost_offsets`",
    "enable.auto.commit": "positions are kept with the tables",
    "enable.auto.offset.store": "positions are kept with the tables",
    "enable.partition.eof": "set by the pipeline",
    "group.id": "a pipeline's lanes are assigned their partitions, and join no group",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAME_FIX = "must be 1 to 100 letters, digits, '.', '_' or '-', and begin with a letter or digit"


@dataclass(frozen=True, kw_only=True)
class TableBy(Value):
    """The table by what a column of the record says."""

    column: str
    tables: Annotated[Mapping[str, str], Doc("its text → table")]
    otherwise: Annotated[str | None, Doc("for every other; without, such a record is rejected")] = (
        None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(bool(self.tables), "tables", "must have at least one entry")

    @property
    def all_tables(self) -> tuple[str, ...]:
        names = (*self.tables.values(), *([self.otherwise] if self.otherwise else []))
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True, kw_only=True)
class Stream(Value):
    """Topics whose records are decoded alike, and the table or tables that they go to."""

    topics: Annotated[tuple[str, ...], Doc("names, or patterns that begin with ^")]
    decoder: Decoder = field(default_factory=RawDecoder)
    ignore: Annotated[
        Mapping[str, tuple[str | int | bool, ...]],
        Doc("column → values: records that have one of them are not landed, but counted"),
    ] = field(default_factory=dict)
    table: Annotated[str | None, Doc("where its records go")] = None
    table_by: Annotated[TableBy | None, Doc("or several tables, by a column")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(bool(self.topics), "topics", "must name at least one topic")
        for topic in self.topics:
            if topic.startswith("^"):
                try:
                    re.compile(topic)
                except re.error as error:
                    raise FieldError("topics", topic, f"is no pattern: {error}") from None
        self.require(
            (self.table is None) != (self.table_by is None), "table", "give it, or `table_by`"
        )
        for name in self.tables:
            if not _NAME.fullmatch(name):
                raise FieldError("table", name, _NAME_FIX)

    @property
    def tables(self) -> tuple[str, ...]:
        return self.table_by.all_tables if self.table_by else (self.table or "",)

    def takes(self, topic: str) -> bool:
        return any(re.match(t, topic) if t.startswith("^") else t == topic for t in self.topics)


@dataclass(frozen=True, kw_only=True)
class Pipeline(Value):
    """Topics to the lake: one streaming query whose lanes read, decode and write."""

    name: Annotated[str, Doc("of the pipeline; its ledger and rejects are called after it")]
    bootstrap_servers: Annotated[str, Doc("HOST:PORT, …")]
    client_properties: Annotated[
        str | None, Doc("a Kafka client.properties, for security; its content is kept nowhere")
    ] = None
    settings: Annotated[
        Mapping[str, str | int | float | bool], Doc("any consumer property, by Kafka's name")
    ] = field(default_factory=dict)
    autoscaling: Annotated[
        Autoscaling,
        Doc("how lanes follow the write speed, if the pipeline is run with --autoscale"),
    ] = field(default_factory=Autoscaling)
    streams: Annotated[tuple[Stream, ...], Doc("the first whose topics fit a topic takes it")]
    lake: Annotated[str, Doc("the directory of the tables")]
    checkpoint: Annotated[
        str | None, Doc("the directory of the pipeline's memory; default: LAKE/_pipelines/NAME")
    ] = None
    lanes: Annotated[
        int, Bound(ge=1, le=1000), Doc("consumers at work side by side, while no plan says else")
    ] = 2
    lane_bytes: Annotated[
        int, Bound(ge=1000), Doc("a lane ends its part of a micro-batch after so many bytes")
    ] = 32_000_000
    lane_seconds: Annotated[
        float, Bound(gt=0, le=600), Doc("or after so long, whatever it has got by then")
    ] = 2.0
    lane_bytes_per_s: Annotated[
        float | None, Bound(gt=0), Doc("a lane lands no more than this, to spare what it writes to")
    ] = None
    every_s: Annotated[
        float,
        Bound(ge=0, le=3600),
        Doc("a micro-batch begins at most so often: data are as old as this, files as large"),
    ] = 5.0
    start: Annotated[Literal["earliest", "latest"], Doc("where a new pipeline begins to read")] = (
        "earliest"
    )
    lost_offsets: Annotated[
        Literal["fail", "go-on"],
        Doc("if records are deleted before they were read: stop, or note the range and go on"),
    ] = "fail"
    discover_s: Annotated[
        float, Bound(gt=0, le=3600), Doc("how often new topics and partitions are looked for")
    ] = 10.0
    compression: Literal["zstd", "snappy", "none"] = "zstd"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(bool(_NAME.fullmatch(self.name)), "name", _NAME_FIX)
        self.require(bool(self.streams), "streams", "must have at least one entry")
        for name, value in self.settings.items():
            if is_secret(name):
                fix = "is a secret: put it in a client.properties file, since this is kept"
                raise FieldError(f"settings.{name}", "[hidden]", fix)
            if name in _RESERVED:
                raise FieldError(
                    f"settings.{name}", value, f"cannot be set here: {_RESERVED[name]}"
                )
        own = {self.ledger_table, self.rejects_table}
        decoders: dict[str, Decoder] = {}
        for i, stream in enumerate(self.streams):
            for table in stream.tables:
                where = f"streams.{i}.table"
                if table in own:
                    raise FieldError(where, table, "is a table of the pipeline's own; rename it")
                if decoders.setdefault(table, stream.decoder) != stream.decoder:
                    raise FieldError(
                        where, table, "is given two decoders, and a table has one set of columns"
                    )

    @property
    def ledger_table(self) -> str:
        return f"{self.name}_ledger"

    @property
    def rejects_table(self) -> str:
        return f"{self.name}_rejects"

    @property
    def checkpoint_path(self) -> str:
        return self.checkpoint or f"{self.lake}/_pipelines/{self.name}"

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(t for stream in self.streams for t in stream.tables))

    def stream_of(self, topic: str) -> int | None:
        """Which stream takes this topic."""
        return next((i for i, stream in enumerate(self.streams) if stream.takes(topic)), None)
