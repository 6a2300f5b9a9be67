"""One record never stops or spoils a lane: it is rejected, counted, and shown."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import bad_headers
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from penstock.api import landing
from penstock.cli import output
from penstock.cli import pipeline as command
from penstock.domain.errors import BadInput, LaneBlocked
from penstock.domain.lake.cycle import Cycles
from penstock.domain.lake.decoder import Decoder
from penstock.domain.lake.order import LaneTask, Position, Range
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline, Stream, TableBy
from penstock.domain.lake.report import BatchReport, LandedRange, LaneReport
from penstock.lake import lane, routing
from penstock.lake import worker_cache as workers
from penstock.lake.checkpoint import Checkpoint
from penstock.lake.decoded import Decoded, RecordValue
from penstock.lake.decoders import Decoding
from penstock.lake.decoders.function import FunctionDecoder
from penstock.lake.decoders.json import JsonDecoder
from penstock.lake.gathered import Gathered
from penstock.lake.isolated.isolation import DecoderHost
from penstock.lake.landing import Landed
from penstock.lake.query import Prepared
from penstock.lake.records import Records
from penstock.lake.rejection import Rejected, Rejection, RejectKind, described, one_line
from penstock.lake.rejects import RejectAlarm, RejectWatch, top
from penstock.lake.routing import Routed, Router
from penstock.lake.source import LaneJob
from penstock.lake.status import Watch
from penstock.lake.tables import Tables

JSON = JsonDecoder(columns={"id": "long", "type": "string"})


@dataclass
class Record:
    """What a lane needs of confluent-kafka's Message."""

    value_: bytes | None
    offset_: int
    key_: bytes | None = b"key"
    headers_: Any = None
    timestamp_: tuple[int, int] = field(default=(1, 1_700_000_000_123))

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.offset_

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def timestamp(self) -> tuple[int, int]:
        return self.timestamp_

    def headers(self) -> Any:
        if isinstance(self.headers_, Exception):
            raise self.headers_
        return self.headers_


def records(*contents: Record | bytes | None) -> Records:
    batch = Records()
    messages: Any = [m if isinstance(m, Record) else Record(m, i) for i, m in enumerate(contents)]
    batch.add(messages)
    return batch


def pipeline(*streams: Stream, **more: Any) -> Pipeline:
    return Pipeline(name="p", bootstrap_servers="x:1", streams=streams, lake="lake", **more)


def route(stream: Stream, batch: Records) -> Routed:
    router = Router(pipeline(stream))
    done = router.route(batch)
    router.close()
    return done


def rows(done: Routed, table: str) -> list[dict[str, Any]]:
    return pa.concat_tables(done.tables[table]).to_pylist() if table in done.tables else []


def offsets(done: Routed, table: str) -> list[int]:
    return [row["kafka_offset"] for row in rows(done, table)]


NESTED = b"[" * 2000 + b"]" * 2000
BY_TYPE = TableBy(column="type", tables={"a": "as"}, otherwise="others")


# --- the guard -----------------------------------------------------------------------------------


@pytest.mark.parametrize("routing", [{"table": "others"}, {"table_by": BY_TYPE}])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        pytest.param(b'{"type": "\xff\xfe"}', RejectKind.NOT_UTF8, id="invalid UTF-8"),
        pytest.param(b'{"id":\n1, "x": ' + NESTED, RejectKind.NOT_JSON, id="nested and cut off"),
        pytest.param(b'{"type": "\\ud800"}', RejectKind.NOT_JSON, id="lone surrogate"),
    ],
)
def test_a_bad_record_is_rejected_whatever_the_routing(
    value: bytes, kind: RejectKind, routing: dict[str, Any]
) -> None:
    stream = Stream(topics=("orders",), decoder=JSON, **routing)
    done = route(stream, records(b'{"id": 1}', value, b'{"id": 3}'))
    assert offsets(done, "others") == [0, 2]
    [bad] = rows(done, "p_rejects")
    assert (bad["kafka_offset"], bad["value"], bad["kafka_key"]) == (1, value, b"key")
    assert bad["reason"].startswith(f"{kind}: ")
    assert done.rejects == {kind: 1}


