"""Bytes that are on their way to the brokers, or that these have not read yet.

A client gives a message up after `message.timeout.ms`. What it wrote to its socket before is still
on its way: lost packets are sent again for as long as the connection lives, and even after the
client closed it. Only when nothing is left here has every message met its fate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

_LISTEN = "0A"  # its queues count connections, not bytes


def unacknowledged_bytes(table: str, ports: Collection[int]) -> int:
    """Bytes to these remote ports that TCP has no acknowledgement for, from a `/proc/net/tcp`."""
    return sum(out for _, remote, out, _ in _connections(table) if remote in ports)


def unread_bytes(table: str, ports: Collection[int]) -> int:
    """Bytes that came to these local ports and that nobody has read, from a `/proc/net/tcp`."""
    return sum(into for local, _, _, into in _connections(table) if local in ports)


def _connections(table: str) -> Iterator[tuple[int, int, int, int]]:
    """Local port, remote port, bytes to be acknowledged, bytes to be read."""
    for line in table.splitlines()[1:]:
        _, local, remote, state, queues, *_ = line.split()
        if state != _LISTEN:
            out, into = queues.split(":")
            yield _port(local), _port(remote), int(out, 16), int(into, 16)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def queued_bytes(
    pids: Iterable[int], ports: Collection[int], of_table: Callable[[str, Collection[int]], int]
) -> int:
    """The sum over the hosts (network namespaces) of these processes, as far as they still run."""
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
