"""Capabilities of this machine: each part that Penstock may need, with how to get it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import PenstockError
from penstock.java import jars
from penstock.java.find import find_java
from penstock.testbed import lease
from penstock.testbed.cpu_limit import can_limit_cpu
from penstock.testbed.machine import available_memory_mb
from penstock.testbed.network.emulator import available_backends

_CONGESTION = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


@dataclass(frozen=True)
class CapabilityCheck:
    """One requirement: whether it is met, what was found, what needs it, how to get it."""

    name: str
    ok: bool
    found: str
    needed_for: str
    fix: str = ""


@dataclass(frozen=True)
class Capabilities:
    """What a machine can do."""

    checks: tuple[CapabilityCheck, ...]

    @property
    def missing(self) -> tuple[CapabilityCheck, ...]:
        """Without these, no cluster can be started."""
        return tuple(c for c in self.checks if not c.ok and c.needed_for == "everything")

    @property
    def partly(self) -> tuple[CapabilityCheck, ...]:
        """Without these, some features are not available."""
        return tuple(c for c in self.checks if not c.ok and c.needed_for != "everything")

    @property
    def is_ready(self) -> bool:
        return not self.missing

    @property
    def outcome(self) -> str:
        if self.missing:
            names = ", ".join(c.name for c in self.missing)
            return f"No cluster can be started here: {names} missing."
        if self.partly:
            lost = ", ".join(dict.fromkeys(c.needed_for for c in self.partly))
            return f"Clusters on loopback work here; not available: {lost}."
        return "Everything works here: clusters, network emulation, faults, Spark."


def examine(environ: Mapping[str, str]) -> Capabilities:
    """Check everything. Changes and fetches nothing."""
    checks = (
        _java(environ),
        _kafka(environ),
        _memory(),
        _disk(),
        _package("Kafka client", "confluent-kafka"),
        _spark(environ),
        _root(),
        _program("ip", "iproute2"),
        _program("iptables-legacy", "iptables"),
        _emulation(),
        _cubic(),
        _cpu_limit(),
    )
    return Capabilities(checks)


def _java(environ: Mapping[str, str]) -> CapabilityCheck:
    try:
        java = find_java(environ)
    except PenstockError as error:
        return CapabilityCheck("Java", False, error.message, "everything", error.fix)
    return CapabilityCheck(
        "Java", True, f"{java.version_text.splitlines()[-1]} ({java.path})", "everything"
    )


def _kafka(environ: Mapping[str, str]) -> CapabilityCheck:
    damage = _damage("kafka", environ)
    version = jars.read_lock()["kafka"].roots[0].revision
    return CapabilityCheck(
        "Kafka",
        damage is None,
        version if damage is None else f"{version}: {damage}",
        "everything",
        "`make setup` fetches it",
    )


def _damage(bundle: str, environ: Mapping[str, str]) -> str | None:
    pinned = jars.read_lock()[bundle]
    return jars.find_damage(pinned, jars.default_cache_dir(environ) / pinned.directory)


def _memory() -> CapabilityCheck:
    available_mb = available_memory_mb()
    each_mb = ClusterSpec(brokers=1).memory_mb
    brokers = min(16, available_mb // each_mb)
    return CapabilityCheck(
        "memory",
        brokers >= 1,
        f"{available_mb} MB free, {os.cpu_count()} cores: up to {brokers} brokers",
        "everything",
        f"free {each_mb} MB, the memory of one broker",
    )


def _disk() -> CapabilityCheck:
    root = lease.default_root()
    free_mb = shutil.disk_usage(root if root.exists() else root.parent).free // 2**20
    return CapabilityCheck(
        "disk",
        free_mb > 500,
        f"{free_mb} MB free at {root}",
        "everything",
        "free disk space there, or set another `data_dir`",
    )


def _package(name: str, package: str) -> CapabilityCheck:
    try:
        return CapabilityCheck(name, True, f"{package} {metadata.version(package)}", "everything")
    except metadata.PackageNotFoundError:
        return CapabilityCheck(
            name, False, f"{package} is not installed", "everything", "`make setup`"
        )


def _spark(environ: Mapping[str, str]) -> CapabilityCheck:
    package = _package("Spark", "pyspark")
    damage = _damage("lake", environ)
    detail = package.found + (", with Delta" if damage is None else f", Delta jars: {damage}")
    return CapabilityCheck(
        "Spark", package.ok and damage is None, detail, "analysis and the lake", "`make setup`"
    )


def _root() -> CapabilityCheck:
    return CapabilityCheck(
        "privileges",
        os.geteuid() == 0,
        f"uid {os.geteuid()}",
        "network emulation",
        "run as root (namespaces and packet queues need it)",
    )


def _program(program: str, package: str) -> CapabilityCheck:
    path = shutil.which(program, path=f"{os.defpath}:/usr/sbin:/sbin")
    return CapabilityCheck(
        program,
        path is not None,
        path or "not found",
        "network emulation",
        f"install {package} (Debian/Ubuntu: apt-get install {package})",
    )


def _emulation() -> CapabilityCheck:
    backends = available_backends()
    return CapabilityCheck(
        "network emulation",
        bool(backends),
        ", ".join(backends) or "none",
        "network emulation",
        "needs root, iproute2, iptables and a kernel with sch_netem or NFQUEUE",
    )


def _cubic() -> CapabilityCheck:
    algorithms = _CONGESTION.read_text().split() if _CONGESTION.exists() else []
    return CapabilityCheck(
        "congestion control",
        "cubic" in algorithms,
        ", ".join(algorithms),
        "network emulation",
        "modprobe tcp_cubic, or set `congestion_control` to one that is there",
    )


def _cpu_limit() -> CapabilityCheck:
    able = can_limit_cpu()
    return CapabilityCheck(
        "CPU limits",
        able,
        "cgroups" if able else "no writable cpu controller",
        "the slow-cpu fault",
        "run as root with the cgroup cpu controller enabled",
    )
