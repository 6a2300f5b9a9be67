"""Ledger and tables looked at while they change: nothing right looks wrong, nothing wrong right."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from hand_audited import Found, look
from hand_landed import PER_BATCH, TABLES, consumer, land, lanes, life, pipeline_into
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import LaneReport
from penstock.lake.checkpoint import Checkpoint
from penstock.lake.compact import compact
from penstock.lake.landing import Landing
from penstock.lake.snapshot import take
from penstock.lake.tables import OpenTable


class Killed(BaseException):
    pass


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return pipeline_into(tmp_path)


@contextmanager
def killed_before(monkeypatch: pytest.MonkeyPatch, commit: int) -> Iterator[None]:
    """What lands in here is killed before its ledger (0) or a table (1, 2) is committed to."""
    original = OpenTable.add
    calls = iter(range(100))

    def add(self: OpenTable, *args: Any) -> None:
        if next(calls) == commit:
            raise Killed
        original(self, *args)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(OpenTable, "add", add)
        yield


# --- what is right ----------------------------------------------------------------------------------


def test_a_pipeline_at_rest(pipeline: Pipeline) -> None:
    land(life(pipeline), pipeline, 0, 1)
    assert look(pipeline) == Found([], [])


@pytest.mark.parametrize("batches", [1, 5])
def test_micro_batches_that_are_landed_during_the_audit(pipeline: Pipeline, batches: int) -> None:
    one = life(pipeline)
    land(one, pipeline, 0)
    outcome = look(pipeline, lambda: land(one, pipeline, *range(1, 1 + batches)))
    assert outcome == Found([], [])


def test_a_writer_and_tables_that_are_new_during_the_audit(pipeline: Pipeline) -> None:
    land(consumer(pipeline, 1), pipeline, 0, partition=1)

    def between() -> None:
        land(consumer(pipeline, 2), pipeline, 0, 1, partition=2)

    assert look(pipeline, between) == Found([], [])


@pytest.mark.parametrize("commit", [0, 1, 2])
def test_a_pipeline_that_was_killed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, commit: int
) -> None:
    land(life(pipeline), pipeline, 0)
    with killed_before(monkeypatch, commit):
        land(life(pipeline), pipeline, 1)
    outcome = look(pipeline)
    assert outcome.problems == []
    # Before the ledger nothing happened yet; then one table after the other has it.
    assert len(outcome.half_landed) == (0 if commit == 0 else 3 - commit)
    assert all("micro-batch 1 of writer" in note for note in outcome.half_landed)
    land(life(pipeline), pipeline, 1)
    assert look(pipeline) == Found([], [])


def test_a_killed_plain_consumer_beside_a_running_one(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = consumer(pipeline, 1), consumer(pipeline, 2)
    land(one, pipeline, 0, partition=1)
    with killed_before(monkeypatch, 1):
        land(two, pipeline, 0, partition=2)
    land(one, pipeline, 1, 2, partition=1)
    outcome = look(pipeline, lambda: land(one, pipeline, 3, partition=1))
    assert outcome.problems == []
    assert len(outcome.half_landed) == 2


def test_tables_that_were_compacted_and_vacuumed(pipeline: Pipeline) -> None:
    one = life(pipeline)
    land(one, pipeline, *range(4))
    assert [*compact(pipeline, 1_000_000, vacuum_hours=1)]
    land(one, pipeline, 4)
    assert look(pipeline) == Found([], [])


def test_a_table_that_the_file_calls_otherwise_by_now(pipeline: Pipeline) -> None:
    land(life(pipeline), pipeline, 0)
    streams = tuple(replace(stream, table=f"new-{stream.table}") for stream in pipeline.streams)
    renamed = replace(pipeline, streams=streams)
    assert look(renamed) == Found([], [])
    DeltaTable(f"{pipeline.lake}/as").delete("kafka_offset = 1")
    assert (
        "as: 1 of the 3 rows of topic-as-0 in the ledger are missing" in look(renamed).problems[0]
    )


def test_any_moment_of_running_plain_consumers(pipeline: Pipeline) -> None:
    failed: list[BaseException] = []

    def work(landing: Landing, number: int) -> None:
        try:
            land(landing, pipeline, *range(12), partition=number)
        except BaseException as error:
            failed.append(error)

    landings = [consumer(pipeline, number) for number in (1, 2)]
    threads = [
        threading.Thread(target=work, args=(landing, number))
        for number, landing in enumerate(landings)
    ]
    for thread in threads:
        thread.start()
    looks = 0
    while any(thread.is_alive() for thread in threads):
        assert look(pipeline).problems == []
        looks += 1
    assert looks and not failed
    assert look(pipeline) == Found([], [])


# --- positions -----------------------------------------------------------------------------------------


def test_a_ledger_whose_log_was_checkpointed_and_cleaned(pipeline: Pipeline) -> None:
    land(life(pipeline), pipeline, *range(4))
    path = f"{pipeline.lake}/{pipeline.ledger_table}"
    DeltaTable(path).optimize.compact()
    DeltaTable(path).create_checkpoint()
    for commit in sorted(Path(path, "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert look(pipeline) == Found([], [])


def test_ledger_and_tables_set_back_together(pipeline: Pipeline) -> None:
    land(life(pipeline), pipeline, *range(3))
    for name in (*TABLES, pipeline.ledger_table):
        table = DeltaTable(f"{pipeline.lake}/{name}")
        table.restore(table.version() - 1)
    assert look(pipeline).problems == [
        f"{topic}-0: the ledger's position is 9, but its rows end at 6: rows were removed, or it "
        "was set back"
        for topic in ("topic-as", "topic-bs")
    ]


def test_the_last_row_of_a_partition_removed_from_the_ledger(pipeline: Pipeline) -> None:
    one = life(pipeline)
    land(one, pipeline, 0)

    def only_ignored() -> Sequence[LaneReport]:
        return [
            replace(
                lane,
                files=(),
                ranges=tuple(
                    replace(r, rows={}, offset_sums={}, ignored=PER_BATCH) for r in lane.ranges
                ),
            )
            for lane in lanes(pipeline, 1)
        ]

    one.land(1, only_ignored)
    assert look(pipeline) == Found([], [])
    DeltaTable(f"{pipeline.lake}/{pipeline.ledger_table}").delete("batch = 1 AND lane = 0")
    (problem,) = look(pipeline).problems
    assert "topic-as-0: the ledger's position is 6, but its rows end at 3" in problem


def test_offsets_lost_and_truncated_move_rows_and_positions_alike(pipeline: Pipeline) -> None:
    one = life(pipeline)
    land(one, pipeline, 0)

    def gone_on() -> Sequence[LaneReport]:
        first, second = (replace(lane, files=()) for lane in lanes(pipeline, 1))
        nothing: dict[str, Any] = {"rows": {}, "offset_sums": {}}
        (a,), (b,) = first.ranges, second.ranges
        truncated = replace(a, start=3, end=3, truncated_from=1, leader_epoch=5, **nothing)
        lost = replace(b, start=8, end=8, lost_from=3, **nothing)
        return [replace(first, ranges=(truncated,)), replace(second, ranges=(lost,))]

    one.land(1, gone_on)
    assert look(pipeline) == Found([], [])


# --- what is wrong ------------------------------------------------------------------------------------


def newest_commit(pipeline: Pipeline, table: str) -> Path:
    return max(Path(pipeline.lake, table, "_delta_log").glob("*.json"))


def forget_last_commit(pipeline: Pipeline, table: str) -> None:
    newest_commit(pipeline, table).unlink()


def replace_last_commit(pipeline: Pipeline, table: str) -> None:
    """As a writer does that does not look whether a version is there."""
    newest_commit(pipeline, table).write_text('{"commitInfo":{"operation":"OPTIMIZE"}}\n')


@pytest.mark.parametrize("change", [forget_last_commit, replace_last_commit])
def test_a_table_that_was_set_back(
    pipeline: Pipeline, change: Callable[[Pipeline, str], None]
) -> None:
    land(life(pipeline), pipeline, *range(3))
    change(pipeline, "as")
    (problem,) = look(pipeline).problems
    assert "as: lacks 1 micro-batches" in problem and "from micro-batch 2 on" in problem


@pytest.mark.parametrize("change", [forget_last_commit, replace_last_commit])
def test_without_the_checkpoint_only_the_last_micro_batch_may_be_missing(
    pipeline: Pipeline, change: Callable[[Pipeline, str], None]
) -> None:
    land(life(pipeline), pipeline, *range(3))
    shutil.rmtree(pipeline.checkpoint_path)
    change(pipeline, "as")
    outcome = look(pipeline)
    assert (outcome.problems, len(outcome.half_landed)) == ([], 1)
    if change is forget_last_commit:
        change(pipeline, "as")
        (problem,) = look(pipeline).problems
        assert "as: lacks 1 micro-batches" in problem and "from micro-batch 1 on" in problem


@pytest.mark.parametrize("change", [forget_last_commit, replace_last_commit])
def test_a_ledger_that_was_set_back(
    pipeline: Pipeline, change: Callable[[Pipeline, str], None]
) -> None:
    land(life(pipeline), pipeline, *range(3))
    change(pipeline, pipeline.ledger_table)
    problems = look(pipeline).problems
    assert any("lacks micro-batch 2" in p and "set back" in p for p in problems)
    for table in TABLES:
        assert any(f"{table}: holds {PER_BATCH} rows" in problem for problem in problems)


def test_an_older_version_restored(pipeline: Pipeline) -> None:
    land(life(pipeline), pipeline, *range(3))
    DeltaTable(f"{pipeline.lake}/as").restore(2)
    (problem,) = look(pipeline).problems
    assert "as: 3 of the 9 rows of topic-as-0 in the ledger are missing" in problem


def test_files_that_are_missing_or_cut_short(pipeline: Pipeline) -> None:
    land(life(pipeline), pipeline, *range(3))
    files = sorted(Path(pipeline.lake, "as").glob("*.parquet"))
    snapshot = take(pipeline, lambda _: set(TABLES))
    assert snapshot.problems == ()
    files[0].write_bytes(files[0].read_bytes()[:-1])
    files[1].unlink()
    (problem,) = take(pipeline, lambda _: set(TABLES)).problems
    assert "as: 2 files are missing or cut short" in problem


def test_a_table_that_is_gone_or_cannot_be_read(pipeline: Pipeline) -> None:
    land(life(pipeline), pipeline, 0)
    shutil.rmtree(Path(pipeline.lake, "as"))
    newest_commit(pipeline, "bs").write_text("nonsense")
    gone, unreadable = take(pipeline, lambda _: set(TABLES)).problems
    assert "as: the ledger has rows of it, but the table does not exist" in gone
    assert "bs: cannot be read" in unreadable


def test_a_half_landed_micro_batch_that_nobody_can_complete(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(consumer(pipeline, 1), pipeline, 0, partition=1)
    two = consumer(pipeline, 2)
    with killed_before(monkeypatch, 2):
        land(two, pipeline, 0, partition=2)
    (two.checkpoint.path / "reports/0.json").unlink()
    (problem,) = look(pipeline).problems
    assert "bs: lacks 3 rows of micro-batch 0" in problem
    shutil.rmtree(two.checkpoint.path)
    assert look(pipeline).problems == [problem]


def test_a_foreign_lander_of_an_old_kind(pipeline: Pipeline) -> None:
    """Rows that came by no ledger, in the table's own way."""
    one: Landing = life(pipeline)
    land(one, pipeline, 0)
    table = one.tables["as"]
    table.refresh()
    (file,) = lanes(pipeline, 1)[0].files
    table.add([file], {"somebody else": 0})
    (problem,) = look(pipeline).problems
    assert "as: holds 3 rows of topic-as-0 that are not in the ledger" in problem
    assert Checkpoint(Path(pipeline.checkpoint_path)).newest_landed == 0
