"""The pipeline's agent: when a plan is begun and acknowledged, and what it says of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.autoscaler import agent as agents
from penstock.autoscaler.agent import Agent
from penstock.domain.autoscaling import Command, HostAnswer
from penstock.domain.lake.plan import Plan
from penstock.domain.lake.report import BatchReport, LandedRange, LaneReport
from penstock.kafka.waiting import wait_until
from penstock.lake.checkpoint import Checkpoint
from penstock.lake.landing import Landed


class Link:
    """A host's end of the topic, without Kafka."""

    def __init__(self, last: Command | None = None) -> None:
        self.last = last
        self.commands: list[Command] = []
        self.answers: list[HostAnswer] = []

    def past(self) -> Command | None:
        return self.last

    def command(self, timeout_s: float) -> Command | None:
        return self.commands.pop(0) if self.commands else None

    def answer(self, answer: HostAnswer) -> None:
        self.answers.append(answer)

    def close(self) -> None: ...


class Cluster:
    """Gives as many lanes as it has, when they are asked for."""

    most_lanes = None

    def __init__(self, has: int, lanes: int = 1) -> None:
        self.has, self.lanes = has, lanes

    def ask_for(self, lanes: int) -> None:
        self.lanes = min(self.has, max(self.lanes, lanes))

    def give_back(self, lanes: int) -> None:
        self.lanes = lanes


@contextmanager
def serving(
    tmp_path: Path, link: Link, cluster: Cluster, warn: Callable[[str], None] = print
) -> Iterator[tuple[Agent, Checkpoint]]:
    checkpoint = Checkpoint(tmp_path)
    agent = Agent(checkpoint, link, cluster, 0.1, warn)  # type: ignore[arg-type]
    agent.start()
    try:
        yield agent, checkpoint
    finally:
        agent.stop()


def landed(batch: int, *lanes: LaneReport) -> Landed:
    report = BatchReport(batch=batch, lanes=lanes)
    return Landed(report=report, commit_s=0.0, at_ms=1000 * batch, is_recovered=False)


def lane(number: int, plan: int, known_end: int = 9) -> LaneReport:
    read = LandedRange(
        topic="t", partition=number, start=0, end=5, known_end=known_end, lost_from=0
    )
    return LaneReport(batch=1, lane=number, plan=plan, ranges=(read,))


TWO = Command(version=7, lanes={0: ("t-0",), 1: ("t-1",)})


def test_a_plan_is_acknowledged_when_it_was_landed_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_IDLE_S", 60.0)
    link, cluster = Link(), Cluster(has=4)
    with serving(tmp_path, link, cluster) as (agent, checkpoint):
        link.commands.append(TWO)
        wait_until(lambda: checkpoint.plan() is not None, timeout_s=5, what="the plan")
        agent.tell(landed(1, lane(0, plan=0), lane(1, plan=0)))  # by the one before
        wait_until(lambda: any(a.cycles for a in link.answers), timeout_s=5, what="an answer")
        assert {answer.version for answer in link.answers} == {-1}
        agent.tell(landed(2, lane(0, plan=7), lane(1, plan=7)))
        wait_until(lambda: link.answers[-1].version == 7, timeout_s=5, what="that it holds")
    assert link.answers[-1].lanes == TWO.lanes
    assert link.answers[-1].positions == {"t-0": 5, "t-1": 5}


