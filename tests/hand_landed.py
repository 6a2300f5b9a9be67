"""Micro-batches landed by hand, for tests of landing, compaction and audit: no Kafka, real tables.

Two topics go to two tables, PER_BATCH records each per micro-batch; record `n` of a partition has
offset `n`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from deltalake import DeltaTable

from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.lake.report import LandedRange, LaneReport
from penstock.lake.checkpoint import CONSUMERS, Checkpoint, OrderlessCheckpoint
from penstock.lake.files import write_rows
from penstock.lake.landing import Landing
from penstock.lake.records import Records
from penstock.lake.routing import Router
from penstock.lake.tables import Tables

PER_BATCH = 3
TABLES = ("as", "bs")


def pipeline_into(lake: Path) -> Pipeline:
    streams = tuple(Stream(topics=(f"topic-{t}",), table=t) for t in TABLES)
    return Pipeline(name="p", bootstrap_servers="x:1", streams=streams, lake=str(lake))


def life(pipeline: Pipeline, checkpoint: Checkpoint | None = None) -> Landing:
    """A new process: all that it knows is on disk."""
    own = checkpoint or Checkpoint(Path(pipeline.checkpoint_path))
    identity = own.open(pipeline)
    tables = Tables(Path(pipeline.lake), identity.id)
    tables.prepare(pipeline, Router(pipeline).schemas())
    if checkpoint is None:
        tables.check_checkpoint(pipeline.ledger_table, own.newest_order)
    return Landing(Path(pipeline.lake), own, tables, pipeline.ledger_table)


def consumer(pipeline: Pipeline, number: int) -> Landing:
    """The same for a plain consumer, which first finishes what it had begun."""
    landing = life(
        pipeline, OrderlessCheckpoint(Path(pipeline.checkpoint_path) / CONSUMERS / str(number))
    )
    landing.finish_last()
    return landing


def lanes(
    pipeline: Pipeline, batch: int, *, start: int | None = None, partition: int = 0
) -> Sequence[LaneReport]:
    """What two lanes would have written of two topics: records from `start` on."""
    orders = Path(pipeline.checkpoint_path) / "spark/offsets"
    if not (Path(pipeline.checkpoint_path) / CONSUMERS).exists():
        orders.mkdir(parents=True, exist_ok=True)
        (orders / str(batch)).touch()
    first = batch * PER_BATCH if start is None else start
    return [
        _lane(pipeline, batch, lane, table, first, partition) for lane, table in enumerate(TABLES)
    ]


def _lane(
    pipeline: Pipeline, batch: int, lane: int, table: str, start: int, partition: int
) -> LaneReport:
    offsets = list(range(start, start + PER_BATCH))
    rows = Records(
        [f"topic-{table}"] * PER_BATCH,
        [partition] * PER_BATCH,
        offsets,
        [1000] * PER_BATCH,
        [None] * PER_BATCH,
        [None] * PER_BATCH,
        [b"x"] * PER_BATCH,
    )
    done = Router(pipeline).route(rows)
    files = tuple(
        write_rows(Path(pipeline.lake), name, parts[0], "part", "zstd")
        for name, parts in done.tables.items()
    )
    landed_range = LandedRange(
        topic=f"topic-{table}",
        partition=partition,
        start=start,
        end=start + PER_BATCH,
        known_end=start + PER_BATCH,
        lost_from=start,
        rows=dict.fromkeys(done.tables, PER_BATCH),
        offset_sums={name: str(sum(offsets)) for name in done.tables},
    )
    return LaneReport(batch=batch, lane=lane, files=files, ranges=(landed_range,))


def land(landing: Landing, pipeline: Pipeline, *batches: int, partition: int = 0) -> None:
    for batch in batches:
        landing.land(batch, _lanes_of(pipeline, batch, partition))


def _lanes_of(pipeline: Pipeline, batch: int, partition: int) -> Callable[[], Sequence[LaneReport]]:
    return lambda: lanes(pipeline, batch, partition=partition)


def held(pipeline: Pipeline, table: str, partition: int = 0) -> Counter[int]:
    """Offsets in a table, with how often."""
    rows = DeltaTable(f"{pipeline.lake}/{table}").to_pyarrow_table(
        columns=["kafka_partition", "kafka_offset"]
    )
    places = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return Counter(offset for number, offset in places if number == partition)


def ledger(pipeline: Pipeline, partition: int = 0) -> Counter[tuple[str, int]]:
    """Ranges in the ledger by topic and first offset, with how often."""
    rows = DeltaTable(f"{pipeline.lake}/{pipeline.ledger_table}").to_pyarrow_table().to_pylist()
    return Counter(
        (row["topic"], row["start_offset"]) for row in rows if row["partition"] == partition
    )


def assert_landed_once(pipeline: Pipeline, batches: int, partition: int = 0) -> None:
    """Every record of the first micro-batches is in its table, and in the ledger, once."""
    for table in TABLES:
        assert held(pipeline, table, partition) == Counter(range(batches * PER_BATCH))
    assert ledger(pipeline, partition) == Counter(
        (f"topic-{table}", batch * PER_BATCH) for table in TABLES for batch in range(batches)
    )
