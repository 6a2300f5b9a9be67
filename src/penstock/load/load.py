"""The load of a run: producers and consumers as processes on the hosts of a cluster.

    with Load(cluster, plan, directory) as load:
        load.start()
        load.wait()
        load.drain(end_offsets, patience_s=60)
        load.producers, load.consumers      # the report of each process

Traces are in the directory then. Whatever ends the block ends every process; each writes
what it has traced so far; `journal.recover` finds what a killed one left.
"""

from __future__ import annotations

import math
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic_ns
from typing import Any, Self

import psutil

from penstock import specs
from penstock.domain.errors import TestbedError
from penstock.domain.progress import Progress, silent
from penstock.domain.run import ConsumerReport, ProducerReport
from penstock.kafka.connection import KafkaCluster
from penstock.load.client_process import ClientProcess
from penstock.load.plan import LoadPlan
from penstock.load.scheduled_producer import GRACE_S
from penstock.load.unsent import queued_bytes, unacknowledged_bytes, unread_bytes

_START_S = 60.0
# A schedule is made at a million messages per second, and on a busy machine.
_SLOWEST_PER_S = 200_000
_REPORT_S = 600.0
_END_S = 10.0
_PROGRESS_S = 0.25
# A group whose members hold every partition once is stable after this time, even if one of them
# was never given anything.
_STABLE_S = 3.0

# What a run offers to the `when` of a fault.
SIGNALS = ("sent", "acknowledged", "failed", "received")


@dataclass(frozen=True)
class Answered:
    """Messages of one producer that were reported up to a moment, and the sum of their waits."""

    at_ns: int
    messages: int
    waited_s: float


