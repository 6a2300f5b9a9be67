"""How the value of a record becomes columns: the words; the work is in `pipeline.lake.decoders`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from penstock.domain.lake.columns import parse_type
from penstock.domain.value import Doc, FieldError, Value

_TYPES = "column → type: long, double, string, array<long>, struct<a:long,b:string>, …"


@dataclass(frozen=True, kw_only=True)
class Decoder(Value):
    """One of several; `kind` says which."""


@dataclass(frozen=True, kw_only=True)
class RawDecoder(Decoder):
    """The value as it is, in a column of that name."""

    kind = "raw"


@dataclass(frozen=True, kw_only=True)
class JsonDecoder(Decoder):
    """One JSON object per record. What it says beyond the columns is left out."""

    kind = "json"
    columns: Annotated[Mapping[str, str], Doc(_TYPES)]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_columns(self.columns)


@dataclass(frozen=True, kw_only=True)
class AvroDecoder(Decoder):
    """One Avro record; with a registry, in Confluent's wire format (a schema id before it)."""

    kind = "avro"
    schema_file: Annotated[str | None, Doc("an .avsc; its fields become the columns")] = None
    schema: Annotated[str | None, Doc("the same as text; what `schema_file` becomes")] = None
    registry: Annotated[str | None, Doc("address of a schema registry")] = None
    subject: Annotated[str | None, Doc("whose latest schema gives the columns")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schema_file is None and self.schema is None and self.subject is None:
            raise FieldError("schema_file", None, "is missing; give it, or registry and subject")
        if self.subject is not None and self.registry is None:
            raise FieldError(
                "registry", None, "is missing; `subject` is the name of a schema there"
            )


@dataclass(frozen=True, kw_only=True)
class FunctionDecoder(Decoder):
    """A Python function of the user's: it takes the value and gives the columns as a dict."""

    kind = "function"
    function: Annotated[
        str, Doc("module:name; takes bytes, returns a dict, or None to leave it out")
    ]
    columns: Annotated[Mapping[str, str], Doc(_TYPES)] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        module, _, name = self.function.partition(":")
        self.require(
            bool(module and name), "function", "must be MODULE:NAME, such as shop.events:decode"
        )
        check_columns(self.columns)


def check_columns(columns: Mapping[str, str]) -> None:
    if not columns:
        raise FieldError("columns", {}, "must name at least one column")
    for name, text in columns.items():
        if name.startswith(KAFKA_PREFIX):
            fix = f"begins with {KAFKA_PREFIX}, as the record's own columns do; rename it"
            raise FieldError("columns", name, fix)
        try:
            parse_type(text)
        except ValueError as error:
            raise FieldError(f"columns.{name}", text, str(error)) from None


# Topic, partition, offset, timestamp, key and headers of a record are columns of these names, so
# that a field called `key` or `timestamp` can be one too.
KAFKA_PREFIX = "kafka_"
