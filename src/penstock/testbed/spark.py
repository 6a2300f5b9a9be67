"""A real Spark standalone cluster on this machine: a master and workers, as a context manager."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Self

from penstock.domain.errors import TestbedError
from penstock.java.find import find_java
from penstock.java.ivy import pyspark_jar_dir
from penstock.kafka.waiting import wait_until
from penstock.testbed import janitor, lease
from penstock.testbed.lease import Lease
from penstock.testbed.machine import free_ports, listens

_HOST = "127.0.0.1"
_START_S = 60.0


class SparkCluster:
    """Listens on loopback only. It and all its executors are gone when it stops or its process
    ends."""

    def __init__(self, workers: int = 2, cores: int = 1, memory_mb: int = 1024) -> None:
        self._workers, self._cores, self._memory_mb = workers, cores, memory_mb
        self._lease: Lease | None = None
        self._janitor: subprocess.Popen[bytes] | None = None
        self._children: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def __enter__(self) -> Self:
        root = lease.default_root()
        lease.sweep(root)
        self._lease = lease.take(root, owner_pid=os.getpid())
        try:
            self._janitor = janitor.watch(self._lease)
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._lease is not None:
            lease.release(self._lease)
        for child in self._children:
            child.wait()
        if self._janitor is not None:
            janitor.dismiss(self._janitor)
        self._lease, self._janitor, self._children = None, None, []

    def _start(self) -> None:
        (port,) = free_ports(1)
        self.master = f"spark://{_HOST}:{port}"
        log = self._run("master", "deploy.master.Master", "--port", str(port), "--webui-port", "0")
        self._await(lambda: listens(_HOST, port), "the Spark master to listen", log)
        for number in range(self._workers):
            directory = self._directory / f"worker-{number + 1}"
            self._run(
                directory.name,
                "deploy.worker.Worker",
                *("--cores", str(self._cores), "--memory", f"{self._memory_mb}m"),
                *("--webui-port", "0", "--work-dir", str(directory), self.master),
            )
        self._await(
            lambda: log.read_text(errors="replace").count("Registering worker") >= self._workers,
            "the Spark workers to register",
            log,
        )

    def _run(self, name: str, program: str, *options: str) -> Path:
        home = pyspark_jar_dir().parent
        assert self._lease is not None
        log = self._directory / f"{name}.log"
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.{program}"]
        command += ["--host", _HOST, *options]
        env = self._environment(home)
        child = lease.spawn(self._lease, command, log=log, cwd=self._directory, env=env)
        self._children.append(child)
        return log

    def _environment(self, home: Path) -> dict[str, str]:
        return {
            "PATH": os.defpath,
            "JAVA_HOME": str(find_java(os.environ).path.resolve().parent.parent),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": _HOST,  # its web pages too would listen everywhere
            "SPARK_LOCAL_DIRS": str(self._directory / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:-UsePerfData",
        }

    @property
    def _directory(self) -> Path:
        assert self._lease is not None
        return self._lease.directory

    def _await(self, holds: Callable[[], bool], what: str, log: Path) -> None:
        def alive_and_so() -> bool:
            if any(child.poll() is not None for child in self._children):
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
                raise TestbedError(f"a process of the Spark cluster exited unexpectedly:\n{tail}")
            return holds()

        wait_until(alive_and_so, timeout_s=_START_S, what=what)
