"""The end of a micro-batch, cut off at every step: what is there afterwards is there once.

Processes that were paused, and others that land meanwhile: test_lake_zombies.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from hand_landed import (
    PER_BATCH,
    TABLES,
    assert_landed_once,
    consumer,
    held,
    land,
    lanes,
    ledger,
    life,
    pipeline_into,
)
from penstock.domain.errors import PenstockError
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import LandedRange, LaneReport
from penstock.lake import landing as module
from penstock.lake.checkpoint import Checkpoint
from penstock.lake.compact import compact
from penstock.lake.ownership import owned
from penstock.lake.tables import OpenTable, position_of


class Killed(BaseException):
    """Nobody catches it, as nobody catches kill −9."""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return pipeline_into(tmp_path)


def cut_before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int) -> None:
    original: Callable[..., Any] = getattr(owner, name)
    calls = iter(range(1000))

    def killed(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, killed)


CUTS = [
    pytest.param(Checkpoint, "write_report", 0, id="before the report"),
    pytest.param(module, "write_rows", 0, id="before the ledger's file"),
    pytest.param(OpenTable, "add", 0, id="before the ledger"),
    pytest.param(OpenTable, "add", 1, id="before the first table"),
    pytest.param(OpenTable, "add", 2, id="before the second table"),
    pytest.param(Checkpoint, "note_landed", 0, id="after the last table"),
]


@pytest.mark.parametrize(("owner", "name", "call"), CUTS)
def test_cut_off_at_any_step_it_is_landed_once(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int
) -> None:
    land(life(pipeline), pipeline, 0)
    first = life(pipeline)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        cut_before(patched, owner, name, call)
        land(first, pipeline, 1)
    # Spark gives the next life the same micro-batch, and it writes files anew if it is asked to.
    reads: list[int] = []

    def again() -> Sequence[LaneReport]:
        reads.append(1)
        return lanes(pipeline, 1)

    landed = life(pipeline).land(1, again)
    has_report = name != "write_report"
    assert bool(reads) != has_report, "what has a report must not be read again"
    assert landed.is_recovered == has_report
    land(life(pipeline), pipeline, 2)
    assert_landed_once(pipeline, 3)


def test_tables_hold_nothing_that_the_ledger_does_not_know(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = life(pipeline)
    totals: list[tuple[int, int]] = []
    add = OpenTable.add

    def watched(self: OpenTable, *args: Any) -> None:
        add(self, *args)
        totals.append((ledger(pipeline).total(), sum(held(pipeline, t).total() for t in TABLES)))

    monkeypatch.setattr(OpenTable, "add", watched)
    land(one, pipeline, 0)
    assert totals == [(2, 0), (2, PER_BATCH), (2, 2 * PER_BATCH)]


def test_the_ledger_keeps_who_landed_what_and_how_far(pipeline: Pipeline) -> None:
    one = life(pipeline)
    land(one, pipeline, 0, 1)
    table = DeltaTable(f"{pipeline.lake}/{pipeline.ledger_table}")
    assert {row["writer"] for row in table.to_pyarrow_table().to_pylist()} == {one.tables.writer}
    for name in TABLES:
        position = position_of(Partition(f"topic-{name}", 0))
        assert table.transaction_version(position) == 2 * PER_BATCH


def test_epochs_and_truncations_are_in_the_ledger(pipeline: Pipeline) -> None:
    one = life(pipeline)
    land(one, pipeline, 0)

    def after_a_truncation() -> Sequence[LaneReport]:
        first, second = lanes(pipeline, 1)
        read = replace(first.ranges[0], truncated_from=1, leader_epoch=5, epoch_end=4)
        # Nothing was read of it, and its row must not get lost.
        unread = LandedRange(
            topic="topic-bs",
            partition=0,
            start=PER_BATCH,
            end=PER_BATCH,
            known_end=PER_BATCH,
            lost_from=PER_BATCH,
            truncated_from=2,
        )
        return [replace(first, ranges=(read,)), replace(second, files=(), ranges=(unread,))]

    one.land(1, after_a_truncation)
    rows = DeltaTable(f"{pipeline.lake}/{pipeline.ledger_table}").to_pyarrow_table().to_pylist()
    epochs = {
        row["topic"]: (row["truncated_from"], row["leader_epoch"], row["epoch_end"])
        for row in rows
        if row["batch"] == 1
    }
    assert epochs == {"topic-as": (1, 5, 4), "topic-bs": (2, None, None)}
    one.land(2, lambda: lanes(pipeline, 2)[:1])
    one.land(3, lambda: lanes(pipeline, 3, start=PER_BATCH)[1:])
    assert held(pipeline, "bs") == Counter(range(2 * PER_BATCH))


def test_a_micro_batch_that_is_done_is_not_landed_again(pipeline: Pipeline) -> None:
    """Not even after a compaction, when its files are no longer in the table."""
    land(life(pipeline), pipeline, 0, 1)
    assert [*compact(pipeline, 1_000_000)]
    again = life(pipeline).land(1, lambda: pytest.fail("it was read again"))
    assert again.is_recovered
    assert_landed_once(pipeline, 2)


def test_a_checkpoint_older_than_the_tables_is_refused(pipeline: Pipeline) -> None:
    """Its numbers would be taken for done, and what they hold now for landed."""
    land(life(pipeline), pipeline, 0, 1)
    checkpoint = Path(pipeline.checkpoint_path)
    (checkpoint / "reports/1.json").unlink()
    for _ in range(2):  # it must not leave a report that the next try takes for the right one
        with pytest.raises(PenstockError, match="older than the tables"):
            land(life(pipeline), pipeline, 1)
    (checkpoint / "spark/offsets/1").unlink()
    with pytest.raises(PenstockError, match="older than the tables"):
        life(pipeline)
    assert_landed_once(pipeline, 2)


def test_files_that_are_gone_before_the_report_are_read_again(pipeline: Pipeline) -> None:
    def vacuumed() -> Sequence[LaneReport]:
        reports = lanes(pipeline, 0)
        (Path(pipeline.lake) / "bs" / reports[1].files[0].path).unlink()
        return reports

    with pytest.raises(PenstockError, match="was removed before the report"):
        life(pipeline).land(0, vacuumed)
    assert Checkpoint(Path(pipeline.checkpoint_path)).newest_report == -1
    land(life(pipeline), pipeline, 0)
    assert_landed_once(pipeline, 1)


@pytest.mark.parametrize(
    ("add", "reason"), [(0, "which is in no table yet"), (1, "which is in the ledger")]
)
def test_files_that_are_gone_after_the_report_are_missed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, add: int, reason: str
) -> None:
    with monkeypatch.context() as patched, pytest.raises(Killed):
        cut_before(patched, OpenTable, "add", add)
        land(life(pipeline), pipeline, 0)
    for file in Path(pipeline.lake, "as").glob("*.parquet"):
        file.unlink()
    for _ in range(2):
        with pytest.raises(PenstockError, match=reason):
            land(life(pipeline), pipeline, 0)
    assert held(pipeline, "as") == Counter()


def test_a_report_whose_files_are_gone_may_be_removed_and_its_records_are_read_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, pytest.raises(Killed):
        cut_before(patched, OpenTable, "add", 0)
        land(life(pipeline), pipeline, 0)
    for file in Path(pipeline.lake, "as").glob("*.parquet"):
        file.unlink()
    with pytest.raises(PenstockError, match=r"remove reports/0\.json"):
        land(life(pipeline), pipeline, 0)
    (Path(pipeline.checkpoint_path) / "reports/0.json").unlink()
    land(life(pipeline), pipeline, 0)
    assert_landed_once(pipeline, 1)


def test_what_was_half_landed_goes_to_the_table_that_it_was_for(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the file calls it otherwise by now."""
    with monkeypatch.context() as patched, pytest.raises(Killed):
        cut_before(patched, OpenTable, "add", 1)
        land(life(pipeline), pipeline, 0)
    streams = (replace(pipeline.streams[0], table="renamed"), pipeline.streams[1])
    land(life(replace(pipeline, streams=streams)), pipeline, 0)
    assert_landed_once(pipeline, 1)


