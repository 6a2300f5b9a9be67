"""Warms Spark up with a streaming query on a source like ours that reads and lands nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.lake.source import SCHEMA

_BATCHES, _LANES = 3, 2


class PracticeSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock-practice"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _PracticeReader()


class _PracticeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def initialOffset(self) -> dict[str, Any]:
        return {"order": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"order": min(_BATCHES, start["order"] + 1)}

    def prepareForTriggerAvailableNow(self) -> None: ...

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(lane) for lane in range(_LANES)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        yield partition.value, "{}"


def practise(spark: SparkSession) -> None:
    def land(lanes: DataFrame, _batch: int) -> None:
        lanes.collect()

    spark.dataSource.register(PracticeSource)
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format(PracticeSource.name())
            .load()
            .writeStream.foreachBatch(land)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
