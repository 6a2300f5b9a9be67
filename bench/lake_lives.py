"""Pipelines as processes that a benchmark strikes: on Spark, and as a group of plain consumers.

A strike does something to the running processes and returns when the pipeline has landed something
new afterwards, with the seconds that took. What ended is started again, as a supervisor would.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import psutil

from penstock.domain.errors import PenstockError
from penstock.domain.lake.pipeline import Pipeline

RECOVER_S = 300.0
# Longer than every time-out of the autoscaler (15 s of silence) and of Kafka's clients.
PAUSE_S = 18.0
# Within this time, a consumer that is gone is replaced, and a resumed process has ended.
REPLACED_S = 30.0
ENDS_S = 90.0
# What a successor lands before the paused process is resumed: reports of 20 micro-batches are kept.
SUCCESSOR_BATCHES = 25
_LOOK_S = 0.05
_PAGE_BYTES = 4096


def command(*arguments: str) -> list[str]:
    # With its fault handler, a process that hangs shows where when it is aborted.
    return [sys.executable, "-X", "faulthandler", "-m", "penstock.cli.main", *arguments]


def penstock(*arguments: str) -> str:
    """Run a command to its end. Exit code 10 is a verdict, not a failure."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=900)
    if done.returncode not in (0, 10):
        raise PenstockError(f"penstock {' '.join(arguments[:2])} failed: {done.stderr[-2000:]}")
    return done.stdout


class Life(ABC):
    """A pipeline's processes: the present ones, and those that follow them."""

    def __init__(self, file: Path, pipeline: Pipeline, log: Path, rng: random.Random) -> None:
        self.file, self.pipeline, self.rng = file, pipeline, rng
        self._log = log
        self._ledger = Path(pipeline.lake) / pipeline.ledger_table / "_delta_log"
        # Resumed processes that did not end by themselves.
        self.zombies = 0
        self._process = self._start()

    @abstractmethod
    def _arguments(self) -> Sequence[str]: ...

    @property
    @abstractmethod
    def strikes(self) -> dict[str, Callable[[], None]]:
        """Kind of fault → what does it to the running pipeline."""

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("a") as log:
            return subprocess.Popen(command(*self._arguments()), stdout=log, stderr=log)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(90)

    @property
    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    # --- progress ----------------------------------------------------------------------------------

    @property
    def batches(self) -> int:
        """Commits of the ledger."""
        numbers = [int(f.stem) for f in self._ledger.glob("*.json") if f.stem.isdigit()]
        return max(numbers, default=0)

    def await_batches(self, more: int = 1, *, supervised: bool = True) -> None:
        """Until so many micro-batches more are landed."""
        wanted = self.batches + more
        deadline = time.monotonic() + RECOVER_S
        while self.batches < wanted:
            if time.monotonic() > deadline:
                raise PenstockError(f"nothing was landed for {RECOVER_S:.0f} s:\n{self.tail}")
            if supervised and self._process.poll() is not None:
                self._process = self._start()
            time.sleep(_LOOK_S)

    def strike(self, kind: str) -> float:
        """Seconds from the strike until the next micro-batch is landed."""
        began_s = time.monotonic()
        self.strikes[kind]()
        self.await_batches(2)  # the first may have been under way
        return time.monotonic() - began_s

    # --- what both kinds of pipelines suffer -----------------------------------------------------------

    def compact(self) -> None:
        """Compaction and vacuum beside the running pipeline."""
        penstock("pipeline", "compact", str(self.file), "--file-mb", "8", "--vacuum-hours", "1")

    def full_disk(self) -> None:
        """The lake is a file system of its own, which is filled up for a while."""
        ballast = Path(self.pipeline.lake) / "ballast"
        try:
            with ballast.open("wb") as file:
                _fill(file)
                before = self.batches
                until_s = time.monotonic() + PAUSE_S / 2
                while time.monotonic() < until_s:  # what a failed micro-batch gives back is taken
                    _fill(file)
                    time.sleep(_LOOK_S)
            if self.batches > before + 2:
                raise PenstockError(
                    f"the disk was full, and {self.batches - before} micro-batches were landed"
                )
        finally:
            ballast.unlink()

    def _paused(self, tree: Sequence[psutil.Process], successor: Callable[[], bool]) -> None:
        """Pause a process with its children, let a successor work, and resume it. If there is one,
        as `successor` says, the resumed process must end by itself.

        Its locks are removed meanwhile, as on a file system that locks do not reach across.
        """
        for process in tree:
            process.suspend()
        try:
            time.sleep(PAUSE_S)
            self._forget_locks()
            has_successor = successor()
            for process in reversed(tree):
                with suppress(psutil.NoSuchProcess):
                    process.resume()
            if has_successor:
                _, alive = psutil.wait_procs(tree[:1], timeout=ENDS_S)
                self.zombies += len(alive)
                for process in alive:
                    process.send_signal(signal.SIGABRT)
                    process.wait(60)
                    print(f"did not end within {ENDS_S:.0f} s: {process}\n{self.tail}")
        finally:
            for process in tree:
                with suppress(psutil.NoSuchProcess):
                    process.kill()

    def _forget_locks(self) -> None:
        for lock in Path(self.pipeline.lake).rglob("*.lock"):
            lock.unlink(missing_ok=True)