class Load:
    """Starts the processes, follows them and ends them. Times are `time.monotonic_ns()`."""

    def __init__(
        self,
        cluster: KafkaCluster,
        plan: LoadPlan,
        directory: Path,
        on_progress: Progress = silent,
    ) -> None:
        plan.check()
        self._cluster = cluster
        self._plan = plan
        self._directory = directory
        self._say = on_progress
        self._group = f"penstock-{plan.topic}-{secrets.token_hex(4)}"
        self._changed = threading.Condition()
        self._producers: list[ClientProcess] = []
        self._consumers: list[ClientProcess] = []
        self._watchers: list[ClientProcess] = []
        self._reported_s = 0.0
        self._counted: dict[str, float] = {}
        self.begins_ns = 0
        self.measured_from_ns = 0
        self.measured_to_ns = 0

    # --- life ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.release()
        until = time.monotonic() + _END_S
        for worker in self._workers:
            worker.end(max(0.0, until - time.monotonic()))
        for name in self.clients:
            self._cluster.clients.pop(name, None)
        if self._consumers and not self._cluster.is_temporary:
            self._cluster.admin.delete_group(self._group)

    def start(self) -> None:
        """Start every process; returns when all are connected and have their partitions, with the
        beginning of the load fixed a moment ahead."""
        self._say("starting producers and consumers")
        self._directory.mkdir(parents=True, exist_ok=True)
        plan = self._plan
        for number in range(plan.consumers.count):
            self._consumers.append(self._start_reader("consumer", number))
        for number in range(plan.workload.producers):
            self._producers.append(self._start_producer(number))
        if plan.watch_visibility:
            self._watchers.append(self._start_reader("watcher", 0))
        self._cluster.clients.update(self.clients)
        messages = plan.workload.arrivals.mean_per_s * plan.length_s * plan.workload.producers
        timeout_s = _START_S + messages / _SLOWEST_PER_S
        self._await(
            lambda: all(w.has_said("ready") for w in self._workers),
            timeout_s,
            lambda: self._silent("ready", "did not become ready"),
        )
        self._await_group()
        self.begins_ns = monotonic_ns() + round(plan.ahead_s * 1e9)
        # At the latest; `measure` may put it earlier.
        self.measured_to_ns = self.begins_ns + round(plan.length_s * 1e9)
        self.measured_from_ns = self.measured_to_ns - round(plan.workload.duration_s * 1e9)
        for worker in self._producers:
            worker.order("start", at_ns=self.begins_ns)

    @property
    def waits_for_warmth(self) -> bool:
        """Whether the measured time begins when `measure` says so; otherwise it is fixed."""
        return self._plan.waits_for_warmth

    @property
    def longest_warm_up_s(self) -> float:
        return self._plan.longest_warm_up_s

    def measure(self, from_ns: int) -> None:
        """The cluster is warm: the measured time begins then, a moment ahead."""
        self.measured_from_ns = from_ns
        self.measured_to_ns = from_ns + round(self._plan.workload.duration_s * 1e9)
        for worker in self._producers:
            worker.order("measure", from_ns=from_ns, to_ns=self.measured_to_ns)

    def wait(self, until_ns: int | None = None) -> None:
        """Wait until every producer has sent all it could and has the reports, or until that time."""
        job = self._plan.any_producer(self._cluster.client_config, self._directory)
        limit_ns = self.measured_to_ns + round(
            (max(GRACE_S, job.timeout_s) + job.timeout_s + _START_S) * 1e9
        )

        def is_over() -> bool:
            self._tell_progress()
            if until_ns is not None and monotonic_ns() >= until_ns:
                return True
            return all(w.has_said("sent") for w in self._producers)

        left_s = (limit_ns - monotonic_ns()) / 1e9
        self._await(is_over, left_s, lambda: self._silent("sent", "did not finish in time"))

    def unsent_bytes(self) -> int:
        """Bytes that the producers wrote and that no broker's host has acknowledged yet."""
        ports = self._cluster.admin.broker_ports()
        pids = (worker.process.pid for worker in self._producers)
        return queued_bytes(pids, ports, unacknowledged_bytes)

    def unread_bytes(self) -> int:
        """Bytes that the brokers of a testbed have not read yet: on a busy machine, for seconds."""
        if not (pids := self._cluster.broker_pids):
            return 0
        return queued_bytes(pids, self._cluster.admin.broker_ports(), unread_bytes)

    def drain(self, end_offsets: Mapping[int, int], patience_s: float) -> tuple[int, ...]:
        """Let the readers reach these ends, then stop them and finish all traces.

        A backlog takes as long as it takes; they are given up when they get nowhere for
        `patience_s`. Returns the partitions that were not read to their end.
        """
        readers = self._consumers + self._watchers
        for worker in readers:
            # A consumer that a fault has frozen permanently must still write its trace.
            with suppress(psutil.Error):
                worker.process.resume()
            worker.order("hurry")

        reached: list[dict[int, int]] = []
        since = time.monotonic()

        def is_over() -> bool:
            nonlocal reached, since
            self._tell_progress()
            now = [_reached(self._consumers), _reached(self._watchers)]
            if now != reached:
                reached, since = now, time.monotonic()
            is_read = not _unread(now[0], end_offsets) and (
                not self._watchers or not _unread(now[1], end_offsets)
            )
            return is_read or time.monotonic() - since > patience_s

        self._holds(is_over, math.inf)
        missing = _unread(reached[0], end_offsets)
        for worker in readers:
            worker.order("stop")
        self._say("finishing the traces")
        self._await(
            lambda: all(w.has_said("report") for w in self._workers),
            _REPORT_S,
            lambda: self._silent("report", "did not finish its trace"),
        )
        return missing

    # --- what others may know ------------------------------------------------------------------

    @property
    def clients(self) -> Mapping[str, psutil.Process]:
        """The processes by name: producer-1, consumer-1, …"""
        return {worker.name: worker.process for worker in self._workers}

    @property
    def signals(self) -> Mapping[str, Callable[[], float]]:
        """Progress of the measured load, for faults that wait for it."""
        return {name: partial(self._since_then, name) for name in SIGNALS}

    def count_from_here(self) -> None:
        """The measured time begins: what was sent before is not part of the signals."""
        self._counted = {name: self._sum(name) for name in SIGNALS}

    def _since_then(self, name: str) -> float:
        return self._sum(name) - self._counted.get(name, 0.0)

    @property
    def answered(self) -> tuple[Answered, ...]:
        """The producers' reported messages so far, from their latest progress."""
        progress = [w.said("progress") or {} for w in self._producers]
        return tuple(
            Answered(
                at_ns=t.get("at_ns", 0),
                messages=t.get("acknowledged", 0) + t.get("failed", 0),
                waited_s=t.get("waited_ns", 0) / 1e9,
            )
            for t in progress
        )

    @property
    def producers(self) -> tuple[ProducerReport, ...]:
        return tuple(specs.parse(_report(w), ProducerReport, w.name) for w in self._producers)

    @property
    def consumers(self) -> tuple[ConsumerReport, ...]:
        return tuple(specs.parse(_report(w), ConsumerReport, w.name) for w in self._consumers)

    # --- starting ------------------------------------------------------------------------------

    def _start_producer(self, number: int) -> ClientProcess:
        client = self._cluster.client_config
        return self._start_worker(self._plan.producer_job(number, client, self._directory))

    def _start_reader(self, role: str, number: int) -> ClientProcess:
        client = self._cluster.client_config
        return self._start_worker(
            self._plan.reader_job(role, number, client, self._group, self._directory)
        )

    def _start_worker(self, job: Mapping[str, Any]) -> ClientProcess:
        name = f"{job['role']}-{job['number'] + 1}"
        command = [sys.executable, "-m", "penstock.load.client_main"]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            # numpy would start a thread per processor, which nothing here uses.
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            **self._cluster.client_environment,
        }
        command = self._cluster.client_command(job["role"], job["number"], command)
        log = self._directory / "logs" / f"{name}.stderr"
        return ClientProcess(name, command, environment, job, log, self._changed)

    def _await_group(self) -> None:
        """Every consumer has its partitions, or the group is stable."""
        since: float | None = None

        def is_stable() -> bool:
            nonlocal since
            said = [w.said("holds") for w in self._consumers]
            partitions = [p for holds in said if holds for p in holds["partitions"]]
            if sorted(partitions) != list(range(self._plan.partitions)):
                since = None
                return False
            if all(said):
                return True
            since = since or time.monotonic()
            return time.monotonic() - since > _STABLE_S

        self._await(
            is_stable,
            _START_S,
            lambda: (
                "the consumers were not given all partitions: "
                + ", ".join(f"{w.name} has {_held(w)}" for w in self._consumers)
                + "".join(f"\n    {error}" for error in self._consumer_errors)
            ),
        )

    @property
    def _consumer_errors(self) -> list[str]:
        latest = (w.said("progress") or {} for w in self._consumers)
        return sorted({error for progress in latest for error in progress.get("errors", ())})

    # --- following -----------------------------------------------------------------------------

    @property
    def _workers(self) -> list[ClientProcess]:
        return self._producers + self._consumers + self._watchers

    def _await(
        self, condition: Callable[[], bool], timeout_s: float, what: Callable[[], str]
    ) -> None:
        """Wait until it holds; raises if a process dies meanwhile, or with `what` in the end."""
        if not self._holds(condition, timeout_s):
            raise TestbedError(f"waited {timeout_s:.0f} s: {what()}")

    def _holds(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether it holds before the time is over; raises if a process dies meanwhile."""
        until = time.monotonic() + timeout_s
        while True:
            for worker in self._workers:
                worker.check()
            if condition():
                return True
            if time.monotonic() > until:
                return False
            with self._changed:
                self._changed.wait(0.05)

    def _silent(self, event: str, sentence: str) -> str:
        return f"{', '.join(w.name for w in self._workers if not w.has_said(event))} {sentence}"

    def _tell_progress(self) -> None:
        if time.monotonic() - self._reported_s < _PROGRESS_S:
            return
        self._reported_s = time.monotonic()
        counts = {name: self._sum(name) for name in SIGNALS}
        failed = f", {counts['failed']:,.0f} failed" if counts["failed"] else ""
        self._say(
            f"{counts['sent']:,.0f} sent, {counts['acknowledged']:,.0f} acknowledged{failed}, "
            f"{counts['received']:,.0f} received"
        )

    def _sum(self, name: str) -> float:
        workers = self._consumers if name == "received" else self._producers
        return float(sum((w.said("progress") or {}).get(name, 0) for w in workers))


def _report(worker: ClientProcess) -> Any:
    said = worker.said("report")
    if said is None:
        raise TestbedError(f"{worker.name} has not reported yet", "drain the load first")
    return said["report"]


def _reached(readers: list[ClientProcess]) -> dict[int, int]:
    """Partition → how far one of these readers has come."""
    reached: dict[int, int] = {}
    for worker in readers:
        positions = (worker.said("progress") or {}).get("positions", {})
        for partition, position in positions.items():
            reached[int(partition)] = max(reached.get(int(partition), 0), position)
    return reached


def _unread(reached: Mapping[int, int], end_offsets: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(sorted(p for p, end in end_offsets.items() if reached.get(p, 0) < end))


def _held(worker: ClientProcess) -> list[int]:
    holds = worker.said("holds")
    return holds["partitions"] if holds else []
