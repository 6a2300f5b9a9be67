"""A process that is paused at any step of landing, while another one goes on: nothing is doubled.

The other one runs in the middle of the first one's call, as if the first had got SIGSTOP there and
SIGCONT afterwards. Locks do not help here: on another machine they may not be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hand_landed import (
    PER_BATCH,
    assert_landed_once,
    consumer,
    held,
    land,
    lanes,
    ledger,
    life,
    pipeline_into,
)
from penstock import specs
from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.report import BatchReport
from penstock.lake import checkpoint as checkpoint_module
from penstock.lake import landing as landing_module
from penstock.lake.checkpoint import Checkpoint
from penstock.lake.compact import compact
from penstock.lake.landing import Landing, Overtaken
from penstock.lake.tables import OpenTable
from penstock.specs.files import create_file

# Reports that are kept: after as many micro-batches, a process that was paused finds its own gone.
KEPT = 2
BEFORE_THE_REPORT = [
    pytest.param(Landing, "_check", 0, id="when the lanes are done"),
    pytest.param(Checkpoint, "write_report", 0, id="before the report"),
    pytest.param(checkpoint_module, "create_file", 0, id="before the report's file"),
]
AFTER_THE_REPORT = [
    pytest.param(OpenTable, "refresh", 0, id="before it looks at the ledger"),
    pytest.param(Landing, "_write_ledger", 0, id="after the report"),
    pytest.param(landing_module, "write_rows", 0, id="before the ledger's file"),
    pytest.param(OpenTable, "add", 0, id="before the ledger"),
    pytest.param(Landing, "_add", 0, id="after the ledger"),
    pytest.param(OpenTable, "add", 1, id="before the first table"),
    pytest.param(OpenTable, "refresh", 2, id="after the first table"),
    pytest.param(OpenTable, "add", 2, id="before the second table"),
    pytest.param(Checkpoint, "note_landed", 0, id="after the last table"),
]
PAUSES = BEFORE_THE_REPORT + AFTER_THE_REPORT


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setattr(checkpoint_module, "_REPORTS_KEPT", KEPT)
    return pipeline_into(tmp_path)


def paused(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    call: int,
    meanwhile: Callable[[], None],
) -> Callable[[], bool]:
    """`meanwhile` happens before the call with this number; whether it has."""
    original: Callable[..., Any] = getattr(owner, name)
    calls = iter(range(1_000_000))
    is_over = False

    def slow(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_over
        if not is_over and next(calls) == call:
            is_over = True
            meanwhile()
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, slow)
    return lambda: is_over


@pytest.mark.parametrize("more", [0, KEPT + 2])
@pytest.mark.parametrize(("owner", "name", "call"), PAUSES)
def test_a_driver_that_was_replaced_while_it_was_paused_adds_nothing(
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    call: int,
    more: int,
) -> None:
    """`more`: how many micro-batches the successor lands after the one that it takes over.

    A compaction comes after it: files that it joined would bring their rows back if they were
    added again.
    """
    land(life(pipeline), pipeline, 0)
    zombie = life(pipeline)
    last = 1 + more

    def successor() -> None:
        land(life(pipeline), pipeline, *range(1, last + 1))
        assert [*compact(pipeline, 1_000_000)]
        assert_landed_once(pipeline, last + 1)

    with monkeypatch.context() as patched:
        was_paused = paused(patched, owner, name, call, successor)
        with suppress(PenstockError):  # it may also find that all is done
            land(zombie, pipeline, 1)
    assert was_paused()
    assert_landed_once(pipeline, last + 1)
    if more:
        with suppress(PenstockError):
            land(zombie, pipeline, 2)
        assert_landed_once(pipeline, last + 1)
    land(life(pipeline), pipeline, last + 1)
    assert_landed_once(pipeline, last + 2)


@pytest.mark.parametrize(("owner", "name", "call"), AFTER_THE_REPORT)
def test_a_driver_that_was_paused_while_it_recovered_adds_nothing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int
) -> None:
    """The report is there already, of a life that was killed."""

    def kill() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        paused(patched, OpenTable, "add", 0, kill)
        land(life(pipeline), pipeline, 0)
    zombie = life(pipeline)

    def successor() -> None:
        land(life(pipeline), pipeline, *range(KEPT + 2))
        assert [*compact(pipeline, 1_000_000)]

    with monkeypatch.context() as patched:
        was_paused = paused(patched, owner, name, call, successor)
        with suppress(PenstockError):
            land(zombie, pipeline, 0)
    assert was_paused()
    land(life(pipeline), pipeline, KEPT + 2)
    assert_landed_once(pipeline, KEPT + 3)


@pytest.mark.parametrize(("owner", "name", "call"), PAUSES)
def test_a_plain_consumer_that_was_replaced_while_it_was_paused_adds_nothing(
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    call: int,
) -> None:
    land(consumer(pipeline, 1), pipeline, 0)
    zombie = consumer(pipeline, 1)

    def successor() -> None:
        for _ in range(KEPT + 2):
            follow_the_ledger(pipeline, consumer(pipeline, 1))
        assert [*compact(pipeline, 1_000_000)]

    with monkeypatch.context() as patched:
        was_paused = paused(patched, owner, name, call, successor)
        with suppress(PenstockError):
            land(zombie, pipeline, 1)
    assert was_paused()
    follow_the_ledger(pipeline, consumer(pipeline, 1))
    assert_landed_once(pipeline, batches(pipeline))
    assert batches(pipeline) >= KEPT + 4


@pytest.mark.parametrize(("owner", "name", "call"), PAUSES)
def test_of_two_with_different_checkpoints_the_ledger_refuses_one(
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    call: int,
) -> None:
    """As two pipelines that were begun on two machines at once, or two groups with one name."""
    one, two = consumer(pipeline, 1), consumer(pipeline, 2)
    land(one, pipeline, 0)

    def other() -> None:
        for _ in range(2):
            follow_the_ledger(pipeline, two)

    with monkeypatch.context() as patched:
        was_paused = paused(patched, owner, name, call, other)
        with suppress(PenstockError):
            land(one, pipeline, 1)
    assert was_paused()
    # The one that was refused starts again and continues from the ledger.
    follow_the_ledger(pipeline, consumer(pipeline, 1))
    follow_the_ledger(pipeline, consumer(pipeline, 2))
    assert_landed_once(pipeline, batches(pipeline))
    assert batches(pipeline) >= 5


def test_an_overtaken_pipeline_gets_an_error(pipeline: Pipeline) -> None:
    elsewhere = replace(pipeline, checkpoint=f"{pipeline.lake}/_pipelines/elsewhere")
    one, two = life(pipeline), life(elsewhere)  # both find empty tables
    land(one, pipeline, 0)
    with pytest.raises(Overtaken, match=r"topic-as-0 is landed up to 3, but micro-batch 0 begins"):
        land(two, elsewhere, 0)
    assert two.checkpoint.newest_report == -1
    assert_landed_once(pipeline, 1)


def test_a_plain_consumer_leaves_out_what_another_one_landed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it could never start again: its last report cannot be landed any more."""
    one, two = consumer(pipeline, 1), consumer(pipeline, 2)
    with monkeypatch.context() as patched, pytest.raises(PenstockError, match="at the same time"):
        paused(patched, OpenTable, "add", 0, lambda: land(two, pipeline, 0))
        land(one, pipeline, 0)
    again = consumer(pipeline, 1)
    follow_the_ledger(pipeline, again)
    assert_landed_once(pipeline, 2)
    assert again.checkpoint.newest_report == 1, "the number of the report must not be used again"


