"""Producer settings, by librdkafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

from penstock.domain.client import is_secret
from penstock.domain.value import Also, Bound, Doc, FieldError, Value

# Names that differ from librdkafka's by more than '.' for '_'.
_EXCEPTIONS = {"in_flight": "max.in.flight.requests.per.connection"}

# librdkafka's other names for the same properties (its CONFIGURATION.md, "Alias for").
_ALIASES = {
    "compression.codec": "compression.type",
    "delivery.timeout.ms": "message.timeout.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
}


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(Value):
    """Producer settings; other properties are passed to librdkafka.

    Omitted settings have librdkafka's defaults, so the file shows only what was decided.
    """

    rest = "other"

    acks: Annotated[
        Literal["0", "1", "all"] | None,
        Also(((0, "0"), (1, "1"), (-1, "all"), ("-1", "all"))),
        Doc("acks: replicas that must have a message before it is acknowledged"),
    ] = None
    batch_num_messages: Annotated[
        int | None, Bound(ge=1, le=1_000_000), Doc("batch.num.messages")
    ] = None
    batch_size: Annotated[int | None, Bound(ge=1), Doc("batch.size in bytes")] = None
    linger_ms: Annotated[float | None, Bound(ge=0, le=900_000), Doc("linger.ms")] = None
    message_timeout_ms: Annotated[
        int | None, Bound(ge=0), Doc("message.timeout.ms; 0: no limit")
    ] = None
    request_timeout_ms: Annotated[
        int | None, Bound(ge=1, le=900_000), Doc("request.timeout.ms")
    ] = None
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = None
    enable_idempotence: bool | None = None
    retries: Annotated[int | None, Bound(ge=0), Doc("retries")] = None
    in_flight: Annotated[
        int | None, Bound(ge=1, le=1_000_000), Doc("max.in.flight.requests.per.connection")
    ] = None
    other: Annotated[
        Mapping[str, str | int | float | bool], Doc("any other client property, by Kafka's name")
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.enable_idempotence:
            with_it = "with enable.idempotence"
            self.require(self.acks not in ("0", "1"), "acks", f"must be all {with_it}")
            self.require((self.in_flight or 0) <= 5, "in_flight", f"must be at most 5 {with_it}")
        for name in self.other:
            _check_other(name, self.other[name])

    @classmethod
    def file_name(cls, field: str) -> str:
        return kafka_name(field)

    @classmethod
    def from_file(cls, data: Mapping[str, object]) -> Mapping[str, object]:
        """linger.ms → linger_ms; what Penstock does not reason about goes to `other`."""
        named: dict[str, object] = {}
        other: dict[str, object] = {}
        for name, value in data.items():
            known = _FIELDS.get(_ALIASES.get(name, name))
            if known is None:
                other[name] = value
            elif known in named:
                raise FieldError(known, value, f"is given twice: {name} is another name for it")
            else:
                named[known] = value
        return {**named, cls.rest: other} if other else named

    def properties(self) -> dict[str, str | int | float | bool]:
        """The same as a configuration for confluent-kafka."""
        named = {
            kafka_name(f.name): getattr(self, f.name) for f in fields(self) if f.name != "other"
        }
        return {**{k: v for k, v in named.items() if v is not None}, **self.other}


def kafka_name(field_name: str) -> str:
    """linger_ms → linger.ms."""
    return _EXCEPTIONS.get(field_name, field_name.replace("_", "."))


_FIELDS = {kafka_name(f.name): f.name for f in fields(ProducerSettings) if f.name != "other"}


def _check_other(name: str, value: object) -> None:
    """Refuse a property that is misspelled or a secret."""
    dotted = name.replace("_", ".")
    meant = _ALIASES.get(dotted, dotted)
    if is_secret(name):
        fix = "is a secret: put it in a client.properties file, since settings are stored with runs"
        raise FieldError(f"other.{name}", "[hidden]", fix)
    if meant in _FIELDS:
        raise FieldError(f"other.{name}", value, f"belongs to '{meant}': use that name")
