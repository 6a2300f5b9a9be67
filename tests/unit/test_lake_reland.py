"""Rejected records landed again: each once, whenever the process is killed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import dataset

from hand_landed import life
from penstock.domain.errors import BadInput, PenstockError
from penstock.domain.lake.pipeline import Pipeline, Stream, TableBy
from penstock.domain.lake.report import LandedRange, LaneReport
from penstock.lake import reland as reland_module
from penstock.lake.checkpoint import Checkpoint, reland_checkpoint
from penstock.lake.decoders.json import JsonDecoder
from penstock.lake.files import write_rows
from penstock.lake.landing import Landing
from penstock.lake.records import Records
from penstock.lake.rejection import RejectKind
from penstock.lake.reland import Relanded, reland
from penstock.lake.routing import Routed, Router
from penstock.lake.row_output import RowOutput
from penstock.lake.tables import OpenTable

TOPIC = "shop"
VALUES = [
    b'{"type": "order", "n": 0}',
    b'{"type": "refund", "n": 1}',
    b'{"type": "heartbeat", "n": 2}',
    b"not JSON",
    b'{"type": "refund", "n": 4}',
    b'{"type": "order", "n": 5}',
]
ORDERS, REFUNDS, HEARTBEATS, BROKEN = [0, 5], [1, 4], [2], [3]


def pipeline_into(lake: Path, **stream: Any) -> Pipeline:
    """Knows no table for what is not an order, unless it is told one."""
    own = {
        "topics": (TOPIC,),
        "decoder": JsonDecoder(columns={"type": "string", "n": "long"}),
        "table_by": TableBy(column="type", tables={"order": "orders"}),
    }
    return Pipeline(
        name="p",
        bootstrap_servers="x:1",
        streams=(Stream(**{**own, **stream}),),
        lake=str(lake),
    )


@pytest.fixture
def before(tmp_path: Path) -> Pipeline:
    """A pipeline that has landed the values, and rejected what it has no table for."""
    pipeline = pipeline_into(tmp_path)
    life(pipeline).land(0, lambda: [_lane(pipeline)])
    assert held(pipeline, "orders") == ORDERS
    assert held(pipeline, "p_rejects") == sorted([*REFUNDS, *HEARTBEATS, *BROKEN])
    return pipeline


@pytest.fixture
def fixed(before: Pipeline) -> Pipeline:
    """The same after its owner wrote down where refunds go, and that heartbeats are ignored."""
    tables = TableBy(column="type", tables={"order": "orders", "refund": "refunds"})
    return pipeline_into(Path(before.lake), table_by=tables, ignore={"type": ("heartbeat",)})


def _lane(pipeline: Pipeline) -> LaneReport:
    count = len(VALUES)
    headers = [[("trace", b"1")], *[None] * (count - 1)]
    records = Records(
        [TOPIC] * count, [0] * count, list(range(count)), [1000] * count, [b"k"] * count,
        headers, list(VALUES),
    )  # fmt: skip
    done = Router(pipeline).route(records)
    orders = Path(pipeline.checkpoint_path) / "spark/offsets"
    orders.mkdir(parents=True)
    (orders / "0").touch()
    files, rows, sums = [], Counter[str](), Counter[str]()
    for table, parts in done.tables.items():
        for part in parts:
            files.append(write_rows(Path(pipeline.lake), table, part, "part", "zstd"))
            offsets = part.column("kafka_offset").to_pylist()
            rows[table] += len(offsets)
            sums[table] += sum(offsets)
    landed_range = LandedRange(
        topic=TOPIC, partition=0, start=0, end=count, known_end=count, lost_from=0, rows=rows,
        offset_sums={table: str(total) for table, total in sums.items()},
    )  # fmt: skip
    return LaneReport(batch=0, lane=0, files=tuple(files), ranges=(landed_range,))


def held(pipeline: Pipeline, table: str) -> list[int]:
    rows = DeltaTable(f"{pipeline.lake}/{table}").to_pyarrow_table(columns=["kafka_offset"])
    return sorted(rows.column(0).to_pylist())


def in_ledger(pipeline: Pipeline) -> Counter[str]:
    """Rows that each table has by the ledger, and `ignored`."""
    row_counts: Counter[str] = Counter()
    ledger = DeltaTable(f"{pipeline.lake}/{pipeline.ledger_table}").to_pyarrow_table()
    for row in ledger.to_pylist():
        row_counts.update({entry["table"]: entry["rows"] for entry in row["tables"]})
        row_counts["ignored"] += row["ignored"]
        counted = row["rows"] + row["ignored"] + row["gaps"]
        assert counted == row["end_offset"] - row["start_offset"]
        assert row["rows"] == sum(entry["rows"] for entry in row["tables"])
    return row_counts


def assert_relanded_once(pipeline: Pipeline) -> None:
    assert held(pipeline, "orders") == ORDERS
    assert held(pipeline, "refunds") == REFUNDS
    assert held(pipeline, "p_rejects") == BROKEN
    assert in_ledger(pipeline) == {"orders": 2, "refunds": 2, "p_rejects": 1, "ignored": 1}


def test_what_decodes_now_moves_to_its_table_and_the_rest_stays(fixed: Pipeline) -> None:
    done = reland(fixed)
    assert done == Relanded(
        tried=4, landed={"refunds": 2}, ignored=1, rejected={"not-json": 1}, without_stream=0
    )
    assert_relanded_once(fixed)
    row = DeltaTable(f"{fixed.lake}/refunds").to_pyarrow_table().to_pylist()[0]
    assert (row["kafka_topic"], row["kafka_key"], row["type"]) == (TOPIC, b"k", "refund")


def test_another_one_changes_nothing_more(fixed: Pipeline) -> None:
    reland(fixed)
    assert reland(fixed).moved == 0
    assert_relanded_once(fixed)


def test_a_dry_run_changes_nothing(fixed: Pipeline) -> None:
    assert reland(fixed, is_dry=True).moved == 3
    assert len(held(fixed, "p_rejects")) == 4
    assert not reland_checkpoint(fixed).path.exists()


def test_a_dry_run_refuses_what_a_run_would(fixed: Pipeline) -> None:
    (stream,) = fixed.streams
    assert isinstance(stream.decoder, JsonDecoder)
    columns = {**stream.decoder.columns, "new": "long"}
    other = replace(fixed, streams=(replace(stream, decoder=JsonDecoder(columns=columns)),))
    for is_dry in (True, False):
        with pytest.raises(BadInput, match=r"has other columns \(new: is missing, should be long"):
            reland(other, is_dry=is_dry)


def test_a_lake_without_rejects_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    streams = (Stream(topics=("t",), table="t"),)
    lake = tmp_path / "lake"
    pipeline = Pipeline(name="p", bootstrap_servers="x:1", streams=streams, lake=str(lake))
    with pytest.raises(BadInput, match="run the pipeline first"):
        reland(pipeline)
    assert not lake.exists()


def test_topics_and_kinds_can_be_chosen(fixed: Pipeline) -> None:
    assert reland(fixed, topics=["another"]).tried == 0
    assert reland(fixed, kinds=[RejectKind.NOT_JSON]) == Relanded(tried=1, rejected={"not-json": 1})
    assert reland(fixed, topics=[TOPIC], kinds=[RejectKind.NO_TABLE]).tried == 3
    assert_relanded_once(fixed)


def test_records_of_a_topic_that_no_stream_takes_stay(fixed: Pipeline) -> None:
    (stream,) = fixed.streams
    other = replace(fixed, streams=(replace(stream, topics=("another",)),))
    assert reland(other) == Relanded(tried=4, without_stream=4)
    assert len(held(fixed, "p_rejects")) == 4


def test_many_are_moved_in_several_micro_batches(
    fixed: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reland_module, "_MOST_ROWS", 1)
    assert reland(fixed).moved == 3
    assert_relanded_once(fixed)
    assert reland_checkpoint(fixed).newest_landed == 2


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        pytest.param(Checkpoint, "write_report", 0, id="before the report"),
        pytest.param(Landing, "_write_ledger", 0, id="after the report"),
        pytest.param(OpenTable, "add", 0, id="before the ledger"),
        pytest.param(OpenTable, "add", 1, id="before the table"),
        pytest.param(OpenTable, "remove", 0, id="before the rejects"),
        pytest.param(Checkpoint, "note_landed", 0, id="after the rejects"),
    ],
)
def test_killed_at_any_step_the_next_one_completes_it(
    fixed: Pipeline, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int
) -> None:
    original, calls = getattr(owner, name), iter(range(1000))

    def dying(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return original(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, dying)
        with pytest.raises(Killed):
            reland(fixed)
    reland(fixed)
    assert_relanded_once(fixed)


# --- several at the same time, where locks do not reach ---------------------------------------------


@pytest.fixture(params=["the same checkpoint", "another checkpoint"])
def second(request: pytest.FixtureRequest, fixed: Pipeline) -> Pipeline:
    """As another process would have it."""
    if request.param == "the same checkpoint":
        return fixed
    return replace(fixed, checkpoint=f"{fixed.lake}/_pipelines/another")


@pytest.mark.parametrize(("rows", "piece"), [(100, 0), (1, 0), (1, 1)])
def test_one_that_was_paused_while_another_landed_them_adds_nothing(
    fixed: Pipeline, second: Pipeline, monkeypatch: pytest.MonkeyPatch, rows: int, piece: int
) -> None:
    monkeypatch.setattr(reland_module, "_MOST_ROWS", rows)
    original, calls = Router.route_into, iter(range(1000))

    def route_into(self: Router, take: Any, records: Records) -> None:
        original(self, take, records)
        if next(calls) == piece:
            reland(second)

    monkeypatch.setattr(Router, "route_into", route_into)
    with pytest.raises(PenstockError, match=r"was replaced|another process has landed rejects"):
        reland(fixed)
    assert_relanded_once(fixed)
    for one in (fixed, second):
        assert reland(one).moved == 0
    assert_relanded_once(fixed)


def test_one_that_looked_at_the_ledger_before_another_landed_them_is_refused_by_delta(
    fixed: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = replace(fixed, checkpoint=f"{fixed.lake}/_pipelines/another")
    original, calls = Checkpoint.write_report, iter(range(1000))

    def late(self: Checkpoint, report: Any) -> None:
        if next(calls) == 0:
            reland(second)
        original(self, report)

    monkeypatch.setattr(Checkpoint, "write_report", late)
    with pytest.raises(PenstockError, match="another process landed the same"):
        reland(fixed)
    # Its report is there, and is left out by its next life.
    assert reland(fixed).moved == 0
    assert_relanded_once(fixed)


@pytest.mark.parametrize(("name", "call"), [("add", 1), ("remove", 0)])
def test_a_half_landed_one_must_be_completed_before_another_checkpoint_moves_any(
    fixed: Pipeline, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    """The rejects still hold what the ledger has as landed."""
    original, calls = getattr(OpenTable, name), iter(range(1000))

    def dying(*args: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return original(*args)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(OpenTable, name, dying)
        reland(fixed)
    second = replace(fixed, checkpoint=f"{fixed.lake}/_pipelines/another")
    with pytest.raises(PenstockError, match="has move 0 of rejects, but the ledger has 1"):
        reland(second)
    reland(fixed)
    assert reland(second).moved == 0
    assert_relanded_once(fixed)


def test_rejects_that_somebody_deleted_meanwhile_do_not_stop_another_checkpoint(
    fixed: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing left to remove, and that must be on record too."""
    original = OpenTable.remove

    def late(self: OpenTable, *args: Any) -> None:
        DeltaTable(str(self.path)).delete("kafka_offset != 3")
        self.refresh()
        original(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(OpenTable, "remove", late)
        reland(fixed)
    second = replace(fixed, checkpoint=f"{fixed.lake}/_pipelines/another")
    assert reland(second) == Relanded(tried=1, rejected={"not-json": 1})
    assert_relanded_once(fixed)


def test_the_pipeline_continues_after_a_reland(fixed: Pipeline) -> None:
    reland(fixed)
    landing = life(fixed)
    assert landing.tables.landed("orders") == 0
    assert landing.tables.landed("refunds") == -1


def test_rows_are_written_while_others_are_still_decoded(
    fixed: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.lake.row_output.most_decoded_bytes", lambda _: 1)
    monkeypatch.setattr("penstock.lake.routing._piece_limits", lambda *_: (1, None))
    waiting: list[int] = []
    take = RowOutput.take

    def noted(self: RowOutput, rows: Routed) -> None:
        take(self, rows)
        waiting.append(self._waiting_bytes)

    monkeypatch.setattr(RowOutput, "take", noted)
    assert reland(fixed).moved
    assert len(waiting) > 1 and not any(waiting)
    assert_relanded_once(fixed)


def test_rejects_of_many_bytes_are_tried_in_parts(fixed: Pipeline) -> None:
    batch = pa.record_batch({"value": [b"x" * 1000] * 100})
    parts = list(reland_module._pieces(iter([batch, batch]), 30_000))
    assert sum(map(len, parts)) == 200
    assert all(part.nbytes <= 31_000 for part in parts)


def test_unreadable_records_are_never_tried() -> None:
    reasons = ["unreadable: offset 5: checksum", "not-json: x", "no-table: unreadable: y"]
    rows = dataset.dataset(pa.table({"reason": reasons, "kafka_topic": ["t", "t", "u"]}))

    def tried(**chosen: Any) -> list[str]:
        those = {"topics": (), "kinds": (), **chosen}
        return list(rows.to_table(filter=reland_module._chosen(**those)).column(0).to_pylist())

    assert tried() == reasons[1:]
    assert tried(kinds=[RejectKind.UNREADABLE]) == []
    assert tried(kinds=[RejectKind.NOT_JSON, RejectKind.NO_TABLE], topics=["u"]) == reasons[2:]