def test_nesting_with_a_line_end_in_it_is_read() -> None:
    """Python's own parser, which once read texts of several lines, is recursive."""
    stream = Stream(topics=("orders",), decoder=JSON, table="t")
    done = route(stream, records(b'{"id":\n1, "x": ' + NESTED + b"}"))
    assert [row["id"] for row in rows(done, "t")] == [1]


class Fragile(Decoding):
    """Fails as a whole if any value is bad, and does not say which; or lands what nobody can read."""

    schema = pa.schema([("text", pa.string())])

    def __init__(self, error: Callable[[], BaseException] | None = None) -> None:
        self._error = error

    def decode(self, values: Sequence[RecordValue]) -> Decoded:
        if b"bad" in values and self._error is not None:
            raise self._error()
        cells = pa.array([b"\xff" if v == b"bad" else v for v in values], pa.binary())
        column = pa.Array.from_buffers(pa.string(), len(cells), cells.buffers())
        return Decoded(pa.table([column], schema=self.schema))


@pytest.fixture
def fragile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    def use(error: Any) -> None:
        monkeypatch.setattr(routing, "decoding_of", lambda *_: Fragile(error))

    return use


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RecursionError, RejectKind.UNREPRESENTABLE),
        (MemoryError, RejectKind.TOO_MUCH_MEMORY),
        (lambda: BadInput("as a library of ours may raise"), RejectKind.UNREPRESENTABLE),
        (lambda: ValueError("lone \ud800"), RejectKind.UNREPRESENTABLE),
        (lambda: Rejected(RejectKind.WRONG_TYPE, "known"), RejectKind.WRONG_TYPE),
        (None, RejectKind.NOT_UTF8),
    ],
    ids=["recursion", "memory", "ours", "surrogate", "known", "invalid column"],
)
@pytest.mark.parametrize("bad", [{0}, {5}, {0, 1, 6}, set(range(7))])
def test_whatever_fails_is_found_by_halves(
    fragile: Callable[[Any], None], error: Any, kind: RejectKind, bad: set[int]
) -> None:
    fragile(error)
    batch = records(*(b"bad" if i in bad else b"good" for i in range(7)))
    done = route(Stream(topics=("orders",), table="t"), batch)
    assert offsets(done, "t") == [i for i in range(7) if i not in bad]
    assert offsets(done, "p_rejects") == sorted(bad)
    assert done.rejects == {kind: len(bad)}
    for row in rows(done, "p_rejects"):
        assert row["reason"].startswith(f"{kind}: ") and row["value"] == b"bad"


def test_external_failures_stop_the_lane(fragile: Callable[[Any], None]) -> None:
    fragile(lambda: LaneBlocked("the registry is away"))
    with pytest.raises(LaneBlocked, match="registry is away"):
        route(Stream(topics=("orders",), table="t"), records(b"good", b"bad"))


def test_a_functions_own_error_of_ours_is_the_records_fault() -> None:
    columns = {"id": "long", "s": "struct<a:long>"}
    decoder = FunctionDecoder(function="lake_functions:act", columns=columns)
    stream = Stream(topics=("orders",), decoder=decoder, table="t")
    done = route(stream, records(b"1", b"penstock", b"surrogate", b"struct list", b"2"))
    assert offsets(done, "t") == [0, 4]
    assert [row["reason"].partition(": ")[0] for row in rows(done, "p_rejects")] == [
        "function-failed",
        "function-failed",
        "wrong-type",
    ]
    assert done.rejects == {"function-failed": 2, "wrong-type": 1}


# --- headers, timestamps ---------------------------------------------------------------------------

NOT_UTF8 = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


