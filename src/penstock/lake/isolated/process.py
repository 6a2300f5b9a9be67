"""One decoder process, from the lane's side: start, request with time limit, end."""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.domain.errors import PenstockError
from penstock.lake.decoded import Limits
from penstock.lake.isolated import wire
from penstock.lake.rejection import Rejection, RejectKind

_MODULE = "penstock.lake.isolated"
# Long, since it imports what a user's function imports.
_START_S = 120.0
_TICK_S = 0.1
# From the end of its output to its exit, on a busy machine.
_END_S = 5.0
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Died(Exception):
    """The process ended or was killed: at which record (an index, or see `wire`), and why."""

    def __init__(self, at: int, rejection: Rejection) -> None:
        super().__init__(str(rejection))
        self.at = at
        self.rejection = rejection


@dataclass(frozen=True)
class Recipe:
    """How a decoder process makes rows: `rows` is a class as MODULE:NAME, which gets the columns
    and the arguments."""

    rows: str
    arguments: Mapping[str, Any]
    schema: pa.Schema


class CannotStart(PenstockError):
    """The decoder process does not start, so no record can be decoded."""

    def __init__(self, message: str, fix: str = "", recipe: Recipe | None = None) -> None:
        super().__init__(message, fix)
        # The recipe that failed, if it got that far.
        self.recipe = recipe


