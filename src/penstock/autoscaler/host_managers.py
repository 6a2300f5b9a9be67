"""Host managers: they start and end the processes of plain consumers. A pipeline on Spark is only
observed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil

from penstock.autoscaler.core.actions import AutoscalerEvent, HostStarted, warning
from penstock.domain.autoscaling import HostAnswer
from penstock.domain.errors import BadInput, GroupStopped

# A host that has not answered for this time is considered gone.
_SILENT_S = 15.0
# A consumer of ours that runs and has not answered for this time hangs, and is replaced. It is long,
# since consumers are silent too while no broker answers. One that is stopped (SIGSTOP, a debugger,
# a disk that does not answer) is replaced as soon as it is considered gone.
_HANGS_S = 120.0
_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_DISK_SLEEP)
# A consumer that ends sooner than this after its start is restarted with growing delay.
_SHORT_LIFE_S = 30.0
_KILL_S = 2.0
# The exit code of a consumer that finds another one running with its number.
_IN_USE = BadInput.exit_code

OnEvent = Callable[[AutoscalerEvent], None]


class HostManager(Protocol):
    """Starts and ends hosts."""

    # Hosts end when the autoscaler does.
    is_owner: bool

    def heard(self, answer: HostAnswer) -> None: ...
    def alive(self) -> Collection[int]: ...
    def start(self, hosts: Collection[int]) -> None: ...
    def retire(self, used: Collection[int]) -> None: ...
    def close(self) -> None: ...


class PipelineHosts:
    """For a Spark pipeline, which is started elsewhere: it is alive while it answers."""

    is_owner = False

    def __init__(self) -> None:
        self._heard_s = float("-inf")

    def heard(self, answer: HostAnswer) -> None:
        self._heard_s = time.monotonic()

    def alive(self) -> Collection[int]:
        return (0,) if time.monotonic() - self._heard_s < _SILENT_S else ()

    def start(self, hosts: Collection[int]) -> None:
        """Nothing to do: the user starts the pipeline."""

    def retire(self, used: Collection[int]) -> None:
        """Nothing to do: the pipeline is always used."""

    def close(self) -> None:
        """Nothing to do: no process was started here."""


class ProcessHosts:
    """For plain consumers: starts and ends one process per consumer.

    A consumer that an earlier autoscaler started and that still runs is used like the others; it is
    ended by command.
    """

    is_owner = True

    def __init__(self, file: Path, tell: OnEvent) -> None:
        self._file, self._tell = file, tell
        self._started_s: dict[int, float] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._heard_s: dict[int, float] = {}
        # Consumers that were commanded to end; they may still answer.
        self._dismissed: set[int] = set()
        self._restarts = Restarts()
        self._is_stopped = False

    def heard(self, answer: HostAnswer) -> None:
        if answer.host in self._dismissed:
            return
        now_s = self._heard_s[answer.host] = time.monotonic()
        if (started_s := self._started_s.pop(answer.host, None)) is not None:
            self._tell(HostStarted(answer.host, now_s - started_s))

    def alive(self) -> Collection[int]:
        """Consumers that have answered: one that is just starting does not count yet."""
        now_s = time.monotonic()
        for number in [n for n, process in self._processes.items() if process.poll() is not None]:
            code = self._processes.pop(number).returncode
            if code == GroupStopped.exit_code and not self._is_stopped:
                self._is_stopped = True  # raised once: others may follow while the group ends
                raise GroupStopped(
                    f"consumer {number} stopped and must not be restarted",
                    "see its message above for the reason and what to do",
                )
            self._restarts.on_end(number, now_s)
            if code != _IN_USE:
                self._heard_s.pop(number, None)
        return [n for n, heard_s in self._heard_s.items() if now_s - heard_s < _SILENT_S]

    def start(self, hosts: Collection[int]) -> None:
        now_s = time.monotonic()
        for number in set(hosts) - set(self.alive()):
            if number in self._processes and not self._kill_if_hanging(number, now_s):
                continue  # it is starting
            if not self._restarts.may_start(number, now_s):
                continue  # the controller asks again
            what = ["autoscaler", "consumer", str(self._file), "--number", str(number)]
            self._dismissed.discard(number)
            self._started_s[number] = now_s
            self._restarts.on_start(number, now_s)
            try:
                self._processes[number] = subprocess.Popen(
                    [sys.executable, "-m", "penstock.cli.main", *what]
                )
            except OSError as error:  # out of memory or processes; the controller tries again
                self._tell(warning(f"consumer {number} cannot be started: {error.strerror}"))

    def _kill_if_hanging(self, number: int, now_s: float) -> bool:
        """Kill a consumer that runs and does not answer, if it hangs; whether it did."""
        heard_s = max(at_s.get(number, 0.0) for at_s in (self._heard_s, self._started_s))
        silent_s, process = now_s - heard_s, self._processes[number]
        if silent_s < (_SILENT_S if _is_stopped(process) else _HANGS_S):
            return False
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # it may hang in the kernel: then it is left
            process.wait(_KILL_S)
        del self._processes[number]
        self._heard_s.pop(number, None)
        text = f"consumer {number} has not answered for {silent_s:.0f} s: killed and replaced"
        self._tell(warning(text))
        return True

    def retire(self, used: Collection[int]) -> None:
        """End all other consumers, which hold nothing any more."""
        surplus = {n: process for n, process in self._processes.items() if n not in used}
        self._dismissed |= {n for n in (*self._heard_s, *surplus) if n not in used}
        for process in surplus.values():
            process.terminate()
        for number, process in surplus.items():
            end(process)
            del self._processes[number]
        self._heard_s = {n: at_s for n, at_s in self._heard_s.items() if n in used}

    def close(self) -> None:
        self.retire(())


def _is_stopped(process: subprocess.Popen[bytes]) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(process.pid).status() in _STOPPED
    return False


class Restarts:
    """When a consumer that ended may be restarted: with growing delay if it ends soon after each
    start. Pure."""

    def __init__(self) -> None:
        self._started_s: dict[int, float] = {}
        self._short_lives: Counter[int] = Counter()
        self._not_before_s: dict[int, float] = {}

    def on_start(self, number: int, now_s: float) -> None:
        self._started_s[number] = now_s

    def on_end(self, number: int, now_s: float) -> None:
        is_short = now_s - self._started_s[number] < _SHORT_LIFE_S
        self._short_lives[number] = self._short_lives[number] + 1 if is_short else 0
        # The first end may have been an accidental kill.
        wait_s = min(2.0 ** (self._short_lives[number] - 1), _SHORT_LIFE_S) if is_short else 0.0
        self._not_before_s[number] = now_s + wait_s

    def may_start(self, number: int, now_s: float) -> bool:
        return now_s >= self._not_before_s.get(number, float("-inf"))


def end(process: subprocess.Popen[bytes], within_s: float = 30.0) -> None:
    """Terminate it, and wait while it finishes its cycle; kill it after `within_s`."""
    process.terminate()
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
