"""The mark on everything a testbed makes, so that it can all be found and removed again.

A testbed has a directory under one root. Its path is in the environment of every process
(`PENSTOCK_TESTBED`), its id in the name of every namespace and cgroup, and its files lie in it.
The directory is made first and removed last; so whatever is found with a mark, at any moment,
belongs to a directory that says who owns it. Removal needs no list of what was made: it looks for
the mark, which makes it the same after success, an error or a kill −9, and harmless to repeat.

Ids are random and never used twice, so what removes one testbed cannot meet another; the name
that a user gives is a label.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from penstock.domain.errors import BadInput, TestbedError
from penstock.testbed.waiting import wait_until

MARK = "PENSTOCK_TESTBED"
OWNER_FILE = "owner.json"
NETNS_DIR = Path("/run/netns")
CGROUP_ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
TOOL_PATH = f"{os.defpath}:/usr/sbin:/sbin"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,29}")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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
        """How the names of its namespaces and cgroups begin. An id has no '-' in it."""
        return f"penstock-{self.id}-"

    @property
    def name(self) -> str:
        """What the user calls it."""
        return str(_claim(self).get("name") or self.id)

    def namespace(self, host: str) -> str:
        return f"{self.prefix}{host}"


def default_root() -> Path:
    """Where the testbeds of this user are: /tmp, which a reboot clears just as it does the rest."""
    return Path("/tmp") / f"penstock-{os.getuid()}"


# --- claiming ---------------------------------------------------------------------------------


def take(root: Path, *, owner_pid: int, name: str | None = None) -> Lease:
    """Claim a new testbed for a process; when that dies, the testbed is abandoned."""
    if name is not None and not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r} cannot be the name of a testbed",
            "use 1 to 30 letters, digits, '-' and '_', beginning with a letter or digit",
        )
    with suppress(FileExistsError):
        root.mkdir(mode=0o700, parents=True)
    with _locked(root):
        if name is not None and any(held.name == name for held in leases(root)):
            raise TestbedError(
                f"a testbed called {name!r} exists already",
                f"`penstock testbed down {name}` removes it; or choose another name",
            )
        lease_id = secrets.token_hex(4)
        lease = Lease(lease_id, root / lease_id)
        # The owner is written before the directory gets its real name, so that no sweep ever
        # sees a directory without one.
        draft = root / f".{lease_id}"
        draft.mkdir(mode=0o700)
        claim = {"owner": _identity(owner_pid), "name": name, "boot": _boot_id()}
        (draft / OWNER_FILE).write_text(json.dumps(claim))
        draft.rename(lease.directory)
    return lease


def detach(lease: Lease) -> None:
    """Let it outlive its owner: from now on it stays until somebody releases it."""
    # Renamed into place: a sweep at this moment reads the old owner or the new one.
    draft = lease.directory / f"{OWNER_FILE}.draft"
    draft.write_text(json.dumps({**_claim(lease), "owner": None}))
    draft.rename(lease.directory / OWNER_FILE)


def adopt(lease: Lease, parent: Path) -> Path:
    """A directory of this testbed in a place that the user chose; removed with the rest."""
    directory = parent / f"{lease.prefix}data"
    with (lease.directory / "adopted").open("a") as note:
        note.write(f"{directory}\n")
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise BadInput(
            f"data_dir: nothing can be made in {parent}: {error.strerror}",
            "give a directory that exists and can be written to",
        ) from None
    return directory


# --- looking ----------------------------------------------------------------------------------


def leases(root: Path) -> list[Lease]:
    """Every testbed under `root`, whoever owns it."""
    if not root.exists():
        return []
    _check_root(root)
    return [
        Lease(path.name, path)
        for path in sorted(root.iterdir())
        if (path / OWNER_FILE).is_file() and not path.name.startswith(".")
    ]


def is_detached(lease: Lease) -> bool:
    return _claim(lease).get("owner") is None


def is_abandoned(lease: Lease) -> bool:
    """Whether nobody will release it: its owner died, or the machine was started anew."""
    claim = _claim(lease)
    if not claim:
        return False  # somebody is just releasing it, and the owner file goes last
    if claim["boot"] != _boot_id():
        return True
    owner = claim["owner"]
    return owner is not None and owner != _identity(owner["pid"])


def processes(lease: Lease) -> Iterator[psutil.Process]:
    """The running processes that carry this testbed's mark."""
    mark = f"{MARK}={lease.directory}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError, psutil.NoSuchProcess):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                yield psutil.Process(int(entry.name))


