"""What this machine has free: memory and ports."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT = 10_000


def available_memory_mb() -> int:
    """What can be used: of the machine, and within the limit of the container we are in."""
    available = psutil.virtual_memory().available
    for limit in _LIMITS:
        with suppress(OSError, ValueError):
            available = min(available, int(limit.read_text()))
    return available // 2**20


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, outside the range that outgoing connections are given: a
    broker that is down for a while must find its port free when it comes back."""
    with suppress(OSError, ValueError):
        end = int(_EPHEMERAL.read_text().split()[0])
        candidates = random.sample(range(_FIRST_PORT, end), min(20 * count, end - _FIRST_PORT))
        free = [port for port in candidates if taken_port([port]) is None]
        if len(free) >= count:
            return free[:count]
    probes = [socket.socket() for _ in range(count)]  # all at once, so that none comes twice
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def taken_port(ports: Iterable[int]) -> int | None:
    """The first of these loopback ports that is in use."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return port
    return None


def listens(address: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((address, port), timeout=1):
        return True
    return False