def _fill(file: BinaryIO) -> None:
    """Take what is left of the file system, down to the last page."""
    end = os.fstat(file.fileno()).st_size
    size = shutil.disk_usage(file.name).free
    while size >= _PAGE_BYTES:
        try:
            os.posix_fallocate(file.fileno(), end, size)
            end += size
        except OSError:  # others have taken some of it meanwhile
            size //= 2


class SparkLife(Life):
    """`penstock pipeline run`."""

    def _arguments(self) -> Sequence[str]:
        return ("pipeline", "run", str(self.file))

    @property
    def strikes(self) -> dict[str, Callable[[], None]]:
        return {
            "driver killed": self._kill_driver,
            "Java killed": self._kill_java,
            "worker killed": self._kill_worker,
            "driver paused": self._pause_driver,
            "compaction and vacuum": self.compact,
            "disk full": self.full_disk,
        }

    def _kill_driver(self) -> None:
        self._process.kill()
        self._process.wait(60)

    def _kill_java(self) -> None:
        self._one([c for c in self._children() if c.name() == "java"], "Java").kill()
        # Without its Java, the driver may still finish a landing that it has begun.
        self._process.wait(90)

    def _kill_worker(self) -> None:
        def is_worker(process: psutil.Process) -> bool:
            parent = process.parent()
            return parent is not None and "lake.daemon" in " ".join(parent.cmdline())

        workers = []
        for child in self._children():
            with suppress(psutil.NoSuchProcess):
                if is_worker(child):
                    workers.append(child)
        self._one(workers, "worker").kill()

    def _pause_driver(self) -> None:
        driver = psutil.Process(self._process.pid)

        def successor() -> bool:
            self._process = self._start()
            self.await_batches(SUCCESSOR_BATCHES)
            return True

        self._paused([driver, *self._children()], successor)

    def _children(self) -> list[psutil.Process]:
        return psutil.Process(self._process.pid).children(recursive=True)

    def _one(self, found: list[psutil.Process], what: str) -> psutil.Process:
        if not found:
            raise PenstockError(f"there is no {what} to strike:\n{self.tail}")
        return self.rng.choice(found)


class GroupLife(Life):
    """`penstock autoscaler run --consumers`."""

    def _arguments(self) -> Sequence[str]:
        return ("autoscaler", "run", str(self.file), "--consumers")

    @property
    def strikes(self) -> dict[str, Callable[[], None]]:
        return {
            "consumer killed": self._kill_consumer,
            "controller killed": self._kill_controller,
            "consumer paused": self._pause_consumer,
            "controller paused": self._pause_controller,
            "compaction and vacuum": self.compact,
            "disk full": self.full_disk,
        }

    def end(self) -> None:
        super().end()
        _, alive = psutil.wait_procs(self.consumers(), timeout=60)
        for process in alive:
            process.kill()

    def consumers(self) -> list[psutil.Process]:
        """The running consumers of this group, also those that an earlier controller started."""
        marks = {"consumer", str(self.file)}
        return [
            one
            for one in psutil.process_iter(["cmdline", "status"])
            if marks <= set(one.info["cmdline"] or ())
            and one.info["status"] != psutil.STATUS_ZOMBIE
        ]

    def _some_consumer(self) -> psutil.Process:
        deadline = time.monotonic() + RECOVER_S
        while not (found := self.consumers()):
            if time.monotonic() > deadline:
                raise PenstockError(f"no consumer runs:\n{self.tail}")
            time.sleep(_LOOK_S)
        return self.rng.choice(found)

    def _kill_consumer(self) -> None:
        self._some_consumer().kill()

    def _kill_controller(self) -> None:
        self._process.kill()
        self._process.wait(60)

    def _pause_consumer(self) -> None:
        consumer = self._some_consumer()
        number = consumer.info["cmdline"][-1]

        def is_replaced() -> bool:
            return any(
                other.info["cmdline"][-1] == number
                for other in self.consumers()
                if other != consumer
            )

        def successor() -> bool:
            """Others may hold its partitions, and then nobody replaces it: it is idle when it is
            resumed, and stays."""
            self.await_batches(5)
            deadline = time.monotonic() + REPLACED_S
            while not (replaced := is_replaced()) and time.monotonic() < deadline:
                time.sleep(_LOOK_S)
            self.await_batches(5)
            return replaced

        self._paused([consumer], successor)

    def _pause_controller(self) -> None:
        controller = psutil.Process(self._process.pid)

        def successor() -> bool:
            self._process = self._start()
            self.await_batches(5)
            return True

        self._paused([controller], successor)


@contextmanager
def small_disk(path: Path, size_mb: int) -> Iterator[None]:
    """A file system of its own in memory, which a benchmark can fill up. Needs root."""
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "penstock", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)
