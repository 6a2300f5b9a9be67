"""Measuring a link from its ends, with packets of our own: delays, losses, copies, order, speed.

It knows nothing of the condition asked for. Times are the kernel's: the sender's clock just before
the packet leaves, and the stamp that the receiving host's kernel puts on it, so that a busy Python
does not count as a slow link. (All hosts share one clock: they are namespaces of one machine.)
"""

from __future__ import annotations

import math
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from penstock.testbed.network.hosts import Network
from penstock.testbed.network.topology import HOST_INTERFACE

_PROBE = struct.Struct("=I")  # sequence number
_STAMP = struct.Struct("=qq")  # struct timespec
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_UDP_SEGMENT = 103
_SEGMENTS = 40  # packets per call; the kernel takes up to 64
_BUFFER_BYTES = 64 << 20
_HEADER_BYTES = 14 + 20 + 8
_TCP_BLOCK_BYTES = 1 << 18
_CONNECT_WITHIN_S = 20
_QUIET_S = 0.02


@dataclass(frozen=True)
class ProbeResult:
    """Outcomes of `sent` numbered packets."""

    sent: int
    sent_ns: NDArray[np.int64]  # by sequence number, on the clock of time.time_ns()
    delays_ms: NDArray[np.float64]  # by sequence number, of the first arrival; NaN if lost
    arrivals: NDArray[np.int64]  # sequence numbers in the order of arrival, copies included

    @property
    def lost(self) -> NDArray[np.bool_]:
        """By sequence number."""
        return np.isnan(self.delays_ms)

    @property
    def received_ms(self) -> NDArray[np.float64]:
        """The delays of the packets that arrived."""
        return self.delays_ms[~self.lost]

    @property
    def duplicates(self) -> int:
        return len(self.arrivals) - int((~self.lost).sum())

    @property
    def overtakers(self) -> int:
        """Packets that arrived before one that was sent earlier."""
        _, first = np.unique(self.arrivals, return_index=True)
        order = self.arrivals[np.sort(first)]
        smallest_after = np.minimum.accumulate(order[::-1])[::-1]
        return int((order[:-1] > smallest_after[1:]).sum())


@dataclass(frozen=True)
class FloodResult:
    """How much came through in `seconds` of sending as fast as possible."""

    seconds: float
    sent: int
    received: int
    received_bytes: int

    @property
    def packets_per_s(self) -> float:
        return self.received / self.seconds

    @property
    def mbit_per_s(self) -> float:
        return self.received_bytes * 8 / self.seconds / 1e6


