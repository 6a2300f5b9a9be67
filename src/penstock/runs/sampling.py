"""Samples what brokers and clients use during a run, from a thread.

Asking the brokers' agents costs them 12 ms of CPU each, at once, which shows in the p99 of what is
measured. So within the measured time only the system is asked what processes use, which costs the
brokers nothing; the agents are asked right before and right after it, and their counters give the
rest. What sampling still costs is counted (`cost`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import cpu_count
from pathlib import Path

import psutil

from penstock import specs
from penstock.domain.broker_view import BrokerView, ProcessUse
from penstock.domain.errors import TestbedError
from penstock.domain.run import ObserverCost
from penstock.kafka.connection import KafkaCluster
from penstock.specs.files import write_file
from penstock.testbed.cluster import Cluster
from penstock.testbed.observe import observe, process_view, use_of

EVERY_S = 2.0
BROKERS, CLIENTS = "brokers.json", "clients.json"


@dataclass(frozen=True)
class ClientView:
    """What one client process used up to a moment."""

    client: str
    at_ns: int
    use: ProcessUse


class Sampler:
    """Looks from `__enter__` to `__exit__`, both included, and writes what it saw.

    Brokers are asked on entering and at every look, but not in a time that is to be spared.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        clients: Mapping[str, psutil.Process],
        directory: Path,
        every_s: float = EVERY_S,
    ) -> None:
        self._cluster, self._clients = cluster, clients
        self._directory, self._every_s = directory, every_s
        self._from_ns = self._to_ns = math.inf
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler", daemon=True)
        self._looks, self._cpu_s = 0, 0.0
        self.brokers: list[BrokerView] = []
        self.clients: list[ClientView] = []

    def __enter__(self) -> Sampler:
        self._look(asks=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look(asks=True)
        if self.brokers:
            write_file(self._directory / BROKERS, specs.dump_json(self.brokers))
        write_file(self._directory / CLIENTS, specs.dump_json(self.clients))

    def spare(self, from_ns: int, to_ns: int) -> None:
        """The measured time, which begins soon: until it ends, brokers are not asked."""
        self._from_ns, self._to_ns = from_ns, to_ns

    @property
    def cost(self) -> ObserverCost:
        """Of the looks within the measured time: our own CPU, as the brokers have no part in it."""
        seconds = (self._to_ns - self._from_ns) / 1e9
        share = self._cpu_s / seconds / (cpu_count() or 1) if 0 < seconds < math.inf else 0.0
        return ObserverCost(looks=self._looks, cpu_s=round(self._cpu_s, 4), share=share)

    def _watch(self) -> None:
        while not self._ended.wait(self._until_next_s()):
            self._look_as_allowed(time.monotonic_ns())

    def _until_next_s(self) -> float:
        """Not past the end of the measured time: right after it brokers are asked again."""
        left_s = (self._to_ns - time.monotonic_ns()) / 1e9
        return min(self._every_s, left_s) if left_s > 0 else self._every_s

    def _look_as_allowed(self, now_ns: int) -> None:
        is_measured = self._from_ns <= now_ns < self._to_ns
        began_s = time.thread_time()
        # Not in the moments before it either, for a look takes a tenth of a second.
        self._look(asks=now_ns >= self._to_ns or self._from_ns == math.inf)
        if is_measured:
            self._looks += 1
            self._cpu_s += time.thread_time() - began_s

    def _look(self, asks: bool) -> None:
        if isinstance(self._cluster, Cluster):
            # A broker that is being killed or started may take the question and not answer it.
            with suppress(TestbedError):
                look = observe if asks else process_view
                self.brokers += look(self._cluster).values()
        for name, process in self._clients.items():
            if (use := use_of(process)) is not None:
                self.clients.append(ClientView(name, time.monotonic_ns(), use))
