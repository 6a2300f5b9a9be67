"""A limit on the CPU that a process may use, by the kernel's control groups (v1 or v2)."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.domain.errors import FaultDidNotTake, MissingPart
from penstock.testbed.lease import CGROUP_ROOTS, Lease

# Short, so that a slow broker is slow evenly and not in fits of 100 ms; and long enough that the
# share of it is at least the millisecond that the kernel asks for.
_PERIOD_US, _LEAST_QUOTA_US = 20_000, 1_000


def limit_cpu(lease: Lease, name: str, pid: int, cores: float) -> Callable[[], None]:
    """Hold `pid` to `cores`; read back from the kernel, so that it is known to be in force. The
    result lifts the limit."""
    root = _root()
    path = root / f"{lease.prefix}{name}"
    period_us = max(_PERIOD_US, round(_LEAST_QUOTA_US / cores))
    quota_us = round(cores * period_us)
    before = root / _present_group(pid).lstrip("/")
    try:
        path.mkdir(exist_ok=True)
        if (path / "cpu.cfs_quota_us").exists():
            (path / "cpu.cfs_period_us").write_text(str(period_us))
            quota_file, text = path / "cpu.cfs_quota_us", str(quota_us)
        else:
            quota_file, text = path / "cpu.max", f"{quota_us} {period_us}"
        quota_file.write_text(text)
        (path / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        raise MissingPart(
            f"the CPU of a process cannot be limited here: {error}",
            "slowing a broker's CPU needs root and a writable cgroup hierarchy with the cpu "
            "controller; `slow-link` slows it by its network instead",
        ) from None
    members = (path / "cgroup.procs").read_text().split()
    if str(pid) not in members or quota_file.read_text().strip() != text:
        raise FaultDidNotTake(f"the kernel did not apply the CPU limit of {cores:g} cores")

    def lift() -> None:
        with suppress(ProcessLookupError):  # it ended meanwhile
            (before / "cgroup.procs").write_text(str(pid))
        path.rmdir()

    return lift


def _present_group(pid: int) -> str:
    """The process's place in the hierarchy of the cpu controller; lines are ID:CONTROLLERS:PATH."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    groups = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
    own = [path for names, path in groups.items() if "cpu" in names.split(",")]
    return own[0] if own else groups.get("", "/")


def can_limit_cpu() -> bool:
    with suppress(MissingPart):
        return os.access(_root(), os.W_OK)
    return False


def _root() -> Path:
    for root in CGROUP_ROOTS:
        if (root / "cpu.cfs_quota_us").exists():
            return root
        control = root / "cgroup.subtree_control"
        if control.exists() and "cpu" in control.read_text().split():
            return root
    raise MissingPart(
        "this machine has no cpu controller for control groups",
        "mount cgroup v2 with the cpu controller, or use `slow-link` instead of `slow-cpu`",
    )
