"""The end of a micro-batch, cut off at every step: what is there afterwards is there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline, Stream
from penstock.domain.lake.report import LandedRange, LaneReport
from penstock.pipeline.lake import landing as module
from penstock.pipeline.lake.files import write_rows
from penstock.pipeline.lake.landing import LEDGER_COLUMNS, Landing
from penstock.pipeline.lake.memory import Memory
from penstock.pipeline.lake.query import owned
from penstock.pipeline.lake.records import Records
from penstock.pipeline.lake.sorting import Sorter
from penstock.pipeline.lake.standing import Standing, standing
from penstock.pipeline.lake.tables import Tables

PER_BATCH = 3
TABLES = ("as", "bs")


class Killed(BaseException):
    """Nobody catches it, as nobody catches kill −9."""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    streams = tuple(Stream(topics=(f"topic-{t}",), table=t) for t in TABLES)
    return Pipeline(name="p", bootstrap_servers="x:1", streams=streams, lake=str(tmp_path))


def life(pipeline: Pipeline) -> Landing:
    """A new process: all that is known is on disk."""
    memory = Memory(Path(pipeline.checkpoint_path))
    identity, is_new = memory.open(pipeline)
    tables = Tables(Path(pipeline.lake), identity.id)
    schemas = {**Sorter(pipeline).schemas(), pipeline.ledger_table: LEDGER_COLUMNS}
    tables.prepare(schemas, must_be_empty=is_new)
    tables.check_not_ahead(memory.newest_order)
    return Landing(Path(pipeline.lake), memory, tables, pipeline.ledger_table)


def lanes(pipeline: Pipeline, batch: int) -> Sequence[LaneReport]:
    """What two lanes would have written of two topics."""
    (Path(pipeline.checkpoint_path) / "spark/offsets").mkdir(parents=True, exist_ok=True)
    (Path(pipeline.checkpoint_path) / "spark/offsets" / str(batch)).touch()
    reports = []
    for lane, table in enumerate(TABLES):
        start = batch * PER_BATCH
        offsets = list(range(start, start + PER_BATCH))
        rows = Records(
            [f"topic-{table}"] * PER_BATCH,
            [0] * PER_BATCH,
            offsets,
            [1000] * PER_BATCH,
            [None] * PER_BATCH,
            [None] * PER_BATCH,
            [b"x"] * PER_BATCH,
        )
        done = Sorter(pipeline).sort(rows)
        file = write_rows(Path(pipeline.lake), table, done.tables[table][0], "part", "zstd")
        found = LandedRange(
            topic=f"topic-{table}",
            partition=0,
            start=start,
            end=start + PER_BATCH,
            known_end=start + PER_BATCH,
            lost_from=start,
            rows={table: PER_BATCH},
            offset_sums={table: str(sum(offsets))},
        )
        reports.append(LaneReport(batch=batch, lane=lane, files=(file,), ranges=(found,)))
    return reports


def held(pipeline: Pipeline, table: str) -> Counter[int]:
    rows = DeltaTable(f"{pipeline.lake}/{table}").to_pyarrow_table(columns=["kafka_offset"])
    return Counter(rows.column(0).to_pylist())


def ledger(pipeline: Pipeline) -> Counter[tuple[str, int]]:
    rows = DeltaTable(f"{pipeline.lake}/{pipeline.ledger_table}").to_pyarrow_table()
    return Counter((row["topic"], row["start_offset"]) for row in rows.to_pylist())


def cut_before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int) -> None:
    original: Callable[..., Any] = getattr(owner, name)
    calls = iter(range(1000))

    def killed(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, killed)


CUTS = [
    pytest.param(Memory, "write_report", 0, id="before the report"),
    pytest.param(Tables, "land", 0, id="before the first table"),
    pytest.param(Tables, "land", 1, id="before the second table"),
    pytest.param(module, "write_rows", 0, id="before the ledger's file"),
    pytest.param(Tables, "land", 2, id="before the ledger"),
]


@pytest.mark.parametrize(("owner", "name", "call"), CUTS)
def test_cut_off_at_any_step_it_is_landed_once(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int
) -> None:
    life(pipeline).land(0, lambda: lanes(pipeline, 0))
    first = life(pipeline)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        cut_before(patched, owner, name, call)
        first.land(1, lambda: lanes(pipeline, 1))
    # Spark gives the next life the same micro-batch, and it writes files anew if it is asked to.
    asked: list[int] = []

    def again() -> Sequence[LaneReport]:
        asked.append(1)
        return lanes(pipeline, 1)

    landed = life(pipeline).land(1, again)
    assert bool(asked) == (owner is Memory), "what has a report must not be read again"
    assert landed.is_recovered == (owner is not Memory)
    life(pipeline).land(2, lambda: lanes(pipeline, 2))
    for table in TABLES:
        assert held(pipeline, table) == Counter(range(3 * PER_BATCH))
    assert ledger(pipeline) == Counter(
        (f"topic-{t}", b * PER_BATCH) for t in TABLES for b in range(3)
    )


def test_a_micro_batch_that_is_done_is_not_landed_again(pipeline: Pipeline) -> None:
    life(pipeline).land(0, lambda: lanes(pipeline, 0))
    again = life(pipeline).land(0, lambda: pytest.fail("it was read again"))
    assert again.is_recovered
    assert again.versions == {"as": 1, "bs": 1}
    assert held(pipeline, "as") == Counter(range(PER_BATCH))


def test_a_checkpoint_older_than_the_tables_is_refused(pipeline: Pipeline) -> None:
    """Its numbers would be taken for done, and what they hold now for landed."""
    for batch in range(2):
        life(pipeline).land(batch, lambda: lanes(pipeline, batch))  # noqa: B023
    checkpoint = Path(pipeline.checkpoint_path)
    (checkpoint / "reports/1.json").unlink()
    with pytest.raises(PenstockError, match="older than the tables"):
        life(pipeline).land(1, lambda: lanes(pipeline, 1))
    (checkpoint / "reports/1.json").unlink()
    (checkpoint / "spark/offsets/1").unlink()
    with pytest.raises(PenstockError, match="older than the tables"):
        life(pipeline)
    assert held(pipeline, "as") == Counter(range(2 * PER_BATCH))


def test_a_new_checkpoint_for_old_tables_is_refused(pipeline: Pipeline) -> None:
    """Everything would be landed a second time."""
    life(pipeline).land(0, lambda: lanes(pipeline, 0))
    with pytest.raises(PenstockError, match="holds rows already"):
        life(replace(pipeline, checkpoint=f"{pipeline.lake}/_pipelines/another"))
    with pytest.raises(PenstockError, match="holds rows already"):
        life(replace(pipeline, name="q"))


def test_files_that_are_gone_before_they_are_committed_are_missed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, pytest.raises(Killed):
        cut_before(patched, Tables, "land", 0)
        life(pipeline).land(0, lambda: lanes(pipeline, 0))
    assert standing(pipeline) is Standing.HALF_LANDED
    for file in Path(pipeline.lake, "bs").glob("*.parquet"):
        file.unlink()
    with pytest.raises(PenstockError, match="and is gone"):
        life(pipeline).land(0, lambda: pytest.fail("it was read again"))


def test_of_two_who_land_the_same_micro_batch_one_is_refused(pipeline: Pipeline) -> None:
    one, two = life(pipeline), life(pipeline)

    def meanwhile() -> Sequence[LaneReport]:
        one.land(0, lambda: lanes(pipeline, 0))
        return lanes(pipeline, 0)

    with pytest.raises(PenstockError, match="somebody else landed this micro-batch"):
        two.land(0, meanwhile)
    assert held(pipeline, "as") == Counter(range(PER_BATCH))


def test_whether_tables_stand_still(pipeline: Pipeline) -> None:
    assert standing(pipeline) is Standing.SETTLED
    life(pipeline).land(0, lambda: lanes(pipeline, 0))
    assert standing(pipeline) is Standing.SETTLED
    with owned(pipeline):
        assert standing(pipeline) is Standing.AT_WORK


def test_a_checkpoint_without_its_orders_is_refused(pipeline: Pipeline) -> None:
    life(pipeline).land(0, lambda: lanes(pipeline, 0))
    (Path(pipeline.checkpoint_path) / "spark/offsets/0").unlink()
    with pytest.raises(PenstockError, match="restore the checkpoint as a whole"):
        life(pipeline)


def test_what_is_landed_is_known_after_the_log_was_summed_up(pipeline: Pipeline) -> None:
    """Delta writes checkpoints of its log; transaction numbers must be in them."""
    one = life(pipeline)
    for batch in range(55):
        one.land(batch, lambda: lanes(pipeline, batch))  # noqa: B023
    assert list(Path(pipeline.lake, "as/_delta_log").glob("*.checkpoint*.parquet"))
    again = life(pipeline).land(54, lambda: pytest.fail("it was read again"))
    assert again.versions["as"] == 55
    assert held(pipeline, "as") == Counter(range(55 * PER_BATCH))


def test_lanes_that_say_the_wrong_thing_land_nothing(pipeline: Pipeline) -> None:
    one = life(pipeline)
    twice = lanes(pipeline, 0)
    with pytest.raises(PenstockError, match="carried out order 0 in micro-batch 7"):
        one.land(7, lambda: twice)
    with pytest.raises(PenstockError, match="two lanes read topic-as-0"):
        one.land(0, lambda: [twice[0], twice[0]])
    assert held(pipeline, "as") == Counter()