def test_a_plan_is_acknowledged_when_there_is_nothing_to_land(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_IDLE_S", 0.1)
    link = Link(last=TWO)  # said while it was away
    with serving(tmp_path, link, Cluster(has=4)):
        wait_until(
            lambda: bool(link.answers) and link.answers[-1].version == 7,
            timeout_s=5,
            what="that it holds",
        )


def test_what_the_last_plan_needs_is_asked_for_when_it_begins_again(tmp_path: Path) -> None:
    plan = Plan(version=7, lanes=(("t-0",), ("t-1",), ("t-2",)))
    Checkpoint(tmp_path).write_plan(plan)
    cluster = Cluster(has=4)
    with serving(tmp_path, Link(), cluster):
        assert cluster.lanes == 3


def test_a_plan_that_cannot_be_written_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Checkpoint.write_plan
    warnings: list[str] = []

    def refuse(checkpoint: Checkpoint, plan: Plan) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(Checkpoint, "write_plan", refuse)
    monkeypatch.setattr(agents, "_PAUSE_S", 0.05)
    link = Link()
    with serving(tmp_path, link, Cluster(has=4), warnings.append) as (_, checkpoint):
        link.commands.append(TWO)
        wait_until(lambda: bool(warnings), timeout_s=5, what="that it is full")
        monkeypatch.setattr(Checkpoint, "write_plan", written)
        wait_until(lambda: checkpoint.plan() is not None, timeout_s=5, what="the plan")
    assert warnings == ["the pipeline continues with its last plan: the disk is full"]


def test_too_few_executors_give_a_warning_and_keep_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_IDLE_S", 0.1)
    monkeypatch.setattr(agents, "_START_S", 0.3)
    warnings: list[str] = []
    link, cluster = Link(), Cluster(has=2)
    three = Command(version=9, lanes={n: (f"t-{n}",) for n in range(3)})
    with serving(tmp_path, link, cluster, warnings.append) as (_, checkpoint):
        link.commands.append(three)
        wait_until(
            lambda: bool(link.answers) and link.answers[-1].version == 9,
            timeout_s=5,
            what="that it holds",
        )
        plan = checkpoint.plan()
    assert plan is not None and plan.lanes == (("t-0",), ("t-1",), ("t-2",))
    assert warnings == ["3 lanes are needed, but the cluster provides 2"]
    assert link.answers[-1].most_lanes == 2


def order(tmp_path: Path, number: int) -> None:
    """Spark begins a micro-batch."""
    (tmp_path / "spark/offsets").mkdir(parents=True, exist_ok=True)
    (tmp_path / "spark/offsets" / str(number)).touch()


def report(tmp_path: Path, number: int) -> None:
    (tmp_path / "reports").mkdir(exist_ok=True)
    (tmp_path / "reports" / f"{number}.json").touch()


def test_a_micro_batch_that_does_not_end_shows_in_how_long_it_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "HEARTBEAT_S", 0.01)
    order(tmp_path, 0)
    report(tmp_path, 0)
    link = Link()

    def await_busy(is_so: Callable[[float], bool], what: str) -> None:
        before = len(link.answers)
        wait_until(
            lambda: len(link.answers) > before and is_so(link.answers[-1].busy_s),
            timeout_s=5,
            what=what,
        )

    with serving(tmp_path, link, Cluster(has=1)) as (agent, _):
        await_busy(lambda busy_s: busy_s == 0.0, "nothing to do")
        order(tmp_path, 1)
        await_busy(lambda busy_s: busy_s > 0.2, "a micro-batch under way")
        report(tmp_path, 1)  # its commits may hang, too
        await_busy(lambda busy_s: busy_s > 0.3, "a micro-batch under way")
        agent.tell(landed(1, lane(0, plan=0, known_end=5)))
        await_busy(lambda busy_s: busy_s == 0.0, "it is landed, and nothing is left")
        order(tmp_path, 2)
        agent.tell(landed(2, lane(0, plan=0, known_end=9)))
        await_busy(lambda busy_s: busy_s > 0.2, "the next one ought to be under way")


def test_a_micro_batch_that_is_carried_out_again_counts_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "HEARTBEAT_S", 0.01)
    order(tmp_path, 3)
    report(tmp_path, 2)
    link = Link()
    with serving(tmp_path, link, Cluster(has=1)):
        wait_until(
            lambda: bool(link.answers) and link.answers[-1].busy_s > 0.1,
            timeout_s=5,
            what="the micro-batch of the last life",
        )


def test_a_lane_that_was_not_behind_is_not_saturated_because_another_was(tmp_path: Path) -> None:
    link = Link()
    with serving(tmp_path, link, Cluster(has=2)) as (agent, _):
        agent.tell(landed(1, lane(0, plan=0), lane(1, plan=0, known_end=5)))
        agent.tell(landed(2, lane(0, plan=0), lane(1, plan=0)))
        agent.tell(landed(3, lane(0, plan=0), lane(1, plan=0)))
        wait_until(
            lambda: len([c for a in link.answers for c in a.cycles]) == 6,
            timeout_s=5,
            what="the cycles of three micro-batches",
        )
    cycles = [c for answer in link.answers for c in answer.cycles]
    assert [c.is_saturated for c in cycles if c.lane == 0] == [False, True, True]
    assert [c.is_saturated for c in cycles if c.lane == 1] == [False, False, True]