def test_a_checkpoint_without_its_orders_is_refused(pipeline: Pipeline) -> None:
    land(life(pipeline), pipeline, 0)
    (Path(pipeline.checkpoint_path) / "spark/offsets/0").unlink()
    with pytest.raises(PenstockError, match="restore the checkpoint as a whole"):
        life(pipeline)


def test_what_is_landed_is_known_after_the_log_was_summed_up(pipeline: Pipeline) -> None:
    """Delta writes checkpoints of its log; transaction numbers must be in them."""
    land(life(pipeline), pipeline, *range(55))
    for table in (*TABLES, pipeline.ledger_table):
        assert list(Path(pipeline.lake, table, "_delta_log").glob("*.checkpoint*.parquet"))
    land(life(pipeline), pipeline, 54, 55)
    assert_landed_once(pipeline, 56)


def test_of_reports_some_of_the_last_are_kept(pipeline: Pipeline) -> None:
    land(life(pipeline), pipeline, *range(25))
    checkpoint = Checkpoint(Path(pipeline.checkpoint_path))
    assert [report.batch for report in checkpoint.reports()] == list(range(5, 25))
    assert checkpoint.newest_landed == 24
    assert len([*(checkpoint.path / "reports").iterdir()]) == 40


def test_a_transaction_is_looked_up_only_if_somebody_else_committed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = life(pipeline)
    land(one, pipeline, 0)
    looked_up: list[str] = []
    original = DeltaTable.transaction_version

    def watched(self: DeltaTable, app: str) -> int | None:
        looked_up.append(app)
        return original(self, app)

    monkeypatch.setattr(DeltaTable, "transaction_version", watched)
    land(one, pipeline, 1, 2)
    assert looked_up == []
    DeltaTable(f"{pipeline.lake}/{pipeline.ledger_table}").optimize.compact()
    land(one, pipeline, 3)
    positions = [position_of(Partition(f"topic-{t}", 0)) for t in TABLES]
    assert sorted(looked_up) == sorted([one.tables.writer, *positions])
    assert_landed_once(pipeline, 4)


