"""Writes decoded rows to files while they are decoded, so that few of them wait in memory."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa

from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import LandedFile
from penstock.lake.files import write_rows
from penstock.lake.routing import Routed, most_decoded_bytes

PLACE = ["kafka_topic", "kafka_partition", "kafka_offset"]


class RowOutput:
    """The files of one micro-batch and lane, and the rows that wait to be written.

    Rows of tables in `without` are counted and not written; with `is_dry`, none are.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        name: str,
        *,
        without: Collection[str] = (),
        is_dry: bool = False,
    ) -> None:
        self._pipeline, self._name = pipeline, name
        self._without, self._is_dry = without, is_dry
        self._most_bytes = most_decoded_bytes(pipeline)
        self._waiting, self._waiting_bytes = Routed(), 0
        self.files: list[LandedFile] = []
        # Of the written rows, only topic, partition and offset.
        self.written = Routed()
        self.write_s = 0.0

    def take(self, rows: Routed) -> None:
        for table in self._without:
            rows.tables.pop(table, None)
        self._waiting.merge(rows)
        self._waiting_bytes += rows.size_bytes
        if self._waiting_bytes > self._most_bytes:
            self.write()

    def write(self) -> None:
        """Write all waiting rows, in one file per table."""
        started = time.monotonic()
        waiting, self._waiting, self._waiting_bytes = self._waiting, Routed(), 0
        lake, compression = Path(self._pipeline.lake), self._pipeline.compression
        for table, parts in waiting.tables.items():
            rows = pa.concat_tables(parts)
            if not self._is_dry:
                self.files.append(write_rows(lake, table, rows, self._name, compression))
            waiting.tables[table] = [rows.select(PLACE)]
        self.written.merge(waiting)
        self.write_s += time.monotonic() - started
