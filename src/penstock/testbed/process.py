"""One node's process: started, signalled, watched. It knows nothing of Kafka's protocol."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from penstock.domain.errors import TestbedError
from penstock.kafka.waiting import wait_until
from penstock.testbed.lease import Lease, spawn
from penstock.testbed.nodes import Node

_END_S = 5.0


class NodeProcess:
    """The process of one node. Its pid lies in a file, so another command can find it again."""

    def __init__(
        self,
        node: Node,
        directory: Path,
        command: list[str],
        environment: Mapping[str, str],
        lease: Lease,
    ) -> None:
        self.node = node
        self._lease = lease
        self.directory = directory
        self._command = command
        self._environment = dict(environment)
        self._child: subprocess.Popen[bytes] | None = None
        self._wanted = False  # whether it ought to run, as far as this object started or ended it

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    @property
    def pid(self) -> int | None:
        with suppress(OSError, ValueError):
            return int((self.directory / "pid").read_text())
        return None

    def start(self) -> None:
        if self.is_running:
            raise TestbedError(f"{self.node.name} runs already")
        self._child = spawn(
            self._lease, self._command, log=self.log, cwd=self.directory, env=self._environment
        )
        (self.directory / "pid").write_text(str(self._child.pid))
        self._wanted = True

    def expect_to_run(self) -> None:
        """Another command started it: from now on it ought to run, if it does."""
        self._wanted = self.is_running

    def end(self) -> None:
        """Kill it permanently; returns when it holds nothing any more.

        One that hangs in the kernel is left after a while: releasing the lease reports it.
        """
        self._wanted = False
        if self._child is not None:
            self._child.kill()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_END_S)

    @property
    def process(self) -> psutil.Process | None:
        """The live process, or None."""
        if self._child is not None:
            # poll() also takes away the zombie, if it died.
            return psutil.Process(self._child.pid) if self._child.poll() is None else None
        pid = self.pid
        if pid is None:
            return None
        with suppress(psutil.NoSuchProcess, OSError):
            process = psutil.Process(pid)
            # A pid may have been given to somebody else's process meanwhile.
            ours = str(self.directory) in " ".join(process.cmdline())
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None

    @property
    def has_died(self) -> bool:
        """Whether it exited unexpectedly."""
        return self._wanted and not self.is_running

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def is_paused(self) -> bool:
        process = self.process
        return process is not None and process.status() == psutil.STATUS_STOPPED

    def send(self, number: signal.Signals) -> None:
        process = self.process
        if process is None:
            raise TestbedError(f"{self.node.name} does not run")
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._wanted = False
        os.kill(process.pid, number)

    def wait_ended(self, timeout_s: float) -> float:
        return wait_until(
            lambda: not self.is_running, timeout_s=timeout_s, what=f"{self.node.name} to end"
        )

    def log_tail(self, lines: int = 12) -> str:
        """The end of its log with what it complained about first, without stack frames."""
        with suppress(OSError):
            text = self.log.read_text(errors="replace").splitlines()
            messages = [line for line in text if not line.startswith(("\tat ", "\t... "))]
            grave = [
                line
                for i, line in enumerate(messages)
                # The line after an error is the exception it came with.
                if " ERROR " in line or (i and " ERROR " in messages[i - 1])
            ]
            return "\n".join(dict.fromkeys([*grave[-6:], *messages[-lines:]]))
        return "(no log)"