def probe(
    network: Network,
    src: str,
    dst: str,
    *,
    count: int,
    rate_per_s: float,
    size_bytes: int = 64,
    settle_s: float = 0.3,
) -> ProbeResult:
    """Send `count` packets at a steady rate and watch them arrive.

    Ends when all have arrived and no more come, or `settle_s` after the last was sent: more than the longest delay,
    or late packets count as lost.
    """
    receiver = _socket_on(network, dst, socket.SOCK_DGRAM)
    sender = _socket_on(network, src, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        arrivals = _Arrivals(receiver, count)
        sender.connect(receiver.getsockname())
        padding = bytes(max(0, size_bytes - _PROBE.size))
        sent_ns = np.zeros(count, dtype=np.int64)
        with arrivals:
            start = time.monotonic()
            for number in range(count):
                # Where the loop is late it catches up, so the mean rate holds.
                if (ahead := start + number / rate_per_s - time.monotonic()) > 0:
                    time.sleep(ahead)
                packet = _PROBE.pack(number) + padding
                sent_ns[number] = time.time_ns()
                sender.send(packet)
            arrivals.end_at_s = time.monotonic() + settle_s
    return arrivals.result(sent_ns)


def flood_packets(
    network: Network, src: str, dst: str, *, seconds: float, size_bytes: int = 64
) -> FloodResult:
    """UDP packets as fast as they can be sent; counts those that reach the host meanwhile.

    Counted by the host's interface: a Python that read them would be what is measured.
    """
    receiver = _socket_on(network, dst, socket.SOCK_DGRAM)
    sender = _socket_on(network, src, socket.SOCK_DGRAM)
    with receiver, sender:
        sender.connect(receiver.getsockname())
        # One call sends many packets, or the sender would be.
        sender.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, size_bytes)
        block, sent, before = bytes(size_bytes * _SEGMENTS), 0, _payload_received(network, dst)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sender.send(block)
            sent += _SEGMENTS
        received_bytes = _payload_received(network, dst) - before
    return FloodResult(seconds, sent, received_bytes // size_bytes, received_bytes)


def flood_bytes(network: Network, src: str, dst: str, *, seconds: float) -> FloodResult:
    """One TCP connection as fast as it goes, counted in the second half (not its slow start)."""
    listener = _socket_on(network, dst, socket.SOCK_STREAM)
    sender = _socket_on(network, src, socket.SOCK_STREAM)
    with listener, sender:
        listener.listen()
        sender.settimeout(_CONNECT_WITHIN_S)
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
        sender.settimeout(0.05)
        block = bytes(_TCP_BLOCK_BYTES)
        with receiver, _Counter(receiver) as counter:
            start, counted_from, before = time.monotonic(), 0.0, 0
            while (now := time.monotonic()) - start < seconds:
                if not counted_from and now - start > seconds / 2:
                    counted_from, before = now, counter.bytes
                with suppress(TimeoutError):
                    sender.send(block)
            received, took = counter.bytes - before, time.monotonic() - counted_from
    return FloodResult(took, 0, 0, received)


class _Arrivals:
    """Receives numbered packets in a thread, from entering to the end of the block."""

    def __init__(self, receiver: socket.socket, count: int) -> None:
        self._receiver, self._count = receiver, count
        self._found: list[tuple[int, int]] = []  # number, time received
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self.end_at_s = math.inf

    def __enter__(self) -> _Arrivals:
        self._receiver.settimeout(_QUIET_S)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.end_at_s = min(self.end_at_s, time.monotonic() + 60)
        self._thread.join()

    def _receive(self) -> None:
        missing = self._count
        seen = bytearray(self._count)
        while time.monotonic() < self.end_at_s:
            try:
                data, notes, _, _ = self._receiver.recvmsg(_PROBE.size, 64)
            except TimeoutError:
                if not missing:
                    return  # and no copy came late
                continue
            (number,) = _PROBE.unpack(data)
            seconds, nanoseconds = _STAMP.unpack(notes[0][2])
            self._found.append((number, seconds * 1_000_000_000 + nanoseconds))
            missing -= not seen[number]
            seen[number] = 1

    def result(self, sent_ns: NDArray[np.int64]) -> ProbeResult:
        delays_ms = np.full(self._count, np.nan)
        for number, received_ns in reversed(self._found):  # so that the first arrival counts
            delays_ms[number] = (received_ns - sent_ns[number]) / 1e6
        numbers = np.array([number for number, _ in self._found], dtype=np.int64)
        return ProbeResult(self._count, sent_ns, delays_ms, numbers)


class _Counter:
    """Reads a socket empty in a thread and counts."""

    def __init__(self, receiver: socket.socket) -> None:
        self._receiver = receiver
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._stopping = False
        self.bytes = 0

    def __enter__(self) -> _Counter:
        self._receiver.settimeout(_QUIET_S)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping = True
        self._thread.join()

    def _read(self) -> None:
        buffer = bytearray(_TCP_BLOCK_BYTES)
        while not self._stopping:
            with suppress(TimeoutError):
                self.bytes += self._receiver.recv_into(buffer)


def _payload_received(network: Network, host: str) -> int:
    """Bytes of UDP payload, from the interface's counts: several packets may have come as one."""
    with network.inside(host):
        table = Path("/proc/thread-self/net/dev").read_text()
    counts = next(line for line in table.splitlines() if HOST_INTERFACE in line).split()
    return int(counts[1]) - int(counts[2]) * _HEADER_BYTES


def _socket_on(network: Network, host: str, kind: socket.SocketKind) -> socket.socket:
    """A socket that belongs to the host, wherever it is used from."""
    with network.inside(host):
        made = socket.socket(socket.AF_INET, kind)
    made.bind((network.address(host), 0))
    return made
