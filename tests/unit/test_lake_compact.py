"""Compaction and vacuum beside a pipeline: rows and half-landed micro-batches stay."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from hand_landed import (
    PER_BATCH,
    TABLES,
    assert_landed_once,
    consumer,
    held,
    land,
    lanes,
    life,
    pipeline_into,
)
from penstock import specs
from penstock.cli.pipeline import pipeline as command
from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import LaneReport
from penstock.lake import compact as module
from penstock.lake.compact import compact
from penstock.lake.files import write_rows
from penstock.lake.tables import OpenTable

MB = 1_000_000


class Killed(BaseException):
    pass


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return pipeline_into(tmp_path)


def age(pipeline: Pipeline) -> None:
    """Make all data files look two hours old."""
    long_ago = time.time() - 7200
    for file in Path(pipeline.lake).glob("*/*.parquet"):
        os.utime(file, (long_ago, long_ago))


def kill_at_commit(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, batch: int, commit: int
) -> None:
    """A pipeline that is killed before its ledger (0) or a table (1, 2) is committed to."""
    original = OpenTable.add
    calls = iter(range(100))

    def add(self: OpenTable, *args: Any) -> None:
        if next(calls) == commit:
            raise Killed
        original(self, *args)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(OpenTable, "add", add)
        land(life(pipeline), pipeline, batch)


def test_small_files_are_joined_and_the_pipeline_continues(pipeline: Pipeline) -> None:
    one = life(pipeline)
    land(one, pipeline, *range(5))
    done = {each.table: each for each in compact(pipeline, 10 * MB)}
    assert done.keys() == {*TABLES, pipeline.rejects_table, pipeline.ledger_table}
    for table in (*TABLES, pipeline.ledger_table):
        assert (done[table].files_before, done[table].files_after) == (5, 1)
        assert done[table].size_bytes > 0
    assert_landed_once(pipeline, 5)
    land(one, pipeline, 5)
    land(life(pipeline), pipeline, 5, 6)
    assert_landed_once(pipeline, 7)


def test_compaction_and_landing_side_by_side_fail_neither(pipeline: Pipeline) -> None:
    failed: list[BaseException] = []
    one = life(pipeline)
    land(one, pipeline, 0)
    batches = 25

    def work() -> None:
        try:
            land(one, pipeline, *range(1, batches))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    joined = 0
    while thread.is_alive():
        joined += sum(each.files_before > each.files_after for each in compact(pipeline, 10 * MB))
    thread.join()
    assert not failed, failed[0]
    assert joined, "there ought to have been something to join"
    assert_landed_once(pipeline, batches)


def test_times_that_no_calendar_has_survive_compaction(pipeline: Pipeline) -> None:
    """A producer may set anything, and lanes keep what fits into the column."""
    one = life(pipeline)
    odd_us = [2**63 - 1000, -(2**62), 253_402_300_800_000_000, 0]

    def at(batch: int) -> Sequence[LaneReport]:
        reports = lanes(pipeline, batch)
        (file,) = reports[0].files
        rows = pq.read_table(Path(pipeline.lake) / "as" / file.path)
        column = rows.schema.get_field_index("kafka_timestamp")
        kind = rows.schema.field("kafka_timestamp").type
        times = pa.array([odd_us[batch]] * PER_BATCH, pa.int64()).cast(kind)
        odd = write_rows(
            Path(pipeline.lake),
            "as",
            rows.set_column(column, "kafka_timestamp", times),
            "part",
            "zstd",
        )
        return [
            LaneReport(batch=batch, lane=0, files=(odd,), ranges=reports[0].ranges),
            reports[1],
        ]

    for batch in range(len(odd_us)):
        one.land(batch, lambda: at(batch))  # noqa: B023
    assert [*compact(pipeline, 10 * MB)]
    rows = DeltaTable(f"{pipeline.lake}/as").to_pyarrow_table(columns=["kafka_timestamp"])
    times_us = rows.column(0).cast(pa.int64()).to_pylist()
    assert sorted(times_us) == sorted(odd_us * PER_BATCH)
    assert_landed_once(pipeline, len(odd_us))


def test_the_command_says_what_it_did(pipeline: Pipeline, tmp_path: Path) -> None:
    land(life(pipeline), pipeline, 0, 1)
    file = tmp_path / "pipeline.yaml"
    file.write_text(specs.dump_yaml(pipeline))
    done = CliRunner().invoke(
        command, ["compact", str(file), "--vacuum-hours", "1", "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0
    assert json.loads(done.stdout)["outcome"] == "Compacted p: 6 files → 3."
    assert_landed_once(pipeline, 2)


# --- vacuum ---------------------------------------------------------------------------------------


def test_what_no_version_needs_is_removed(pipeline: Pipeline) -> None:
    one = life(pipeline)
    land(one, pipeline, 0, 1)
    lanes(pipeline, 2)  # written by lanes that were killed
    age(pipeline)
    young = lanes(pipeline, 2)
    assert [*compact(pipeline, 1, vacuum_hours=1)]
    for lane, table in enumerate(TABLES):
        left = {file.name for file in Path(pipeline.lake, table).glob("*.parquet")}
        assert young[lane].files[0].path in left
        assert len(left) == 3
    assert_landed_once(pipeline, 2)


@pytest.mark.parametrize("commit", [0, 1, 2])
def test_files_of_a_half_landed_micro_batch_stay(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, commit: int
) -> None:
    land(life(pipeline), pipeline, 0)
    kill_at_commit(pipeline, monkeypatch, 1, commit)
    age(pipeline)
    assert [*compact(pipeline, 10 * MB, vacuum_hours=1)]
    land(life(pipeline), pipeline, 1, 2)
    assert_landed_once(pipeline, 3)


@pytest.mark.parametrize("commit", [0, 1])
def test_files_that_a_killed_vacuum_moved_aside_are_found(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, commit: int
) -> None:
    land(life(pipeline), pipeline, 0)
    kill_at_commit(pipeline, monkeypatch, 1, commit)
    age(pipeline)

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("penstock.lake.compact._needed", killed)
        patched.setattr("penstock.lake.compact._why_strays_stay", lambda *_: "")
        next(iter(compact(pipeline, 10 * MB, vacuum_hours=1)))
    assert [*Path(pipeline.lake).rglob("*.removing")]
    land(life(pipeline), pipeline, 1, 2)
    assert_landed_once(pipeline, 3)


def test_files_of_a_half_landed_plain_consumer_stay(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(consumer(pipeline, 1), pipeline, 0, partition=1)
    two = consumer(pipeline, 2)
    with monkeypatch.context() as patched, pytest.raises(Killed):

        def killed(*_: Any) -> None:
            raise Killed

        patched.setattr(OpenTable, "add", killed)
        land(two, pipeline, 0, partition=2)
    age(pipeline)
    assert [*compact(pipeline, 10 * MB, vacuum_hours=1)]
    consumer(pipeline, 2)
    for number in (1, 2):
        assert_landed_once(pipeline, 1, partition=number)


# --- where the checkpoint is not ----------------------------------------------------------------------


def kept(pipeline: Pipeline, **options: Any) -> set[str]:
    """Why strays were kept, of all tables."""
    done = compact(pipeline, 10 * MB, vacuum_hours=1, **options)
    return {one.strays_kept for one in done if one.table != pipeline.ledger_table}


def files(pipeline: Pipeline) -> int:
    return sum(len([*Path(pipeline.lake, table).glob("*.parquet")]) for table in TABLES)


@pytest.mark.parametrize("commit", [0, 1, 2])
@pytest.mark.parametrize("landed", [0, 1])
def test_files_that_no_commit_names_stay_if_the_checkpoint_is_elsewhere(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, commit: int, landed: int
) -> None:
    land(life(pipeline), pipeline, *range(landed))
    kill_at_commit(pipeline, monkeypatch, landed, commit)
    age(pipeline)
    elsewhere = replace(pipeline, checkpoint=f"{pipeline.lake}/not-mounted")
    (why,) = kept(elsewhere)
    assert "not-mounted; run the vacuum where it is" in why
    land(life(pipeline), pipeline, landed, landed + 1)
    assert_landed_once(pipeline, landed + 2)


def test_they_stay_if_the_checkpoint_is_an_old_copy(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    land(life(pipeline), pipeline, 0)
    copy = replace(pipeline, checkpoint=str(tmp_path / "copy"))
    shutil.copytree(pipeline.checkpoint_path, copy.checkpoint_path)
    kill_at_commit(pipeline, monkeypatch, 1, 1)
    age(pipeline)
    assert "" not in kept(copy)
    land(life(pipeline), pipeline, 1)
    assert_landed_once(pipeline, 2)


def test_they_stay_if_the_tables_are_of_another_pipeline(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(pipeline, name="q")
    streams = tuple(replace(s, table=f"{s.table}-of-q") for s in pipeline.streams)
    life(replace(other, streams=streams))
    kill_at_commit(pipeline, monkeypatch, 0, 1)
    age(pipeline)
    reason = "as is not marked as this pipeline's; start the pipeline first"
    assert f"{pipeline.lake}/{reason}" in kept(other)
    land(life(pipeline), pipeline, 0)
    assert_landed_once(pipeline, 1)


def test_what_commits_removed_is_vacuumed_without_the_checkpoint(pipeline: Pipeline) -> None:
    land(life(pipeline), pipeline, 0, 1, 2)
    assert [*compact(pipeline, 10 * MB)]
    lanes(pipeline, 3)  # written by lanes that were killed
    age(pipeline)
    for log in Path(pipeline.lake).glob("*/_delta_log/*.json"):
        text = re.sub(r'"deletionTimestamp":\d+', '"deletionTimestamp":1', log.read_text())
        log.write_text(text)
    assert files(pipeline) == 2 * (3 + 1 + 1)
    assert "" not in kept(replace(pipeline, checkpoint=f"{pipeline.lake}/not-mounted"))
    assert files(pipeline) == 2 * (1 + 1)
    assert_landed_once(pipeline, 3)


def test_a_checkpoint_that_is_gone_for_good_can_be_named(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    one = life(pipeline)
    land(one, pipeline, 0)
    lanes(pipeline, 1)
    age(pipeline)
    shutil.rmtree(pipeline.checkpoint_path)
    file = tmp_path / "pipeline.yaml"
    file.write_text(specs.dump_yaml(pipeline))
    ask = ["compact", str(file), "--vacuum-hours", "1"]
    stderr = CliRunner().invoke(command, ask, catch_exceptions=False).stderr
    assert f"the checkpoint of writer {one.tables.writer} is not in" in stderr
    assert "--gone-writer" in stderr
    assert files(pipeline) == 4
    stderr = (
        CliRunner()
        .invoke(command, [*ask, "--gone-writer", one.tables.writer], catch_exceptions=False)
        .stderr
    )
    assert "kept" not in stderr
    assert files(pipeline) == 2
    assert_landed_once(pipeline, 1)


def test_a_vacuum_beside_a_paused_driver_costs_it_only_the_micro_batch(pipeline: Pipeline) -> None:
    def paused() -> Sequence[LaneReport]:
        reports = lanes(pipeline, 0)
        age(pipeline)
        assert [*compact(pipeline, MB, vacuum_hours=1)]
        return reports

    with pytest.raises(PenstockError, match="was removed before the report of its micro-batch"):
        life(pipeline).land(0, paused)
    land(life(pipeline), pipeline, 0)
    assert_landed_once(pipeline, 1)


def test_a_report_that_is_written_during_the_vacuum_keeps_its_files(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has looked at its files and is paused; vacuum moves them aside; the driver writes
    its report; vacuum looks for reports."""
    one = life(pipeline)
    needed = module._needed
    writes: list[str] = []

    def late(*args: Any) -> set[str]:
        if not writes:
            writes.append("writing")
            write()  # it finds its files beside their place, and puts them back
        return needed(*args)

    def paused() -> Sequence[LaneReport]:
        reports = lanes(pipeline, 0)
        age(pipeline)
        return reports

    reports = paused()
    monkeypatch.setattr(type(one), "_check", lambda *_: None)  # it was before the pause

    def write() -> None:
        one.land(0, lambda: reports)

    monkeypatch.setattr(module, "_needed", late)
    assert [*compact(pipeline, MB, vacuum_hours=1)]
    assert writes
    land(life(pipeline), pipeline, 1)
    assert_landed_once(pipeline, 2)


def test_a_vacuum_that_was_killed_is_made_good_by_the_next(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_at_commit(pipeline, monkeypatch, 0, 0)
    age(pipeline)

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(module, "_needed", killed)
        [*compact(pipeline, MB, vacuum_hours=1)]
    assert [*Path(pipeline.lake).rglob("*.removing")]
    assert [*compact(pipeline, MB, vacuum_hours=1)]
    assert not [*Path(pipeline.lake).rglob("*.removing")]
    land(life(pipeline), pipeline, 0)
    assert_landed_once(pipeline, 1)
    assert held(pipeline, "as").total() == PER_BATCH


def test_the_ledgers_files_are_not_taken_for_strays(pipeline: Pipeline) -> None:
    """One is written before the commit that names it, and no report knows it."""
    land(life(pipeline), pipeline, 0)
    ledger = Path(pipeline.lake, pipeline.ledger_table)
    (written,) = ledger.glob("*.parquet")
    stray = ledger / "part-00000001-abc.parquet"
    stray.write_bytes(written.read_bytes())
    age(pipeline)
    assert [*compact(pipeline, MB, vacuum_hours=1)]
    assert stray.exists()
