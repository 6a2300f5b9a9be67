"""What a lane reports of its partitions beside their records."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import lake_functions
import pytest

from penstock import specs
from penstock.domain.lake.order import LaneTask, Position, Range
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.lake.report import BatchReport, LaneReport
from penstock.lake import lane
from penstock.lake.consumer import LaneConsumer
from penstock.lake.decoders.function import FunctionDecoder
from penstock.lake.gathered import Gathered
from penstock.lake.routing import Router

A, B = Partition("t", 0), Partition("t", 1)


class Consumer:
    def __init__(self, reading: Gathered) -> None:
        self.reading = reading

    def gather(self, *_: Any, **__: Any) -> Gathered:
        return self.reading


def work(ranges: dict[Partition, Range], reading: Gathered) -> LaneReport:
    streams = (Stream(topics=("t",), table="t"),)
    pipeline = Pipeline(name="p", bootstrap_servers="x:1", streams=streams, lake="/lake")
    consumer = cast(LaneConsumer, Consumer(reading))
    report = lane.work(LaneTask(0, 3, ranges), pipeline, consumer, cast(Any, None))
    # As it comes to the driver.
    return specs.parse(specs.dump_json(report), LaneReport, "report.json")


def test_positions_keep_their_epoch_and_what_was_found_of_the_log() -> None:
    ranges = {A: Range(7, 20, 7, 1, 5), B: Range(9, 30, 9, truncated_from=4)}
    reading = Gathered(ends={A: Position(8, 1, 5), B: Position(9)}, diverged={B: 6})
    report = work(ranges, reading)
    batch = BatchReport(batch=3, lanes=(report,))
    assert batch.reached == {A: Position(8, 1, 5), B: Position(9)}
    first, second = report.ranges
    assert (first.truncated_from, first.diverged_at, first.gaps) == (None, None, 1)
    assert (second.truncated_from, second.diverged_at) == (4, 6)


def test_a_truncation_is_in_the_ledger_also_if_nothing_was_read() -> None:
    report = work({B: Range(9, 30, 9, truncated_from=4)}, Gathered(ends={B: Position(9)}))
    assert report.ranges[0].is_in_ledger
    idle = work({B: Range(9, 30, 9)}, Gathered(ends={B: Position(9)}))
    assert not idle.ranges[0].is_in_ledger


# --- records that the decoder hangs on -------------------------------------------------------------


def gathered(values: dict[Partition, list[bytes]]) -> Gathered:
    """Of two partitions in turn, as they come from brokers."""
    reading = Gathered(ends={p: Position(len(v), 1) for p, v in values.items()})
    for offset in range(max(map(len, values.values()))):
        for partition, those in values.items():
            if offset < len(those):
                reading.records.topics.append(partition.topic)
                reading.records.partitions.append(partition.number)
                reading.records.offsets.append(offset)
                reading.records.times_ms.append(1)
                reading.records.keys.append(None)
                reading.records.headers.append(None)
                reading.records.values.append(those[offset])
    return reading


def test_records_that_end_the_decoder_end_the_part_and_all_is_landed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = FunctionDecoder(function="lake_functions:act", columns=lake_functions.COLUMNS)
    pipeline = Pipeline(
        name="p",
        bootstrap_servers="x:1",
        streams=(Stream(topics=("t",), table="t", decoder=decoder),),
        lake=str(tmp_path),
        lane_seconds=0.1,  # less than the restart of a decoder process takes
    )
    for table in ("t", "p_rejects"):
        (tmp_path / table).mkdir()
    values = {A: [b"0", b"exit", b"2", b"exit", b"4"], B: [b"0", b"1", b"exit", b"3"]}
    monkeypatch.setattr("penstock.lake.isolated.isolation._MOST_RECORDS", 2)
    router = Router(pipeline)
    landed: dict[str, int] = {}
    kinds: Counter[str] = Counter()
    starts = dict.fromkeys(values, 0)
    parts = 0
    try:
        while any(starts[p] < len(v) for p, v in values.items()):
            parts += 1
            assert parts < 10
            left = {p: v[starts[p] :] for p, v in values.items() if starts[p] < len(v)}
            reading = gathered(left)
            reading.records.offsets = [
                offset + starts[Partition("t", number)]
                for offset, number in zip(
                    reading.records.offsets, reading.records.partitions, strict=True
                )
            ]
            reading.ends = {p: Position(len(values[p]), 1) for p in left}
            ranges = {p: Range(starts[p], len(values[p]), starts[p]) for p in left}
            report = lane.work(
                LaneTask(0, parts, ranges), pipeline, cast(LaneConsumer, Consumer(reading)), router
            )
            for r in report.ranges:
                assert r.end > starts[r.name] or len(report.ranges) > 1
                starts[r.name] = r.end
                for table, rows in r.rows.items():
                    landed[table] = landed.get(table, 0) + rows
            kinds += Counter(report.rejects)
            if any(starts[p] < len(v) for p, v in values.items()):
                assert "ended this part early" in report.troubles[0]
    finally:
        router.close()
    assert landed == {"t": 6, "p_rejects": 3}
    assert kinds == {"decoder-died": 3}
    assert parts > 1