def test_a_header_name_that_is_not_utf8_rejects_its_record_only() -> None:
    batch = records(
        Record(b"a", 0, headers_=[("h", b"1")]),
        Record(b"b", 1, headers_=NOT_UTF8),
        Record(b"c", 2),
    )
    batch.add([Record(b"d", 3)])  # type: ignore[list-item]
    done = route(Stream(topics=("orders",), table="t"), batch)
    assert [(r["kafka_offset"], r["kafka_headers"]) for r in rows(done, "t")] == [
        (0, [{"key": "h", "value": b"1"}]),
        (2, None),
        (3, None),
    ]
    [bad] = rows(done, "p_rejects")
    assert bad["reason"] == "bad-header: header name is not UTF-8"
    assert (bad["kafka_offset"], bad["value"], bad["kafka_key"]) == (1, b"b", b"key")
    assert bad["kafka_timestamp"].year == 2023


def test_the_real_client_gives_such_a_header_once_and_with_a_hole_in_it() -> None:
    """Many messages: in a loop that Python has optimised, the client's error would go unnoticed."""
    bad = {0, 1, 40, 41, 99}
    batch = Records()
    batch.add(bad_headers.messages([i not in bad for i in range(100)]))
    done = route(Stream(topics=(bad_headers.TOPIC,), table="t"), batch)
    assert len(rows(done, "t")) == 95
    assert {row["kafka_headers"][0]["key"] for row in rows(done, "t")} == {"good"}
    assert {row["value"] for row in rows(done, "p_rejects")} == {b"v%d" % i for i in bad}
    assert {row["reason"] for row in rows(done, "p_rejects")} == {
        "bad-header: header name is not UTF-8"
    }


@pytest.mark.parametrize("header", [("\ud800", b"v"), ("h", 5), (5, b"v"), "h", ("h", b"v", b"w")])
def test_headers_that_no_column_holds_reject_their_record_only(header: Any) -> None:
    batch = Records(
        ["orders"] * 3, [0] * 3, [0, 1, 2], [1] * 3, [b"k"] * 3,
        [[("h", b"1")], [header], None], [b"v"] * 3,
    )  # fmt: skip
    done = route(Stream(topics=("orders",), table="t"), batch)
    assert offsets(done, "t") == [0, 2]
    [bad] = rows(done, "p_rejects")
    assert bad["kafka_offset"] == 1 and bad["value"] == b"v"


@pytest.mark.parametrize(
    ("time_ms", "year"),
    [
        (-62_135_596_800_000, 1),
        (-62_135_596_800_001, None),
        (253_402_300_799_999, 9999),
        (253_402_300_800_000, None),
        (2**63 - 1, None),
        (-(2**63), None),
        (0, 1970),
    ],
)
def test_a_timestamp_that_no_calendar_has_is_null(time_ms: int, year: int | None) -> None:
    batch = records(Record(b"a", 0, timestamp_=(1, time_ms)), b"b")
    first, second = rows(route(Stream(topics=("orders",), table="t"), batch), "t")
    assert (first["kafka_timestamp"] and first["kafka_timestamp"].year) == year
    assert second["kafka_timestamp"].year == 2023


# --- reasons ---------------------------------------------------------------------------------------


@given(st.text(st.characters(), max_size=3000))
def test_a_reason_is_one_printable_line_that_a_column_takes(text: str) -> None:
    for line in (
        one_line(text),
        str(Rejection(RejectKind.NOT_JSON, text)),
        described(ValueError(text)),
    ):
        assert len(line.splitlines()) <= 1
        assert not any(ord(sign) < 32 or 0x7F <= ord(sign) < 0xA0 for sign in line)
        pa.array([line], pa.string()).validate(full=True)
    assert len(str(Rejection(RejectKind.NOT_JSON, text))) <= 500


# --- through a lane, into a table -------------------------------------------------------------------


class Consumer:
    """Has gathered already."""

    def __init__(self, batch: Records) -> None:
        self._batch = batch

    def gather(self, ranges: Any, most_bytes: int, until_s: float) -> Gathered:
        return Gathered(records=self._batch, ends={p: Position(r.end) for p, r in ranges.items()})


