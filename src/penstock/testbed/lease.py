"""The mark on everything a testbed makes, so that it can all be found and removed again.

A testbed has a directory under one root. Its path is in the environment of every process
(`PENSTOCK_TESTBED`), its id in the name of every namespace and cgroup, and its files lie in it.
The directory is made first and removed last; so whatever is found with a mark, at any moment,
belongs to a directory that says who owns it. Removal needs no list of what was made: it looks for
the mark, which makes it the same after success, an error or a kill −9, and harmless to repeat.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from penstock.domain.errors import TestbedError
from penstock.testbed.waiting import wait_until

MARK = "PENSTOCK_TESTBED"
OWNER_FILE = "owner.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,29}")
NETNS_DIR = Path("/run/netns")
CGROUP_ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))


@dataclass(frozen=True)
class Lease:
    """One testbed's claim on this machine: its id and its directory."""

    id: str
    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        """What every process of this testbed must have in its environment."""
        return {MARK: str(self.directory)}

    @property
    def prefix(self) -> str:
        """How the names of its namespaces and cgroups begin."""
        return f"penstock-{self.id}-"

    def namespace(self, host: str) -> str:
        return f"{self.prefix}{host}"


def default_root() -> Path:
    """Where the testbeds of this user are: /tmp, which a reboot clears just as it does the rest."""
    return Path("/tmp") / f"penstock-{os.getuid()}"


def take(root: Path, *, owner_pid: int, name: str | None = None) -> Lease:
    """Claim a new testbed for a process; when that dies, the testbed is abandoned."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise TestbedError(
            f"{root} belongs to another user", "remove it, or give another directory"
        )
    lease_id = secrets.token_hex(3) if name is None else name
    if not _NAME.fullmatch(lease_id):
        raise TestbedError(
            f"{lease_id!r} cannot be the name of a testbed",
            "use 1 to 30 letters, digits, '-' and '_', beginning with a letter or digit",
        )
    lease = Lease(lease_id, root / lease_id)
    # The owner is written before the directory gets its real name, so that no sweep ever sees
    # a directory without one.
    draft = root / f".{lease_id}-{secrets.token_hex(4)}"
    draft.mkdir(mode=0o700)
    _write_owner(draft, _identity(psutil.Process(owner_pid)))
    try:
        draft.rename(lease.directory)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        raise TestbedError(
            f"a testbed called {lease_id!r} exists already",
            f"`penstock testbed down {lease_id}` removes it; or choose another name",
        ) from None
    return lease


def detach(lease: Lease) -> None:
    """Let it outlive its owner: from now on it stays until somebody releases it."""
    _write_owner(lease.directory, None)


def leases(root: Path) -> list[Lease]:
    """Every testbed under `root`, whoever owns it."""
    if not root.is_dir():
        return []
    return [
        Lease(path.name, path)
        for path in sorted(root.iterdir())
        if (path / OWNER_FILE).is_file() and not path.name.startswith(".")
    ]


def is_detached(lease: Lease) -> bool:
    return _owner(lease) is None


def is_abandoned(lease: Lease) -> bool:
    """Whether nobody will release it: its owner died, or it is detached and all of it died."""
    owner = _owner(lease)
    return not any(processes(lease)) if owner is None else not _is_alive(owner)


def processes(lease: Lease) -> Iterator[psutil.Process]:
    """The running processes that carry this testbed's mark."""
    mark = f"{MARK}={lease.directory}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError, psutil.NoSuchProcess):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                process = psutil.Process(int(entry.name))
                if process.status() != psutil.STATUS_ZOMBIE:
                    yield process


def release(lease: Lease) -> None:
    """Remove everything that carries the mark. May be repeated, and by any process."""

    def killed() -> bool:
        alive = list(processes(lease))
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        return not alive

    wait_until(killed, timeout_s=20, what=f"the processes of testbed {lease.id} to end")
    for namespace in _namespaces(lease):
        subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)
    for cgroup in _cgroups(lease):
        with suppress(OSError):
            cgroup.rmdir()
    for directory in _adopted(lease):
        shutil.rmtree(directory, ignore_errors=True)
    _remove_directory(lease.directory)


def _remove_directory(directory: Path) -> None:
    """Remove it so that it is marked as ours, by its owner file, until the very end."""
    with suppress(OSError):
        for path in directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != OWNER_FILE:
                path.unlink(missing_ok=True)
        (directory / OWNER_FILE).unlink(missing_ok=True)
        directory.rmdir()


def adopt(lease: Lease, parent: Path) -> Path:
    """A directory of this testbed in a place that the user chose; removed with the rest."""
    directory = parent / f"{lease.prefix}data"
    with (lease.directory / "adopted").open("a") as note:
        note.write(f"{directory}\n")
    directory.mkdir(parents=True)
    return directory


def _adopted(lease: Lease) -> list[Path]:
    with suppress(OSError):
        return [Path(line) for line in (lease.directory / "adopted").read_text().splitlines()]
    return []


def sweep(root: Path) -> list[str]:
    """Release every abandoned testbed under `root`; the ids of those."""
    swept = []
    for lease in leases(root):
        if is_abandoned(lease):
            release(lease)
            swept.append(lease.id)
    if root.is_dir():
        for draft in root.glob(".*"):
            # A claim that was cut off between two system calls. A minute is ample for a live one.
            if time.time() - draft.stat().st_mtime > 60:
                shutil.rmtree(draft, ignore_errors=True)
    return swept


def _namespaces(lease: Lease) -> list[str]:
    if not NETNS_DIR.is_dir():
        return []
    return [path.name for path in NETNS_DIR.iterdir() if path.name.startswith(lease.prefix)]


def _cgroups(lease: Lease) -> list[Path]:
    found = (root.glob(f"{lease.prefix}*") for root in CGROUP_ROOTS if root.is_dir())
    return [path for paths in found for path in paths]


def _identity(process: psutil.Process) -> dict[str, float]:
    # The creation time tells a process from a later one that got the same pid.
    return {"pid": process.pid, "create_time": process.create_time()}


def _write_owner(directory: Path, owner: dict[str, float] | None) -> None:
    # Renamed into place: a sweep at this moment reads the old owner or the new one.
    draft = directory / f"{OWNER_FILE}.draft"
    draft.write_text(json.dumps({"owner": owner}))
    draft.rename(directory / OWNER_FILE)


def _owner(lease: Lease) -> dict[str, float] | None:
    try:
        owner: dict[str, float] | None = json.loads((lease.directory / OWNER_FILE).read_text())[
            "owner"
        ]
    except (OSError, ValueError, KeyError):
        # Somebody is just releasing it, and the owner file goes last.
        return {"pid": -1, "create_time": 0}
    return owner


def _is_alive(owner: dict[str, float]) -> bool:
    try:
        process = psutil.Process(int(owner["pid"]))
        same = abs(process.create_time() - owner["create_time"]) < 0.01
        return same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):
        return False
