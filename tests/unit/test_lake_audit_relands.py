"""The audit beside a reland, and after one that was killed: its rows are in two tables for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from hand_audited import Found, look
from hand_landed import PER_BATCH, land, life, pipeline_into
from penstock.domain.lake.pipeline import Pipeline
from penstock.lake import reland as reland_module
from penstock.lake.decoders.json import JsonDecoder
from penstock.lake.reland import reland
from penstock.lake.snapshot import TableSnapshot
from penstock.lake.tables import OpenTable

REJECTS = "p_rejects"


class Killed(BaseException):
    pass


@pytest.fixture(params=["named before the rejects", "named after them"])
def fixed(tmp_path: Path, request: pytest.FixtureRequest) -> Pipeline:
    """Its records were rejected, as not being JSON, and are none any more. Tables are looked at in
    the order of their names."""
    pipeline = pipeline_into(tmp_path)
    old = (
        replace(s, table=f"old-{s.table}", decoder=JsonDecoder(columns={"n": "long"}))
        for s in pipeline.streams
    )
    broken = replace(pipeline, streams=tuple(old))
    land(life(broken), broken, 0, 1)
    if request.param == "named before the rejects":
        return pipeline
    new = (replace(s, table=f"z{s.table}") for s in pipeline.streams)
    return replace(pipeline, streams=tuple(new))


def reland_killed(fixed: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the tables have the rows, and the rejects have them too."""

    def remove(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(OpenTable, "remove", remove)
        reland(fixed)


def test_a_reland_that_was_killed(fixed: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(fixed) == Found([], [])
    reland_killed(fixed, monkeypatch)
    outcome = look(fixed)
    assert outcome.problems == []
    (note,) = outcome.half_landed
    assert f"{REJECTS}: {4 * PER_BATCH} rows of micro-batch 0" in note and "half moved" in note
    reland(fixed)
    assert look(fixed) == Found([], [])


def row_gone(fixed: Pipeline) -> str:
    table = fixed.tables[0]
    DeltaTable(f"{fixed.lake}/{table}").delete("kafka_offset = 1")
    return f"{table}: 1 of the 6 rows of topic-as-0 in the ledger are missing"


def reject_gone(fixed: Pipeline) -> str:
    where = "kafka_offset = 1 AND kafka_topic = 'topic-as'"
    DeltaTable(f"{fixed.lake}/{REJECTS}").delete(where)
    return f"{REJECTS}: 1 of the 6 rows of topic-as-0 in the ledger are missing"


def row_doubled(fixed: Pipeline) -> str:
    table = f"{fixed.lake}/{fixed.tables[0]}"
    write_deltalake(table, DeltaTable(table).to_pyarrow_table().slice(0, 1), mode="append")
    return "1 rows of topic-as-0 are in both"


def row_in_a_third_table(fixed: Pipeline) -> str:
    table, other = fixed.tables
    row = DeltaTable(f"{fixed.lake}/{table}").to_pyarrow_table().slice(0, 1)
    write_deltalake(f"{fixed.lake}/{other}", row, mode="append")
    return "rows of topic-as-0 are in both"


@pytest.mark.parametrize("change", [row_gone, reject_gone, row_doubled, row_in_a_third_table])
def test_a_reland_that_was_killed_hides_nothing(
    fixed: Pipeline, monkeypatch: pytest.MonkeyPatch, change: Callable[[Pipeline], str]
) -> None:
    reland_killed(fixed, monkeypatch)
    phrase = change(fixed)
    problems = look(fixed).problems
    assert any(phrase in problem for problem in problems), problems


def test_the_rejects_set_back_after_a_reland(fixed: Pipeline) -> None:
    reland(fixed)
    rejects = DeltaTable(f"{fixed.lake}/{REJECTS}")
    rejects.restore(rejects.version() - 1)
    problems = look(fixed).problems
    assert any("6 rows of topic-as-0 are in both" in problem for problem in problems)


def test_any_moment_of_a_reland(fixed: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two of its commits, and with several of them while the tables are looked at."""
    monkeypatch.setattr(reland_module, "_MOST_ROWS", 4)
    ended = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            reland(fixed)
        except BaseException as error:
            failed.append(error)
        ended.set()

    original = TableSnapshot.take.__func__  # type: ignore[attr-defined]

    def slow(cls: type[TableSnapshot], audited_pipeline: Pipeline, name: str) -> TableSnapshot:
        ended.wait(0.02)
        table: TableSnapshot = original(cls, audited_pipeline, name)
        return table

    monkeypatch.setattr(TableSnapshot, "take", classmethod(slow))
    thread = threading.Thread(target=work)
    thread.start()
    while not ended.is_set():
        assert look(fixed).problems == []
    thread.join()
    assert not failed
    assert look(fixed) == Found([], [])
