"""The audit: a Spark job that proves from ledger and tables that every offset is landed once.

The ledger says which ranges were read and how many records of each went to which table; the tables
say which records they hold. Neither is trusted alone. Ranges must follow each other without gap or
overlap up to the partition's position. Of each partition, each table must hold the number of
records that the ledger says, all different, with the same sum of offsets, and none outside.
A table's own transactions decide which micro-batches it must have (see `snapshot`), so a pipeline
may be running, or may have been killed in the middle of a micro-batch. Tables are read with Delta's
own reader for Spark, which is not what wrote them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial, reduce

from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline
from penstock.lake import audit_rules as rules
from penstock.lake.snapshot import Snapshot, TableSnapshot, take, unreadable
from penstock.lake.tables import position_of

# Number of problems that are listed; the count includes all.
_SHOWN = 20
_PARTITION = ["topic", "partition"]
# Columns that every row of the ledger has.
_REQUIRED = [
    *("writer", "batch", "is_move", *_PARTITION, "start_offset", "end_offset", "lost_from"),
    *("rows", "ignored", "gaps", "tables"),
]
_OFFSETS = "table string, topic string, partition int, offset long"
_SETTINGS = {
    # The snapshot is small and read once: Delta would spread it over fifty tasks.
    "spark.databricks.delta.snapshotPartitions": "2",
    # A file that cannot be read must not end the audit, which reports its rows as missing.
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
}


@dataclass(frozen=True)
class TopicAudit:
    """Counts of one topic, by the ledger."""

    topic: str
    partitions: int
    records: int
    ignored: int
    gaps: int
    lost: int
    # Landed offsets that the topic no longer has, or has for other records.
    truncated: int


@dataclass(frozen=True)
class Audit:
    """The verdict, with the problems and counts behind it."""

    pipeline: str
    problems: tuple[str, ...]
    problem_count: int
    # Micro-batches that are in the ledger but not yet in all tables; this is not a problem.
    half_landed: tuple[str, ...]
    topics: tuple[TopicAudit, ...]
    batches: int
    # Records that the tables must have.
    records: int
    rows: dict[str, int] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        return self.problem_count == 0

    @property
    def lost(self) -> int:
        return sum(topic.lost for topic in self.topics)

    @property
    def truncated(self) -> int:
        return sum(topic.truncated for topic in self.topics)

    @property
    def sentence(self) -> str:
        tables = f"in the tables of {self.pipeline}"
        if not self.is_clean:
            more = "" if self.problem_count == 1 else "s"
            return f"NOT clean: {self.problem_count} problem{more} {tables}."
        text = f"Clean: each of {self.records:,} records is {tables} exactly once"
        if self.lost:
            text += f"; {self.lost:,} were deleted from Kafka before they were read"
        if self.truncated:
            text += f"; {self.truncated:,} landed offsets are no longer in the topic"
        if self.half_landed:
            text += "; a micro-batch is half landed and was not checked"
        return f"{text}."


def audit(spark: SparkSession, pipeline: Pipeline) -> Audit:
    """Audit a pipeline. Takes no lock: the pipeline may run, start or stop meanwhile."""
    with _set(spark, _SETTINGS):
        try:
            snapshot = take(pipeline, partial(_tables_named, spark))
        except DeltaError as error:  # from the ledger: without it nothing can be checked
            problem = unreadable(pipeline.ledger_table, error)
            return Audit(pipeline.name, (problem,), 1, (), (), 0, 0)
        ledger = _table(spark, snapshot.ledger).cache()
        with _then(ledger.unpersist):
            return _judge(spark, snapshot, ledger)


def _judge(spark: SparkSession, snapshot: Snapshot, ledger: DataFrame) -> Audit:
    ranges = range_problems(ledger.where("is_move IS NULL OR NOT is_move"))
    problems = [row.problem for row in ranges.orderBy("problem").limit(_SHOWN).collect()]
    # Counting takes another job, which is needed only if not all are listed.
    range_count = len(problems) if len(problems) < _SHOWN else ranges.count()
    ledger = ledger.na.drop(subset=_REQUIRED)  # `range_problems` has reported them
    reads = [rules.PartitionRead(**row.asDict()) for row in _partition_reads(ledger).collect()]
    entries = _entries(spark, snapshot, ledger).cache()
    with _then(entries.unpersist):
        ledger_rows = [rules.LedgerRows(**row.asDict()) for row in _ledger_rows(entries).collect()]
        unlanded = [rules.Unlanded(**row.asDict()) for row in _unlanded(entries).collect()]
        moving = [rules.Moving(**row.asDict()) for row in _moving(entries).collect()]
    table_rows = [rules.TableRows(**row.asDict()) for row in _table_rows(spark, snapshot).collect()]
    others = [
        *snapshot.problems,
        *rules.position_problems(reads, _positions(spark, snapshot.ledger)),
        *rules.late_problems(unlanded, snapshot.can_complete),
        *rules.row_problems(reads, ledger_rows, table_rows, moving),
    ]
    return Audit(
        pipeline=snapshot.pipeline.name,
        problems=(*problems, *others)[:_SHOWN],
        problem_count=range_count + len(others),
        half_landed=tuple(rules.half_landed(unlanded, snapshot.can_complete)),
        topics=tuple(_topics(reads, _truncated(ledger))),
        batches=ledger.select("writer", "batch").distinct().count(),
        records=sum(s.rows for s in ledger_rows) - sum(m.rows for m in moving),
        rows=_rows(table_rows),
    )


def range_problems(ledger: DataFrame) -> DataFrame:
    """Ranges of a partition that do not follow each other, or are impossible (problem: string)."""
    in_order = Window.partitionBy(*_PARTITION).orderBy("start_offset", "end_offset", "batch")
    previous = F.lag("end_offset").over(in_order)
    where = F.concat_ws("-", "topic", F.col("partition").cast("string"))
    ranges = ledger.withColumn("previous_end", previous).withColumn("where", where)
    counted = F.col("rows") + F.col("ignored") + F.col("gaps")
    zero = F.lit(0).cast("long")
    in_tables = F.aggregate("tables", zero, lambda total, entry: total + entry["rows"])
    is_whole = reduce(lambda a, b: a & b, (F.col(name).isNotNull() for name in _REQUIRED))
    start, end, lost_from = F.col("start_offset"), F.col("end_offset"), F.col("lost_from")
    is_ordered = is_whole & (end >= start) & (lost_from <= start)
    is_consistent = is_ordered & (counted == end - start) & (in_tables == F.col("rows"))
    text = "%s: offsets %d to %d are missing from the ledger (before batch %d)"
    missing = F.format_string(text, "where", "previous_end", lost_from - 1, "batch")
    text = "%s: offsets from %d on are in two ranges of the ledger (batch %d)"
    doubled = F.format_string(text, "where", "lost_from", "batch")
    text = "%s: the ledger's row of batch %d contradicts itself"
    odd = F.format_string(text, "where", "batch")
    problem = (
        F.when(lost_from > F.col("previous_end"), missing)
        .when(lost_from < F.col("previous_end"), doubled)
        .when(~F.coalesce(is_consistent, F.lit(False)), odd)
    )
    return ranges.select(problem.alias("problem")).where("problem IS NOT NULL")


def _tables_named(spark: SparkSession, ledger: TableSnapshot) -> Collection[str]:
    """The tables that the ledger names."""
    names = _table(spark, ledger).select(F.explode("tables.table").alias("name")).distinct()
    return [row.name for row in names.collect() if row.name is not None]


def _positions(spark: SparkSession, ledger: TableSnapshot) -> dict[Partition, int]:
    """The position of each partition, by the ledger's transactions."""
    # Only Delta's own state lists all of them, also for partitions without rows.
    jvm = spark._jvm
    assert jvm is not None
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(ledger.path))
    defaults = (getattr(log, f"getSnapshotAt$default${place}")() for place in (2, 3, 4))
    state = DataFrame(log.getSnapshotAt(ledger.version, *defaults).stateDF(), spark)
    prefix = position_of(Partition("", 0)).removesuffix("-0")
    rows = state.where(F.col("txn.appId").startswith(prefix)).select("txn.appId", "txn.version")
    return {Partition.parse(app.removeprefix(prefix)): at for app, at in rows.collect()}


