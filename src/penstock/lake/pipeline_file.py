"""Completes a pipeline, from a file or a value: resolves its paths and reads the schemas that it names.

The result is complete, since lanes may run on machines that do not have the user's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock import specs
from penstock.domain.lake.pipeline import Pipeline
from penstock.kafka import client_properties
from penstock.lake.secrets import FileConfig
from penstock.specs.files import read_text


def load(path: Path) -> Pipeline:
    """Read the file; relative paths in it are relative to its directory."""
    return completed(specs.load(path, Pipeline), path.parent)


def completed(pipeline: Pipeline, base: Path = Path()) -> Pipeline:
    """The same with what it names; relative paths count from `base`, or the working directory.

    One that is complete is not changed.
    """
    lake = str((base / pipeline.lake).resolve())
    checkpoint = pipeline.checkpoint and str((base / pipeline.checkpoint).resolve())
    properties = pipeline.client_properties
    return replace(
        pipeline,
        lake=lake,
        checkpoint=checkpoint,
        client_properties=properties and str((base / properties).resolve()),
        streams=tuple(
            replace(stream, decoder=stream.decoder.completed(lambda name: read_text(base / name)))
            for stream in pipeline.streams
        ),
    )


def client_config(pipeline: Pipeline) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The configuration of Kafka's client, and warnings about properties that it cannot use."""
    own = {**pipeline.settings, "bootstrap.servers": pipeline.bootstrap_servers}
    path = pipeline.client_properties
    if path is None:
        return own, ()
    properties = client_properties.load(Path(path))
    if pipeline.lane_secrets == "from-file":
        return FileConfig(path, own), properties.warnings
    return {**properties.values, **own}, properties.warnings
