"""A limit on the CPU that a process may use, by the kernel's control groups (v1 or v2)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from penstock.domain.errors import FaultDidNotTake, MissingPart
from penstock.testbed.lease import CGROUP_ROOTS, Lease

_PERIOD_US = 20_000  # short, so that a slow broker is slow evenly and not in fits of 100 ms


@dataclass(frozen=True)
class CpuLimit:
    """A control group that holds one process to a share of a core."""

    path: Path
    pid: int

    def remove(self) -> None:
        """Give the process its freedom back."""
        if Path(f"/proc/{self.pid}").exists():
            (self.path.parent / "cgroup.procs").write_text(str(self.pid))
        self.path.rmdir()


def limit_cpu(lease: Lease, name: str, pid: int, cores: float) -> CpuLimit:
    """Hold `pid` to `cores`; read back from the kernel, so that it is known to be in force."""
    root = _root()
    path = root / f"{lease.prefix}{name}"
    quota_us = max(1000, round(cores * _PERIOD_US))
    try:
        path.mkdir(exist_ok=True)
        if (path / "cpu.cfs_quota_us").exists():
            (path / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            quota_file, text = path / "cpu.cfs_quota_us", str(quota_us)
        else:
            quota_file, text = path / "cpu.max", f"{quota_us} {_PERIOD_US}"
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
        raise FaultDidNotTake(f"the kernel did not take the CPU limit of {cores:g} cores")
    return CpuLimit(path, pid)


def can_limit_cpu() -> bool:
    try:
        return os.access(_root(), os.W_OK)
    except MissingPart:
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
