"""Faults carried out on a running cluster, each checked to have taken effect, each undone.

To add a kind: a dataclass in `domain.fault` and a function here, in `_CARRY_OUT`.
"""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import psutil

from penstock.domain.errors import BadInput, FaultDidNotTake, PenstockError, TestbedError
from penstock.domain.fault import (
    CutLink,
    Fault,
    Kill,
    LeaderOf,
    Pause,
    PauseClient,
    Restart,
    SlowCpu,
    SlowLink,
    Stop,
    When,
    parse_broker,
)
from penstock.domain.network import Link, LinkCondition
from penstock.domain.network.condition import PERFECT
from penstock.domain.value import FieldError
from penstock.testbed.cluster import Cluster
from penstock.testbed.cpu_limit import limit_cpu
from penstock.testbed.network.hosts import Network
from penstock.testbed.network.topology import Pair
from penstock.testbed.observe import active_controller, observe
from penstock.testbed.process import NodeProcess
from penstock.testbed.waiting import wait_until

_GAUGE, _COUNTERS = "under_replicated_partitions", ("messages_in", "bytes_in", "bytes_out")
# What a testbed offers to `when`.
CLUSTER_SIGNALS = (_GAUGE, *_COUNTERS)

Undo = Callable[[], None]
Signals = Mapping[str, Callable[[], float]]


@dataclass(frozen=True)
class Struck:
    """A fault that took effect: what was done, and how to undo it."""

    sentence: str
    undo: Undo | None = None


def strike(cluster: Cluster, fault: Fault) -> Struck:
    """Carry a fault out now. It returns when the effect is there; otherwise it raises."""
    return _CARRY_OUT[type(fault)](cluster, fault)


def target(cluster: Cluster, broker: int | str) -> NodeProcess:
    """The broker that is meant, at this moment."""
    meant = parse_broker(broker)
    if isinstance(meant, LeaderOf):
        meant = cluster.admin.leader(meant.topic, meant.partition)
    elif meant is None:
        meant = active_controller(cluster)
    return cluster.process(meant)


# --- the kinds --------------------------------------------------------------------------------


def _kill(cluster: Cluster, fault: Kill) -> Struck:
    process = _running(cluster, fault.broker, or_paused=True)
    process.send(signal.SIGKILL)
    process.wait_ended(10)
    return Struck(f"killed {process.node.name}", lambda: _start_again(cluster, process))


def _stop(cluster: Cluster, fault: Stop) -> Struck:
    process = _running(cluster, fault.broker)
    process.send(signal.SIGTERM)
    took_s = process.wait_ended(90)
    return Struck(
        f"stopped {process.node.name} in order, in {took_s:.1f} s",
        lambda: _start_again(cluster, process),
    )


def _restart(cluster: Cluster, fault: Restart) -> Struck:
    process = _running(cluster, fault.broker)
    process.send(signal.SIGTERM)
    process.wait_ended(90)
    took_s = cluster.start_broker(process.node.id)
    return Struck(f"restarted {process.node.name}, in sync again {took_s:.1f} s after its start")


def _pause(cluster: Cluster, fault: Pause) -> Struck:
    process = _running(cluster, fault.broker)
    process.send(signal.SIGSTOP)
    wait_until(
        lambda: process.is_paused,
        timeout_s=2,
        what=f"{process.node.name} to freeze",
        error=FaultDidNotTake,
    )

    def resume() -> None:
        process.send(signal.SIGCONT)
        wait_until(lambda: not process.is_paused, timeout_s=2, what=f"{process.node.name} to thaw")

    return Struck(f"paused {process.node.name}", resume)


def _slow_cpu(cluster: Cluster, fault: SlowCpu) -> Struck:
    process = _running(cluster, fault.broker)
    live = process.process
    assert live is not None  # _running has seen it
    limit = limit_cpu(cluster.held, process.node.host, live.pid, fault.cores)
    return Struck(f"held {process.node.name} to {fault.cores:g} cores", limit.remove)


def _slow_link(cluster: Cluster, fault: SlowLink) -> Struck:
    host = target(cluster, fault.broker).node.host
    undo = _change_links(
        cluster, (Link(src=host, dst="any", both_ways=True, condition=fault.condition),)
    )
    return Struck(f"slowed every link of {host}", undo)


