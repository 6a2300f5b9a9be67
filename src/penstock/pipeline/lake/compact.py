"""Small files of a pipeline's tables joined to large ones, and what no version needs removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
    spark: SparkSession, pipeline: Pipeline, file_bytes: int, vacuum_hours: float | None
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
    # Delta refuses less than a week, for writers that take long; a lane takes minutes at most.
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    for name in (*pipeline.tables, pipeline.rejects_table, pipeline.ledger_table):
        table = DeltaTable.forPath(spark, landed_table(pipeline, name))
        before = table.detail().first()
        table.optimize().executeCompaction()
        if vacuum_hours is not None:
            table.vacuum(vacuum_hours)
        after = table.detail().first()
        assert before is not None and after is not None
        yield Compacted(name, before.numFiles, after.numFiles, after.sizeInBytes)
