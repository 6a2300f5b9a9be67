"""Injects a list of faults into a running cluster, each at its time. The kinds: `faults`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.domain.errors import BadInput, FaultDidNotTake, PenstockError, TestbedError
from penstock.domain.fault import Fault, Struck, When
from penstock.domain.value import fitting, several
from penstock.testbed.cluster import Cluster
from penstock.testbed.observe import observe

_GAUGE, _COUNTERS = "under_replicated_partitions", ("messages_in", "bytes_in", "bytes_out")
# What a testbed offers to `when`.
CLUSTER_SIGNALS = (_GAUGE, *_COUNTERS)
_LOOK_EVERY_S, _ASK_EVERY_S = 1.0, 0.1

Signals = Mapping[str, Callable[[], float]]


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
    """Injects a list of faults in the background, from `__enter__` on.

    Leaving the context undoes what is still in force and raises the first failure, among them
    a fault whose moment never came: a run without its fault proves nothing.
    """

    def __init__(
        self,
        cluster: Cluster,
        faults: Sequence[Fault],
        signals: Signals | None = None,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> None:
        fitting("cluster", cluster, Cluster)
        faults = fitting("faults", several("faults", faults), tuple[Fault, ...])
        self.events: list[Event] = []
        self._cluster = cluster
        self._signals = {**cluster_signals(cluster), **(signals or {})}
        self._on_event = on_event
        self._ended = threading.Event()
        self._errors: list[PenstockError] = []
        self._threads = [
            threading.Thread(target=self._execute, args=(fault,), daemon=True) for fault in faults
        ]
        for fault in faults:
            if fault.needs_network:
                fault.check_hosts(cluster.emulated.names)
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

    def _execute(self, fault: Fault) -> None:
        try:
            if not self._wait_for_moment(fault):
                raise FaultDidNotTake(f"the run ended before the moment of {fault}")
            struck = self._timed(lambda: fault.strike(self._cluster))
            if fault.for_s is not None and struck.undo is not None:
                self._ended.wait(fault.for_s)
                undo, sentence = struck.undo, f"undone: {struck.sentence}"
                self._timed(lambda: Struck(sentence, undo()))
        except PenstockError as error:
            self._errors.append(error)
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
        # A look at the brokers costs them CPU, in the time that is measured.
        every_s = _LOOK_EVERY_S if when.signal in CLUSTER_SIGNALS else _ASK_EVERY_S
        while self._signals[when.signal]() < when.at_least:
            if time.monotonic() > ends:
                raise FaultDidNotTake(
                    f"{when.signal} did not reach {when.at_least:g} within {when.within_s:g} s"
                )
            if self._ended.wait(every_s):
                return False
        return True