def test_a_report_is_not_written_if_a_newer_one_is_there(pipeline: Pipeline) -> None:
    zombie, successor = life(pipeline), life(pipeline)
    reports = lanes(pipeline, 0)
    land(successor, pipeline, *range(KEPT + 1))
    with pytest.raises(PenstockError, match="wrote the report of micro-batch 2 already") as error:
        zombie.checkpoint.write_report(BatchReport(batch=0, lanes=tuple(reports)))
    assert "was replaced" in error.value.fix
    assert zombie.checkpoint.report(0) is None


def test_a_report_that_came_too_late_is_not_landed_under_a_number_that_was_used(
    pipeline: Pipeline,
) -> None:
    """Its writer was paused between the look for newer reports and the file. The ledger has the
    number, but of another report, and micro-batches without records came after it."""
    one = life(pipeline)
    land(one, pipeline, 0)
    late = lanes(pipeline, 1)
    one.land(1, lambda: lanes(pipeline, 1)[1:])
    for batch in range(2, 2 + KEPT):
        one.land(batch, lambda: [])
    assert one.checkpoint.report(1) is None
    report = BatchReport(batch=1, lanes=tuple(late))
    create_file(one.checkpoint.path / "reports/1.json", specs.dump_json(report))
    with pytest.raises(PenstockError, match=f"another process has landed micro-batch {1 + KEPT}"):
        land(one, pipeline, 1)
    assert held(pipeline, "as").total() == PER_BATCH


# --- help -----------------------------------------------------------------------------------------


def batches(pipeline: Pipeline) -> int:
    return ledger(pipeline).total() // 2


def follow_the_ledger(pipeline: Pipeline, landing: Landing) -> None:
    """One cycle of a plain consumer that begins where the ledger ends."""
    batch = landing.checkpoint.newest_report + 1
    start = batches(pipeline) * PER_BATCH
    landing.land(batch, lambda: lanes(pipeline, batch, start=start))
