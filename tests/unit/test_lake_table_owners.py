"""A table belongs to one pipeline: every start of another one is refused."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from hand_landed import (
    PER_BATCH,
    TABLES,
    assert_landed_once,
    consumer,
    held,
    land,
    life,
    pipeline_into,
)
from penstock.autoscaler.consumer import checkpoint_of
from penstock.domain.errors import BadInput
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.lake import query
from penstock.lake import tables as module
from penstock.lake.checkpoint import reland_checkpoint
from penstock.lake.compact import compact
from penstock.lake.landing import resumed
from penstock.lake.routing import Router

STARTS: dict[str, Callable[[Pipeline], Any]] = {
    "on Spark": lambda pipeline: query.prepare(pipeline, {}),
    "as a plain consumer": lambda pipeline: resumed(
        pipeline, checkpoint_of(pipeline, 0), Router(pipeline).schemas()
    ),
    # (`reland` itself refuses a lake without rejects before that.)
    "to land rejects again": lambda pipeline: resumed(
        pipeline, reland_checkpoint(pipeline), Router(pipeline).schemas()
    ),
}
NOT_OURS = "belongs to another pipeline or ledger"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return pipeline_into(tmp_path)


@pytest.fixture(params=list(STARTS.values()), ids=list(STARTS))
def start(request: pytest.FixtureRequest) -> Callable[[Pipeline], Any]:
    starter: Callable[[Pipeline], Any] = request.param
    return starter


def with_table(pipeline: Pipeline, table: str) -> Pipeline:
    return replace(pipeline, streams=(*pipeline.streams, Stream(topics=(table,), table=table)))


def owner(pipeline: Pipeline, table: str) -> str | None:
    return DeltaTable(f"{pipeline.lake}/{table}").metadata().configuration.get(module.OWNER)


def assert_refused_at_every_start(
    start: Callable[[Pipeline], Any], pipeline: Pipeline, reason: str
) -> None:
    for _ in range(3):  # a supervisor starts it again
        with pytest.raises(BadInput, match=reason):
            start(pipeline)


def test_tables_of_another_pipeline(pipeline: Pipeline, start: Callable[[Pipeline], Any]) -> None:
    """As of the same one by its former name: it would land everything a second time."""
    land(life(pipeline), pipeline, 0, 1)
    assert_refused_at_every_start(start, replace(pipeline, name="q"), NOT_OURS)
    assert_landed_once(pipeline, 2)
    land(life(pipeline), pipeline, 2)
    assert_landed_once(pipeline, 3)


def test_tables_of_another_pipeline_that_has_not_landed_yet(
    pipeline: Pipeline, start: Callable[[Pipeline], Any]
) -> None:
    one = life(pipeline)
    assert_refused_at_every_start(start, replace(pipeline, name="q"), NOT_OURS)
    land(one, pipeline, 0)
    assert_landed_once(pipeline, 1)


def test_a_table_of_another_pipeline_that_is_added_later(
    pipeline: Pipeline, start: Callable[[Pipeline], Any]
) -> None:
    land(life(pipeline), pipeline, 0)
    other = Pipeline(
        name="q",
        bootstrap_servers="x:1",
        streams=(Stream(topics=("t",), table="ts"),),
        lake=pipeline.lake,
    )
    start(other)
    more = with_table(with_table(other, "new"), "as")
    assert_refused_at_every_start(start, more, NOT_OURS)
    assert not (Path(pipeline.lake) / "new").exists()


def test_rows_of_nobody(pipeline: Pipeline, start: Callable[[Pipeline], Any]) -> None:
    columns = Router(pipeline).schemas()["as"]
    start(pipeline)
    row = dict.fromkeys(columns.names)
    write_deltalake(f"{pipeline.lake}/more", pa.Table.from_pylist([row], columns))
    assert_refused_at_every_start(start, with_table(pipeline, "more"), "holds rows already")


def test_tables_whose_ledger_was_removed(
    pipeline: Pipeline, start: Callable[[Pipeline], Any]
) -> None:
    """With the checkpoint, to start over: the name is the same, and everything would be doubled."""
    land(life(pipeline), pipeline, 0)
    shutil.rmtree(pipeline.checkpoint_path)
    shutil.rmtree(f"{pipeline.lake}/{pipeline.ledger_table}")
    assert_refused_at_every_start(start, pipeline, NOT_OURS)


def test_a_new_checkpoint_on_spark(pipeline: Pipeline) -> None:
    land(life(pipeline), pipeline, 0)
    new = replace(pipeline, checkpoint=f"{pipeline.lake}/_pipelines/another")
    assert_refused_at_every_start(STARTS["on Spark"], new, "holds rows already, but .* is new")


def test_an_empty_table_that_the_user_made(
    pipeline: Pipeline, start: Callable[[Pipeline], Any]
) -> None:
    DeltaTable.create(f"{pipeline.lake}/as", Router(pipeline).schemas()["as"])
    start(pipeline)
    assert owner(pipeline, "as") == owner(pipeline, "bs") is not None
    assert_refused_at_every_start(start, replace(pipeline, name="q"), NOT_OURS)


def test_the_mark_outlives_landing_compaction_and_vacuum(pipeline: Pipeline) -> None:
    DeltaTable.create(f"{pipeline.lake}/as", Router(pipeline).schemas()["as"])
    land(life(pipeline), pipeline, *range(60))  # Delta's own checkpoint is at 50
    assert [*compact(pipeline, 10_000_000, vacuum_hours=1)]
    ledger = DeltaTable(f"{pipeline.lake}/{pipeline.ledger_table}").metadata().id
    for table in (*TABLES, pipeline.rejects_table):
        assert owner(pipeline, table) == f"p/{ledger}"
    land(life(pipeline), pipeline, 60)
    assert_landed_once(pipeline, 61)


def before_the_first_claim(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """A process has looked at the table and is paused; meanwhile another one does this."""
    original, calls = module._claim, iter(range(1000))

    def late(*args: Any) -> None:
        if next(calls) == 0:
            do()
        original(*args)

    monkeypatch.setattr(module, "_claim", late)


def test_of_two_who_claim_an_empty_table_at_the_same_time_one_gets_it(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeltaTable.create(f"{pipeline.lake}/as", Router(pipeline).schemas()["as"])
    before_the_first_claim(monkeypatch, lambda: life(replace(pipeline, name="q")))
    with pytest.raises(BadInput, match=NOT_OURS):
        life(pipeline)
    assert str(owner(pipeline, "as")).startswith("q/")


def test_consumers_of_one_group_may_claim_at_the_same_time(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeltaTable.create(f"{pipeline.lake}/as", Router(pipeline).schemas()["as"])
    before_the_first_claim(
        monkeypatch, lambda: land(consumer(pipeline, 2), pipeline, 0, partition=2)
    )
    land(consumer(pipeline, 1), pipeline, 0, partition=1)
    for number in (1, 2):
        assert_landed_once(pipeline, 1, partition=number)


@pytest.mark.parametrize("start", [life, STARTS["to land rejects again"]])
def test_a_table_with_rows_of_this_pipeline_from_before_there_were_marks(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, start: Callable[[Pipeline], Any]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(module, "OWNER", "something.else")
        land(life(pipeline), pipeline, 0)
    assert owner(pipeline, "as") is None
    with pytest.raises(BadInput, match="holds rows already"):
        life(replace(pipeline, name="q"))
    start(pipeline)
    assert owner(pipeline, "as") is not None
    land(life(pipeline), pipeline, 1)
    assert_landed_once(pipeline, 2)


def test_pipelines_with_tables_of_their_own_share_a_lake(
    pipeline: Pipeline, start: Callable[[Pipeline], Any]
) -> None:
    land(life(pipeline), pipeline, 0)
    streams = tuple(replace(s, table=f"{s.table}-of-q") for s in pipeline.streams)
    for _ in range(2):
        start(replace(pipeline, name="q", streams=streams))
    land(life(pipeline), pipeline, 1)
    assert_landed_once(pipeline, 2)
    assert held(pipeline, "as") == Counter(range(2 * PER_BATCH))


@pytest.mark.parametrize("table", ["p_ledger", "as"])
def test_tables_that_would_forget_their_transactions(pipeline: Pipeline, table: str) -> None:
    land(life(pipeline), pipeline, 0)
    forgetting = {"delta.setTransactionRetentionDuration": "interval 1 days"}
    DeltaTable(f"{pipeline.lake}/{table}").alter.set_table_properties(forgetting)
    with pytest.raises(BadInput, match="lets Delta delete the positions"):
        query.prepare(pipeline, {})
