"""A client process seen from its parent: starts it, sends it orders, reads its events, ends it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from penstock.domain import errors
from penstock.domain.errors import PenstockError, TestbedError

_TAIL_LINES = 15


class ClientProcess:
    """One process. A thread reads its events; the latest of each kind is here for other threads."""

    def __init__(
        self,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        job: Mapping[str, Any],
        log: Path,
        changed: threading.Condition,
    ) -> None:
        self.name = name
        self._log = log
        self._changed = changed
        self._said: dict[str, dict[str, Any]] = {}
        self._has_ended = False
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # a Ctrl-C at the terminal is for us
            )
        self.process = psutil.Process(self._process.pid)
        self._listener = threading.Thread(target=self._listen, name=name, daemon=True)
        self._listener.start()
        self._send(job)

    def order(self, name: str, **said: Any) -> None:
        self._send({"order": name, **said})

    def said(self, event: str) -> dict[str, Any] | None:
        """The latest event of this kind."""
        return self._said.get(event)

    def has_said(self, *events: str) -> bool:
        return any(event in self._said for event in events)

    def check(self) -> None:
        """Raise if it reported an error, or died without a report."""
        if error := self._said.get("error"):
            kind = getattr(errors, error["kind"], PenstockError)
            raise kind(f"{self.name}: {error['message']}", error["fix"])
        if self._has_ended and not self.has_said("report"):
            code = self._process.wait()
            end = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            tail = self.log_tail()
            raise TestbedError(
                f"{self.name} {end} before it was finished"
                + (f"; the end of its log:\n{tail}" if tail else ""),
                "its trace so far is kept",
            )

    def log_tail(self) -> str:
        with suppress(OSError):
            lines = self._log.read_text(errors="replace").splitlines()
            return "\n".join(f"    {line}" for line in lines[-_TAIL_LINES:])
        return ""

    def release(self) -> None:
        """Close its standard input: it ends by itself, with what it has traced so far written."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        # One that a fault has frozen could not.
        with suppress(psutil.Error):
            self.process.resume()

    def end(self, timeout_s: float) -> None:
        """Give it time to end by itself, then kill it."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        with suppress(OSError):
            if not self._log.stat().st_size:
                self._log.unlink()

    def _send(self, said: Mapping[str, Any]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        # One that has died is found by `check`.
        with suppress(OSError, ValueError):
            stdin.write(json.dumps(said).encode() + b"\n")
            stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):  # a line that a kill has cut off
                said = json.loads(line)
                with self._changed:
                    self._said[said["event"]] = said
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
