"""A lane's cycle: gather, decode, write, report. It does not use Spark and commits nothing.

This is S2's consumer up to the point where it can be repeated: the files of a lane become part of
the tables when its report is committed, or never.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pyarrow as pa

from penstock.domain.errors import PenstockError
from penstock.domain.lake.order import LaneTask
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import LandedRange, LaneReport
from penstock.lake.consumer import LaneConsumer
from penstock.lake.gathered import Gathered
from penstock.lake.routing import Routed, Router
from penstock.lake.row_output import RowOutput
from penstock.lake.tally import Tally, tally_lists, tally_rows

_NONE = Tally(count=0, offset_sum=0, first=0, last=0, size_bytes=0, is_rising=True)


def work(task: LaneTask, pipeline: Pipeline, consumer: LaneConsumer, router: Router) -> LaneReport:
    """One cycle."""
    started = time.monotonic()
    gathered = consumer.gather(
        task.ranges, pipeline.lane_bytes, until_s=started + pipeline.lane_seconds
    )
    gathered_at = time.monotonic()
    output = RowOutput(pipeline, f"part-{task.batch:08d}-{task.lane:04d}")
    if len(gathered.records):
        gathered.end_before(router.route_into(output.take, gathered.records))
    decode_s = time.monotonic() - gathered_at - output.write_s
    output.write()
    if pipeline.lane_limit_bytes_per_s is not None:
        due = started + gathered.size_bytes / pipeline.lane_limit_bytes_per_s
        time.sleep(max(0.0, due - time.monotonic()))
    write_s = time.monotonic() - gathered_at - decode_s
    oldest_ms, newest_ms = gathered.records.span_ms()
    return LaneReport(
        batch=task.batch,
        lane=task.lane,
        plan=task.plan,
        files=tuple(output.files),
        ranges=tuple(_ranges(task, gathered, output.written)),
        gather_s=gathered_at - started,
        decode_s=decode_s,
        write_s=write_s,
        kept_partitions=gathered.kept_partitions,
        worker=f"{socket.gethostname()}:{os.getpid()}",
        ended_ms=round(time.time() * 1000),
        oldest_ms=oldest_ms,
        newest_ms=newest_ms,
        troubles=tuple(gathered.troubles),
        rejects=dict(output.written.rejects),
    )


def _ranges(task: LaneTask, gathered: Gathered, done: Routed) -> Iterator[LandedRange]:
    """Where each partition's records went; raises unless each went to exactly one place."""
    records = gathered.records
    read = tally_lists(records.topics, records.partitions, records.offsets, records.sizes())
    landed = {table: tally_rows(pa.concat_tables(parts)) for table, parts in done.tables.items()}
    ignored = tally_rows(pa.concat_tables(done.ignored)) if done.ignored else {}
    if foreign := sorted(read.keys() - task.ranges.keys()):
        raise PenstockError(
            f"got records of {foreign[0]}, which is not a partition of this lane; internal error; "
            "please report it"
        )
    for partition, ordered in task.ranges.items():
        reached, tally = gathered.ends[partition], read.get(partition, _NONE)
        end = reached.offset
        went = {table: by[partition] for table, by in landed.items() if partition in by}
        left_out = ignored.get(partition, _NONE).count
        is_whole = sum(t.count for t in went.values()) + left_out == tally.count
        is_within = not tally.count or ordered.start <= tally.first <= tally.last < end
        if not (is_whole and is_within and tally.is_rising):
            raise PenstockError(
                f"{partition}: the records read from {ordered.start} to {end} differ from those "
                f"written ({tally}, {went}, {left_out} ignored)",
                "internal error; please report it; nothing of it was landed",
            )
        yield LandedRange(
            topic=partition.topic,
            partition=partition.number,
            start=ordered.start,
            end=end,
            known_end=ordered.end,
            rows={table: t.count for table, t in went.items()},
            offset_sums={table: str(t.offset_sum) for table, t in went.items()},
            ignored=left_out,
            gaps=end - ordered.start - tally.count,
            lost_from=ordered.lost_from,
            size_bytes=tally.size_bytes,
            leader_epoch=reached.leader_epoch,
            epoch_end=reached.epoch_end,
            truncated_from=ordered.truncated_from,
            diverged_at=gathered.diverged.get(partition),
        )