def _partition_reads(ledger: DataFrame) -> DataFrame:
    """What was read of each partition, by the ledger."""
    return ledger.groupBy(*_PARTITION).agg(
        # Moves of rejected records read nothing; their offsets are within what was read.
        F.min("start_offset").alias("first"),
        F.max("end_offset").alias("end"),
        *(F.sum(name).alias(name) for name in ("rows", "ignored", "gaps")),
        F.sum(F.col("start_offset") - F.col("lost_from")).alias("lost"),
    )


def _truncated(ledger: DataFrame) -> dict[Partition, int]:
    """Number of landed offsets that the topic lost, per partition."""
    rows = ledger.where("truncated_from IS NOT NULL").select(
        *_PARTITION, "truncated_from", "lost_from"
    )
    spans: dict[Partition, list[tuple[int, int]]] = {}
    for topic, number, *span in rows.collect():
        spans.setdefault(Partition(topic, number), []).append((span[0], span[1]))
    return {name: rules.covered(lost_spans) for name, lost_spans in spans.items()}


def _entries(spark: SparkSession, snapshot: Snapshot, ledger: DataFrame) -> DataFrame:
    """Rows that each table got by the ledger, with the last batch of the writer in the table."""
    writers = [row.writer for row in ledger.select("writer").distinct().collect()]
    states = [
        (name, writer, table.last_batch(writer), snapshot.due(writer), snapshot.begun(writer))
        for name, table in snapshot.tables.items()
        for writer in writers
    ]
    columns = "table string, writer string, last_batch long, due long, begun long"
    progress = F.broadcast(spark.createDataFrame(states, columns))
    whose = ["writer", "batch", *_PARTITION]
    entries = ledger.select(*whose, F.explode("tables").alias("entry"))
    entries = entries.select(*whose, "entry.table", "entry.rows", "entry.offset_sum")
    return entries.join(progress, ["table", "writer"])


