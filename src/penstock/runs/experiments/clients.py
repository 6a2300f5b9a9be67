"""Client processes of an experiment, apart from a run's load: starts, awaits and ends them."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from penstock.domain.errors import TestbedError
from penstock.kafka.connection import KafkaCluster
from penstock.load.client_process import ClientProcess

# The reports of the processes of a measurement, kept beside the result.
REPORTS = "reports.json"
START_S = 60.0
_END_S = 10.0


class Clients:
    """Processes on the hosts of a cluster. One module each, which talks as `load.client_main` does."""

    def __init__(self, cluster: KafkaCluster, directory: Path) -> None:
        self._cluster, self._directory = cluster, directory
        self._changed = threading.Condition()
        self.workers: list[ClientProcess] = []

    def start(self, module: str, role: str, number: int, **job: Any) -> ClientProcess:
        """`role` is producer or consumer; the cluster's address is added to the job."""
        name = f"{role}-{number + 1}"
        environment = {
            **os.environ,
            **self._cluster.client_environment,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        worker = ClientProcess(
            name,
            self._cluster.client_command(role, number, [sys.executable, "-m", module]),
            environment,
            {"cluster": self._cluster.client_config, **job},
            self._directory / "logs" / f"{name}.stderr",
            self._changed,
        )
        self.workers.append(worker)
        return worker

    def wait_for(
        self, event: str, timeout_s: float, workers: Iterable[ClientProcess] | None = None
    ) -> None:
        """Wait until each has reported the event; raises if one dies meanwhile."""
        asked = list(self.workers if workers is None else workers)
        until = time.monotonic() + timeout_s
        while True:
            self.check()
            silent = [worker.name for worker in asked if not worker.has_said(event)]
            if not silent:
                return
            if time.monotonic() > until:
                raise TestbedError(
                    f"waited {timeout_s:.0f} s for {', '.join(silent)} to say {event!r}"
                )
            with self._changed:
                self._changed.wait(0.05)

    def check(self) -> None:
        for worker in self.workers:
            worker.check()

    @property
    def processes(self) -> Mapping[str, psutil.Process]:
        return {worker.name: worker.process for worker in self.workers}

    def end(self) -> None:
        for worker in self.workers:
            worker.release()
        until = time.monotonic() + _END_S
        for worker in self.workers:
            worker.end(max(0.0, until - time.monotonic()))


@contextmanager
def clients(cluster: KafkaCluster, directory: Path) -> Iterator[Clients]:
    """Whatever ends the block ends every process that was started in it."""
    started = Clients(cluster, directory)
    try:
        yield started
    finally:
        started.end()
