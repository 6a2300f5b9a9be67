"""Who owns a testbed, and what another process on this machine can know about it.

An owner is a process: its pid and its start time. A pid only means something inside one PID
namespace. To a container that shares /tmp and nothing else, every owner next door looks dead. So a
claim also records the place where it was made, and only processes in that place judge the owner.

From elsewhere one thing can be seen: whether anything of the testbed still runs. Its owner, its
janitor and its long-lived processes share a lock on a file in the testbed's directory. The kernel
drops the lock when the last of them ends, however it ends, and every container on the same kernel
that sees the file sees the lock.

Virtual machines that share a directory are not covered: each has a boot of its own, and a testbed of
another boot counts as left over.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Self

LOCK_FILE = "lock"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Owner:
    """A process, distinguished from a later one with the same pid by its start time.

    In ticks since the boot, which no correction of the clock changes.
    """

    pid: int
    start_ticks: int


@dataclass(frozen=True)
class Place:
    """What a process must share with an owner to find and remove everything that one made.

    Two containers differ in at least one of these. The network namespace is not part of it: a
    command that runs on a host of the testbed's network sees the same processes and names.
    """

    pid_namespace: int  # to see processes
    run: str  # to see the names of network namespaces, in /run/netns
    cgroups: str  # to see control groups


@dataclass(frozen=True)
class Claim:
    """What a testbed's directory says about its owner."""

    owner: Owner | None  # None: it is detached, and outlives the process that started it
    boot: str
    place: Place | None
    name: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """None if the text is not a claim."""
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            data = json.loads(text)
            owner, place = data["owner"], data.get("place")
            return cls(
                owner=None if owner is None else Owner(owner["pid"], owner["start_ticks"]),
                boot=data["boot"],
                place=None if place is None else Place(**place),
                name=data.get("name"),
            )
        return None


class Standing(Enum):
    """Who will remove a testbed, as far as it can be known from here."""

    OWNED = "its owner is running and removes it"
    DETACHED = "it stays until you remove it"
    ABANDONED = "it will not be removed automatically"
    ELSEWHERE = "it belongs to another container, and may run there"


def judge(
    claim: Claim,
    *,
    boot: str,
    here: Place,
    is_alive: Callable[[Owner], bool],
    is_locked: Callable[[], bool],
) -> Standing:
    """Pure. `is_alive` is asked only about owners in the same place, `is_locked` about others."""
    if claim.boot != boot:
        # The machine was started again, and no process survived that; or a container has a boot id
        # of its own, and then somebody there holds the lock.
        return Standing.ELSEWHERE if is_locked() else Standing.ABANDONED
    if claim.place != here:
        # A detached one may be in use although all its brokers are down, so its lock decides nothing.
        is_dead = claim.owner is not None and not is_locked()
        return Standing.ABANDONED if is_dead else Standing.ELSEWHERE
    if claim.owner is None:
        return Standing.DETACHED
    return Standing.OWNED if is_alive(claim.owner) else Standing.ABANDONED


# --- what the kernel says ---------------------------------------------------------------------


def boot_id() -> str:
    with suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return ""


def here(cgroup_roots: Iterable[Path]) -> Place:
    """Where this process is."""
    cgroups = next((root for root in cgroup_roots if root.is_dir()), None)
    return Place(
        pid_namespace=_inode(Path("/proc/self/ns/pid")),
        run=_directory(Path("/run")),
        cgroups=_directory(cgroups) if cgroups else "",
    )


def owner(pid: int) -> Owner | None:
    """The process of this pid; None if there is none, or only its zombie."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] != "Z":
            return Owner(pid, int(fields[19]))
    return None


def share_lock(directory: Path) -> int:
    """A descriptor that keeps the testbed's lock as long as it, or a copy of it, is open.

    A process keeps a copy if it is started with the descriptor in `pass_fds`. The lock belongs to
    what the copies share, so the order in which they are closed does not matter.
    """
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(directory: Path) -> bool:
    """Whether anything of this testbed runs, in any container. True if it cannot be known."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # a testbed has it from its first moment on
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _inode(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_ino
    return 0


def _directory(path: Path) -> str:
    """Which directory this path is. Containers may use one path for different directories."""
    with suppress(OSError):
        status = path.stat()
        return f"{status.st_dev}:{status.st_ino}"
    return ""
