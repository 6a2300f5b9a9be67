"""Lands rejected records again, exactly once, after the decoder or the schema was fixed.

The records are read from the table of rejects, not from Kafka, which may have deleted them. Each
goes through the same decoding and routing as a record that was just read. What decodes now is added
to its table and removed from the rejects; what does not stays where it is.

A reland is a micro-batch of its own writer: report, ledger, tables, as in `landing`, so it can be
killed at any moment, and the next one completes it. Its rows in the ledger are moves: they read no
offsets, and say by how much the rows of each table change. The ledger numbers the moves. A reland
is refused if another one has used its number since it read the rejects, however long it was paused.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from penstock.domain.errors import PenstockError
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import BatchReport, LandedRange, LaneReport, RemovedRows
from penstock.domain.progress import Progress, silent
from penstock.lake.checkpoint import reland_checkpoint
from penstock.lake.landing import resumed
from penstock.lake.records import Records
from penstock.lake.rejection import RejectKind
from penstock.lake.routing import Router
from penstock.lake.row_output import PLACE, RowOutput
from penstock.lake.tables import MOVES, Tables, check_columns, landed_table
from penstock.lake.tally import Tally, tally_rows

# Largest micro-batch: its offsets are written in its report.
_MOST_ROWS = 50_000


@dataclass(frozen=True)
class Relanded:
    """The result of a reland."""

    tried: int = 0
    landed: Mapping[str, int] = field(default_factory=dict)  # table → rows
    ignored: int = 0
    # Kind of reason → records that are still rejected, by their new reason.
    rejected: Mapping[str, int] = field(default_factory=dict)
    # Records of topics that no stream of the pipeline takes any more.
    without_stream: int = 0

    @property
    def moved(self) -> int:
        return sum(self.landed.values()) + self.ignored


def reland(
    pipeline: Pipeline,
    *,
    topics: Collection[str] = (),
    kinds: Collection[RejectKind] = (),
    is_dry: bool = False,
    on_progress: Progress = silent,
) -> Relanded:
    """Try the rejects of these topics and kinds (of all, if none is named).

    Call it as the pipeline's sole owner. `is_dry`: nothing is changed.
    """
    # Refuse a lake without landed tables before anything is created in it.
    landed_table(pipeline, pipeline.rejects_table)
    router = Router(pipeline, lost_s=math.inf)  # it ends when all were tried
    landing = None
    try:
        if is_dry:
            check_columns(Path(pipeline.lake), router.schemas())
        else:
            landing = resumed(pipeline, reland_checkpoint(pipeline), router.schemas())
        # Before the rejects are read: if another process moves some meanwhile, it uses the numbers.
        batch = landing.checkpoint.newest_report + 1 if landing else 0
        move = _last_move(pipeline, landing.tables) + 1 if landing else 0
        done = Relanded()
        # A snapshot: records that are rejected again are not tried twice.
        rejects = DeltaTable(landed_table(pipeline, pipeline.rejects_table)).to_pyarrow_dataset()
        for rows in _pieces(rejects.to_batches(filter=_chosen(topics, kinds)), pipeline.lane_bytes):
            topics_read = rows.column("kafka_topic").to_pylist()
            is_known = [pipeline.stream_of(topic) is not None for topic in topics_read]
            tried = rows.filter(pa.array(is_known, pa.bool_()))
            output = RowOutput(
                pipeline,
                f"reland-{batch:08d}",
                without=(pipeline.rejects_table,),
                is_dry=landing is None,
            )
            if len(tried):
                router.route_into(output.take, _records(tried))
            output.write()
            routed = output.written
            if landing is not None and (routed.tables or routed.ignored):
                landing.land_report(_report(pipeline, batch, move, output))
                batch, move = batch + 1, move + 1
            landed = Counter({t: sum(map(len, parts)) for t, parts in routed.tables.items()})
            done = Relanded(
                tried=done.tried + len(rows),
                landed=landed + Counter(done.landed),
                ignored=done.ignored + sum(map(len, routed.ignored)),
                rejected=Counter(done.rejected) + routed.rejects,
                without_stream=done.without_stream + len(rows) - len(tried),
            )
            on_progress(f"{done.tried:,} rejects tried, {done.moved:,} of them can be landed")
        return done
    finally:
        router.close()


def _last_move(pipeline: Pipeline, tables: Tables) -> int:
    """The number of the last move. The rejects must have it too, or they still hold moved rows."""
    ledger, rejects = tables[pipeline.ledger_table], tables[pipeline.rejects_table]
    for table in (ledger, rejects):
        table.refresh()
    last, done = ledger.transaction(MOVES) or 0, rejects.transaction(MOVES) or 0
    if last != done:
        raise PenstockError(
            f"{rejects.path}: has move {done} of rejects, but the ledger has {last}: another reland "
            "with another checkpoint runs or was killed",
            "wait until it ends, or complete it: run penstock pipeline reland with that "
            "`checkpoint`",
        )
    return last


def _chosen(topics: Collection[str], kinds: Collection[RejectKind]) -> pc.Expression:
    kind = pc.list_element(pc.split_pattern(pc.field("reason"), ": ", max_splits=1), 0)
    # Of an unreadable record only the place is known.
    chosen = kind != str(RejectKind.UNREADABLE)
    if kinds:
        chosen &= kind.isin([str(kind) for kind in kinds])
    if topics:
        chosen &= pc.field("kafka_topic").isin(list(topics))
    return chosen


def _pieces(batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """Tables that are small enough to be decoded at once."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        fitting = len(batch) * most_bytes // max(1, batch.nbytes)
        step = max(1, min(_MOST_ROWS, fitting))
        for start in range(0, len(batch), step):
            part = batch.slice(start, step)
            rows = sum(map(len, gathered)) + len(part)
            size_bytes = sum(piece.nbytes for piece in gathered) + part.nbytes
            if gathered and (rows > _MOST_ROWS or size_bytes > most_bytes):
                yield pa.Table.from_batches(gathered)
                gathered = []
            gathered.append(part)
    if gathered:
        yield pa.Table.from_batches(gathered)