def test_plain_consumers_land_into_the_same_tables(pipeline: Pipeline) -> None:
    one, two = consumer(pipeline, 1), consumer(pipeline, 2)
    for batch in range(3):
        land(one, pipeline, batch, partition=1)
        land(two, pipeline, batch, partition=2)
    for number in (1, 2):
        consumer(pipeline, number)
        assert_landed_once(pipeline, 3, partition=number)


def test_a_second_lander_is_refused_at_its_start(pipeline: Pipeline) -> None:
    """With the same checkpoint, and with another one for the same ledger."""
    elsewhere = replace(pipeline, checkpoint=f"{pipeline.lake}/_pipelines/elsewhere")
    with owned(pipeline):
        for other in (pipeline, elsewhere):
            for among_equals in (False, True):
                with (
                    pytest.raises(PenstockError, match="in use by another command"),
                    owned(other, among_equals=among_equals),
                ):
                    pass
    assert not Path(pipeline.lake, pipeline.ledger_table).exists()
    with owned(pipeline, among_equals=True), owned(pipeline, among_equals=True):
        land(life(pipeline), pipeline, 0)  # neither lock is in the way of what is made there
    assert_landed_once(pipeline, 1)


def test_lanes_that_say_the_wrong_thing_land_nothing(pipeline: Pipeline) -> None:
    one = life(pipeline)
    twice = lanes(pipeline, 0)
    with pytest.raises(PenstockError, match="ran order 0 in micro-batch 7"):
        one.land(7, lambda: twice)
    with pytest.raises(PenstockError, match="two lanes read topic-as-0"):
        one.land(0, lambda: [twice[0], twice[0]])
    empty = [replace(lane, ranges=()) for lane in twice]
    with pytest.raises(PenstockError, match="has files but no offsets"):
        one.land(0, lambda: empty)
    assert held(pipeline, "as") == Counter()


def test_a_range_that_does_not_follow_on_the_ledger_is_refused(pipeline: Pipeline) -> None:
    land(life(pipeline), pipeline, 0)
    with pytest.raises(PenstockError, match=r"topic-as-0 is landed up to 3, .* begins at 4"):
        life(pipeline).land(1, lambda: lanes(pipeline, 1, start=PER_BATCH + 1))
    assert_landed_once(pipeline, 1)


def test_offsets_that_were_lost_are_part_of_what_the_ledger_accounts_for(
    pipeline: Pipeline,
) -> None:
    land(life(pipeline), pipeline, 0)
    lost = 2

    def after_a_loss() -> Sequence[LaneReport]:
        reports = lanes(pipeline, 1, start=PER_BATCH + lost)
        return [
            replace(lane, ranges=(replace(lane.ranges[0], lost_from=PER_BATCH),))
            for lane in reports
        ]

    life(pipeline).land(1, after_a_loss)
    life(pipeline).land(2, lambda: lanes(pipeline, 2, start=2 * PER_BATCH + lost))
    assert held(pipeline, "as").total() == 3 * PER_BATCH
