"""The audit: a Spark job that proves from ledger and tables that every offset is there once.

The ledger says which ranges were read and how many records of each went where; the tables say
which records they hold. Neither is believed: ranges must follow on each other without gap or
overlap, and each table must hold, of each partition, as many records, all different, with the
same sum of offsets, as the ledger says, and none outside of it. Tables are read with Delta's own
reader for Spark, which is not what wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from penstock.domain.lake.pipeline import Pipeline
from penstock.pipeline.lake.standing import Standing, standing
from penstock.pipeline.lake.tables import landed_table

# Problems are shown up to here; the count is of all.
_SHOWN = 20
_PARTITION = ["topic", "partition"]


@dataclass(frozen=True)
class TopicAudit:
    """What the ledger says of one topic."""

    topic: str
    partitions: int
    records: int
    ignored: int
    gaps: int
    lost: int


@dataclass(frozen=True)
class Audit:
    """The verdict, and what it rests on."""

    pipeline: str
    # If it is not settled, tables are looked at as they were at the ledger's last micro-batch.
    standing: str
    problems: tuple[str, ...]
    problem_count: int
    topics: tuple[TopicAudit, ...]
    batches: int
    rows: dict[str, int] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        return self.problem_count == 0

    @property
    def lost(self) -> int:
        return sum(topic.lost for topic in self.topics)

    @property
    def sentence(self) -> str:
        records = sum(topic.records for topic in self.topics)
        if not self.is_clean:
            more = "" if self.problem_count == 1 else "s"
            return (
                f"NOT clean: {self.problem_count} problem{more} in the tables of {self.pipeline}."
            )
        text = (
            f"Clean: each of {records:,} records is in the tables of {self.pipeline} exactly once"
        )
        if self.lost:
            text += f"; {self.lost:,} were deleted from Kafka before they were read"
        if self.standing != Standing.SETTLED.value:
            text += f" (as of the ledger: the pipeline is {self.standing})"
        return f"{text}."


@dataclass(frozen=True)
class Read:
    """What the ledger says was read of one partition."""

    topic: str
    partition: int
    first: int
    end: int
    rows: int
    ignored: int
    gaps: int
    lost: int


@dataclass(frozen=True)
class Said:
    """What the ledger says one table got of one partition."""

    table: str
    topic: str
    partition: int
    rows: int
    offset_sum: Decimal
    # Of the table, with the last of them.
    version: int


@dataclass(frozen=True)
class Held:
    """What one table really holds of one partition."""

    table: str
    topic: str
    partition: int
    rows: int
    distinct_rows: int
    offset_sum: Decimal
    least: int
    most: int
    first_doubled: int | None


def audit(spark: SparkSession, pipeline: Pipeline) -> Audit:
    # Read once, small: Delta would deal it out over fifty tasks.
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")
    now = standing(pipeline)
    ledger = _table(spark, pipeline, pipeline.ledger_table).cache()
    try:
        ranges = range_problems(ledger)
        problems = [row.problem for row in ranges.orderBy("problem").limit(_SHOWN).collect()]
        # Only if there are more than are shown is it worth another look.
        count = len(problems) if len(problems) < _SHOWN else ranges.count()
        read = [Read(**row.asDict()) for row in _read(ledger).collect()]
        said = [Said(**row.asDict()) for row in _said(ledger).collect()]
        versions = None if now is Standing.SETTLED else _versions(pipeline, said)
        held = [Held(**row.asDict()) for row in _held(spark, pipeline, versions).collect()]
        rows = [*row_problems(read, said, held)]
        return Audit(
            pipeline=pipeline.name,
            standing=now.value,
            problems=(*problems, *rows)[:_SHOWN],
            problem_count=count + len(rows),
            topics=tuple(_topics(read)),
            batches=ledger.select("batch").distinct().count(),
            rows=dict(_rows(held)),
        )
    finally:
        ledger.unpersist()


def range_problems(ledger: DataFrame) -> DataFrame:
    """Ranges of a partition that do not follow on each other, or cannot be (problem: string)."""
    in_order = Window.partitionBy(*_PARTITION).orderBy("start_offset", "end_offset", "batch")
    previous = F.lag("end_offset").over(in_order)
    where = F.concat_ws("-", "topic", F.col("partition").cast("string"))
    ranges = ledger.withColumn("previous_end", previous).withColumn("where", where)
    counted = F.col("rows") + F.col("ignored") + F.col("gaps")
    problem = (
        F.when(
            F.col("lost_from") > F.col("previous_end"),
            F.format_string(
                "%s: offsets %d to %d are in no range of the ledger (before batch %d)",
                "where",
                "previous_end",
                F.col("lost_from") - 1,
                "batch",
            ),
        )
        .when(
            F.col("lost_from") < F.col("previous_end"),
            F.format_string(
                "%s: offsets from %d on are in two ranges of the ledger (batch %d)",
                "where",
                "lost_from",
                "batch",
            ),
        )
        .when(
            (F.col("end_offset") < F.col("start_offset"))
            | (F.col("lost_from") > F.col("start_offset"))
            | (counted != F.col("end_offset") - F.col("start_offset")),
            F.format_string(
                "%s: the ledger's row of batch %d contradicts itself", "where", "batch"
            ),
        )
    )
    return ranges.select(problem.alias("problem")).where("problem IS NOT NULL")


def row_problems(read: Sequence[Read], said: Sequence[Said], held: Sequence[Held]) -> Iterator[str]:
    """Where tables do not hold what the ledger says. Pure."""
    reads = {(r.topic, r.partition): r for r in read}
    saids = {(s.table, s.topic, s.partition): s for s in said}
    helds = {(h.table, h.topic, h.partition): h for h in held}
    for place in sorted({*saids, *helds}):
        table, topic, partition = place
        where = f"{topic}-{partition}"
        ours = saids.get(place) or Said(table, topic, partition, 0, Decimal(0), 0)
        found = helds.get(place) or Held(table, topic, partition, 0, 0, Decimal(0), 0, 0, None)
        missing = ours.rows - found.distinct_rows
        if found.rows > found.distinct_rows:
            yield (
                f"{table}: {found.rows - found.distinct_rows} rows of {where} are there more than "
                f"once (offsets from {found.first_doubled})"
            )
        if missing > 0:
            yield f"{table}: {missing} rows of {where} are missing of the {ours.rows} in the ledger"
        elif missing < 0:
            yield f"{table}: holds {-missing} rows of {where} that are not in the ledger"
        elif found.rows:
            span = reads[topic, partition]
            is_within = span.first <= found.least and found.most < span.end
            if found.offset_sum != ours.offset_sum or not is_within:
                yield f"{table}: rows of {where} are not those in the ledger"


def _read(ledger: DataFrame) -> DataFrame:
    """What the ledger says was read of each partition."""
    return ledger.groupBy(*_PARTITION).agg(
        F.min("start_offset").alias("first"),
        F.max("end_offset").alias("end"),
        F.sum("rows").alias("rows"),
        F.sum("ignored").alias("ignored"),
        F.sum("gaps").alias("gaps"),
        F.sum(F.col("start_offset") - F.col("lost_from")).alias("lost"),
    )


def _said(ledger: DataFrame) -> DataFrame:
    """What the ledger says each table got of each partition."""
    entry = F.explode("tables").alias("entry")
    return (
        ledger.select(*_PARTITION, entry)
        .select("entry.table", *_PARTITION, "entry.rows", "entry.offset_sum", "entry.version")
        .groupBy("table", *_PARTITION)
        .agg(
            F.sum("rows").alias("rows"),
            F.sum("offset_sum").alias("offset_sum"),
            F.max("version").alias("version"),
        )
    )


def _versions(pipeline: Pipeline, said: Sequence[Said]) -> dict[str, int]:
    """Of each table with the last micro-batch that the ledger has; 0 is empty."""
    names = (*pipeline.tables, pipeline.rejects_table)
    return {name: max((s.version for s in said if s.table == name), default=0) for name in names}


def _held(spark: SparkSession, pipeline: Pipeline, versions: Mapping[str, int] | None) -> DataFrame:
    """What the tables hold of each partition."""
    parts = [
        _table(spark, pipeline, name, versions[name] if versions else None).select(
            F.lit(name).alias("table"),
            F.col("kafka_topic").alias("topic"),
            F.col("kafka_partition").alias("partition"),
            F.col("kafka_offset").alias("offset"),
        )
        for name in (*pipeline.tables, pipeline.rejects_table)
    ]
    # A record may be in one table only, so offsets are counted over all of them.
    offsets = (
        reduce(DataFrame.unionByName, parts)
        .groupBy(*_PARTITION, "offset")
        .agg(F.count("*").alias("copies"), F.min("table").alias("table"))
    )
    return offsets.groupBy("table", *_PARTITION).agg(
        F.sum("copies").alias("rows"),
        F.count("*").alias("distinct_rows"),
        F.sum(F.col("offset").cast("decimal(38,0)")).alias("offset_sum"),
        F.min("offset").alias("least"),
        F.max("offset").alias("most"),
        F.min(F.when(F.col("copies") > 1, F.col("offset"))).alias("first_doubled"),
    )


def _topics(read: Sequence[Read]) -> Iterator[TopicAudit]:
    for topic in sorted({r.topic for r in read}):
        own = [r for r in read if r.topic == topic]
        yield TopicAudit(
            topic=topic,
            partitions=len(own),
            records=sum(r.rows for r in own),
            ignored=sum(r.ignored for r in own),
            gaps=sum(r.gaps for r in own),
            lost=sum(r.lost for r in own),
        )


def _rows(held: Sequence[Held]) -> Iterator[tuple[str, int]]:
    for table in sorted({h.table for h in held}):
        yield table, sum(h.rows for h in held if h.table == table)


def _table(
    spark: SparkSession, pipeline: Pipeline, name: str, version: int | None = None
) -> DataFrame:
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(landed_table(pipeline, name))