def land(spec: Pipeline, batch: Records) -> LaneReport:
    router = Router(spec)
    tables = Tables(Path(spec.lake), "id")
    tables.prepare(spec, router.schemas())
    place = Partition("orders", 0)
    task = LaneTask(0, 0, {place: Range(0, len(batch), 0)}, 0)
    report = lane.work(task, spec, Consumer(batch), router)  # type: ignore[arg-type]
    for file in report.files:
        tables[file.table].add([file], {"id": 0})
    router.close()
    return report


def test_a_lane_reports_its_rejects_and_every_file_can_be_read(tmp_path: Path) -> None:
    stream = Stream(
        topics=("orders",), decoder=JSON, table_by=TableBy(column="type", tables={"a": "as"})
    )
    spec = replace(pipeline(stream), lake=str(tmp_path))
    bad_header = Record(b'{"id": 1, "type": "a"}', 3, headers_=NOT_UTF8)
    batch = records(b'{"type": "a"}', b'{"type": "\xff"}', b'{"type": "b"}', bad_header, b"no")
    report = land(spec, batch)
    assert report.rejects == {"bad-header": 1, "not-utf8": 1, "no-table": 1, "not-json": 1}
    assert report.ranges[0].rows == {"as": 1, "p_rejects": 4}
    for table, count in report.ranges[0].rows.items():
        assert len(DeltaTable(str(tmp_path / table)).to_pandas()) == count


# --- how many ---------------------------------------------------------------------------------------


def landed(rows_landed: int, rejects: dict[str, int], ignored: int = 0) -> Landed:
    count = rows_landed + ignored
    landed_range = LandedRange(
        topic="orders",
        partition=0,
        start=0,
        end=count,
        known_end=count,
        lost_from=0,
        ignored=ignored,
        rows={"t": rows_landed - sum(rejects.values()), "p_rejects": sum(rejects.values())},
    )
    report = LaneReport(batch=0, lane=0, ranges=(landed_range,), rejects=rejects)
    return Landed(BatchReport(batch=0, lanes=(report,)), 0.0, 0, False)


def watch(**settings: Any) -> RejectWatch:
    return RejectWatch(pipeline(Stream(topics=("orders",), table="t"), **settings))


def test_a_warning_comes_once_until_it_was_much_less() -> None:
    reject_watch = watch()
    assert reject_watch.add(1000, {"not-json": 10}, 0.0) is None, "1 % is not more than 1 %"
    alarm = reject_watch.add(1000, {"not-json": 90, "no-table": 5}, 10.0)
    assert alarm is not None and not alarm.must_stop
    assert "105 of the 2,000 records of the last minute were rejected (5.25%)" in alarm.message
    assert "100 not-json, 5 no-table" in alarm.message and "p_rejects" in alarm.fix
    assert reject_watch.add(1000, {"not-json": 500}, 20.0) is None
    assert reject_watch.add(100_000, {"not-json": 100}, 30.0) is None, "0.7 % is not much less"
    assert reject_watch.add(1000, {"not-json": 600}, 40.0) is None
    assert reject_watch.add(1000, {}, 200.0) is None
    assert reject_watch.add(1000, {"not-json": 900}, 210.0) is not None


def test_what_is_ignored_was_read_too() -> None:
    report = landed(10, {"not-json": 1}, ignored=990).report
    assert report.lanes[0].records == 1000
    (cycle,) = Cycles().landed(report, 1.0, 0)
    assert (cycle.records, cycle.rejects) == (1000, {"not-json": 1})


def test_only_the_last_minute_counts() -> None:
    reject_watch = watch(rejects_warn_share=0.5)
    assert reject_watch.add(1000, {}, 0.0) is None
    assert reject_watch.add(100, {"not-json": 100}, 59.0) is None
    assert reject_watch.add(1, {"not-json": 1}, 61.0) is not None


