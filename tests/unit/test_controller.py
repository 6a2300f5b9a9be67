"""The controller: every transition, and no partition with two hosts, whatever is lost or dies."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import specs
from penstock.autoscaler.core.actions import (
    Action,
    AutoscalerNotice,
    LanesDecided,
    Retire,
    Send,
    Start,
)
from penstock.autoscaler.core.controller import Controller, Phase
from penstock.autoscaler.core.policy import Decision, Trigger, View
from penstock.domain.autoscaling import (
    Autoscaling,
    Command,
    HostAnswer,
    PartitionSpeed,
    SpeedMeasurement,
)
from penstock.domain.errors import BadInput
from penstock.domain.lake.cycle import LaneCycle
from penstock.domain.lake.partition import Partition

NAMES = tuple(f"t-{i}" for i in range(6))
SETTINGS = Autoscaling(lane_capacity_bytes_per_s=1000, most_lanes=6, scale_in_s=60, answer_s=10)


def one_host(_: int) -> int:
    return 0


def host_per_lane(lane: int) -> int:
    return lane


def measured(**speeds: float) -> SpeedMeasurement:
    """t0=100.0: 100 records/s of one byte; those that are not named are silent."""
    return SpeedMeasurement(
        at_ms=0,
        partitions={
            name: PartitionSpeed(
                records_per_s=speeds.get(name.replace("-", ""), 0.0), bytes_per_record=1.0, end=0
            )
            for name in NAMES
        },
    )


def controller(host_of: Callable[[int], int] = one_host, **fields: object) -> Controller:
    settings = replace(SETTINGS, **fields)  # type: ignore[arg-type]
    return Controller(settings, settings.policy.decider(settings), host_of, now_s=0.0)


def sent(actions: list[Action]) -> list[Send]:
    return [action for action in actions if isinstance(action, Send)]


def told(actions: list[Action], warnings: bool = False) -> list[str]:
    if warnings:
        return [a.text for a in actions if isinstance(a, AutoscalerNotice) and a.is_warning]
    return [a.reason for a in actions if isinstance(a, LanesDecided)]


def phases(of: Controller) -> list[Phase]:
    return [phase for _, phase in of.transitions]


def synchronised(of: Controller, lanes: Mapping[int, tuple[str, ...]], host: int = 0) -> None:
    of.on_hosts([host], 0.0)
    of.on_answer(HostAnswer(host=host, lanes=lanes), 0.1)


# --- the way around -----------------------------------------------------------------------------------


def test_once_around_sentinel_reassign_manage_synchronise() -> None:
    it = controller()
    (ask,) = sent(it.on_hosts([0], 0.0))
    assert (ask.command.verb, it.phase) == ("tell", Phase.SYNCHRONISE)
    it.on_answer(HostAnswer(host=0), 0.5)
    assert it.phase is Phase.SENTINEL
    actions = it.on_measured(measured(t0=500.0, t1=500.0), 1.0)
    (reason,) = told(actions)
    assert reason.startswith("6 partitions had no lane: 2 lanes instead of 0")
    (start,) = [a for a in actions if isinstance(a, Start)]
    assert start.hosts == {0}  # of both lanes
    (send,) = sent(actions)
    assert (send.host, send.command.verb, it.phase) == (0, "hold", Phase.MANAGE)
    held = send.command.lanes
    assert {p for lane in held.values() for p in lane} == set(NAMES)
    actions = it.on_answer(HostAnswer(host=0, version=send.command.version, lanes=held), 2.0)
    assert Retire(frozenset({0})) in actions
    assert (it.phase, sent(actions)[0].command.verb) == (Phase.SYNCHRONISE, "tell")
    it.on_answer(HostAnswer(host=0, version=send.command.version, lanes=held), 3.0)
    assert phases(it) == [
        Phase.SYNCHRONISE,
        Phase.SENTINEL,
        Phase.REASSIGN,
        Phase.MANAGE,
        Phase.SYNCHRONISE,
        Phase.SENTINEL,
    ]


def test_a_lane_that_has_too_much_is_relieved_and_one_that_is_just_full_is_not() -> None:
    it = controller()
    synchronised(it, {0: NAMES})
    assert it.on_measured(measured(t0=500.0, t1=430.0), 1.0) == []
    actions = it.on_measured(measured(t0=500.0, t1=470.0), 2.0)
    (reason,) = told(actions)
    assert reason == (
        "lane 0 has 970 B/s to read but can read 1.0 kB/s: 2 lanes instead of 1, "
        "1 partition moves (470 B/s)."
    )


def test_what_is_waiting_counts_as_what_comes() -> None:
    it = controller(drain_s=10.0)
    of = measured(t0=400.0, t1=400.0)
    behind = {n: replace(s, end=1500) for n, s in of.partitions.items() if n in ("t-0", "t-1")}
    it.on_hosts([0], 0.0)
    now = replace(of, partitions={**of.partitions, **behind})
    it.on_answer(HostAnswer(host=0, lanes={0: NAMES}, positions={"t-0": 200, "t-1": 1500}), 0.1)
    assert it.on_measured(now, 1.0) == []  # 800 and 1,300 within 10 s
    it.on_answer(HostAnswer(host=0, lanes={0: NAMES}, positions={"t-0": 200, "t-1": 1300}), 1.1)
    assert "lane 0 has 950 B/s" in told(it.on_measured(now, 2.0))[0]


def test_fewer_lanes_only_after_a_while_and_not_for_a_lull() -> None:
    it = controller()
    held: dict[int, tuple[str, ...]] = {0: NAMES[:3], 1: NAMES[3:]}
    synchronised(it, held)
    loud, quiet = measured(t0=600.0, t3=600.0), measured(t0=200.0, t3=200.0)
    for now_s in range(1, 59):
        assert it.on_measured(loud if now_s == 30 else quiet, float(now_s)) == []
    for now_s in range(59, 90):  # the time is up, but it was loud within the last minute
        assert it.on_measured(quiet, float(now_s)) == []
    actions = it.on_measured(quiet, 91.0)
    assert "fewer lanes are enough: 1 lane instead of 2" in told(actions)[0]


def test_a_fixed_number_of_lanes_is_only_balanced() -> None:
    it = controller(lanes=2)
    synchronised(it, {0: NAMES[:4], 1: NAMES[4:]})
    (send,) = sent(it.on_measured(measured(t0=800.0, t1=700.0, t4=100.0), 1.0))
    assert len(send.command.lanes) == 2
    lane_of = {p: lane for lane, held in send.command.lanes.items() for p in held}
    assert lane_of["t-0"] != lane_of["t-1"]
    assert it.on_measured(measured(t0=1.0), 100.0) == []


def test_a_partition_faster_than_a_lane_gets_its_own_with_one_warning() -> None:
    it = controller()
    synchronised(it, {0: NAMES})
    actions = it.on_measured(measured(t0=2500.0, t1=100.0), 1.0)
    assert "t-0 is written at 2.5 kB/s, more than a lane can read" in told(actions, True)[0]
    (send,) = sent(actions)
    assert ("t-0",) in send.command.lanes.values()
    version = send.command.version
    for now_s in (2.0, 3.0):
        it.on_answer(HostAnswer(host=0, version=version, lanes=send.command.lanes), now_s)
    assert it.phase is Phase.SENTINEL
    assert it.on_measured(measured(t0=2500.0, t1=100.0), 4.0) == []


def test_capacity_is_what_was_measured_at_saturation_and_lanes_may_differ() -> None:
    it = controller()
    it.on_hosts([0], 0.0)
    cycles = [
        LaneCycle(lane=0, took_s=1.0, is_saturated=True, size_bytes=9999, offsets={"t-0": 2000}),
        LaneCycle(lane=1, took_s=1.0, is_saturated=True, size_bytes=9999, offsets={"t-3": 500}),
        LaneCycle(lane=2, took_s=1.0, is_saturated=False, size_bytes=9999, offsets={"t-4": 5}),
    ]
    it.on_measured(measured(), 0.1)
    it.on_answer(HostAnswer(host=0, lanes={0: NAMES}, cycles=tuple(cycles)), 0.2)
    assert it.view(1.0).capacities == {0: 2000.0, 1: 500.0}
    assert it.on_measured(measured(t0=900.0, t1=900.0), 1.0) == []  # it can do 2,000


def test_empty_records_say_nothing_of_a_lane() -> None:
    it = controller()
    it.on_hosts([0], 0.0)
    cycle = LaneCycle(lane=0, took_s=1.0, is_saturated=True, size_bytes=0, offsets={"t-0": 500})
    it.on_answer(HostAnswer(host=0, lanes={0: NAMES}, cycles=(cycle,)), 0.2)
    assert it.view(1.0).capacity_of(0) == 1000.0  # not zero
    assert told(it.on_measured(measured(t0=600.0, t1=600.0), 1.0))


def test_the_absence_of_hosts_is_reported_once() -> None:
    it = controller()
    assert told(it.on_tick(5.0), warnings=True) == []
    assert "is the pipeline running?" in told(it.on_tick(11.0), warnings=True)[-1]
    assert told(it.on_tick(25.0), warnings=True) == []
    synchronised(it, {0: NAMES})
    assert told(it.on_tick(40.0), warnings=True) == []


def test_a_lane_that_claims_too_much_is_taken_for_one_like_the_others() -> None:
    it = controller()
    it.on_hosts([0], 0.0)
    it.on_measured(measured(), 0.1)
    cycles = tuple(
        LaneCycle(lane=n, took_s=1.0, is_saturated=True, size_bytes=1, offsets={"t-0": claim})
        for n, claim in enumerate((1000, 1100, 50_000))
    )
    warnings = told(it.on_answer(HostAnswer(host=0, lanes={0: NAMES}, cycles=cycles), 0.2), True)
    assert warnings == [
        "lane 2 reports a far higher speed than the others: using their median instead"
    ]
    assert it.view(1.0).capacities == {0: 1000.0, 1: 1100.0, 2: 1050.0}
    assert it.on_answer(HostAnswer(host=0, lanes={0: NAMES}), 0.3) == []  # said once


def test_the_plan_is_limited_to_available_lanes_with_a_warning() -> None:
    it = controller()
    it.on_hosts([0], 0.0)
    it.on_answer(HostAnswer(host=0, lanes={0: NAMES}, most_lanes=2), 0.1)
    speeds = {f"t{i}": 700.0 for i in range(6)}
    actions = it.on_measured(measured(**speeds), 1.0)
    assert told(actions, True) == ["6 lanes are needed and 2 are available: lag will grow"]
    assert set(sent(actions)[0].command.lanes) == {0, 1}


# --- what goes wrong ------------------------------------------------------------------------------------


def test_without_write_speeds_the_plan_stays_with_one_warning() -> None:
    it = controller()
    synchronised(it, {0: NAMES})
    assert told(it.on_tick(11.0), True) == ["no write speed is known yet: the plan is unchanged"]
    assert it.on_tick(12.0) == []
    it.on_measured(measured(), 13.0)
    assert told(it.on_tick(24.0), True) == ["write speeds are stale: the plan is unchanged"]


def test_an_unacknowledged_command_is_resent_then_reported() -> None:
    it = controller()
    synchronised(it, {})
    (first,) = sent(it.on_measured(measured(t0=1.0), 1.0))
    assert sent(it.on_tick(10.0)) == []
    assert sent(it.on_tick(12.0)) == [first]
    assert sent(it.on_tick(23.0)) == [first]
    actions = it.on_tick(34.0)
    assert told(actions, True) == [
        "host 0 has not acknowledged its plan; what it may hold (6 partitions) stays with it"
    ]
    assert it.phase is Phase.SENTINEL
    # Late, and twice: taken as it is.
    late = HostAnswer(host=0, version=first.command.version, lanes=first.command.lanes)
    it.on_answer(late, 40.0)
    it.on_answer(late, 41.0)
    assert len(it.view(42.0).current) == 6


def test_an_answer_from_before_the_last_command_frees_nothing() -> None:
    it = controller(host_per_lane)
    it.on_hosts([0, 1], 0.0)
    it.on_answer(HostAnswer(host=0, lanes={0: NAMES}), 0.1)
    it.on_answer(HostAnswer(host=1), 0.1)
    actions = it.on_measured(measured(t0=600.0, t1=600.0), 1.0)
    (send,) = sent(actions)  # host 1 must wait until host 0 has let go
    assert send.host == 0 and len(send.command.lanes[0]) == 5
    assert sent(it.on_answer(HostAnswer(host=0, version=-1, lanes={0: NAMES}), 2.0)) == []
    released = HostAnswer(host=0, version=send.command.version, lanes=send.command.lanes)
    (second,) = sent(it.on_answer(released, 3.0))
    assert second.host == 1
    moved = {p for held in second.command.lanes.values() for p in held}
    assert moved == set(NAMES) - set(send.command.lanes[0])


def test_a_host_that_dies_keeps_its_partitions_and_is_started_again() -> None:
    it = controller(host_per_lane)
    synchronised(it, {0: NAMES})
    actions = it.on_hosts([], 1.0)
    assert Start(frozenset({0})) in actions
    assert it.on_measured(measured(t0=1.0), 2.0) == []
    assert sent(it.on_hosts([0], 3.0))[0].command.verb == "tell"


class Group:
    """Hosts that act at once, but for those that cannot run."""

    def __init__(self, it: Controller) -> None:
        self.it, self.alive = it, {0}
        self.holds: dict[int, tuple[str, ...]] = {}
        self.told: list[str] = []

    def play(self, since_s: float, until_s: float, now: SpeedMeasurement) -> None:
        for at_s in range(int(since_s), int(until_s)):
            self.do(self.it.on_hosts(self.alive, at_s), at_s)
            self.do(self.it.on_measured(now, at_s), at_s)
            self.do(self.it.on_tick(at_s), at_s)

    def do(self, actions: list[Action], at_s: float) -> None:
        self.told += told(actions, warnings=True)
        for action in sent(actions):
            if action.host in self.alive:
                if action.command.verb == "hold":
                    self.holds[action.host] = action.command.lanes.get(action.host, ())
                held = self.holds.get(action.host, ())
                lanes = {action.host: held} if held else {}
                answer = HostAnswer(host=action.host, version=action.command.version, lanes=lanes)
                self.do(self.it.on_answer(answer, at_s), at_s)


def test_what_a_host_was_to_have_that_never_starts_is_read_by_others() -> None:
    group = Group(controller(host_per_lane))
    group.play(0, 600, measured(t0=500.0, t1=500.0))
    assert set(group.holds[0]) == set(NAMES)
    assert any(text.startswith("host 1 does not run") for text in group.told)
    assert "2 lanes are needed and 1 are available: lag will grow" in group.told
    assert len(group.told) < 20  # now and then, not all the time
    group.alive.add(1)  # at last
    group.play(600, 1000, measured(t0=500.0, t1=500.0))
    assert sorted(group.holds[0] + group.holds[1]) == sorted(NAMES)
    assert group.holds[1]


def test_a_host_that_dies_while_it_is_to_let_go_holds_up_nobody_else() -> None:
    group = Group(controller(host_per_lane, most_lanes=3))
    group.alive = {0, 1}
    group.play(0, 100, measured(t0=500.0, t3=500.0))
    kept = set(group.holds[1])
    assert kept and set(group.holds[0]) | kept == set(NAMES)
    for at_s in range(100, 300):  # until it is told to let go, and dies of it
        actions = group.it.on_measured(measured(t0=1.0), float(at_s))
        if any(send.host == 1 for send in sent(actions)):
            break
    group.alive = {0}
    group.play(301, 400, measured(t0=1.0))
    assert group.it.phase is Phase.SENTINEL
    assert any(text.startswith("host 1 does not run") for text in group.told)
    assert not kept & set(group.holds[0])  # it may have landed half of something
    group.alive = {0, 1}
    group.play(400, 700, measured(t0=1.0))
    assert set(group.holds[0]) | set(group.holds[1]) == set(NAMES)
    assert not set(group.holds[0]) & set(group.holds[1])


def test_a_host_that_was_started_for_nothing_is_ended() -> None:
    it = controller(host_per_lane)
    it.on_past({0: Command(version=3, lanes={0: NAMES})}, {})
    it.on_hosts([0], 0.0)
    it.on_answer(HostAnswer(host=0, version=3, lanes={0: NAMES}), 0.1)
    assert it.phase is Phase.SENTINEL
    assert sent(it.on_tick(11.0)) == []
    # A controller that is dead by now had started it.
    it.on_hosts([0, 1], 12.0)
    (ask,) = sent(it.on_tick(22.0))  # it has not said yet what it holds
    assert (ask.host, ask.command.verb) == (1, "tell")
    it.on_answer(HostAnswer(host=1), 23.0)
    actions = it.on_tick(33.0)
    assert Retire(frozenset({0})) in actions
    assert [(send.host, send.command.verb) for send in sent(actions)] == [(1, "end")]
    assert told(it.on_hosts([0], 34.0), warnings=True) == [], "its end was wanted"
    assert sent(it.on_tick(44.0)) == []


def test_a_host_stays_while_there_is_nothing_to_read() -> None:
    it = controller(host_per_lane)
    synchronised(it, {})
    assert it.phase is Phase.SENTINEL
    assert sent(it.on_tick(11.0)) == []


def test_a_host_of_before_that_must_be_asked_and_does_not_run_is_named() -> None:
    it = controller(host_per_lane)
    last = Command(version=5, lanes={})
    it.on_past({1: last}, {1: HostAnswer(host=1, version=3)})
    synchronised(it, {0: NAMES})
    group = Group(it)
    group.holds[0] = NAMES
    group.play(1, 60, measured(t0=900.0, t1=900.0))
    assert group.holds == {0: NAMES}
    awaited = "host 1 does not run, but must report what it holds before any partition moves"
    assert group.told.count(awaited) == 1
    # An answer from before its last command does not say it.
    it.on_hosts([0, 1], 60.0)
    it.on_answer(HostAnswer(host=1, version=4, lanes={1: ()}), 60.1)
    assert not it.hosts[1].is_known
    it.on_answer(HostAnswer(host=1, version=5), 60.2)
    assert it.hosts[1].is_known


def test_a_cluster_that_gives_no_lane_at_all_is_planned_for_with_one() -> None:
    it = controller()
    it.on_hosts([0], 0.0)
    it.on_answer(HostAnswer(host=0, lanes={0: NAMES}, most_lanes=0), 0.1)
    assert it.view(0.2).most_lanes == 1
    actions = it.on_measured(measured(t0=900.0, t1=900.0), 1.0)
    assert told(actions, True) == ["3 lanes are needed and 1 are available: lag will grow"]


def test_a_lane_that_claims_too_much_at_ease_is_not_believed_either() -> None:
    it = controller()
    it.on_hosts([0], 0.0)
    it.on_measured(measured(), 0.1)
    cycle = LaneCycle(
        lane=0, took_s=0.001, is_saturated=False, size_bytes=9, offsets={"t-0": 10**6}
    )
    it.on_answer(HostAnswer(host=0, lanes={0: NAMES}, cycles=(cycle,)), 0.2)
    assert it.view(1.0).capacity_of(0) == 3000.0  # three times the usual


def test_a_restarted_controller_continues_from_the_hosts_answers() -> None:
    first = controller()
    synchronised(first, {})
    (send,) = sent(first.on_measured(measured(t0=600.0, t1=600.0), 1.0))
    second = controller()
    synchronised(second, {})
    second.on_answer(
        HostAnswer(host=0, version=send.command.version, lanes=send.command.lanes), 2.0
    )
    assert second.on_measured(measured(t0=600.0, t1=600.0), 3.0) == []
    (later,) = sent(second.on_measured(measured(t0=600.0, t1=600.0, t2=600.0), 4.0))
    assert later.command.version > send.command.version


def test_deleted_partitions_are_dropped() -> None:
    it = controller()
    synchronised(it, {0: (*NAMES, "gone-0")})
    actions = it.on_measured(measured(t0=600.0, t1=600.0), 1.0)
    assert "gone-0" not in str(sent(actions))


# --- lives of hosts -----------------------------------------------------------------------------------


def settled(it: Controller) -> Send:
    """Host 0 holds all, as acknowledged by its life `one`."""
    it.on_hosts([0], 0.0)
    it.on_answer(HostAnswer(host=0, incarnation="one"), 0.1)
    (send,) = sent(it.on_measured(measured(t0=1.0), 1.0))
    held = HostAnswer(
        host=0, incarnation="one", version=send.command.version, lanes=send.command.lanes
    )
    for now_s in (2.0, 3.0):
        it.on_answer(held, now_s)
    assert it.phase is Phase.SENTINEL
    return send


def test_a_host_that_restarted_and_lost_its_plan_is_sent_it_again() -> None:
    it = controller(host_per_lane)
    send = settled(it)
    actions = it.on_answer(HostAnswer(host=0, incarnation="two"), 4.0)
    assert sent(actions) == [send]
    assert told(actions, True) == ["host 0 has restarted and lost its plan, which is resent"]
    # It may still read what the last life was told, so nobody else gets it meanwhile.
    assert it.hosts[0].may_hold == set(NAMES)
    assert sent(it.on_answer(HostAnswer(host=0, incarnation="two"), 4.5)) == []
    assert sent(it.on_tick(15.0)) == [send]  # and again, until it is acknowledged
    held = HostAnswer(
        host=0, incarnation="two", version=send.command.version, lanes=send.command.lanes
    )
    it.on_answer(held, 16.0)
    assert it.hosts[0].is_settled and it.hosts[0].holds == dict(send.command.lanes)
    assert it.on_tick(17.0) == []


def test_an_answer_of_the_same_life_with_a_lower_version_was_overtaken() -> None:
    it = controller(host_per_lane)
    settled(it)
    assert it.on_answer(HostAnswer(host=0, incarnation="one"), 4.0) == []
    assert it.hosts[0].holds == {0: NAMES}


def test_a_restarted_host_with_its_plan_gets_no_command() -> None:
    it = controller(host_per_lane)
    send = settled(it)
    held = HostAnswer(
        host=0, incarnation="two", version=send.command.version, lanes=send.command.lanes
    )
    assert it.on_answer(held, 4.0) == []


def test_an_earlier_process_is_commanded_to_end_with_one_warning() -> None:
    it = controller(host_per_lane)
    send = settled(it)
    held = HostAnswer(
        host=0, incarnation="two", version=send.command.version, lanes=send.command.lanes
    )
    it.on_answer(held, 4.0)
    ghost = HostAnswer(host=0, incarnation="one", version=99, positions={"t-0": 7})
    assert it.is_former(ghost) and not it.is_former(held)
    end = Send(0, Command(verb="end", incarnation="one"))
    first = it.on_answer(ghost, 5.0)
    (warning,) = told(first, True)
    assert warning.startswith("an earlier process of host 0 is back: it is commanded to end")
    assert sent(first) == [end]
    assert it.on_answer(ghost, 6.0) == [end]  # the command may have been lost
    assert it.hosts[0].holds == {0: NAMES}
    # If only that one is heard of any more, it is the one that runs.
    it.on_hosts([], 7.0)
    assert not it.is_former(ghost)


def test_hosts_that_the_lake_knows_are_asked_before_anything_moves() -> None:
    """The topic was deleted: what they were told is gone, and they may hold, or have half landed,
    what it said."""
    it = controller(host_per_lane)
    it.on_past({}, {}, landers=[0, 1])
    synchronised(it, {}, host=0)
    assert sent(it.on_measured(measured(t0=1.0), 1.0)) == []
    assert Start(frozenset({1})) in it.on_tick(11.0)
    (ask,) = sent(it.on_hosts([0, 1], 12.0))
    assert (ask.host, ask.command.verb) == (1, "tell")
    it.on_answer(HostAnswer(host=1, version=7, lanes={1: NAMES[:3]}), 13.0)
    sends = sent(it.on_measured(measured(t0=1.0), 14.0))
    assert all(not set(NAMES[:3]) & set(s.command.lanes.get(0, ())) for s in sends if s.host == 0)


def test_a_hanging_host_is_reported_and_keeps_its_partitions() -> None:
    it = controller(host_per_lane)
    send = settled(it)
    held = HostAnswer(
        host=0, incarnation="one", version=send.command.version, lanes=send.command.lanes
    )
    assert it.on_answer(replace(held, busy_s=59.0), 4.0) == []
    (warning,) = told(it.on_answer(replace(held, busy_s=61.0), 5.0), True)
    assert warning.startswith(
        "host 0 has not finished a turn for 61 s, and what it holds (6 partitions: t-0, t-1, t-2, …)"
    )
    assert it.busy_s == {0: 61.0}
    assert it.on_answer(replace(held, busy_s=80.0), 6.0) == []  # said once
    assert it.hosts[0].may_hold == set(NAMES)
    (again,) = it.on_answer(held, 7.0)
    assert again == AutoscalerNotice("host 0 is responsive again")
    assert it.busy_s == {0: 0.0}
    assert told(it.on_answer(replace(held, busy_s=61.0), 8.0), True)
    it.on_hosts([], 9.0)
    assert it.busy_s == {}


def test_how_long_a_turn_may_take_is_given() -> None:
    it = Controller(SETTINGS, SETTINGS.policy.decider(SETTINGS), one_host, 0.0, busy_limit_s=600.0)
    it.on_hosts([0], 0.0)
    assert it.on_answer(HostAnswer(host=0, busy_s=599.0), 1.0) == []
    assert told(it.on_answer(HostAnswer(host=0, busy_s=601.0), 2.0), True)


# --- whatever happens ---------------------------------------------------------------------------------


class World:
    """Hosts that act on commands some time later, and messages of which some are lost. With
    `forgets`, the topic is deleted now and then, with all commands and answers in it."""

    def __init__(
        self,
        seed: int,
        lossy: bool,
        host_of: Callable[[int], int] = host_per_lane,
        forgets: bool = False,
    ) -> None:
        self.host_of = host_of
        self.forgets = forgets
        self.rng = random.Random(seed)
        self.loss = 0.3 if lossy else 0.0
        self.holds: dict[int, dict[int, tuple[str, ...]]] = {}
        self.versions: dict[int, int] = {}
        # How often each was started, which its incarnation stands for.
        self.lives: dict[int, int] = {}
        # As the lake knows.
        self.landers: set[int] = set()
        # What lies in each host's partition of the topic: it is read in order, even after a death.
        self.logs: dict[int, list[Command]] = {}
        self.last: dict[int, Command] = {}
        self.answers: dict[int, HostAnswer] = {}
        self.dead: set[int] = set()
        self.now_s = 0.0
        self.started: set[int] = set()
        self.it = self._new()

    def _new(self) -> Controller:
        settings = replace(SETTINGS, answer_s=1.0, scale_in_s=5.0)
        new_controller = Controller(
            settings, settings.policy.decider(settings), self.host_of, self.now_s
        )
        new_controller.on_past(self.last, self.answers, self.landers)
        return new_controller

    def execute(self, actions: list[Action]) -> None:
        is_aborted = self.rng.random() < self.loss  # all of them go, or none
        for action in actions:
            match action:
                case Send() if is_aborted:
                    continue
                case Send(host, command):
                    self.logs.setdefault(host, []).append(command)
                    if command.verb == "hold":
                        self.last[host] = command
                case Start(hosts):
                    self.started |= hosts
                case _:
                    pass

    def step(self) -> None:
        self.now_s += 0.3
        kind = self.rng.random()
        self.start_hosts()
        alive = [host for host in self.holds if host not in self.dead]
        self.execute(self.it.on_hosts(alive, self.now_s))
        if alive and kind < 0.6:
            self._act(self.rng.choice(alive))
        if alive and kind > 0.97:
            dead = self.rng.choice(alive)
            # What it held may be half landed, and is landed when it is back: nobody else may.
            self.dead.add(dead)
        is_forgotten = self.forgets and self.rng.random() < 0.1
        if is_forgotten:
            self.forget()
        # The controller dies, and another one begins.
        if kind > 0.99 or (is_forgotten and self.rng.random() < 0.5):
            self.it = self._new()
        self.execute(self.it.on_tick(self.now_s))

    def forget(self) -> None:
        """The topic is deleted; sometimes one who holds something dies just then."""
        self.logs, self.last, self.answers = {}, {}, {}
        holders = [n for n, held in self.holds.items() if held and n not in self.dead]
        if holders and self.rng.random() < 0.5:
            self.dead.add(self.rng.choice(holders))

    def start_hosts(self) -> None:
        """One that begins again reads its last command before it reads anything else."""
        for host in self.started:
            self.holds.setdefault(host, {})
            if host in self.dead:
                self.dead.discard(host)
                self.logs.pop(host, None)
                self.lives[host] = self.lives.get(host, 0) + 1
                self.versions[host], self.holds[host] = -1, {}
                self._take(host, [self.last[host]] if host in self.last else [])
                self.check()
                self._answer(host)
        self.started.clear()

    def _act(self, host: int) -> None:
        """Read some of its commands, and answer."""
        log = self.logs.get(host, [])
        take = self.rng.randint(0, len(log))
        self._take(host, log[:take])
        if any(command.verb == "end" for command in log[:take]):
            self.dead.add(host)
        del log[:take]
        self.check()
        if take and self.rng.random() >= self.loss:
            self._answer(host)

    def _answer(self, host: int) -> None:
        answer = HostAnswer(
            host=host,
            version=self.versions.get(host, -1),
            lanes=self.holds[host],
            incarnation=str(self.lives.get(host, 0)),
        )
        self.answers[host] = answer
        self.execute(self.it.on_answer(answer, self.now_s))

    def _take(self, host: int, commands: list[Command]) -> None:
        for command in commands:
            if command.verb == "hold" and command.version > self.versions.get(host, -1):
                self.holds[host] = {lane: held for lane, held in command.lanes.items() if held}
                self.versions[host] = command.version
                self.landers |= {host} if self.holds[host] else set()

    def settle(self, turns: int) -> None:
        """All that is dead is started; in the end each partition is with somebody."""
        for _ in range(turns):
            self.now_s += 0.3
            self.started |= self.dead
            self.start_hosts()
            self.execute(self.it.on_hosts(list(self.holds), self.now_s))
            for host in list(self.holds):
                self._act(host)
            self.execute(self.it.on_measured(measured(t0=200.0), self.now_s))
            self.execute(self.it.on_tick(self.now_s))
        held = [p for lanes in self.holds.values() for part in lanes.values() for p in part]
        assert sorted(held) == sorted(NAMES)

    def check(self) -> None:
        held = [p for lanes in self.holds.values() for part in lanes.values() for p in part]
        assert len(held) == len(set(held)), "two hosts hold the same partition"


@pytest.mark.parametrize(("lossy", "forgets"), [(False, False), (True, False), (False, True)])
@given(seed=st.integers(0, 10_000))
def test_no_partition_is_ever_with_two_and_all_are_with_one_in_the_end(
    seed: int, lossy: bool, forgets: bool
) -> None:
    world = World(seed, lossy, forgets=forgets)
    world.holds[0] = {}
    for _ in range(60):
        world.step()
        if world.rng.random() < 0.2:
            speeds = {f"t{i}": world.rng.choice([0.0, 200.0, 700.0]) for i in range(6)}
            world.execute(world.it.on_measured(measured(**speeds), world.now_s))
    # Now nothing dies any more, and everything arrives.
    world.loss = 0.0
    world.settle(100)
    if forgets:  # for the last time, with all that holds anything
        world.logs, world.last, world.answers = {}, {}, {}
        world.dead |= {host for host, held in world.holds.items() if held}
        world.settle(30)


class Restarting(World):
    """Whose controller dies at the event `at`, before its commands are sent or just after."""

    def __init__(self, host_of: Callable[[int], int], at: int | None) -> None:
        super().__init__(seed=1, lossy=False, host_of=host_of)
        self.at, self.events = at, 0
        # Events at which something was under way.
        self.busy: list[int] = []

    def execute(self, actions: list[Action]) -> None:
        if self.it.phase is not Phase.SENTINEL:
            self.busy.append(self.events)
        is_last = self.events == self.at
        self.events += 1
        if not is_last or self.events % 2:
            super().execute(actions)
        if is_last:
            self.it = self._new()

    def play(self) -> Restarting:
        """Lanes become many, and few again."""
        self.holds[0] = {}
        for turn in range(140):
            self.now_s += 0.3
            self.start_hosts()
            alive = [host for host in self.holds if host not in self.dead]
            self.execute(self.it.on_hosts(alive, self.now_s))
            for host in alive:
                self._act(host)
            now = measured(t0=700, t1=700, t2=700) if turn < 60 else measured(t0=9)
            self.execute(self.it.on_measured(now, self.now_s))
            self.execute(self.it.on_tick(self.now_s))
        return self


@pytest.mark.parametrize("host_of", [one_host, host_per_lane])
def test_it_may_be_killed_at_every_step(host_of: Callable[[int], int]) -> None:
    events = Restarting(host_of, None).play().busy
    assert len(events) > 8
    for event in events:
        world = Restarting(host_of, event).play()
        holds = world.holds
        assert len(holds.keys() - world.dead) == 1, f"{event}: hosts run that nobody needs"
        held = {p: lane for lanes in holds.values() for lane, part in lanes.items() for p in part}
        assert sorted(held) == sorted(NAMES), event
        assert len(set(held.values())) == 1, event


def test_a_bad_partition_name_is_refused() -> None:
    with pytest.raises(BadInput, match=r"lanes\.0"):
        specs.parse('{"lanes": {"0": ["nonsense"]}}', Command, "said.json")
    with pytest.raises(BadInput, match=r"lanes\.0"):
        specs.parse('{"host": 0, "lanes": {"0": ["nonsense"]}}', HostAnswer, "said.json")


def test_messages_survive_a_round_trip() -> None:
    cycle = LaneCycle(lane=1, took_s=1.5, is_saturated=True, size_bytes=7, offsets={"t-0": 3})
    for message in (
        Command(version=3, lanes={0: ("t-0", "t-10"), 12: ("t-2",)}),
        HostAnswer(host=0, version=3, lanes={1: ("t-0",)}, positions={"t-0": 9}, cycles=(cycle,)),
        measured(t0=5.0),
    ):
        assert specs.parse(specs.dump_json(message), type(message), "said.json") == message


def test_a_policy_of_another_kind_may_decide() -> None:
    class Always:
        def decide(self, view: View) -> Decision | None:
            return Decision({Partition.parse(n): 3 for n in NAMES}, Trigger.RULE, "because.")

    it = Controller(SETTINGS, Always(), one_host, 0.0)
    synchronised(it, {})
    assert sent(it.on_measured(measured(), 1.0))[0].command.lanes == {3: NAMES}
