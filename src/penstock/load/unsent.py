"""Bytes that are on their way to the brokers, or that these have not read yet.

A client gives a message up after `message.timeout.ms`. What it wrote to its socket before is still
on its way: lost packets are sent again for as long as the connection lives, and even after the
client closed it. Only when nothing is left here has every message met its fate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

_LISTEN = "0A"  # its queues count connections, not bytes


def unacknowledged_bytes(table: str, ports: Collection[int]) -> int:
    """Bytes to these remote ports that TCP has no acknowledgement for, from a `/proc/net/tcp`."""
    total = 0
    for line in table.splitlines()[1:]:
        _, _, remote, state, queues, *_ = line.split()
        if state != _LISTEN and int(remote.rpartition(":")[2], 16) in ports:
            total += int(queues.partition(":")[0], 16)
    return total


def unread_bytes(table: str, ports: Collection[int]) -> int:
    """Bytes that came to these local ports and that nobody has read, from a `/proc/net/tcp`."""
    total = 0
    for line in table.splitlines()[1:]:
        _, local, _, state, queues, *_ = line.split()
        if state != _LISTEN and int(local.rpartition(":")[2], 16) in ports:
            total += int(queues.partition(":")[2], 16)
    return total


def unsent_bytes(
    pids: Iterable[int],
    ports: Collection[int],
    of_table: Callable[[str, Collection[int]], int] = unacknowledged_bytes,
) -> int:
    """The same for the hosts (network namespaces) of these processes, as far as they still run."""
    total = 0
    hosts: set[int] = set()
    for pid in pids:
        process = Path(f"/proc/{pid}")
        try:
            host = (process / "ns" / "net").stat().st_ino
            if host in hosts:
                continue
            hosts.add(host)
            for name in ("tcp", "tcp6"):
                table = (process / "net" / name).read_text(encoding="ascii")
                total += of_table(table, ports)
        except OSError:  # it has ended, or the kernel has no IPv6
            continue
    return total
