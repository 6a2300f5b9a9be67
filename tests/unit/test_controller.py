"""The controller: every transition, and no partition with two hosts, whatever is lost or dies."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import specs
from penstock.autoscaler.actions import Action, Decided, Retire, Send, Start, Tell
from penstock.autoscaler.controller import Controller, Phase
from penstock.autoscaler.policies import policy
from penstock.autoscaler.view import Decision, Trigger, View
from penstock.domain.autoscaling import (
    Answer,
    Autoscaling,
    Command,
    Cycle,
    Measurement,
    PartitionSpeed,
)
from penstock.domain.errors import BadInput
from penstock.domain.lake.partition import Partition

NAMES = tuple(f"t-{i}" for i in range(6))
SETTINGS = Autoscaling(lane_bytes_per_s=1000, most_lanes=6, scale_in_s=60, answer_s=10)


def one_host(_: int) -> int:
    return 0


def host_per_lane(lane: int) -> int:
    return lane


def measured(**speeds: float) -> Measurement:
    """t0=100.0: 100 records/s of one byte; those that are not named are silent."""
    return Measurement(
        at_ms=0,
        partitions={
            name: PartitionSpeed(
                records_per_s=speeds.get(name.replace("-", ""), 0.0), bytes_per_record=1.0, end=0
            )
            for name in NAMES
        },
    )


def controller(host_of: Callable[[int], int] = one_host, **fields: object) -> Controller:
    wanted = replace(SETTINGS, **fields)  # type: ignore[arg-type]
    return Controller(wanted, policy(wanted), host_of, now_s=0.0)


def sent(actions: list[Action]) -> list[Send]:
    return [action for action in actions if isinstance(action, Send)]


def told(actions: list[Action], warnings: bool = False) -> list[str]:
    if warnings:
        return [a.text for a in actions if isinstance(a, Tell) and a.is_warning]
    return [a.reason for a in actions if isinstance(a, Decided)]


def phases(of: Controller) -> list[Phase]:
    return [phase for _, phase in of.transitions]


def synchronised(of: Controller, lanes: Mapping[int, tuple[str, ...]], host: int = 0) -> None:
    of.on_hosts([host], 0.0)
    of.on_answer(Answer(host=host, lanes=lanes), 0.1)


# --- the way around -----------------------------------------------------------------------------------


def test_once_around_sentinel_reassign_manage_synchronise() -> None:
    it = controller()
    (ask,) = sent(it.on_hosts([0], 0.0))
    assert (ask.command.verb, it.phase) == ("tell", Phase.SYNCHRONISE)
    it.on_answer(Answer(host=0), 0.5)
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
    actions = it.on_answer(Answer(host=0, version=send.command.version, lanes=held), 2.0)
    assert Retire(frozenset({0})) in actions
    assert (it.phase, sent(actions)[0].command.verb) == (Phase.SYNCHRONISE, "tell")
    it.on_answer(Answer(host=0, version=send.command.version, lanes=held), 3.0)
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
        "lane 0 has 970 B/s to read and can do 1.0 kB/s: 2 lanes instead of 1, "
        "1 partition moves (470 B/s)."
    )


def test_what_is_waiting_counts_as_what_comes() -> None:
    it = controller(drain_s=10.0)
    of = measured(t0=400.0, t1=400.0)
    behind = {n: replace(s, end=1500) for n, s in of.partitions.items() if n in ("t-0", "t-1")}
    it.on_hosts([0], 0.0)
    now = replace(of, partitions={**of.partitions, **behind})
    it.on_answer(Answer(host=0, lanes={0: NAMES}, positions={"t-0": 200, "t-1": 1500}), 0.1)
    assert it.on_measured(now, 1.0) == []  # 800 and 1,300 within 10 s
    it.on_answer(Answer(host=0, lanes={0: NAMES}, positions={"t-0": 200, "t-1": 1300}), 1.1)
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
    assert "fewer lanes do: 1 lane instead of 2" in told(actions)[0]


def test_a_fixed_number_of_lanes_is_only_balanced() -> None:
    it = controller(lanes=2)
    synchronised(it, {0: NAMES[:4], 1: NAMES[4:]})
    (send,) = sent(it.on_measured(measured(t0=800.0, t1=700.0, t4=100.0), 1.0))
    assert len(send.command.lanes) == 2
    lane_of = {p: lane for lane, held in send.command.lanes.items() for p in held}
    assert lane_of["t-0"] != lane_of["t-1"]
    assert it.on_measured(measured(t0=1.0), 100.0) == []


def test_a_partition_faster_than_a_lane_has_one_of_its_own_and_it_is_said_once() -> None:
    it = controller()
    synchronised(it, {0: NAMES})
    actions = it.on_measured(measured(t0=2500.0, t1=100.0), 1.0)
    assert "t-0 is written at 2.5 kB/s, which is more than a lane can do" in told(actions, True)[0]
    (send,) = sent(actions)
    assert ("t-0",) in send.command.lanes.values()
    version = send.command.version
    for now_s in (2.0, 3.0):
        it.on_answer(Answer(host=0, version=version, lanes=send.command.lanes), now_s)
    assert it.phase is Phase.SENTINEL
    assert it.on_measured(measured(t0=2500.0, t1=100.0), 4.0) == []


def test_capacity_is_what_was_measured_at_saturation_and_lanes_may_differ() -> None:
    it = controller()
    it.on_hosts([0], 0.0)
    cycles = [
        Cycle(lane=0, took_s=1.0, is_saturated=True, size_bytes=9999, offsets={"t-0": 2000}),
        Cycle(lane=1, took_s=1.0, is_saturated=True, size_bytes=9999, offsets={"t-3": 500}),
        Cycle(lane=2, took_s=1.0, is_saturated=False, size_bytes=9999, offsets={"t-4": 5}),
    ]
    it.on_measured(measured(), 0.1)
    it.on_answer(Answer(host=0, lanes={0: NAMES}, cycles=tuple(cycles)), 0.2)
    assert it.view(1.0).capacities == {0: 2000.0, 1: 500.0}
    assert it.on_measured(measured(t0=900.0, t1=900.0), 1.0) == []  # it can do 2,000


def test_empty_records_say_nothing_of_a_lane() -> None:
    it = controller()
    it.on_hosts([0], 0.0)
    cycle = Cycle(lane=0, took_s=1.0, is_saturated=True, size_bytes=0, offsets={"t-0": 500})
    it.on_answer(Answer(host=0, lanes={0: NAMES}, cycles=(cycle,)), 0.2)
    assert it.view(1.0).capacity_of(0) == 1000.0  # not zero
    assert told(it.on_measured(measured(t0=600.0, t1=600.0), 1.0))


def test_that_nobody_is_there_is_said_once() -> None:
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
        Cycle(lane=n, took_s=1.0, is_saturated=True, size_bytes=1, offsets={"t-0": claim})
        for n, claim in enumerate((1000, 1100, 50_000))
    )
    warnings = told(it.on_answer(Answer(host=0, lanes={0: NAMES}, cycles=cycles), 0.2), True)
    assert warnings == [
        "lane 2 claims far more than the others can do: it is taken for one of them"
    ]
    assert it.view(1.0).capacities == {0: 1000.0, 1: 1100.0, 2: 1050.0}
    assert it.on_answer(Answer(host=0, lanes={0: NAMES}), 0.3) == []  # said once


def test_more_lanes_than_the_cluster_gives_are_not_planned_and_it_is_said() -> None:
    it = controller()
    it.on_hosts([0], 0.0)
    it.on_answer(Answer(host=0, lanes={0: NAMES}, most_lanes=2), 0.1)
    speeds = {f"t{i}": 700.0 for i in range(6)}
    actions = it.on_measured(measured(**speeds), 1.0)
    assert told(actions, True) == ["6 lanes are needed and 2 can be had: lag will grow"]
    assert set(sent(actions)[0].command.lanes) == {0, 1}


# --- what goes wrong ------------------------------------------------------------------------------------


def test_without_write_speeds_the_plan_stays_and_that_is_said_once() -> None:
    it = controller()
    synchronised(it, {0: NAMES})
    assert told(it.on_tick(11.0), True) == ["no write speed is known yet: the plan stays as it is"]
    assert it.on_tick(12.0) == []
    it.on_measured(measured(), 13.0)
    assert told(it.on_tick(24.0), True) == ["write speeds are old: the plan stays as it is"]


def test_a_command_that_is_not_acknowledged_is_sent_again_and_then_said() -> None:
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
    late = Answer(host=0, version=first.command.version, lanes=first.command.lanes)
    it.on_answer(late, 40.0)
    it.on_answer(late, 41.0)
    assert len(it.view(42.0).current) == 6


def test_an_answer_from_before_the_last_command_frees_nothing() -> None:
    it = controller(host_per_lane)
    it.on_hosts([0, 1], 0.0)
    it.on_answer(Answer(host=0, lanes={0: NAMES}), 0.1)
    it.on_answer(Answer(host=1), 0.1)
    actions = it.on_measured(measured(t0=600.0, t1=600.0), 1.0)
    (send,) = sent(actions)  # host 1 must wait until host 0 has let go
    assert send.host == 0 and len(send.command.lanes[0]) == 5
    assert sent(it.on_answer(Answer(host=0, version=-1, lanes={0: NAMES}), 2.0)) == []
    released = Answer(host=0, version=send.command.version, lanes=send.command.lanes)
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

    def play(self, since_s: float, until_s: float, now: Measurement) -> None:
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
                answer = Answer(host=action.host, version=action.command.version, lanes=lanes)
                self.do(self.it.on_answer(answer, at_s), at_s)


def test_what_a_host_was_to_have_that_never_starts_is_read_by_others() -> None:
    group = Group(controller(host_per_lane))
    group.play(0, 600, measured(t0=500.0, t1=500.0))
    assert set(group.holds[0]) == set(NAMES)
    assert any(text.startswith("host 1 does not run") for text in group.told)
    assert "2 lanes are needed and 1 can be had: lag will grow" in group.told
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


def test_a_host_of_before_that_must_be_asked_and_does_not_run_is_named() -> None:
    it = controller(host_per_lane)
    last = Command(version=5, lanes={})
    it.on_past({1: last}, {1: Answer(host=1, version=3)})
    synchronised(it, {0: NAMES})
    group = Group(it)
    group.holds[0] = NAMES
    group.play(1, 60, measured(t0=900.0, t1=900.0))
    assert group.holds == {0: NAMES}
    awaited = "host 1 must say what it holds before anything moves, and does not run"
    assert group.told.count(awaited) == 1
    # An answer from before its last command does not say it.
    it.on_hosts([0, 1], 60.0)
    it.on_answer(Answer(host=1, version=4, lanes={1: ()}), 60.1)
    assert not it.hosts[1].is_known
    it.on_answer(Answer(host=1, version=5), 60.2)
    assert it.hosts[1].is_known


def test_a_cluster_that_gives_no_lane_at_all_is_planned_for_with_one() -> None:
    it = controller()
    it.on_hosts([0], 0.0)
    it.on_answer(Answer(host=0, lanes={0: NAMES}, most_lanes=0), 0.1)
    assert it.view(0.2).most_lanes == 1
    actions = it.on_measured(measured(t0=900.0, t1=900.0), 1.0)
    assert told(actions, True) == ["3 lanes are needed and 1 can be had: lag will grow"]


def test_a_lane_that_claims_too_much_at_ease_is_not_believed_either() -> None:
    it = controller()
    it.on_hosts([0], 0.0)
    it.on_measured(measured(), 0.1)
    cycle = Cycle(lane=0, took_s=0.001, is_saturated=False, size_bytes=9, offsets={"t-0": 10**6})
    it.on_answer(Answer(host=0, lanes={0: NAMES}, cycles=(cycle,)), 0.2)
    assert it.view(1.0).capacity_of(0) == 3000.0  # three times the usual


def test_a_controller_that_comes_back_goes_on_from_what_hosts_say() -> None:
    first = controller()
    synchronised(first, {})
    (send,) = sent(first.on_measured(measured(t0=600.0, t1=600.0), 1.0))
    second = controller()
    synchronised(second, {})
    second.on_answer(Answer(host=0, version=send.command.version, lanes=send.command.lanes), 2.0)
    assert second.on_measured(measured(t0=600.0, t1=600.0), 3.0) == []
    (later,) = sent(second.on_measured(measured(t0=600.0, t1=600.0, t2=600.0), 4.0))
    assert later.command.version > send.command.version


def test_partitions_that_are_no_more_are_left_out() -> None:
    it = controller()
    synchronised(it, {0: (*NAMES, "gone-0")})
    actions = it.on_measured(measured(t0=600.0, t1=600.0), 1.0)
    assert "gone-0" not in str(sent(actions))


# --- whatever happens ---------------------------------------------------------------------------------


class World:
    """Hosts that act on commands some time later, and messages of which some are lost."""

    def __init__(
        self, seed: int, lossy: bool, host_of: Callable[[int], int] = host_per_lane
    ) -> None:
        self.host_of = host_of
        self.rng = random.Random(seed)
        self.loss = 0.3 if lossy else 0.0
        self.holds: dict[int, dict[int, tuple[str, ...]]] = {}
        self.versions: dict[int, int] = {}
        # What lies in each host's partition of the topic: it is read in order, even after a death.
        self.logs: dict[int, list[Command]] = {}
        self.last: dict[int, Command] = {}
        self.answers: dict[int, Answer] = {}
        self.dead: set[int] = set()
        self.now_s = 0.0
        self.started: set[int] = set()
        self.it = self._new()

    def _new(self) -> Controller:
        wanted = replace(SETTINGS, answer_s=1.0, scale_in_s=5.0)
        made = Controller(wanted, policy(wanted), self.host_of, self.now_s)
        made.on_past(self.last, self.answers)
        return made

    def carry_out(self, actions: list[Action]) -> None:
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
        self.carry_out(self.it.on_hosts(alive, self.now_s))
        if alive and kind < 0.6:
            self._act(self.rng.choice(alive))
        if alive and kind > 0.97:
            dead = self.rng.choice(alive)
            # What it held may be half landed, and is landed when it is back: nobody else may.
            self.dead.add(dead)
        if kind > 0.99:
            self.it = self._new()  # the controller dies, and another one begins
        self.carry_out(self.it.on_tick(self.now_s))

    def start_hosts(self) -> None:
        """One that begins again reads its last command before it reads anything else."""
        for host in self.started:
            self.holds.setdefault(host, {})
            if host in self.dead:
                self.dead.discard(host)
                self._take(host, self.logs.pop(host, []))
                if host in self.last:
                    self.holds[host] = dict(self.last[host].lanes)
                self.check()
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
            answer = Answer(host=host, version=self.versions.get(host, -1), lanes=self.holds[host])
            self.answers[host] = answer
            self.carry_out(self.it.on_answer(answer, self.now_s))

    def _take(self, host: int, commands: list[Command]) -> None:
        for command in commands:
            if command.verb == "hold" and command.version > self.versions.get(host, -1):
                self.holds[host] = {lane: held for lane, held in command.lanes.items() if held}
                self.versions[host] = command.version

    def check(self) -> None:
        held = [p for lanes in self.holds.values() for part in lanes.values() for p in part]
        assert len(held) == len(set(held)), "two hosts hold the same partition"


@pytest.mark.parametrize("lossy", [False, True])
@given(seed=st.integers(0, 10_000))
@settings(deadline=None)
def test_no_partition_is_ever_with_two_and_all_are_with_one_in_the_end(
    seed: int, lossy: bool
) -> None:
    world = World(seed, lossy)
    world.holds[0] = {}
    for _ in range(60):
        world.step()
        if world.rng.random() < 0.2:
            speeds = {f"t{i}": world.rng.choice([0.0, 200.0, 700.0]) for i in range(6)}
            world.carry_out(world.it.on_measured(measured(**speeds), world.now_s))
    # Now nothing dies any more, and everything arrives.
    world.loss = 0.0
    for _ in range(100):
        world.now_s += 0.3
        world.started |= world.dead
        world.start_hosts()
        world.carry_out(world.it.on_hosts(list(world.holds), world.now_s))
        for host in list(world.holds):
            world._act(host)
        world.carry_out(world.it.on_measured(measured(t0=200.0), world.now_s))
        world.carry_out(world.it.on_tick(world.now_s))
    held = [p for lanes in world.holds.values() for part in lanes.values() for p in part]
    assert sorted(held) == sorted(NAMES)


class Restarting(World):
    """Whose controller dies at the event `at`, before its commands are sent or just after."""

    def __init__(self, host_of: Callable[[int], int], at: int | None) -> None:
        super().__init__(seed=1, lossy=False, host_of=host_of)
        self.at, self.events = at, 0
        # Events at which something was under way.
        self.busy: list[int] = []

    def carry_out(self, actions: list[Action]) -> None:
        if self.it.phase is not Phase.SENTINEL:
            self.busy.append(self.events)
        is_last = self.events == self.at
        self.events += 1
        if not is_last or self.events % 2:
            super().carry_out(actions)
        if is_last:
            self.it = self._new()

    def play(self) -> Restarting:
        """Lanes become many, and few again."""
        self.holds[0] = {}
        for turn in range(140):
            self.now_s += 0.3
            self.start_hosts()
            alive = [host for host in self.holds if host not in self.dead]
            self.carry_out(self.it.on_hosts(alive, self.now_s))
            for host in alive:
                self._act(host)
            now = measured(t0=700, t1=700, t2=700) if turn < 60 else measured(t0=9)
            self.carry_out(self.it.on_measured(now, self.now_s))
            self.carry_out(self.it.on_tick(self.now_s))
        return self


@pytest.mark.parametrize("host_of", [one_host, host_per_lane])
def test_it_may_be_killed_at_every_step(host_of: Callable[[int], int]) -> None:
    events = Restarting(host_of, None).play().busy
    assert len(events) > 8
    for event in events:
        holds = Restarting(host_of, event).play().holds
        held = {p: lane for lanes in holds.values() for lane, part in lanes.items() for p in part}
        assert sorted(held) == sorted(NAMES), event
        assert len(set(held.values())) == 1, event


def test_a_partition_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match=r"lanes\.0"):
        specs.parse('{"lanes": {"0": ["nonsense"]}}', Command, "said.json")
    with pytest.raises(BadInput, match=r"lanes\.0"):
        specs.parse('{"host": 0, "lanes": {"0": ["nonsense"]}}', Answer, "said.json")


def test_what_they_tell_one_another_is_read_as_it_was_said() -> None:
    cycle = Cycle(lane=1, took_s=1.5, is_saturated=True, size_bytes=7, offsets={"t-0": 3})
    for said in (
        Command(version=3, lanes={0: ("t-0", "t-10"), 12: ("t-2",)}),
        Answer(host=0, version=3, lanes={1: ("t-0",)}, positions={"t-0": 9}, cycles=(cycle,)),
        measured(t0=5.0),
    ):
        assert specs.parse(specs.dump_json(said), type(said), "said.json") == said


def test_a_policy_of_another_kind_may_decide() -> None:
    class Always:
        def decide(self, view: View) -> Decision | None:
            return Decision({Partition.parse(n): 3 for n in NAMES}, Trigger.RULE, "because.")

    it = Controller(SETTINGS, Always(), one_host, 0.0)
    synchronised(it, {})
    assert sent(it.on_measured(measured(), 1.0))[0].command.lanes == {3: NAMES}