def test_it_stops_above_the_second_share_and_not_for_one_record() -> None:
    reject_watch = watch(rejects_stop_share=0.5)
    first = reject_watch.add(1, {"not-json": 1}, 0.0)
    assert first is not None and not first.must_stop
    assert reject_watch.add(18, {"not-json": 18}, 1.0) is None
    alarm = reject_watch.add(20, {"not-json": 1}, 2.0)
    assert alarm is not None and alarm.must_stop
    assert "`rejects_stop_share` is 50.00%" in alarm.message
    assert watch().add(100, {"not-json": 100}, 0.0) != alarm


def test_kinds_are_shown_by_their_number() -> None:
    assert top({"a": 1, "b": 2000, "c": 3, "d": 4}) == "2,000 b, 4 d, 3 c, …"
    assert top({"a": 1}) == "1 a"


# --- the command ------------------------------------------------------------------------------------


@pytest.fixture
def prepared(tmp_path: Path) -> Iterator[Prepared]:
    spec = pipeline(Stream(topics=("orders",), table="t"), rejects_stop_share=0.5)
    yield Prepared(LaneJob(spec, {}, Checkpoint(tmp_path), "id"), None)  # type: ignore[arg-type]


def test_it_warns_and_then_asks_to_stop(prepared: Prepared) -> None:
    warnings: list[str] = []
    alarms = landing._Alarms(prepared.job.pipeline, warnings.append)
    alarms.add(landed(1000, {"not-json": 20}), prepared)
    assert (alarms.final, prepared.job.checkpoint.is_asked_to_stop) == (None, False)
    alarms.add(landed(10_000, {"not-json": 9000}), prepared)
    assert alarms.final is not None and alarms.final.must_stop
    assert prepared.job.checkpoint.is_asked_to_stop
    [warning] = warnings
    assert "records of the last minute were rejected" in warning


def test_the_outcome_says_how_many_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    spec = pipeline(Stream(topics=("orders",), table="t"))
    status_watch = Watch(spec.rejects_table, 0.0)
    status_watch.add(landed(1000, {"not-json": 20, "no-table": 1}), 1.0)
    status = status_watch.status(1.0)
    assert "; 21 rejected: 20 not-json, 1 no-table" in command._line(status)
    assert "21 records were rejected (20 not-json, 1 no-table): see p_rejects." in (
        landing.Summary(spec, status).outcome
    )
    output.emit_json(landing.Summary(spec, status, RejectAlarm("too many", "", True)).to_data())
    report = json.load(io.StringIO(capsys.readouterr().out))
    assert (
        report["rejects"] == {"not-json": 20, "no-table": 1} and report["stopped_by"] == "too many"
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"record_seconds": 0},
        {"record_memory_mb": 1},
        {"rejects_warn_share": 2},
        {"rejects_stop_share": 0},
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        pipeline(Stream(topics=("orders",), table="t"), **settings)


def test_a_worker_keeps_a_sorter_until_the_pipeline_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = []

    class Closing(Router):
        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr(workers, "Router", Closing)
    monkeypatch.setattr(workers, "_routers", {})
    spec = pipeline(Stream(topics=("a",), table="t"))
    job = LaneJob(spec, {}, Checkpoint(Path("none")), "id")
    first = workers._router_of(job)
    assert workers._router_of(job) is first and not closed
    second = workers._router_of(replace(job, pipeline=replace(spec, record_seconds=1.0)))
    assert second is not first and closed == [first]


def test_a_sorter_hands_its_limits_on(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def note(decoder: Decoder, host: DecoderHost) -> Decoding:
        limits.append((host.limits.record_s, host.limits.record_memory_mb))
        return Fragile()

    monkeypatch.setattr(routing, "decoding_of", note)
    Router(pipeline(Stream(topics=("a",), table="t"), record_seconds=1.5, record_memory_mb=99))
    assert limits == [(1.5, 99)]
