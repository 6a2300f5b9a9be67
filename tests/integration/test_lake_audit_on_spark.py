"""The audit on a real Spark: it finds what is wrong, and only that.

Lakes are landed by hand (no Kafka), and each break is made in a copy of a lake that is clean.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from hand_landed import PER_BATCH, consumer, land, lanes, life, pipeline_into
from penstock import specs
from penstock.cli.pipeline import pipeline as command
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import LaneReport
from penstock.lake.audit import audit
from penstock.lake.compact import compact
from penstock.lake.decoders.json import JsonDecoder
from penstock.lake.ownership import owned
from penstock.lake.reland import reland
from penstock.lake.tables import OpenTable

pytestmark = pytest.mark.integration
BATCHES = 4


class Killed(BaseException):
    pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A lake to make copies of."""
    spec = pipeline_into(tmp_path_factory.mktemp("whole"))
    land(life(spec), spec, *range(BATCHES))
    return spec


@pytest.fixture
def landed(whole: Pipeline, tmp_path: Path) -> Pipeline:
    """One that may be broken."""
    shutil.copytree(whole.lake, tmp_path, dirs_exist_ok=True)
    return replace(whole, lake=str(tmp_path))


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return pipeline_into(tmp_path)


def kill_before_table(monkeypatch: pytest.MonkeyPatch, land_it: Callable[[], object]) -> None:
    """Killed when the ledger has the micro-batch, and no table."""
    original = OpenTable.add
    calls = iter(range(100))

    def add(self: OpenTable, *args: Any) -> None:
        if next(calls):
            raise Killed
        original(self, *args)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(OpenTable, "add", add)
        land_it()


# --- nothing is wrong ---------------------------------------------------------------------------------


def test_a_pipeline_at_rest_is_clean(spark: Any, whole: Pipeline) -> None:
    result = audit(spark, whole)
    assert (result.problems, result.half_landed) == ((), ())
    assert result.records == 2 * BATCHES * PER_BATCH
    assert result.batches == BATCHES
    assert result.rows == {"as": BATCHES * PER_BATCH, "bs": BATCHES * PER_BATCH}
    assert "Clean: each of 24 records" in result.sentence


def test_nothing_but_a_first_start_is_clean(spark: Any, pipeline: Pipeline) -> None:
    life(pipeline)
    result = audit(spark, pipeline)
    assert (result.problems, result.records) == ((), 0)


def test_the_audit_does_not_disturb_running_plain_consumers(spark: Any, pipeline: Pipeline) -> None:
    ended = threading.Event()
    failed: list[BaseException] = []
    landings = {number: consumer(pipeline, number) for number in (1, 2)}

    def work(number: int) -> None:
        batch = 0
        try:
            while not ended.wait(1.0):  # an audit takes longer with every commit
                land(landings[number], pipeline, batch, partition=number)
                batch += 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in landings]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            assert audit(spark, pipeline).problems == ()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failed
    result = audit(spark, pipeline)
    assert (result.problems, result.half_landed) == ((), ())


