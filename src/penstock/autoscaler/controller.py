"""The controller: watch, reassign, manage the group, synchronise (S2, 4.4). Pure.

A **host** is a process that takes commands: a Spark pipeline with all its lanes, or one consumer
with one lane. A command says what the host is to hold, whole and for good, so it may be lost,
repeated or come late. What a host *may* hold is what it last said and what it was last told, until
it acknowledged; a partition is given to a host only if no other may hold it. So a partition is
never read by two, whoever dies, and a move within one host takes one command.

Who carries actions out, and where events come from, is the business of others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from enum import Enum

from penstock.autoscaler.actions import Action, Decided, HandedOver, Retire, Send, Start, Tell
from penstock.autoscaler.host import TRIES, Host, are_equal
from penstock.autoscaler.load import Load
from penstock.autoscaler.view import Decision, Policy, View, counted
from penstock.domain.autoscaling import Answer, Autoscaling, Command, Measurement
from penstock.domain.lake.partition import Partition

# Hosts that could not be had are not asked for again for so long, nor those of higher numbers.
_SCARCE_S = 300.0


class Phase(Enum):
    SYNCHRONISE = "synchronise"
    SENTINEL = "sentinel"
    REASSIGN = "reassign"
    MANAGE = "manage group"


class Controller:
    """Give it events; it gives actions. `host_of` says which host a lane runs on."""

    def __init__(
        self, settings: Autoscaling, policy: Policy, host_of: Callable[[int], int], now_s: float
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._host_of = host_of
        self._load = Load(settings)
        self.phase = Phase.SYNCHRONISE
        self.hosts: dict[int, Host] = {}
        self.transitions: deque[tuple[float, Phase]] = deque([(now_s, self.phase)], maxlen=1000)
        self.wanted: dict[Partition, int] | None = None
        # The group as it was when it was last measured.
        self.seen: View | None = None
        self._version = 0
        self._changed_s = now_s
        self._measured_s = now_s
        self._most_lanes: int | None = None
        self._warned: set[str] = set()
        self._doubted: set[int] = set()
        self._is_stale = False
        self._is_alone = False
        self._awaited: frozenset[int] = frozenset()
        # Hosts that could not be had, and since when.
        self._absent_s: dict[int, float] = {}
        self._started_s = now_s

    # --- events ------------------------------------------------------------------------------------

    def on_past(self, commands: Mapping[int, Command], answers: Mapping[int, Answer]) -> None:
        """The last command to each host and its last answer, before anything else: one that is
        dead just now may come back and act on it. What it was told in between, nobody knows any
        more, so one that did not acknowledge the last command is to be asked."""
        for number, command in commands.items():
            self._version = max(self._version, command.version)
            host = Host(pending={command.version: dict(command.lanes)}, is_alive=False)
            if (answer := answers.get(number)) is not None:
                host.said(answer)
            host.is_known = host.is_settled
            self.hosts[number] = host

    def on_hosts(self, alive: Collection[int], now_s: float) -> list[Action]:
        """Those that run. A new one is asked what it holds; one that ended is started again, and
        what it held stays with it meanwhile."""
        actions: list[Action] = []
        for number, host in self.hosts.items():
            if host.is_alive and number not in alive:
                host.ended()
                actions.append(Tell(f"host {number} is gone", is_warning=True))
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

    def on_measured(self, measurement: Measurement, now_s: float) -> list[Action]:
        self._load.on_measured(measurement, now_s)
        self._measured_s, self._is_stale = now_s, False
        self.seen = self.view(now_s)
        return self._watch(self.seen) if self.phase is Phase.SENTINEL else []

    def on_answer(self, answer: Answer, now_s: float) -> list[Action]:
        host = self.hosts.setdefault(answer.host, Host())
        self._version = max(self._version, answer.version)
        self._most_lanes = answer.most_lanes
        self._load.on_answer(answer)
        actions = self._doubts()
        if answer.version < host.said_version:
            return actions  # overtaken by a later one
        host.said(answer)
        if host.is_settled:
            host.asked_s, host.tries = None, 0
        if self.phase is Phase.MANAGE:
            actions += self._manage(now_s)
        elif self.phase is Phase.SYNCHRONISE:
            actions += self._synchronised(now_s)
        return actions

    def _doubts(self) -> list[Action]:
        """Of lanes that claim more than can be; each time that it begins."""
        before, self._doubted = self._doubted, set(self._load.capacities.doubted())
        text = "lane {} claims far more than the others can do: it is taken for one of them"
        return [Tell(text.format(n), is_warning=True) for n in sorted(self._doubted - before)]

    def on_tick(self, now_s: float) -> list[Action]:
        """Every now and then."""
        actions = self._ask_again(now_s)
        if now_s - self._measured_s > self._settings.stale_s and not self._is_stale:
            self._is_stale = True
            what = (
                "no write speed is known yet" if not self._load.is_known else "write speeds are old"
            )
            actions.append(Tell(f"{what}: the plan stays as it is", is_warning=True))
        if self.phase is Phase.SYNCHRONISE:
            actions += self._synchronised(now_s)
        if now_s - self._started_s >= self._settings.answer_s:
            self._started_s = now_s
            actions += [*self._start_again(), *self._loneliness()]
        return actions

    def _loneliness(self) -> list[Action]:
        """Said once, until somebody is there; and until those are there who must be asked."""
        actions: list[Action] = []
        was_alone, self._is_alone = self._is_alone, not any(h.is_alive for h in self.hosts.values())
        if self._is_alone and not was_alone:
            text = "nobody is heard of who could take a plan: is the pipeline running?"
            actions.append(Tell(text, is_warning=True))
        before, self._awaited = (
            self._awaited,
            frozenset(n for n, h in self.hosts.items() if not (h.is_known or h.is_alive)),
        )
        if not self._is_alone and (unknown := self._awaited - before):
            text = (
                f"{_named(unknown)} must say what it holds before anything moves, and does not run"
            )
            actions.append(Tell(text, is_warning=True))
        return actions

    def _start_again(self) -> list[Action]:
        """Those that do not run and are needed, be it only to let go of something; whoever starts
        them knows those that are on their way."""
        needed = {
            n for n, h in self.hosts.items() if not h.is_alive and (h.may_hold or not h.is_known)
        }
        needed |= self._missing()
        return [Start(frozenset(needed))] if needed else []

    def _missing(self) -> set[int]:
        """Hosts that the plan wants, and that do not run."""
        wanted = {self._host_of(lane) for lane in (self.wanted or {}).values()}
        return {n for n in wanted if n not in self.hosts or not self.hosts[n].is_alive}

    def _stuck(self) -> set[int]:
        """Hosts without which what is wanted cannot be reached: they are to have something, or to
        let go of it, and do not run."""
        held = {n for n, h in self.hosts.items() if not h.is_alive and (h.pending or h.may_hold)}
        return held | self._missing()

    # --- synchronise: what do hosts hold? ------------------------------------------------------------

    def _ask(self, host: int, now_s: float) -> Send:
        known = self.hosts[host]
        known.asked_s = now_s
        known.tries += 1
        return Send(host, Command(verb="tell", version=self._version))

    def _synchronised(self, now_s: float) -> list[Action]:
        alive = [host for host in self.hosts.values() if host.is_alive and not host.is_silent]
        if not alive or any(host.asked_s is not None for host in alive):
            return []
        self._enter(Phase.SENTINEL, now_s)
        return []

    def _ask_again(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        stuck = self._stuck() if self.phase is Phase.MANAGE else set()
        if stuck and now_s - self._changed_s > TRIES * self._settings.answer_s:
            actions += self._without(stuck, now_s)
        for number, host in self.hosts.items():
            if host.asked_s is None or now_s - host.asked_s < self._settings.answer_s:
                continue
            if host.is_silent and self.phase in (Phase.MANAGE, Phase.SYNCHRONISE):
                self._enter(Phase.SENTINEL, now_s)  # the others are not to wait for it
            if host.tries == TRIES:
                held = counted(len(host.may_hold), "partition")
                text = f"host {number} has not acknowledged its plan; what it may hold ({held}) stays with it"
                actions.append(Tell(text, is_warning=True))
            if not host.is_settled:
                again = dict(host.present)
                actions.append(self._send(number, again, host.told_version, now_s))
            else:
                actions.append(self._ask(number, now_s))
        return actions

    def _without(self, stuck: set[int], now_s: float) -> list[Action]:
        """They are not waited for any longer. What they may hold stays with them; what they were to
        have, others have for now."""
        assert self.wanted is not None
        text = f"{_named(stuck)} does not run; what it may hold stays with it, others do the rest"
        actions: list[Action] = [Tell(text, is_warning=True)]
        for number in stuck:
            # One that was never heard of was never told anything, either.
            unheard = Host(is_alive=False, is_known=True)
            self.hosts.setdefault(number, unheard).is_absent = True
            self._absent_s[number] = now_s
        if others := [lane for lane in self.wanted.values() if self._host_of(lane) not in stuck]:
            busy = Counter(others)
            for partition, lane in self.wanted.items():
                if self._host_of(lane) in stuck:
                    self.wanted[partition] = least = min(busy, key=lambda n: (busy[n], n))
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
        actions: list[Action] = [
            Tell(warning.text, is_warning=True)
            for warning in decision.warnings
            if warning.about not in self._warned
        ]
        self._warned = {warning.about for warning in decision.warnings}
        is_known = all(host.is_known for host in self.hosts.values())
        if any(host.is_silent for host in self.hosts.values()):
            # What it may hold, or was to hold, cannot move: not again and again.
            is_known = is_known and view.since_change_s > TRIES * self._settings.answer_s
        is_anybody_there = any(host.is_alive for host in self.hosts.values())
        is_other = dict(decision.assignment) != dict(view.current)
        if not (is_other and is_known and is_anybody_there):
            return actions
        self._enter(Phase.REASSIGN, view.now_s)
        return [*actions, *self._reassign(decision, view)]

    def view(self, now_s: float) -> View:
        """What the policy decides from."""
        most = [self._settings.most_lanes]
        most += [] if self._most_lanes is None else [self._most_lanes]
        most += [n for n, at_s in self._absent_s.items() if now_s - at_s < _SCARCE_S]
        current = {
            partition: lane
            for host in self.hosts.values()
            for lane, held in (host.holds if host.is_silent else host.present).items()
            for partition in map(Partition.parse, held)
        }
        return self._load.view(
            now_s,
            since_change_s=now_s - self._changed_s,
            current=current,
            most_lanes=max(1, min(most)),
        )

    # --- reassign, and manage the group --------------------------------------------------------------

    def _reassign(self, decision: Decision, view: View) -> list[Action]:
        self.wanted = dict(decision.assignment)
        self._changed_s = view.now_s
        self._enter(Phase.MANAGE, view.now_s)
        lanes = frozenset(self.wanted.values())
        moved = [p for p, lane in self.wanted.items() if view.current.get(p, lane) != lane]
        decided = Decided(
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
        """What can be said to hosts by now; when all hold what is wanted, it is done."""
        assert self.wanted is not None
        actions: list[Action] = []
        is_done = True
        missing = self._missing()
        for number, part in self._parts().items():
            host = self.hosts.get(number)
            if host is None:  # on its way
                is_done = False
                continue
            elsewhere = {
                p for n, other in self.hosts.items() if n != number for p in other.may_hold
            }
            # One that does not run is given nothing: who knows whether it ever will.
            may_take = None if host.is_alive else host.may_hold
            now = {
                lane: free
                for lane, held in part.items()
                if (
                    free := tuple(
                        p
                        for p in held
                        if p not in elsewhere and (may_take is None or p in may_take)
                    )
                )
            }
            for lane, held in host.present.items():
                # Somebody is to read them until the other one runs.
                if staying := tuple(p for p in held if self._wanted_host(p) in missing - {number}):
                    now[lane] = (*now.get(lane, ()), *staying)
            if not are_equal(now, host.present):
                self._version += 1
                actions.append(self._send(number, now, self._version, now_s))
            is_done = is_done and now == part and host.is_settled and are_equal(host.holds, part)
        if is_done:
            used = frozenset(self._host_of(lane) for lane in self.wanted.values())
            actions += [HandedOver(now_s - self._changed_s), Retire(used)]
            for number in [n for n, host in self.hosts.items() if host.is_alive and n not in used]:
                self.hosts[number].ended()
                actions.append(Send(number, Command(verb="end", version=self._version)))
            self._enter(Phase.SYNCHRONISE, now_s)
            actions += [self._ask(n, now_s) for n, host in self.hosts.items() if host.is_alive]
        return actions

    def _wanted_host(self, name: str) -> int | None:
        lane = (self.wanted or {}).get(Partition.parse(name))
        return None if lane is None else self._host_of(lane)

    def _parts(self) -> dict[int, dict[int, tuple[str, ...]]]:
        """Host → lane → partitions, of those that are wanted and of those that are there."""
        assert self.wanted is not None
        parts: dict[int, dict[int, list[str]]] = {number: {} for number in self.hosts}
        for partition in sorted(self.wanted):
            lane = self.wanted[partition]
            parts.setdefault(self._host_of(lane), {}).setdefault(lane, []).append(str(partition))
        return {
            number: {lane: tuple(held) for lane, held in lanes.items()}
            for number, lanes in parts.items()
        }

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


def _named(hosts: Collection[int]) -> str:
    return f"host {', '.join(map(str, sorted(hosts)))}"
