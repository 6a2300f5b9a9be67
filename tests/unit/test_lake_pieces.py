"""A lane holds a bounded amount of decoded rows, however much a few bytes decode to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.domain.lake.decoder import Decoder
from penstock.domain.lake.order import LaneTask, Position, Range
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.lake.report import LaneReport
from penstock.lake import lane, routing, row_output
from penstock.lake.decoded import Limits, RecordValue
from penstock.lake.decoders import decoding_of
from penstock.lake.decoders.function import FunctionDecoder
from penstock.lake.decoders.json import JsonDecoder
from penstock.lake.files import write_rows
from penstock.lake.gathered import Gathered
from penstock.lake.isolated import isolation
from penstock.lake.isolated.isolation import DecoderHost
from penstock.lake.records import Records
from penstock.lake.routing import Routed, Router

GROW = FunctionDecoder(function="lake_functions:grow", columns={"grown": "binary"})
PARTITIONS = (Partition("t", 0), Partition("t", 1))
MB = 1_000_000


def records(values: list[RecordValue]) -> Records:
    """In two partitions, by turns."""
    n = len(values)
    return Records(
        topics=["t"] * n,
        partitions=[i % 2 for i in range(n)],
        offsets=[i // 2 for i in range(n)],
        times_ms=[None] * n,
        keys=[None] * n,
        headers=[None] * n,
        values=values,
    )


def pipeline(decoder: Decoder, lake: Path = Path("lake")) -> Pipeline:
    stream = Stream(topics=("t",), table="grown", decoder=decoder)
    return Pipeline(
        name="p", bootstrap_servers="x:1", streams=(stream,), lake=str(lake), lane_bytes=1000
    )


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder process is asked for one record at a time."""
    monkeypatch.setattr(isolation, "_MOST_RECORDS", 1)


@pytest.fixture
def hosts() -> Iterator[list[DecoderHost]]:
    started_hosts: list[DecoderHost] = []
    yield started_hosts
    for host in started_hosts:
        host.close()


def test_a_decoder_process_is_not_asked_for_more_than_may_wait(
    one_by_one: None, hosts: list[DecoderHost]
) -> None:
    hosts.append(DecoderHost(Limits(decoded_bytes=MB)))
    values = [
        b"600000",
        b"exit",
        b"600000",
        b"none",
        b"no number",
        b"600001",
        None,
        b"5",
        b"600002",
    ]
    decoded = decoding_of(GROW, hosts[0]).decode(values)
    pieces: list[Any] = []
    while True:
        cells = decoded.columns.column("grown").to_pylist()
        sizes = [cell and len(cell) for cell in cells]
        pieces.append((decoded.count, sizes, sorted(decoded.rejected), sorted(decoded.ignored)))
        if decoded.rest is None:
            break
        decoded = decoded.rest()
    assert pieces == [
        (3, [600_000, 600_000], [1], []),
        (6, [600_001, None, 5, 600_002], [1], [0]),
    ]


class Consumer:
    """Has gathered already."""

    def __init__(self, batch: Records) -> None:
        self._batch = batch

    def gather(self, ranges: Any, *_: Any, **__: Any) -> Gathered:
        return Gathered(records=self._batch, ends={p: Position(r.end) for p, r in ranges.items()})


def work(batch: Records, lake: Path) -> LaneReport:
    spec = pipeline(GROW, lake)
    for table in ("grown", "p_rejects"):
        (lake / table).mkdir(parents=True)
    router = Router(spec)
    task = LaneTask(0, 0, {p: Range(0, len(batch) // 2, 0) for p in PARTITIONS})
    try:
        return lane.work(task, spec, Consumer(batch), router)  # type: ignore[arg-type]
    finally:
        router.close()


def landed(report: LaneReport, lake: Path) -> dict[str, pa.Table]:
    return {
        table: pa.concat_tables(
            pq.read_table(lake / table / file.path) for file in report.files if file.table == table
        )
        for table in ("grown", "p_rejects")
    }


def test_a_lane_writes_what_waits_before_it_decodes_more(
    tmp_path: Path, one_by_one: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: list[RecordValue] = [b"600000", b"600001", b"no number", b"none", None, b"6"] * 4
    whole = work(records(values), tmp_path / "whole")
    assert [(file.table, file.rows) for file in whole.files] == [("p_rejects", 4), ("grown", 16)]

    monkeypatch.setattr(routing, "_LEAST_DECODED_BYTES", MB)
    written: list[int] = []

    def write(lake: Path, table: str, rows: pa.Table, *rest: Any) -> Any:
        written.append(rows.nbytes)
        return write_rows(lake, table, rows, *rest)

    monkeypatch.setattr(row_output, "write_rows", write)
    cut = work(records(values), tmp_path / "cut")
    # Up to what may wait, and one answer.
    assert len(written) >= 4 and max(written) < 2 * MB
    assert landed(cut, tmp_path / "cut") == landed(whole, tmp_path / "whole")
    assert (cut.ranges, cut.rejects) == (whole.ranges, whole.rejects)
    assert sum(file.rows for file in cut.files) == 20


WIDE = JsonDecoder(columns={f"c{i}": "long" for i in range(100)})
NESTED = JsonDecoder(
    columns={"l": f"array<struct<{','.join(f'c{i}:long' for i in range(20))}>>"},
)


@pytest.mark.parametrize(
    ("decoder", "value", "count"),
    [(WIDE, b"{}", 5000), (NESTED, b'{"l":[' + b"{}," * 99 + b"{}]}", 500)],
)
def test_json_of_a_few_bytes_is_decoded_in_pieces(
    monkeypatch: pytest.MonkeyPatch, decoder: Decoder, value: bytes, count: int
) -> None:
    monkeypatch.setattr(routing, "_LEAST_DECODED_BYTES", MB)
    monkeypatch.setattr(routing, "_PIECE_BYTES", 30_000)
    taken: list[Routed] = []
    batch = records([value] * count)
    Router(pipeline(decoder)).route_into(taken.append, batch)
    assert sum(part.size_bytes for part in taken) > 4 * MB
    assert max(part.size_bytes for part in taken) < 2 * MB
    rows = pa.concat_tables(rows for part in taken for rows in part.tables["grown"])
    assert rows.column("kafka_offset").to_pylist() == batch.offsets


def test_columns_without_arrays_are_usually_decoded_at_once() -> None:
    taken: list[Routed] = []
    decoder = replace(WIDE, columns={"id": "long", "name": "string"})
    Router(pipeline(decoder)).route_into(taken.append, records([b'{"id": 1}'] * 100_000))
    assert len(taken) == 1


WRITE = """
import sys
from pathlib import Path
import pyarrow as pa
from penstock.lake.files import write_rows
from penstock.lake.records import Records

columns = ["t"] * 40, [0] * 40, [*range(40)], [0] * 40, [None] * 40, [None] * 40
cells = pa.array([bytes(1_000_000)] * 40, pa.binary())
table = Records(*columns).kafka_columns().append_column("cell", cells)
before = pa.default_memory_pool().max_memory()
write_rows(Path(sys.argv[1]), "t", table, "part", "zstd")
print(pa.default_memory_pool().max_memory() - before)
"""


def test_large_cells_do_not_all_go_to_one_page(tmp_path: Path) -> None:
    """In a process of its own: Arrow tells the most that it ever held."""
    (tmp_path / "t").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 10 * MB