def _cut(fault: CutLink) -> Link:
    cut = LinkCondition(cut=True)
    return Link(src=fault.src, dst=fault.dst, both_ways=fault.both_ways, condition=cut)


def _cut_link(cluster: Cluster, fault: CutLink) -> Struck:
    undo = _change_links(cluster, (_cut(fault),))
    return Struck(f"cut the link {fault.src} {'↔' if fault.both_ways else '→'} {fault.dst}", undo)


def _pause_client(cluster: Cluster, fault: PauseClient) -> Struck:
    if fault.client not in cluster.clients:
        known = ", ".join(cluster.clients) or "none runs"
        raise BadInput(f"client: {fault.client!r} is no client of this run ({known})")
    process = cluster.clients[fault.client]

    def is_paused() -> bool:
        return process.is_running() and process.status() == psutil.STATUS_STOPPED

    if not process.is_running() or is_paused():
        raise FaultDidNotTake(f"{fault.client} does not run, so the fault would change nothing")
    process.suspend()
    wait_until(is_paused, timeout_s=2, what=f"{fault.client} to freeze", error=FaultDidNotTake)
    return Struck(f"paused {fault.client}", process.resume)


_CARRY_OUT: dict[type[Fault], Callable[[Cluster, Any], Struck]] = {
    Kill: _kill,
    Stop: _stop,
    Restart: _restart,
    Pause: _pause,
    PauseClient: _pause_client,
    SlowCpu: _slow_cpu,
    SlowLink: _slow_link,
    CutLink: _cut_link,
}


def _running(cluster: Cluster, broker: int | str, or_paused: bool = False) -> NodeProcess:
    process = target(cluster, broker)
    if not process.is_running or (process.is_paused and not or_paused):
        state = "paused" if process.is_paused else "down"
        raise FaultDidNotTake(
            f"{process.node.name} is {state} already, so the fault would change nothing",
            "order the faults so that each finds its broker running",
        )
    return process


def _start_again(cluster: Cluster, process: NodeProcess) -> None:
    cluster.start_broker(process.node.id)


def _change_links(cluster: Cluster, links: tuple[Link, ...]) -> Undo:
    network = cluster.emulated
    changed = network.names.conditions(links)
    before = {pair: network.conditions.get(pair, PERFECT) for pair in changed}
    if all(before[pair] == condition for pair, condition in changed.items()):
        raise FaultDidNotTake("these links are in that condition already")
    network.set(links)
    _check_in_force(network, changed)

    def undo() -> None:
        network.set(
            tuple(
                Link(src=src, dst=dst, both_ways=False, condition=condition)
                for (src, dst), condition in before.items()
            )
        )

    return undo


def _check_in_force(network: Network, changed: Mapping[Pair, LinkCondition]) -> None:
    """Send packets along every link and see that they met the condition.

    A rate alone is not tried, since that takes seconds: the kernel has accepted its queue.
    """
    cut = [pair for pair, condition in changed.items() if condition.cut]
    shaped = [pair for pair, c in changed.items() if c.shapes_packets and not c.cut]
    seen = network.stats()
    passed = _passing(network, cut, shaped)
    if passed:
        raise FaultDidNotTake(
            f"the link {passed[0][0]} → {passed[0][1]} was cut, yet a packet passed"
        )

    def all_seen() -> bool:
        now = network.stats()
        return all(pair in now and now[pair] != seen.get(pair) for pair in shaped)

    wait_until(all_seen, timeout_s=2, what="the emulator to see packets", error=FaultDidNotTake)


def _passing(network: Network, watched: list[Pair], others: list[Pair]) -> list[Pair]:
    """Send to all; those of `watched` where something arrived within a tenth of a second."""
    receivers: dict[Pair, socket.socket] = {}
    with ExitStack() as stack:
        for src, dst in (*watched, *others):
            # A socket stays in the namespace it was made in.
            with network.inside(dst):
                receiver = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            with network.inside(src):
                sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            receiver.bind((network.address(dst), 0))
            receivers[src, dst] = receiver
            with suppress(OSError):
                for _ in range(3):
                    sender.sendto(b"penstock", receiver.getsockname())
        ready, _, _ = select.select([receivers[pair] for pair in watched], [], [], 0.1)
        return [pair for pair in watched if receivers[pair] in ready]


