"""The mark on everything a testbed makes, so that it can all be found and removed again.

A testbed has a directory under one root. Its path is in the environment of every process
(`PENSTOCK_TESTBED`), its id in the name of every namespace and cgroup, and its files lie in it.
The directory is made first and removed last; so whatever is found with a mark, at any moment,
belongs to a directory that says who owns it. Removal needs no list of what was made: it looks for
the mark, which makes it the same after success, an error or a kill −9, and harmless to repeat.

Ids are random and never used twice, so what removes one testbed cannot meet another; the name
that a user gives is a label.

Containers that share the root leave each other's testbeds alone: `ownership` says how they tell.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.progress import Progress, silent
from penstock.kafka.waiting import wait_until
from penstock.specs.files import draft_of
from penstock.testbed import ownership
from penstock.testbed.ownership import Claim, Standing

MARK = "PENSTOCK_TESTBED"
OWNER_FILE = "owner.json"
NETNS_DIR = Path("/run/netns")
CGROUP_ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
TOOL_PATH = f"{os.defpath}:/usr/sbin:/sbin"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,29}")
# How long the owner of a testbed waits for its processes to end, and how long a sweep does, which
# holds up a command that has nothing to do with them.
_END_S, _SWEEP_S = 20.0, 5.0
# In the directory of a testbed that a sweep could not remove.
_LEFT_FILE = "left-for-later"

# The locks of the testbeds that this process owns. They must last as long as the process does.
_locks: dict[Path, int] = {}


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
        claim = _claim(self)
        return claim.name or self.id if claim else self.id

    def namespace(self, host: str) -> str:
        return f"{self.prefix}{host}"


def default_root() -> Path:
    """Where the testbeds of this user are: /tmp, which a reboot clears just as it does the rest."""
    return Path("/tmp") / f"penstock-{os.getuid()}"


# --- claiming ---------------------------------------------------------------------------------


def take(root: Path, *, owner_pid: int, name: str | None = None) -> Lease:
    """Claim a new testbed for a process; when that dies, the testbed is abandoned."""
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise BadInput(
            f"{name!r} cannot be the name of a testbed",
            "use 1 to 30 letters, digits, '-' and '_', beginning with a letter or digit",
        )
    with suppress(FileExistsError):
        root.mkdir(mode=0o700, parents=True)
    with _locked(root):
        # Not those of other containers, nor one that only waits to be removed.
        ours = (Standing.OWNED, Standing.DETACHED)
        if name is not None and name in (it.name for it in leases(root) if standing(it) in ours):
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
        owner = ownership.owner(owner_pid)
        claim = Claim(owner=owner, boot=ownership.boot_id(), place=_here(), name=name)
        (draft / OWNER_FILE).write_text(claim.to_json())
        _locks[lease.directory] = ownership.share_lock(draft)
        draft.rename(lease.directory)
    return lease


def detach(lease: Lease) -> None:
    """Let it outlive its owner: from now on it stays until it is released."""
    if claim := _claim(lease):
        _write_claim(lease, replace(claim, owner=None))


def take_over(lease: Lease, owner_pid: int) -> None:
    """Make a process the owner of a detached testbed, to remove it. If that process is killed or
    fails, the testbed is abandoned, and a later command removes what is left."""
    if claim := _claim(lease):
        if lease.directory not in _locks:
            _locks[lease.directory] = ownership.share_lock(lease.directory)
        owner = ownership.owner(owner_pid)
        _write_claim(lease, replace(claim, owner=owner, place=_here()))


@contextmanager
def lifeline(lease: Lease) -> Iterator[int]:
    """A descriptor to start a process of this testbed with (`pass_fds`): as long as the process
    runs, no other container takes the testbed for dead."""
    descriptor = ownership.share_lock(lease.directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def spawn(
    lease: Lease, command: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process of this testbed; what it says is added to `log`."""
    with log.open("ab") as out, lifeline(lease) as lock:
        return subprocess.Popen(
            command,
            env={**env, **lease.environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            start_new_session=True,  # a Ctrl-C at the terminal is for us, not for it
            pass_fds=(lock,),
        )


def adopt(lease: Lease, parent: Path) -> Path:
    """A directory of this testbed in a place that the user chose; removed with the rest."""
    directory = parent / f"{lease.prefix}data"
    with (lease.directory / "adopted").open("a") as note:
        note.write(f"{directory}\n")
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise BadInput(
            f"data_dir: cannot create files in {parent}: {error.strerror}",
            "give a directory that exists and can be written to",
        ) from None
    return directory


# --- looking ----------------------------------------------------------------------------------


def leases(root: Path) -> list[Lease]:
    """Every testbed under `root`, of any owner."""
    if not root.exists():
        return []
    _check_root(root)
    owned = sorted(root.glob(f"[!.]*/{OWNER_FILE}"))
    return [Lease(file.parent.name, file.parent) for file in owned if file.is_file()]


def standing(lease: Lease) -> Standing:
    """Whether somebody will release it, as far as it can be known from here."""
    claim = _claim(lease)
    if claim is None:
        return Standing.OWNED  # somebody is just releasing it, and the owner file goes last
    return ownership.judge(
        claim,
        boot=ownership.boot_id(),
        here=_here(),
        is_alive=lambda owner: ownership.owner(owner.pid) == owner,
        is_locked=lambda: ownership.is_locked(lease.directory),
    )


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
    return [
        path for root in CGROUP_ROOTS if root.is_dir() for path in root.glob(f"{lease.prefix}*")
    ]


# --- removing ---------------------------------------------------------------------------------


def release(lease: Lease, *, patience_s: float = _END_S) -> None:
    """Remove everything that carries the mark. May be repeated, and by any process.

    A TestbedError if a process does not end in time; then the rest stays for the next try.
    """
    _kill_all(lease, patience_s)
    for namespace in namespaces(lease):
        subprocess.run(
            ["ip", "netns", "delete", namespace],
            env={"PATH": TOOL_PATH},
            capture_output=True,
            check=False,
        )
    # A process that has ended may still hold its cgroup for a moment.
    wait_until(
        lambda: _remove_cgroups(lease),
        timeout_s=min(10, patience_s),
        what="the CPU limits to be lifted",
    )
    for directory in _adopted(lease):
        shutil.rmtree(directory, ignore_errors=True)
    _remove_directory(lease.directory)
    if (lock := _locks.pop(lease.directory, None)) is not None:
        os.close(lock)


def sweep(root: Path, note: Progress = silent) -> list[str]:
    """Release every abandoned testbed under `root`; the names of those.

    A testbed that cannot be removed is left for later, and reported with `note`, since it must not
    stop what the caller does: a process that hangs in the kernel does not react to SIGKILL until
    the kernel releases it.
    """
    swept: list[str] = []
    if not root.exists():
        return swept
    _check_root(root)
    with _locked(root):
        for lease in leases(root):
            if standing(lease) is not Standing.ABANDONED:
                continue
            name, left = lease.name, lease.directory / _LEFT_FILE
            try:
                # Its processes were killed by an earlier sweep: look, but do not wait again.
                release(lease, patience_s=0 if left.exists() else _SWEEP_S)
            except (TestbedError, OSError, psutil.Error) as error:
                with suppress(OSError):
                    left.touch()
                note(f"testbed {name} cannot be removed yet: {error}")
            else:
                swept.append(name)
        # A claim is made under the lock, so a draft that is seen here was cut off.
        for draft in root.glob(".[0-9a-f]*"):
            shutil.rmtree(draft, ignore_errors=True)
    return swept


def _kill_all(lease: Lease, patience_s: float) -> None:
    # A process that is ending shows no mark any more, so those once seen are watched by pid.
    seen: dict[int, psutil.Process] = {}

    def alive() -> list[psutil.Process]:
        return [process for process in seen.values() if _is_alive(process)]

    def ended() -> bool:
        for process in processes(lease):
            seen.setdefault(process.pid, process)
        left = alive()
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        return not left

    wait_until(
        ended,
        timeout_s=patience_s,
        what=f"the processes of testbed {lease.id} to end",
        explain=lambda: (
            f"{', '.join(map(_in_words, alive()))}; a process in disk-sleep reacts to SIGKILL only "
            "when the disk or network file system that it waits for answers"
        ),
    )


def _in_words(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.name()} (pid {process.pid}, {process.status()})"
    return f"pid {process.pid}"


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
    status = root.lstat()
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not ours or status.st_mode & 0o022:
        raise TestbedError(
            f"{root} is not a directory that only this user can write to",
            f"remove it (rm -r {root}) if you do not need its contents",
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


def _claim(lease: Lease) -> Claim | None:
    with suppress(OSError, ValueError):
        return Claim.from_json((lease.directory / OWNER_FILE).read_text())
    return None


def _write_claim(lease: Lease, claim: Claim) -> None:
    # A sweep at this moment reads the old owner or the new one.
    with draft_of(lease.directory / OWNER_FILE) as draft:
        draft.write_text(claim.to_json())


def _here() -> ownership.Place:
    return ownership.here(CGROUP_ROOTS)