class Stopwatch:
    """How long a process has worked on one record: computing or asleep.

    The time in which it waited for a processor, or was stopped, does not count: a busy machine must
    not reject good records. (A tenth of it counts, so that everything ends.)
    """

    def __init__(self, pid: int, tick_s: float) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        # The longest that one look may count: if this process itself was stopped, so was the other.
        self._most_s = 2 * tick_s
        self._spent_s = 0.0
        self._at_s = time.monotonic()
        self._processor_s = self._look()[1]

    def reset(self) -> None:
        self.spent_s()
        self._spent_s = 0.0

    def spent_s(self) -> float:
        now_s = time.monotonic()
        passed_s, self._at_s = min(now_s - self._at_s, self._most_s), now_s
        state, processor_s = self._look()
        used_s, self._processor_s = processor_s - self._processor_s, processor_s
        self._spent_s += passed_s if state == "S" else max(used_s, passed_s / 10)
        return self._spent_s

    def _look(self) -> tuple[str, float]:
        """Its state (R: running or ready, S: asleep) and the processor time that it has used."""
        try:
            # The program's name before it may contain blanks and brackets.
            fields = self._stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended, which shows elsewhere
            return "S", 0.0
        return fields[0], (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


class DecoderProcess:
    """Ends with its owner, however that ends."""

    def __init__(self, recipes: Sequence[Recipe], limits: Limits) -> None:
        self._limits = limits
        page = os.memfd_create("penstock-decoder")
        try:
            os.ftruncate(page, mmap.PAGESIZE)
            self._page = memoryview(mmap.mmap(page, mmap.PAGESIZE)).cast("q")
            self._page[0] = wire.IDLE
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(os.getpid()), str(page)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(page,),
                # A terminal's Ctrl-C is not for it: its lane finishes the micro-batch first.
                process_group=0,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path),
                    # Arrow's own allocators take memory in large pieces before it is needed, which
                    # would count.
                    "ARROW_DEFAULT_MEMORY_POOL": "system",
                },
            )
        except OSError as error:
            raise CannotStart(
                f"a decoder process cannot be started: {error}", "free memory or processes"
            ) from None
        finally:
            os.close(page)
        self.close = weakref.finalize(self, _end, self._process, os.getpid())
        self._messages = 0
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        for pipe in (self._in, self._out):
            os.set_blocking(pipe, False)
            with suppress(OSError):  # more than this user may have; it is only faster
                fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE_BYTES)
        self._greet(recipes)

    def _greet(self, recipes: Sequence[Recipe]) -> None:
        meta = {
            "recipes": [(r.rows, dict(r.arguments), wire.schema_text(r.schema)) for r in recipes],
            "memory_mb": self._limits.record_memory_mb,
        }
        try:
            answer, _ = self._exchange(meta, pa.table({}), _START_S)
        except Died as died:
            raise CannotStart(
                f"a decoder process did not start: {died.rejection.detail}",
                "see the standard error of the worker; free memory",
            ) from None
        if "error" in answer:
            self.close()
            raise CannotStart(str(answer["error"]), recipe=recipes[answer["recipe"]])

    def ask(self, meta: Mapping[str, Any], table: pa.Table) -> tuple[dict[str, Any], pa.Table]:
        """Raises `Died`."""
        return self._exchange(meta, table, self._limits.record_s)

    @property
    def requests(self) -> int:
        """Number of requests so far; the first message is the greeting."""
        return self._messages - 1

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def _exchange(
        self, meta: Mapping[str, Any], table: pa.Table, patience_s: float
    ) -> tuple[dict[str, Any], pa.Table]:
        self._messages += 1
        message = wire.packed(self._messages, meta, table)
        try:
            return wire.unpacked(self._swap(message, patience_s), self._messages)
        except (ValueError, pa.ArrowException) as error:
            # A function, or a process that it forked, wrote to our pipe.
            self.close()
            detail = f"the decoder process gave an answer that cannot be read: {error}"
            raise Died(wire.IDLE, Rejection(RejectKind.DECODER_DIED, detail)) from None
        except BaseException:
            # Also after Ctrl-C: the next answer could not be assigned to a request any more.
            self.close()
            raise

    def _swap(self, message: list[memoryview], patience_s: float) -> bytearray:
        """Write and read as far as the pipes allow; kill the process if it makes no progress."""
        rest = deque(message)
        answer = bytearray()
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        poll.register(self._in, select.POLLOUT)
        tick_s = min(_TICK_S, patience_s / 5)
        watch = Stopwatch(self._process.pid, tick_s)
        last_at = self._page[0]
        while True:
            ready = {pipe for pipe, _ in poll.poll(1000 * tick_s)}
            if self._in in ready:
                if self._write(rest):
                    watch.reset()
                if not rest:
                    poll.unregister(self._in)
            if self._out in ready:
                if self._read(answer):
                    raise self._died()
                if len(answer) >= wire.HEAD_BYTES and len(answer) >= wire.size_of(answer):
                    return answer
                watch.reset()
            if not ready and not self.is_alive:
                raise self._died()
            if self._page[0] != last_at:
                last_at = self._page[0]
                watch.reset()
            elif watch.spent_s() >= patience_s:
                at = self._page[0]
                self.close()
                raise Died(at, Rejection(RejectKind.TOO_SLOW, f"took longer than {patience_s:g} s"))

    def _write(self, rest: deque[memoryview]) -> int:
        """The bytes written. A broken pipe is noticed when the answer is read."""
        try:
            written = os.write(self._in, rest[0][:_PIPE_BYTES])
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            rest.clear()
            return 0
        rest[0] = rest[0][written:]
        if not rest[0]:
            rest.popleft()
        return written

    def _read(self, answer: bytearray) -> bool:
        """Whether the output has ended."""
        try:
            got = os.read(self._out, _PIPE_BYTES)
        except BlockingIOError:
            return False
        answer += got
        return not got

    def _died(self) -> Died:
        """The error for a process whose output has ended: it has exited, or will at once."""
        at = self._page[0]
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            code = None
        self.close()
        why = Rejection(RejectKind.DECODER_DIED, f"ended the decoder process ({_how(code)})")
        if code == wire.OUT_OF_MEMORY_EXIT:
            detail = f"exhausted the memory of {self._limits.record_memory_mb} MB"
            why = Rejection(RejectKind.TOO_MUCH_MEMORY, detail)
        return Died(at, why)


def _how(code: int | None) -> str:
    if code is None:
        return "it closed its output"
    if code < 0:
        with suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:  # a fork has a copy of the handle, and not the process
        return
    process.kill()
    with suppress(subprocess.TimeoutExpired):  # the kernel may hold it, in a broken file system
        process.wait(_END_S)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