def test_a_killed_consumer_is_half_landed_until_it_starts_again(
    spark: Any, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = consumer(pipeline, 1), consumer(pipeline, 2)
    land(one, pipeline, 0, partition=1)
    kill_before_table(monkeypatch, lambda: land(two, pipeline, 0, partition=2))
    land(one, pipeline, 1, partition=1)
    result = audit(spark, pipeline)
    assert result.problems == ()
    assert len(result.half_landed) == 2
    assert result.records == 2 * 2 * PER_BATCH
    assert "half landed" in result.sentence
    consumer(pipeline, 2)
    result = audit(spark, pipeline)
    assert (result.problems, result.half_landed) == ((), ())


def test_a_killed_reland_is_half_moved_until_the_next_one(
    spark: Any, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = (
        replace(s, table=f"old-{s.table}", decoder=JsonDecoder(columns={"n": "long"}))
        for s in pipeline.streams
    )
    rejecting = replace(pipeline, streams=tuple(old))
    land(life(rejecting), rejecting, 0)

    def remove(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(OpenTable, "remove", remove)
        reland(pipeline)
    result = audit(spark, pipeline)
    assert result.problems == ()
    assert result.records == 2 * PER_BATCH
    (note,) = result.half_landed
    assert "p_rejects: 6 rows of micro-batch 0" in note and "half moved" in note
    row_doubled_in_another_table(pipeline)
    assert any("are in both" in problem for problem in audit(spark, pipeline).problems)
    DeltaTable(f"{pipeline.lake}/bs").delete("kafka_topic = 'topic-as'")
    reland(pipeline)
    result = audit(spark, pipeline)
    assert (result.problems, result.half_landed) == ((), ())
    assert result.records == 2 * PER_BATCH


def test_a_table_that_was_compacted_and_vacuumed_is_clean(spark: Any, landed: Pipeline) -> None:
    assert [*compact(landed, 1_000_000, vacuum_hours=1)]
    assert audit(spark, landed).problems == ()


def test_a_table_renamed_in_the_file_is_judged_by_its_old_name(
    spark: Any, landed: Pipeline
) -> None:
    streams = (replace(landed.streams[0], table="renamed"), landed.streams[1])
    renamed = replace(landed, streams=streams)
    assert audit(spark, renamed).problems == ()
    DeltaTable(f"{landed.lake}/as").delete("kafka_offset = 3")
    (problem,) = audit(spark, renamed).problems
    assert problem.startswith("as: 1 of the 12 rows")


def test_a_pipeline_may_start_during_the_audit(spark: Any, pipeline: Pipeline) -> None:
    land(life(pipeline), pipeline, 0)
    problems: list[tuple[str, ...]] = []
    thread = threading.Thread(target=lambda: problems.append(audit(spark, pipeline).problems))
    thread.start()
    starts = 0
    while thread.is_alive():
        with owned(pipeline):
            life(pipeline)
        starts += 1
    thread.join()
    assert starts and problems == [()]


def test_offsets_that_the_topic_lost_are_counted(spark: Any, pipeline: Pipeline) -> None:
    one = life(pipeline)
    land(one, pipeline, 0)

    def after_a_truncation() -> Sequence[LaneReport]:
        first, *others = lanes(pipeline, 1)
        changed = replace(first.ranges[0], truncated_from=1, leader_epoch=5)
        return [replace(first, ranges=(changed,)), *others]

    one.land(1, after_a_truncation)
    result = audit(spark, pipeline)
    assert (result.problems, result.truncated) == ((), 2)
    assert "2 landed offsets are no longer in the topic" in result.sentence


# --- something is wrong -------------------------------------------------------------------------------


def _rows(spec: Pipeline, table: str, count: int = 1) -> pa.Table:
    return DeltaTable(f"{spec.lake}/{table}").to_pyarrow_table().slice(0, count)


def _append(spec: Pipeline, table: str, rows: pa.Table) -> None:
    write_deltalake(DeltaTable(f"{spec.lake}/{table}"), rows, mode="append")


def _with(rows: pa.Table, /, **columns: Any) -> pa.Table:
    for name, value in columns.items():
        kind = rows.schema.field(name).type
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, pa.array([value] * len(rows), kind))
    return rows


def _commits(spec: Pipeline, table: str) -> list[Path]:
    return sorted(Path(spec.lake, table, "_delta_log").glob("*.json"))


def row_removed(spec: Pipeline) -> None:
    DeltaTable(f"{spec.lake}/as").delete("kafka_offset = 3")


def row_doubled(spec: Pipeline) -> None:
    _append(spec, "as", _rows(spec, "as"))


def row_doubled_in_another_table(spec: Pipeline) -> None:
    _append(spec, "bs", _rows(spec, "as"))


def row_moved_to_another_table(spec: Pipeline) -> None:
    row = _rows(spec, "as")
    _append(spec, "bs", row)
    offset = row.column("kafka_offset")[0].as_py()
    DeltaTable(f"{spec.lake}/as").delete(f"kafka_offset = {offset}")


def offset_altered(spec: Pipeline) -> None:
    DeltaTable(f"{spec.lake}/as").update({"kafka_offset": "1000"}, predicate="kafka_offset = 3")


def offset_altered_to_one_that_is_there(spec: Pipeline) -> None:
    DeltaTable(f"{spec.lake}/as").update({"kafka_offset": "4"}, predicate="kafka_offset = 3")


def partition_altered(spec: Pipeline) -> None:
    DeltaTable(f"{spec.lake}/as").update({"kafka_partition": "1"}, predicate="kafka_offset = 3")


def ledger_row_removed(spec: Pipeline) -> None:
    DeltaTable(f"{spec.lake}/p_ledger").delete("topic = 'topic-as' AND batch = 1")


def first_ledger_row_removed(spec: Pipeline) -> None:
    DeltaTable(f"{spec.lake}/p_ledger").delete("topic = 'topic-as' AND batch = 0")


def ledger_row_doubled(spec: Pipeline) -> None:
    _append(spec, "p_ledger", _rows(spec, "p_ledger"))


def ledger_row_overlapping(spec: Pipeline) -> None:
    row = _rows(spec, "p_ledger")
    end = row.column("end_offset")[0].as_py()
    nothing: dict[str, Any] = {"rows": 0, "ignored": 0, "gaps": 1, "tables": []}
    _append(
        spec,
        "p_ledger",
        _with(row, start_offset=end - 1, lost_from=end - 1, end_offset=end, **nothing),
    )


def ledger_row_altered(spec: Pipeline) -> None:
    DeltaTable(f"{spec.lake}/p_ledger").update(
        {"rows": '"rows" - 1', "gaps": "gaps + 1"}, predicate="topic = 'topic-as' AND batch = 1"
    )


def ledger_row_without_a_writer(spec: Pipeline) -> None:
    row = _with(_rows(spec, "p_ledger"), writer=None, topic="new", tables=[])
    _append(spec, "p_ledger", row)


def last_commit_replaced(spec: Pipeline) -> None:
    _commits(spec, "as")[-1].write_text('{"commitInfo":{"operation":"OPTIMIZE"}}\n')


def commit_replaced(spec: Pipeline) -> None:
    _commits(spec, "as")[2].write_text('{"commitInfo":{"operation":"OPTIMIZE"}}\n')


def ledger_commit_replaced(spec: Pipeline) -> None:
    _commits(spec, "p_ledger")[-1].write_text('{"commitInfo":{"operation":"OPTIMIZE"}}\n')


def older_version_restored(spec: Pipeline) -> None:
    DeltaTable(f"{spec.lake}/as").restore(BATCHES - 1)


def all_set_back(spec: Pipeline) -> None:
    for name in ("as", "bs", "p_ledger"):
        DeltaTable(f"{spec.lake}/{name}").restore(BATCHES - 1)


def last_ledger_row_removed(spec: Pipeline) -> None:
    """And its rows, so that nothing else tells of them."""
    last = BATCHES - 1
    DeltaTable(f"{spec.lake}/p_ledger").delete(f"topic = 'topic-as' AND batch = {last}")
    DeltaTable(f"{spec.lake}/as").delete(f"kafka_offset >= {last * PER_BATCH}")


def partition_removed(spec: Pipeline) -> None:
    DeltaTable(f"{spec.lake}/p_ledger").delete("topic = 'topic-as'")
    DeltaTable(f"{spec.lake}/as").delete()


def older_copy_restored(spec: Pipeline) -> None:
    for commit in _commits(spec, "as")[-2:]:
        commit.unlink()


def file_missing(spec: Pipeline) -> None:
    next(Path(spec.lake, "as").glob("*.parquet")).unlink()


def file_cut_short(spec: Pipeline) -> None:
    file = next(Path(spec.lake, "as").glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-10])


def file_garbled(spec: Pipeline) -> None:
    file = next(Path(spec.lake, "as").glob("*.parquet"))
    file.write_bytes(b"\xa5" * file.stat().st_size)


def file_of_the_ledger_missing(spec: Pipeline) -> None:
    next(Path(spec.lake, "p_ledger").glob("*.parquet")).unlink()


def foreign_rows(spec: Pipeline) -> None:
    _append(spec, "as", _with(_rows(spec, "as"), kafka_topic="foreign"))


def rows_from_nowhere(spec: Pipeline) -> None:
    nowhere: dict[str, Any] = {"kafka_topic": None, "kafka_partition": None, "kafka_offset": None}
    _append(spec, "as", _with(_rows(spec, "as", 2), **nowhere))


def table_gone(spec: Pipeline) -> None:
    shutil.rmtree(Path(spec.lake, "as"))


def log_unreadable(spec: Pipeline) -> None:
    _commits(spec, "as")[-1].write_text("nonsense")


def ledgers_log_unreadable(spec: Pipeline) -> None:
    _commits(spec, "p_ledger")[-1].write_text("nonsense")


BREAKS = [
    (row_removed, "as: 1 of the 12 rows of topic-as-0 in the ledger are missing"),
    (row_doubled, "as: 1 rows of topic-as-0 are duplicates"),
    (row_doubled_in_another_table, "as and bs: 1 rows of topic-as-0 are in both"),
    (row_moved_to_another_table, "bs: holds 1 rows of topic-as-0 that are not in the ledger"),
    (offset_altered, "as: rows of topic-as-0 differ from those in the ledger"),
    (offset_altered_to_one_that_is_there, "are duplicates"),
    (partition_altered, "as: holds 1 rows of topic-as-1 that are not in the ledger"),
    (ledger_row_removed, "topic-as-0: offsets 3 to 5 are missing from the ledger"),
    (first_ledger_row_removed, "as: holds 3 rows of topic-as-0 that are not in the ledger"),
    (ledger_row_doubled, "are in two ranges of the ledger"),
    (ledger_row_overlapping, "are in two ranges of the ledger"),
    (ledger_row_altered, "topic-as-0: the ledger's row of batch 1 contradicts itself"),
    (ledger_row_without_a_writer, "new-0: the ledger's row of batch"),
    (last_commit_replaced, "as: lacks 1 micro-batches"),
    (commit_replaced, "as: 3 of the 12 rows of topic-as-0 in the ledger are missing"),
    (ledger_commit_replaced, "the ledger was set back"),
    (older_version_restored, "as: 3 of the 12 rows of topic-as-0 in the ledger are missing"),
    (all_set_back, "topic-as-0: the ledger's position is 12, but its rows end at 9"),
    (last_ledger_row_removed, "topic-as-0: the ledger's position is 12, but its rows end at 9"),
    (partition_removed, "topic-as-0: the ledger's position is 12, but it has no rows"),
    (older_copy_restored, "as: lacks 2 micro-batches"),
    (file_missing, "as: 1 files are missing or cut short"),
    (file_cut_short, "as: 1 files are missing or cut short"),
    (file_garbled, "as: 3 of the 12 rows of topic-as-0 in the ledger are missing"),
    (file_of_the_ledger_missing, "p_ledger: 1 files are missing or cut short"),
    (foreign_rows, "as: holds 1 rows of foreign-0 that are not in the ledger"),
    (rows_from_nowhere, "as: holds 1 rows of (no topic)--1 that are not in the ledger"),
    (table_gone, "as: the ledger has rows of it, but the table does not exist"),
    (log_unreadable, "as: cannot be read"),
    (ledgers_log_unreadable, "p_ledger: cannot be read"),
]


@pytest.mark.parametrize(
    ("breaks", "phrase"), BREAKS, ids=[breaks.__name__.replace("_", " ") for breaks, _ in BREAKS]
)
def test_the_audit_finds(
    spark: Any, landed: Pipeline, breaks: Callable[[Pipeline], None], phrase: str
) -> None:
    breaks(landed)
    result = audit(spark, landed)
    assert not result.is_clean
    assert any(phrase in problem for problem in result.problems), result.problems


def test_the_command_exits_with_10_if_it_is_not_clean(
    spark: Any, landed: Pipeline, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(specs.dump_yaml(landed))
    row_removed(landed)
    done = CliRunner().invoke(command, ["audit", str(file), "--json"])  # in the tests' Spark
    assert done.exit_code == 10, done.output
    report = json.loads(done.stdout)
    assert report["is_clean"] is False
    assert report["outcome"] == "NOT clean: 1 problem in the tables of p."