def _records(rows: pa.Table) -> Records:
    times_ms = rows.column("kafka_timestamp").cast(pa.timestamp("ms", tz="UTC"), safe=False)
    return Records(
        topics=rows.column("kafka_topic").to_pylist(),
        partitions=rows.column("kafka_partition").to_pylist(),
        offsets=rows.column("kafka_offset").to_pylist(),
        times_ms=times_ms.cast(pa.int64()).to_pylist(),
        keys=rows.column("kafka_key").to_pylist(),
        headers=[
            None if headers is None else [(header["key"], header["value"]) for header in headers]
            for headers in rows.column("kafka_headers").to_pylist()
        ],
        values=rows.column("value").to_pylist(),
    )


def _report(pipeline: Pipeline, batch: int, move: int, output: RowOutput) -> BatchReport:
    """Report which rows move from the rejects to which table."""
    routed = output.written
    tables = {table: pa.concat_tables(parts) for table, parts in routed.tables.items()}
    moved = {table: tally_rows(rows) for table, rows in tables.items()}
    ignored = tally_rows(pa.concat_tables(routed.ignored)) if routed.ignored else {}
    places = sorted({p for by in (*moved.values(), ignored) for p in by})
    gone = pa.concat_tables(part.select(PLACE) for part in (*tables.values(), *routed.ignored))
    ranges = tuple(_move(pipeline, place, moved, ignored) for place in places)
    lane = LaneReport(batch=batch, lane=0, files=tuple(output.files), ranges=ranges)
    removed = tuple(_removed(pipeline.rejects_table, gone))
    return BatchReport(batch=batch, move=move, lanes=(lane,), removed=removed)


def _move(
    pipeline: Pipeline,
    place: Partition,
    moved: Mapping[str, Mapping[Partition, Tally]],
    ignored: Mapping[Partition, Tally],
) -> LandedRange:
    went = {table: by[place] for table, by in moved.items() if place in by}
    left_out = [ignored[place]] if place in ignored else []
    every = [*went.values(), *left_out]
    first = min(tally.first for tally in every)
    rows = {table: tally.count for table, tally in went.items()}
    sums = {table: str(tally.offset_sum) for table, tally in went.items()}
    rejects = pipeline.rejects_table
    return LandedRange(
        topic=place.topic,
        partition=place.number,
        start=first,
        end=first,
        known_end=first,
        lost_from=first,
        rows={**rows, rejects: -sum(tally.count for tally in every)},
        offset_sums={**sums, rejects: str(-sum(tally.offset_sum for tally in every))},
        ignored=sum(tally.count for tally in left_out),
        is_move=True,
    )


def _removed(table: str, gone: pa.Table) -> Iterator[RemovedRows]:
    grouped = gone.group_by(["kafka_topic", "kafka_partition"]).aggregate(
        [("kafka_offset", "list")]
    )
    for row in grouped.to_pylist():
        yield RemovedRows(
            table=table,
            topic=row["kafka_topic"],
            partition=row["kafka_partition"],
            offsets=tuple(sorted(row["kafka_offset_list"])),
        )