# --- a plan of faults -------------------------------------------------------------------------


def cluster_signals(cluster: Cluster) -> Signals:
    """The signals a testbed offers to `when`, over the brokers that answer.

    What a broker counted before its restart stays counted.
    """

    def gauge() -> float:
        views = observe(cluster).values()
        return float(sum(v.own.under_replicated_partitions for v in views if v.own is not None))

    return {_GAUGE: gauge, **{name: _Counted(cluster, name) for name in _COUNTERS}}


class _Counted:
    """A counter summed over brokers that may restart, from the first time it is asked for."""

    def __init__(self, cluster: Cluster, field: str) -> None:
        self._cluster, self._field = cluster, field
        self._last: dict[int, int] = {}
        self._total = 0.0

    def __call__(self) -> float:
        for broker, view in observe(self._cluster).items():
            if view.own is not None:
                now = int(getattr(view.own, self._field))
                before = self._last.get(broker, now)
                self._total += now - before if now >= before else now
                self._last[broker] = now
        return self._total


@dataclass(frozen=True)
class Event:
    """What the injector did, and when, in seconds from its start."""

    at_s: float
    took_s: float
    sentence: str


class FaultInjector:
    """Carries a list of faults out in the background, from `__enter__` on.

    Leaving the context undoes what is still in force and raises the first failure, among them
    a fault whose moment never came: a run without its fault proves nothing.
    """

    def __init__(
        self,
        cluster: Cluster,
        faults: tuple[Fault, ...],
        signals: Signals | None = None,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> None:
        self.events: list[Event] = []
        self._cluster = cluster
        self._signals = {**cluster_signals(cluster), **(signals or {})}
        self._on_event = on_event
        self._ended = threading.Event()
        self._errors: list[PenstockError] = []
        self._threads = [
            threading.Thread(target=self._carry_out, args=(fault,), daemon=True) for fault in faults
        ]
        for fault in faults:
            if isinstance(fault, CutLink):
                cluster.emulated.names.conditions((_cut(fault),))  # refuses unknown hosts now
            if fault.when is not None and fault.when.signal not in self._signals:
                raise BadInput(
                    f"when.signal: {fault.when.signal!r} is unknown",
                    f"use one of {', '.join(sorted(self._signals))}",
                )

    def __enter__(self) -> FaultInjector:
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        self.join()
        if self._errors and kind is None:
            raise self._errors[0]

    def join(self) -> None:
        """Wait until every fault struck and was undone."""
        for thread in self._threads:
            thread.join()

    def _carry_out(self, fault: Fault) -> None:
        try:
            if not self._wait_for_moment(fault):
                raise FaultDidNotTake(f"the run ended before the moment of {fault}")
            struck = self._timed(lambda: strike(self._cluster, fault))
            if fault.for_s is not None and struck.undo is not None:
                self._ended.wait(fault.for_s)
                undo, sentence = struck.undo, f"undone: {struck.sentence}"
                self._timed(lambda: Struck(sentence, undo()))
        except PenstockError as error:
            self._errors.append(error)
        except FieldError as error:
            self._errors.append(BadInput(str(error)))
        except Exception as error:  # must reach the run, not die with the thread
            self._errors.append(TestbedError(f"{fault} failed: {error!r}"))

    def _timed(self, act: Callable[[], Struck]) -> Struck:
        at_s = time.monotonic() - self._began
        struck = act()
        event = Event(at_s, time.monotonic() - self._began - at_s, struck.sentence)
        self.events.append(event)
        self._on_event(event)
        return struck

    def _wait_for_moment(self, fault: Fault) -> bool:
        if fault.when is not None:
            return self._wait_for_signal(fault.when)
        return not self._ended.wait(max(0.0, (fault.at_s or 0) - (time.monotonic() - self._began)))

    def _wait_for_signal(self, when: When) -> bool:
        ends = time.monotonic() + when.within_s
        while self._signals[when.signal]() < when.at_least:
            if time.monotonic() > ends:
                raise FaultDidNotTake(
                    f"{when.signal} did not reach {when.at_least:g} within {when.within_s:g} s"
                )
            if self._ended.wait(0.1):
                return False
        return True
