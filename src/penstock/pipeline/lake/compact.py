"""Small files of a pipeline's tables joined to large ones, and what no version needs removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import deltalake
from pyspark.sql import SparkSession

from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline
from penstock.pipeline.lake.standing import Standing, standing
from penstock.pipeline.lake.tables import landed_table


@dataclass(frozen=True)
class Compacted:
    """One table, before and after."""

    table: str
    files_before: int
    files_after: int
    size_bytes: int


def compact(
    spark: SparkSession, pipeline: Pipeline, file_bytes: int, vacuum_hours: int | None
) -> Iterator[Compacted]:
    """Delta's OPTIMIZE: readers and the pipeline itself go on meanwhile; no row changes."""
    from delta.tables import DeltaTable  # the lake's extra of PySpark

    if vacuum_hours is not None and standing(pipeline) is Standing.HALF_LANDED:
        raise BadInput(
            f"{pipeline.name} was killed with a micro-batch half landed, whose files must not go",
            "let it end that first: penstock pipeline run FILE --once",
        )
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(file_bytes))
    spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(file_bytes // 2))
    for name in (*pipeline.tables, pipeline.rejects_table, pipeline.ledger_table):
        path = landed_table(pipeline, name)
        table = DeltaTable.forPath(spark, path)
        before = table.detail().first()
        table.optimize().executeCompaction()
        if vacuum_hours is not None:
            _vacuum(path, vacuum_hours)
        after = table.detail().first()
        assert before is not None and after is not None
        yield Compacted(name, before.numFiles, after.numFiles, after.sizeInBytes)


def _vacuum(path: str, hours: int) -> None:
    """Not Spark's, which takes a minute for what is a listing and some removals."""
    deltalake.DeltaTable(path).vacuum(
        hours,
        dry_run=False,
        # A week by default, for writers that take long; a lane takes minutes at most.
        enforce_retention_duration=False,
        # Also what was written and never committed, as by a worker that was killed.
        full=True,
    )