def namespaces(lease: Lease) -> list[str]:
    if not NETNS_DIR.is_dir():
        return []
    return [path.name for path in NETNS_DIR.iterdir() if path.name.startswith(lease.prefix)]


def cgroups(lease: Lease) -> list[Path]:
    found = (root.glob(f"{lease.prefix}*") for root in CGROUP_ROOTS if root.is_dir())
    return [path for paths in found for path in paths]


# --- removing ---------------------------------------------------------------------------------


def release(lease: Lease) -> None:
    """Remove everything that carries the mark. May be repeated, and by any process."""
    _kill_all(lease)
    for namespace in namespaces(lease):
        subprocess.run(
            ["ip", "netns", "delete", namespace],
            env={"PATH": TOOL_PATH},
            capture_output=True,
            check=False,
        )
    # A process that has ended may still hold its cgroup for a moment.
    wait_until(lambda: _remove_cgroups(lease), timeout_s=10, what="the CPU limits to be lifted")
    for directory in _adopted(lease):
        shutil.rmtree(directory, ignore_errors=True)
    _remove_directory(lease.directory)


def sweep(root: Path) -> list[str]:
    """Release every abandoned testbed under `root`; the names of those."""
    swept: list[str] = []
    if not root.exists():
        return swept
    _check_root(root)
    with _locked(root):
        for lease in leases(root):
            if is_abandoned(lease):
                swept.append(lease.name)
                release(lease)
        # A claim is made under the lock, so a draft that is seen here was cut off.
        for draft in root.glob(".[0-9a-f]*"):
            shutil.rmtree(draft, ignore_errors=True)
    return swept


def _kill_all(lease: Lease) -> None:
    # A process that is ending shows no mark any more, so those once seen are watched by pid.
    seen: dict[int, psutil.Process] = {}

    def ended() -> bool:
        for process in processes(lease):
            seen.setdefault(process.pid, process)
        alive = [process for process in seen.values() if _is_alive(process)]
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        return not alive

    wait_until(ended, timeout_s=20, what=f"the processes of testbed {lease.id} to end")


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _remove_cgroups(lease: Lease) -> bool:
    for cgroup in cgroups(lease):
        with suppress(OSError):
            cgroup.rmdir()
    return not cgroups(lease)


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


def _adopted(lease: Lease) -> list[Path]:
    with suppress(OSError):
        lines = (lease.directory / "adopted").read_text().splitlines()
        return [Path(line) for line in lines if Path(line).name == f"{lease.prefix}data"]
    return []


# --- whose it is ------------------------------------------------------------------------------


def _check_root(root: Path) -> None:
    """What lies there is believed and removed, so nobody else may have written it."""
    found = root.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not ours or found.st_mode & 0o022:
        raise TestbedError(
            f"{root} is not a directory that only this user can write to",
            f"remove it (rm -r {root}) if nothing of yours is in it",
        )


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """One claim or sweep at a time."""
    _check_root(root)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _claim(lease: Lease) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        claim = json.loads((lease.directory / OWNER_FILE).read_text())
        if isinstance(claim, dict) and claim.keys() >= {"owner", "boot"}:
            return claim
    return {}


def _identity(pid: int) -> dict[str, int] | None:
    """A process, told from a later one with the same pid by its start (in ticks since the boot,
    which no correction of the clock moves). None if there is none, or only its zombie."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] != "Z":
            return {"pid": pid, "start_ticks": int(fields[19])}
    return None


def _boot_id() -> str:
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return ""
