"""A lane's cycle: gather, decode, write, report. Knows nothing of Spark and commits nothing.

S2's consumer, cut where it can be begun again: what a lane wrote becomes part of the tables when
its report is committed, or never.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from penstock.domain.errors import PenstockError
from penstock.domain.lake.order import LaneTask
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import LandedRange, LaneReport
from penstock.pipeline.lake.consumer import Gathered, LaneConsumer
from penstock.pipeline.lake.files import write_rows
from penstock.pipeline.lake.sorting import Sorted, Sorter
from penstock.pipeline.lake.tally import Tally, tally_lists, tally_rows

_NONE = Tally(count=0, offset_sum=0, first=0, last=0, size_bytes=0, is_rising=True)


def work(task: LaneTask, pipeline: Pipeline, consumer: LaneConsumer, sorter: Sorter) -> LaneReport:
    """One cycle."""
    started = time.monotonic()
    gathered = consumer.gather(
        task.ranges, pipeline.lane_bytes, until_s=started + pipeline.lane_seconds
    )
    gathered_at = time.monotonic()
    done = sorter.sort(gathered.records) if len(gathered.records) else Sorted()
    decoded_at = time.monotonic()
    name = f"part-{task.batch:08d}-{task.lane:04d}"
    files = tuple(
        write_rows(Path(pipeline.lake), table, pa.concat_tables(parts), name, pipeline.compression)
        for table, parts in done.tables.items()
    )
    if pipeline.lane_bytes_per_s is not None:
        due = started + gathered.size_bytes / pipeline.lane_bytes_per_s
        time.sleep(max(0.0, due - time.monotonic()))
    written_at = time.monotonic()
    oldest_ms, newest_ms = gathered.records.span_ms()
    return LaneReport(
        batch=task.batch,
        lane=task.lane,
        plan=task.plan,
        files=files,
        ranges=tuple(_ranges(task, gathered, done)),
        gather_s=gathered_at - started,
        decode_s=decoded_at - gathered_at,
        write_s=written_at - decoded_at,
        is_saturated=gathered.is_saturated,
        kept_partitions=gathered.kept_partitions,
        worker=f"{socket.gethostname()}:{os.getpid()}",
        ended_ms=round(time.time() * 1000),
        oldest_ms=oldest_ms,
        newest_ms=newest_ms,
        troubles=tuple(gathered.troubles),
    )


def _ranges(task: LaneTask, gathered: Gathered, done: Sorted) -> Iterator[LandedRange]:
    """Where each partition's records went; every record must have gone to one place."""
    records = gathered.records
    read = tally_lists(records.topics, records.partitions, records.offsets, records.sizes())
    landed = {table: tally_rows(pa.concat_tables(parts)) for table, parts in done.tables.items()}
    ignored = tally_rows(pa.concat_tables(done.ignored)) if done.ignored else {}
    if foreign := sorted(read.keys() - task.ranges.keys()):
        raise PenstockError(f"records of {foreign[0]} came, which is no partition of this lane")
    for partition, ordered in task.ranges.items():
        end, found = gathered.ends[partition], read.get(partition, _NONE)
        went = {table: by[partition] for table, by in landed.items() if partition in by}
        left_out = ignored.get(partition, _NONE).count
        is_whole = sum(tally.count for tally in went.values()) + left_out == found.count
        is_within = not found.count or ordered.start <= found.first <= found.last < end
        if not (is_whole and is_within and found.is_rising):
            raise PenstockError(
                f"{partition}: what was read from {ordered.start} to {end} is not what was "
                f"written ({found}, {went}, {left_out} ignored)",
                "nothing of it was landed; please report this",
            )
        yield LandedRange(
            topic=partition.topic,
            partition=partition.number,
            start=ordered.start,
            end=end,
            known_end=ordered.end,
            rows={table: tally.count for table, tally in went.items()},
            offset_sums={table: str(tally.offset_sum) for table, tally in went.items()},
            ignored=left_out,
            gaps=end - ordered.start - found.count,
            lost_from=ordered.lost_from,
            size_bytes=found.size_bytes,
        )
