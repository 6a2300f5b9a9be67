"""Decoder for Avro: with the schema in a file, or in Confluent's wire format with a registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from penstock.domain.lake.decoder import Decoder
from penstock.domain.value import Doc, FieldError
from penstock.lake.decoded import Decoded, RecordValue
from penstock.lake.decoders.avro_types import avro_columns
from penstock.lake.decoders.decoding import Decoding
from penstock.lake.decoders.registry import Registry, latest_schema
from penstock.lake.isolated.avro_rows import HEAD_BYTES
from penstock.lake.isolated.isolation import DecoderHost
from penstock.lake.isolated.process import Recipe

_ROWS = "penstock.lake.isolated.avro_rows:AvroRows"


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
            raise FieldError("schema_file", None, "is missing; set it, or registry and subject")
        if self.subject is not None and self.registry is None:
            raise FieldError(
                "registry", None, "is missing; `subject` is the name of a schema there"
            )
        if self.registry is not None:
            _check_registry(self.registry)

    def completed(self, read: Callable[[str], str]) -> AvroDecoder:
        if self.schema is not None:
            return self
        if self.schema_file is not None:
            return replace(self, schema=read(self.schema_file))
        assert self.registry is not None and self.subject is not None
        return replace(self, schema=latest_schema(self.registry, self.subject))

    def decoding(self, host: DecoderHost) -> Decoding:
        return AvroDecoding(self, host)


class AvroDecoding(Decoding):
    def __init__(self, decoder: AvroDecoder, host: DecoderHost) -> None:
        text = decoder.schema or ""
        self.schema = avro_columns(text)
        self._registry = Registry(decoder.registry) if decoder.registry else None
        arguments = {"reader": text, "has_head": self._registry is not None}
        self._isolated = host.add(Recipe(_ROWS, arguments, self.schema))

    def decode(self, values: Sequence[RecordValue]) -> Decoded:
        if self._registry is None:
            return self._isolated.decode(values)
        heads = {v[:HEAD_BYTES] for v in values if v is not None and v[:1] == b"\0"}
        numbers = {int.from_bytes(head[1:], "big") for head in heads if len(head) == HEAD_BYTES}
        return self._isolated.decode(values, self._registry.schemas(sorted(numbers)))


def _check_registry(address: str) -> None:
    # Checked first, wherever the @ is: other messages would repeat the password before it.
    if "@" in address:
        raise FieldError(
            "registry",
            f"…@{address.rpartition('@')[2]}",
            "has a user or password, which would be in checkpoints and messages; Penstock sends "
            "no credentials: use the address of a registry, or of a proxy, that needs none",
        )
    if not address.startswith(("http://", "https://")):
        raise FieldError("registry", address, "must begin with http:// or https://")
