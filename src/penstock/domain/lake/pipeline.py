"""The pipeline file: which topics go to which tables, how they are decoded, and how often."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from penstock.domain import plugins
from penstock.domain.autoscaling import Autoscaling
from penstock.domain.client import check_properties
from penstock.domain.lake.decoder import Decoder
from penstock.domain.value import Bound, Doc, FieldError, Value

# Consumer properties that the pipeline sets itself, each with what to use instead.
_RESERVED = {
    "auto.offset.reset": "see `start` and `lost_offsets`",
    "enable.auto.commit": "positions are stored with the tables",
    "enable.auto.offset.store": "positions are stored with the tables",
    "enable.partition.eof": "set by the pipeline",
    "group.id": "a pipeline's lanes are assigned their partitions, and join no group",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAME_FIX = "must be 1 to 100 letters, digits, '.', '_' or '-', and begin with a letter or digit"


@dataclass(frozen=True, kw_only=True)
class TableBy(Value):
    """Chooses the table by the value of a column."""

    column: str
    tables: Annotated[Mapping[str, str], Doc("value as text → table")]
    otherwise: Annotated[
        str | None, Doc("for any other value; if not set, such a record is rejected")
    ] = None

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
    decoder: Decoder = field(default_factory=lambda: plugins.get("penstock.decoders", "raw")())
    ignore: Annotated[
        Mapping[str, tuple[str | int | bool, ...]],
        Doc("column → values: records that have one of them are not landed, but counted"),
    ] = field(default_factory=dict)
    table: Annotated[str | None, Doc("target table")] = None
    table_by: Annotated[TableBy | None, Doc("or several tables, by a column")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(bool(self.topics), "topics", "must name at least one topic")
        for topic in self.topics:
            if topic.startswith("^"):
                try:
                    re.compile(topic)
                except re.error as error:
                    raise FieldError("topics", topic, f"is not a valid pattern: {error}") from None
        self.require(
            (self.table is None) != (self.table_by is None),
            "table",
            "must be given, or `table_by`, but not both",
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

    name: Annotated[str, Doc("of the pipeline; prefix of the ledger and rejects tables")]
    bootstrap_servers: Annotated[str, Doc("HOST:PORT, …")]
    client_properties: Annotated[
        str | None, Doc("a Kafka client.properties, for security; its content is never stored")
    ] = None
    settings: Annotated[
        Mapping[str, str | int | float | bool], Doc("any consumer property, by Kafka's name")
    ] = field(default_factory=dict)
    autoscaling: Annotated[
        Autoscaling,
        Doc("how lanes scale with the write rate, with --autoscale"),
    ] = field(default_factory=Autoscaling)
    streams: Annotated[tuple[Stream, ...], Doc("a topic goes to the first stream that matches it")]
    lake: Annotated[str, Doc("the directory of the tables")]
    checkpoint: Annotated[
        str | None, Doc("directory of the pipeline's checkpoint; default: LAKE/_pipelines/NAME")
    ] = None
    lanes: Annotated[
        int, Bound(ge=1, le=1000), Doc("number of parallel consumers, unless a plan says otherwise")
    ] = 2
    lane_bytes: Annotated[
        int,
        Bound(ge=1000),
        Doc("a lane ends its part of a micro-batch after this many bytes of keys and values"),
    ] = 32_000_000
    lane_seconds: Annotated[
        float, Bound(gt=0, le=600), Doc("or after this time, whichever comes first")
    ] = 2.0
    lane_limit_bytes_per_s: Annotated[
        float | None,
        Bound(gt=0),
        Doc(
            "throttle: a lane lands no more than this, in bytes of keys and values, to protect the "
            "storage; `autoscaling.lane_capacity_bytes_per_s` is in bytes as the brokers store them"
        ),
    ] = None
    every_s: Annotated[
        float,
        Bound(ge=0, le=3600),
        Doc(
            "minimum time between the starts of two micro-batches, unless a lane is behind; a higher "
            "value gives older data and larger files"
        ),
    ] = 5.0
    start: Annotated[Literal["earliest", "latest"], Doc("where a new pipeline begins to read")] = (
        "earliest"
    )
    lost_offsets: Annotated[
        Literal["fail", "continue"],
        Doc("if a topic loses unread records, or landed ones by truncation: stop, or record it"),
    ] = "fail"
    discover_s: Annotated[
        float, Bound(gt=0, le=3600), Doc("how often to look for new topics and partitions")
    ] = 10.0
    compression: Literal["zstd", "snappy", "none"] = "zstd"
    record_seconds: Annotated[
        float,
        Bound(gt=0, le=600),
        Doc("records that take avro or function longer to decode are rejected"),
    ] = 5.0
    record_memory_mb: Annotated[
        int,
        Bound(ge=64, le=1_000_000),
        Doc("records that take more memory to decode are rejected"),
    ] = 1024
    rejects_warn_share: Annotated[
        float,
        Bound(ge=0, le=1),
        Doc("warn if more than this share of the last minute's records was rejected"),
    ] = 0.01
    rejects_stop_share: Annotated[
        float | None,
        Bound(gt=0, le=1),
        Doc("stop if more than this share of the last minute's records was rejected"),
    ] = None
    lane_secrets: Annotated[
        Literal["encrypted", "from-file", "clear-text"],
        Doc(
            "how lanes on other machines get the secrets of client_properties: sent, if Spark "
            "encrypts its traffic; read there from a file at the same path; or sent in any case"
        ),
    ] = "encrypted"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(bool(_NAME.fullmatch(self.name)), "name", _NAME_FIX)
        self.require(bool(self.streams), "streams", "must have at least one entry")
        for place in ("lake", "checkpoint"):
            rule = "must be a directory; object stores are not supported yet"
            self.require("://" not in (getattr(self, place) or ""), place, rule)
        fix = "is a secret: put it in a client.properties file, since this file is stored"
        check_properties("settings", self.settings, fix, _RESERVED)
        own = {self.ledger_table, self.rejects_table}
        decoders: dict[str, Decoder] = {}
        for i, stream in enumerate(self.streams):
            for table in stream.tables:
                where = f"streams.{i}.table"
                if table in own:
                    raise FieldError(where, table, "is reserved for the pipeline itself; rename it")
                if decoders.setdefault(table, stream.decoder) != stream.decoder:
                    raise FieldError(
                        where, table, "has two decoders, but a table has one set of columns"
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
