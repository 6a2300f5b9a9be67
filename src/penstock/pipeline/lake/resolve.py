"""A pipeline file → a pipeline that stands by itself: paths from where the file lies, schemas read.

What lanes need must travel to machines that do not have the user's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock import client_properties, specs
from penstock.domain.lake.decoder import AvroDecoder, Decoder
from penstock.domain.lake.pipeline import Pipeline
from penstock.pipeline.lake.decoders.avro import latest_schema
from penstock.spec_text import read_text


def load(path: Path) -> Pipeline:
    """Read the file; relative paths in it count from where it lies."""
    pipeline = specs.load(path, Pipeline)
    base = path.parent
    lake = str((base / pipeline.lake).resolve())
    checkpoint = pipeline.checkpoint and str((base / pipeline.checkpoint).resolve())
    properties = pipeline.client_properties
    return replace(
        pipeline,
        lake=lake,
        checkpoint=checkpoint,
        client_properties=properties and str((base / properties).resolve()),
        streams=tuple(
            replace(stream, decoder=_whole(stream.decoder, base)) for stream in pipeline.streams
        ),
    )


def client_config(pipeline: Pipeline) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """What Kafka's client is given, and what of the user's file it cannot use."""
    values: Mapping[str, Any] = {}
    warnings: tuple[str, ...] = ()
    if pipeline.client_properties is not None:
        found = client_properties.load(Path(pipeline.client_properties))
        values, warnings = found.values, found.warnings
    servers = {"bootstrap.servers": pipeline.bootstrap_servers}
    return {**values, **pipeline.settings, **servers}, warnings


def _whole(decoder: Decoder, base: Path) -> Decoder:
    if not isinstance(decoder, AvroDecoder) or decoder.schema is not None:
        return decoder
    if decoder.schema_file is not None:
        return replace(decoder, schema=read_text(base / decoder.schema_file))
    assert decoder.registry is not None and decoder.subject is not None
    return replace(decoder, schema=latest_schema(decoder.registry, decoder.subject))
