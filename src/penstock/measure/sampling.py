"""What brokers and clients use while a run goes on, looked at now and then, from a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock import specs
from penstock.domain.broker_view import BrokerView, ProcessUse
from penstock.domain.errors import TestbedError
from penstock.files import write_file
from penstock.testbed.cluster import Cluster
from penstock.testbed.connection import KafkaCluster
from penstock.testbed.observe import observe, use_of

# A look at three brokers costs them 36 ms of CPU (bench/testbed.py): 2 % of one core.
EVERY_S = 2.0
BROKERS, CLIENTS = "brokers.json", "clients.json"


@dataclass(frozen=True)
class ClientView:
    """What one client process used up to a moment."""

    client: str
    at_ns: int
    use: ProcessUse


class Sampler:
    """Looks from `__enter__` to `__exit__`, both included, and writes what it saw."""

    def __init__(
        self,
        cluster: KafkaCluster,
        clients: Mapping[str, psutil.Process],
        directory: Path,
        every_s: float = EVERY_S,
    ) -> None:
        self._cluster, self._clients = cluster, clients
        self._directory, self._every_s = directory, every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler", daemon=True)
        self.brokers: list[BrokerView] = []
        self.clients: list[ClientView] = []

    def __enter__(self) -> Sampler:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()
        if self.brokers:
            write_file(self._directory / BROKERS, specs.dump_json(self.brokers))
        write_file(self._directory / CLIENTS, specs.dump_json(self.clients))

    def _watch(self) -> None:
        while not self._ended.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        if isinstance(self._cluster, Cluster):
            # A broker that is being killed or started may take the question and not answer it.
            with suppress(TestbedError):
                self.brokers += observe(self._cluster).values()
        for name, process in self._clients.items():
            if (use := use_of(process)) is not None:
                self.clients.append(ClientView(name, time.monotonic_ns(), use))
