"""The controller: watch, reassign, manage the group, synchronise (S2, 4.4). Pure.

A **host** is a process that takes commands: a Spark pipeline with all its lanes, or one consumer
with one lane. A command lists everything that the host is to hold, so it may be lost, repeated or
late. What a host *may* hold is what it last reported and all later commands that it has not yet
acknowledged. A partition is given to a host only if no other may hold it. So a partition is never
read by two hosts, whichever dies, and a move within one host takes one command.

The caller delivers events and carries out actions (`autoscaler.loop`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from enum import Enum

from penstock.autoscaler.core.actions import (
    Action,
    LanesDecided,
    LanesHandedOver,
    Retire,
    Send,
    Start,
    warning,
)
from penstock.autoscaler.core.handover import handed_over_now, parts_of
from penstock.autoscaler.core.host import TRIES, Host, are_equal
from penstock.autoscaler.core.load_estimate import Load
from penstock.autoscaler.core.notices import Absences, Ghosts, Stalls, named
from penstock.autoscaler.core.policy import Decider, Decision, View, counted
from penstock.domain.autoscaling import Autoscaling, Command, HostAnswer, SpeedMeasurement
from penstock.domain.lake.partition import Partition

# A host that could not be started is not planned for this time, nor are those of higher numbers.
_SCARCE_S = 300.0
# A turn of a host takes seconds; one that takes longer than this is reported as hanging.
BUSY_S = 60.0


class Phase(Enum):
    SYNCHRONISE = "synchronise"
    SENTINEL = "sentinel"
    REASSIGN = "reassign"
    MANAGE = "manage group"


class Controller:
    """Takes events, returns actions. `host_of` says which host a lane runs on; a host that is busy
    with one turn for `busy_limit_s` is reported."""

    def __init__(
        self,
        settings: Autoscaling,
        policy: Decider,
        host_of: Callable[[int], int],
        now_s: float,
        busy_limit_s: float = BUSY_S,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._host_of = host_of
        self._load = Load(settings)
        self._stalls, self._ghosts, self._absences = Stalls(busy_limit_s), Ghosts(), Absences()
        self.phase = Phase.SYNCHRONISE
        self.hosts: dict[int, Host] = {}
        self.transitions: deque[tuple[float, Phase]] = deque([(now_s, self.phase)], maxlen=1000)
        self.target: dict[Partition, int] | None = None
        # The view at the last measurement.
        self.seen: View | None = None
        self._version = 0
        self._changed_s = now_s
        self._measured_s = now_s
        self._most_lanes: int | None = None
        self._warned: set[str] = set()
        self._doubted: set[int] = set()
        self._is_stale = False
        # Hosts that could not be started → since when.
        self._absent_s: dict[int, float] = {}
        self._started_s = now_s

    # --- events ------------------------------------------------------------------------------------

    def on_past(
        self,
        commands: Mapping[int, Command],
        answers: Mapping[int, HostAnswer],
        landers: Collection[int] = (),
    ) -> None:
        """The last command to each host and its last answer; call it first. A host that is down may
        come back and act on its last command. Earlier commands are lost, so a host that did not
        acknowledge the last one must be asked. So must `landers`, hosts that the lake knows, if the
        topic has lost their commands."""
        for number, command in commands.items():
            self._version = max(self._version, command.version)
            host = Host(pending={command.version: dict(command.lanes)}, is_alive=False)
            if (answer := answers.get(number)) is not None:
                host.incarnation = answer.incarnation
                host.acknowledge(answer)
            host.is_known = host.is_settled
            self.hosts[number] = host
        for number in landers:
            self.hosts.setdefault(number, Host(is_alive=False))

    def on_hosts(self, alive: Collection[int], now_s: float) -> list[Action]:
        """The hosts that run. A new one is asked what it holds; one that ended is restarted, and
        keeps its partitions meanwhile."""
        actions: list[Action] = []
        for number, host in self.hosts.items():
            if host.is_alive and number not in alive:
                host.ended()
                actions.append(warning(f"host {number} ended or stopped answering"))
                actions += self._start_again()
        for number in alive:
            host = self.hosts.setdefault(number, Host(is_alive=False))
            if not host.is_alive:
                host.began()
                self._absent_s.pop(number, None)
                actions.append(self._ask(number, now_s))
                if self.phase is not Phase.MANAGE:
                    self._enter(Phase.SYNCHRONISE, now_s)
        return actions

    def on_measured(self, measurement: SpeedMeasurement, now_s: float) -> list[Action]:
        self._load.on_measured(measurement, now_s)
        self._measured_s, self._is_stale = now_s, False
        self.seen = self.view(now_s)
        return self._watch(self.seen) if self.phase is Phase.SENTINEL else []

    def on_answer(self, answer: HostAnswer, now_s: float) -> list[Action]:
        host = self.hosts.setdefault(answer.host, Host())
        if self.is_former(answer):
            return self._ghosts.on_answer(answer)
        is_reborn, host.busy_s = host.recognise(answer), answer.busy_s
        self._version = max(self._version, answer.version)
        self._most_lanes = answer.most_lanes
        self._load.on_answer(answer)
        actions = [*self._doubts(), *self._stalls.on_answer(answer)]
        if answer.version < host.acknowledged_version:
            # From the same process, the answer was overtaken by a later one.
            return [*actions, *self._tell_again(answer, now_s)] if is_reborn else actions
        host.acknowledge(answer)
        if host.is_settled:
            host.asked_s, host.tries = None, 0
        if self.phase is Phase.MANAGE:
            actions += self._manage(now_s)
        elif self.phase is Phase.SYNCHRONISE:
            self._synchronise(now_s)
        return actions

    def is_former(self, answer: HostAnswer) -> bool:
        """Whether it comes from an old process of a host that has a newer one."""
        host = self.hosts.get(answer.host)
        return host is not None and answer.incarnation in host.former

    def _tell_again(self, answer: HostAnswer, now_s: float) -> list[Action]:
        """Resend the plan to a host that restarted and lost it."""
        host = self.hosts[answer.host]
        host.lost_its_plan(answer)
        actions: list[Action] = []
        if not are_equal(host.present, host.holds):
            text = f"host {answer.host} has restarted and lost its plan, which is resent"
            actions.append(warning(text))
        return [*actions, self._send_again(answer.host, now_s)]

    @property
    def _alive(self) -> dict[int, Host]:
        """The hosts that run."""
        return {number: host for number, host in self.hosts.items() if host.is_alive}

    @property
    def busy_s(self) -> dict[int, float]:
        """Running host → seconds since its main thread last finished a turn."""
        return {number: host.busy_s for number, host in self._alive.items()}

    def _doubts(self) -> list[Action]:
        """Warnings about lanes that report too much, each time that it begins."""
        before, self._doubted = self._doubted, set(self._load.capacities.doubted())
        text = "lane {} reports a far higher speed than the others: using their median instead"
        return [warning(text.format(number)) for number in sorted(self._doubted - before)]

    def on_tick(self, now_s: float) -> list[Action]:
        """Call it regularly."""
        actions = self._ask_again(now_s)
        if now_s - self._measured_s > self._settings.stale_s and not self._is_stale:
            self._is_stale = True
            is_known = self._load.is_known
            what = "write speeds are stale" if is_known else "no write speed is known yet"
            actions.append(warning(f"{what}: the plan is unchanged"))
        if self.phase is Phase.SYNCHRONISE:
            self._synchronise(now_s)
        if now_s - self._started_s >= self._settings.answer_s:
            self._started_s = now_s
            actions += [*self._start_again(), *self._absences.among(self.hosts)]
            if self.phase is Phase.SENTINEL:
                actions += self._end_surplus()
        return actions

    def _start_again(self) -> list[Action]:
        """Start the hosts that do not run and are needed, even if only to release partitions. The
        host manager knows which are starting already."""
        needed = {
            n for n, h in self.hosts.items() if not h.is_alive and (h.may_hold or not h.is_known)
        }
        needed |= self._missing()
        return [Start(frozenset(needed))] if needed else []

    def _missing(self) -> set[int]:
        """Hosts that the plan needs and that do not run."""
        planned = {self._host_of(lane) for lane in (self.target or {}).values()}
        return planned - self._alive.keys()

    def _end_surplus(self) -> list[Action]:
        """End hosts that hold nothing and are to get nothing: one that took so long to start that
        the plan no longer needs it, or that was started only to release partitions."""
        holders = {n for n, host in self.hosts.items() if host.may_hold}
        used = holders if self.target is None else {*map(self._host_of, self.target.values())}
        idle = {n for n, host in self._alive.items() if host.is_known and not host.may_hold}
        surplus = idle - used
        if not used or not surplus:  # if there is nothing to read, running hosts stay
            return []
        return self._dismiss(surplus, kept=(self.hosts.keys() | used) - surplus)

    def _dismiss(self, surplus: Collection[int], kept: Collection[int]) -> list[Action]:
        for number in surplus:
            self.hosts[number].ended()
        end = Command(verb="end", version=self._version)
        return [Retire(frozenset(kept)), *(Send(number, end) for number in sorted(surplus))]

    def _stuck(self) -> set[int]:
        """Hosts that block the target plan: they are to get or to release partitions, and do not
        run."""
        held = {n for n, h in self.hosts.items() if not h.is_alive and (h.pending or h.may_hold)}
        return held | self._missing()

    # --- synchronise: what do hosts hold? ------------------------------------------------------------

    def _ask(self, host: int, now_s: float) -> Send:
        known = self.hosts[host]
        known.asked_s = now_s
        known.tries += 1
        return Send(host, Command(verb="tell", version=self._version))

    def _synchronise(self, now_s: float) -> None:
        """Watch again when all running hosts have answered."""
        alive = [host for host in self._alive.values() if not host.is_silent]
        if alive and all(host.asked_s is None for host in alive):
            self._enter(Phase.SENTINEL, now_s)

    def _ask_again(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        stuck = self._stuck() if self.phase is Phase.MANAGE else set()
        if stuck and now_s - self._changed_s > TRIES * self._settings.answer_s:
            actions += self._without(stuck, now_s)
        for number, host in self.hosts.items():
            if host.asked_s is None or now_s - host.asked_s < self._settings.answer_s:
                continue
            if host.is_silent and self.phase in (Phase.MANAGE, Phase.SYNCHRONISE):
                self._enter(Phase.SENTINEL, now_s)  # the others must not wait for it
            if host.tries == TRIES:
                held = counted(len(host.may_hold), "partition")
                text = f"host {number} has not acknowledged its plan; what it may hold ({held}) stays with it"
                actions.append(warning(text))
            if host.is_settled:
                actions.append(self._ask(number, now_s))
            else:
                actions.append(self._send_again(number, now_s))
        return actions

    def _without(self, stuck: set[int], now_s: float) -> list[Action]:
        """Stop waiting for these hosts. What they may hold stays with them; what they were to get
        goes to others for now."""
        assert self.target is not None
        what = "it keeps the partitions that it may hold, others get the rest"
        actions: list[Action] = [warning(f"{named(stuck)} does not run; {what}")]
        for number in stuck:
            # A host that never answered was never sent a command, either.
            unheard = Host(is_alive=False, is_known=True)
            self.hosts.setdefault(number, unheard).is_absent = True
            self._absent_s[number] = now_s
        if others := [lane for lane in self.target.values() if self._host_of(lane) not in stuck]:
            busy = Counter(others)
            for partition, lane in self.target.items():
                if self._host_of(lane) in stuck:
                    self.target[partition] = least = min(busy, key=lambda n: (busy[n], n))
                    busy[least] += 1
            actions += self._manage(now_s)
        self._enter(Phase.SENTINEL, now_s)
        return actions

    # --- sentinel: is it still right? ----------------------------------------------------------------

    def _watch(self, view: View) -> list[Action]:
        decision = self._policy.decide(view)
        if decision is None:
            self._warned = set()
            return []
        new = [caution for caution in decision.warnings if caution.about not in self._warned]
        actions: list[Action] = [warning(caution.text) for caution in new]
        self._warned = {caution.about for caution in decision.warnings}
        is_known = all(host.is_known for host in self.hosts.values())
        if any(host.is_silent for host in self.hosts.values()):
            # What it may hold, or was to hold, cannot move; so do not decide again and again.
            is_known = is_known and view.since_change_s > TRIES * self._settings.answer_s
        is_other = dict(decision.assignment) != dict(view.current)
        if not (is_other and is_known and self._alive):
            return actions
        self._enter(Phase.REASSIGN, view.now_s)
        return [*actions, *self._reassign(decision, view)]

    def view(self, now_s: float) -> View:
        """The input of the policy."""
        most = [self._settings.most_lanes]
        most += [] if self._most_lanes is None else [self._most_lanes]
        most += [n for n, at_s in self._absent_s.items() if now_s - at_s < _SCARCE_S]
        current = {
            partition: lane
            for host in self.hosts.values()
            for lane, held in (host.holds if host.is_silent else host.present).items()
            for partition in map(Partition.parse, held)
        }
        return self._load.view(now_s, now_s - self._changed_s, current, max(1, min(most)))

    # --- reassign, and manage the group --------------------------------------------------------------

    def _reassign(self, decision: Decision, view: View) -> list[Action]:
        self.target = dict(decision.assignment)
        self._changed_s = view.now_s
        self._enter(Phase.MANAGE, view.now_s)
        lanes = frozenset(self.target.values())
        moved = [p for p, lane in self.target.items() if view.current.get(p, lane) != lane]
        decided = LanesDecided(
            at_s=view.now_s,
            trigger=decision.trigger,
            reason=decision.reason,
            assignment=decision.assignment,
            lanes=len(lanes),
            moves=len(moved),
            moved_bytes_per_s=sum(view.speeds.get(p, 0.0) for p in moved),
        )
        start = Start(frozenset(self._host_of(lane) for lane in lanes))
        return [decided, start, *self._manage(view.now_s)]

    def _manage(self, now_s: float) -> list[Action]:
        """Send the commands that are possible by now; finish when all hosts hold the target."""
        assert self.target is not None
        actions: list[Action] = []
        is_done = True
        missing = self._missing()
        target_host = {str(p): self._host_of(lane) for p, lane in self.target.items()}
        for number, part in parts_of(self.target, self._host_of, self.hosts).items():
            host = self.hosts.get(number)
            if host is None:  # on its way
                is_done = False
                continue
            now = handed_over_now(
                number, part, self.hosts, awaited=missing - {number}, to=target_host
            )
            if not are_equal(now, host.present):
                self._version += 1
                actions.append(self._send(number, now, self._version, now_s))
            is_done = is_done and now == part and host.is_settled and are_equal(host.holds, part)
        if is_done:
            used = frozenset(self._host_of(lane) for lane in self.target.values())
            surplus = self._alive.keys() - used
            actions += [
                LanesHandedOver(now_s - self._changed_s),
                *self._dismiss(surplus, kept=used),
            ]
            self._enter(Phase.SYNCHRONISE, now_s)
            actions += [self._ask(number, now_s) for number in self._alive]
        return actions

    def _send_again(self, number: int, now_s: float) -> Send:
        host = self.hosts[number]
        return self._send(number, dict(host.present), host.sent_version, now_s)

    def _send(
        self, number: int, lanes: dict[int, tuple[str, ...]], version: int, now_s: float
    ) -> Send:
        host = self.hosts[number]
        host.tries = host.tries + 1 if version in host.pending else 1
        host.pending[version] = lanes
        host.asked_s = now_s
        return Send(number, Command(verb="hold", version=version, lanes=lanes))

    def _enter(self, phase: Phase, now_s: float) -> None:
        if phase is not self.phase:
            self.phase = phase
            self.transitions.append((now_s, phase))