def _ledger_rows(entries: DataFrame) -> DataFrame:
    """Rows of each partition that each table got, by the ledger."""
    sums = (F.sum(name).alias(name) for name in ("rows", "offset_sum"))
    return entries.where("batch <= last_batch").groupBy("table", *_PARTITION).agg(*sums)


def _unlanded(entries: DataFrame) -> DataFrame:
    """Rows that tables lack, except those added to the ledger after the tables were read."""
    batch, rows, none = F.col("batch"), F.col("rows"), F.lit(0).cast("long")
    is_late = batch < F.col("due")
    late_batch, late_rows = F.when(is_late, batch), F.when(is_late, rows)
    return (
        entries.where("batch > last_batch AND batch <= greatest(begun, due - 1)")
        .groupBy("table", "writer")
        .agg(
            F.count_distinct(late_batch).alias("late_batches"),
            F.min(late_batch).alias("first_late"),
            F.coalesce(F.sum(late_rows), none).alias("late_rows"),
            # Those that are under way.
            F.max(F.when(~is_late, batch)).alias("batch"),
            F.coalesce(F.sum(F.when(~is_late, rows)), none).alias("rows"),
        )
    )


def _moving(entries: DataFrame) -> DataFrame:
    """Rows that relands have added to one table and not yet removed from the other."""
    move = ["writer", "batch", *_PARTITION]
    leaving = entries.where("rows < 0 AND batch > last_batch")
    brought = entries.where("rows > 0 AND batch <= last_batch")
    sources = F.broadcast(leaving.select(*move, F.col("table").alias("source")))
    moved = brought.join(sources, move).groupBy("source", "table", *_PARTITION)
    return moved.agg(F.sum("rows").alias("rows"))


def _table_rows(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    """Rows of each partition that the tables hold."""
    parts = [
        _table(spark, table).select(
            F.lit(name).alias("table"),
            # Rows without topic, partition or offset come from another writer and must be reported.
            F.coalesce("kafka_topic", F.lit("(no topic)")).alias("topic"),
            F.coalesce("kafka_partition", F.lit(-1)).alias("partition"),
            F.coalesce("kafka_offset", F.lit(-1).cast("long")).alias("offset"),
        )
        for name, table in snapshot.tables.items()
    ]
    if not parts:
        parts = [spark.createDataFrame([], _OFFSETS)]
    # A record may be in one table only, so offsets are counted over all tables.
    every = reduce(DataFrame.unionByName, parts).groupBy(*_PARTITION, "offset")
    tables = F.min("table").alias("table"), F.max("table").alias("other")
    offsets = every.agg(F.count("*").alias("copies"), *tables)
    return offsets.groupBy("table", "other", *_PARTITION).agg(
        F.sum("copies").alias("rows"),
        F.count("*").alias("distinct_rows"),
        F.sum(F.col("offset").cast("decimal(38,0)")).alias("offset_sum"),
        F.min("offset").alias("least"),
        F.max("offset").alias("most"),
        F.min(F.when(F.col("copies") > 1, F.col("offset"))).alias("first_doubled"),
    )


def _topics(
    reads: Sequence[rules.PartitionRead], truncated: Mapping[Partition, int]
) -> Iterator[TopicAudit]:
    for topic in sorted({r.topic for r in reads}):
        own = [r for r in reads if r.topic == topic]
        yield TopicAudit(
            topic=topic,
            partitions=len(own),
            records=sum(r.rows for r in own),
            ignored=sum(r.ignored for r in own),
            gaps=sum(r.gaps for r in own),
            lost=sum(r.lost for r in own),
            truncated=sum(truncated.get(Partition(topic, r.partition), 0) for r in own),
        )


def _rows(table_rows: Sequence[rules.TableRows]) -> dict[str, int]:
    """Table → rows."""
    rows: Counter[str] = Counter()
    for part in sorted(table_rows, key=lambda part: part.table):
        rows[part.table] += part.rows
    return dict(rows)


def _table(spark: SparkSession, table: TableSnapshot) -> DataFrame:
    reader = spark.read.format("delta").option("versionAsOf", table.version)
    return reader.load(str(table.path))


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set these settings of the session, and restore them afterwards."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)

    def restore() -> None:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)

    with _then(restore):
        yield


@contextmanager
def _then(tidy_up: Callable[[], object]) -> Iterator[None]:
    """Tidy up afterwards; after an error as far as it can be done. A signal ends Java, too, and what
    Java then fails to do would hide why the audit ended."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            tidy_up()
        raise
    tidy_up()
