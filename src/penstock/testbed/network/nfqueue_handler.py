"""The packet handler: a process in the router's namespace that decides on every queued packet.

    python -m penstock.testbed.network.nfqueue_handler DIRECTORY

One netlink socket is bound to a queue per link. A packet is drawn a fate, held, and answered with
a verdict when it is due; the kernel keeps the packet itself meanwhile. Delays count from when the
kernel got the packet: counted from when it is read here, a handler that falls behind would not know
that it does. Requests come as lines of JSON over a Unix socket in DIRECTORY. Standard library only,
since its start is waited for.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import select
import socket
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.domain.network.condition import LinkCondition
from penstock.testbed.network import netlink
from penstock.testbed.network.control import socket_address
from penstock.testbed.network.delay_queue import Held
from penstock.testbed.network.encoding import decode
from penstock.testbed.network.packet_draws import LinkFates

# Packets that may be held per link: 100,000/s for 2 s.
QUEUE_PACKETS = 200_000
RECEIVE_BUFFER_BYTES = 64 << 20
# Packets read before looking at what is due: at 5 µs each no release waits longer than 0.3 ms.
READ_AT_ONCE = 64
VERDICTS_AT_ONCE = 400
IDLE_S = 1.0
LATE_NS = 1_000_000
UNUSED_QUEUE = 65_535
NO_NFQUEUE = 3  # exit code

# Where a verdict names its queue.
_QUEUE_BYTES = slice(netlink.QUEUE_AT, netlink.QUEUE_AT + 2)


class _Link:
    """One queue: its present fates and its counts."""

    __slots__ = (
        "accept",
        "drop",
        "dropped",
        "duplicated",
        "fates",
        "fifo",
        "late",
        "queue",
        "reordered",
        "seen",
        "worst_late_ns",
    )

    def __init__(self, queue: int, fates: LinkFates) -> None:
        self.queue = queue
        self.accept, self.drop = netlink.verdict_prefixes(queue)
        self.fates = fates
        self.fifo: deque[tuple[int, bytes]] | None = None
        self.seen = self.dropped = self.duplicated = self.reordered = 0
        self.late = self.worst_late_ns = 0

    def note_late(self, packets: int, worst_ns: int) -> None:
        self.late += packets
        self.worst_late_ns = max(self.worst_late_ns, worst_ns)


class _Copy:
    """A packet's second appearance. Sent by us, so it does not pass the queue again."""

    __slots__ = ("packet", "queue")

    def __init__(self, queue: int, packet: bytes) -> None:
        self.queue, self.packet = queue, packet


class Handler:
    """The queues, what is held, and the two sockets. `turn()` is one round of all of it."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._clients: dict[int, tuple[socket.socket, bytearray]] = {}
        self._netlink = _netlink_socket()
        self._raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self._raw.setblocking(False)
        # The kernel stamps what comes in, in all namespaces, as long as any socket asks for it.
        self._raw.setsockopt(socket.SOL_SOCKET, netlink.SO_TIMESTAMPNS, 1)
        self._unpack = netlink.packet(netlink.USUAL_STAMP_AT).unpack_from
        self._links: dict[int, _Link] = {}
        self._held: Held[bytes] = Held()  # verdicts
        self._copies: Held[_Copy] = Held()
        self._verdicts: list[bytes] = []
        self._buffer = bytearray(1 << 17)
        self._sequence = 0
        self._answers: dict[int, int] = {}
        self._refused = 0

    def check(self) -> None:
        """Bind a queue that no link has, to learn whether the kernel can."""
        self._ask(netlink.bind, UNUSED_QUEUE)

    def turn(self) -> None:
        """Wait for something to do, and do it."""
        dues_ns = [self._held.next_due_ns(), self._copies.next_due_ns()]
        due_ns = min((due for due in dues_ns if due is not None), default=None)
        wait_s = IDLE_S if due_ns is None else max(0.0, (due_ns - time.monotonic_ns()) / 1e9)
        clients = [client for client, _ in self._clients.values()]
        watched = [self._netlink, self._control, *clients]
        # select, because epoll and poll round to whole milliseconds.
        ready, _, _ = select.select(watched, [], [], wait_s)
        for source in ready:
            if source is self._netlink:
                self._receive()
            elif source is self._control:
                client, _ = self._control.accept()
                self._clients[client.fileno()] = (client, bytearray())
            else:
                self._serve(source)
        self._release()

    def _receive(self) -> None:
        """Read waiting packets, and draw their fates."""
        buffer, links, verdicts = self._buffer, self._links, self._verdicts
        receive, hold, unpack = self._netlink.recv_into, self._held.push, self._unpack
        subsystem, queue_at = netlink.SUBSYSTEM, netlink.QUEUE_AT
        stamped = netlink.STAMP_HEAD
        # From the clock of the stamps to the one that is never set. Read in this order: a stall in
        # between makes packets late, in the other order they would be early.
        wall_ns = time.time_ns()
        now_ns = time.monotonic_ns()
        to_monotonic_ns = now_ns - wall_ns
        overdue_ns, soon_ns = now_ns - LATE_NS, now_ns + LATE_NS
        for _ in range(READ_AT_ONCE):
            try:
                length = receive(buffer)
            except BlockingIOError:
                return
            if buffer[5] != subsystem:
                self._note_answer()
                continue
            queue, packet_id, head, seconds, microseconds = unpack(buffer, queue_at)
            link = links[queue]
            fates = link.fates
            link.seen += 1
            came_ns = seconds * 1_000_000_000 + microseconds * 1000 + to_monotonic_ns
            # The future: the clock of the stamps was set back just now.
            if head != stamped or came_ns > soon_ns:
                came_ns = self._find_stamp(length)
            if fates.lost is not None and fates.lost():
                link.dropped += 1
                verdicts.append(link.drop + packet_id)
                continue
            accept = link.accept + packet_id
            fifo = link.fifo
            if fifo is not None:
                fifo.append((came_ns + fates.wait_ns, accept))
            elif fates.due_ns is None or (fates.skips is not None and fates.skips()):
                link.reordered += fates.due_ns is not None
                verdicts.append(accept)
                if came_ns < overdue_ns:
                    link.note_late(1, now_ns - came_ns)
            else:
                hold(fates.due_ns(came_ns), accept)
            if fates.copied is not None and fates.copied():
                packet = netlink.payload(memoryview(buffer)[:length])
                # While a link changes the last packets may come without their content.
                if packet:
                    self._copy(link, packet, came_ns)

    def _find_stamp(self, length: int) -> int:
        """Learn where stamps are, for the next round; until then a packet came when it is read."""
        if (stamp_at := netlink.stamp_at(memoryview(self._buffer)[:length])) is not None:
            self._unpack = netlink.packet(stamp_at).unpack_from
        return time.monotonic_ns()

    def _copy(self, link: _Link, packet: bytes, came_ns: int) -> None:
        """Hold a second appearance of a packet; its delay is its own."""
        link.duplicated += 1
        fates = link.fates
        if fates.wait_ns is not None:
            due_ns = came_ns + fates.wait_ns
        else:
            due_ns = came_ns if fates.due_ns is None else fates.due_ns(came_ns)
        self._copies.push(due_ns, _Copy(link.queue, packet))

    def _release(self) -> None:
        """Send the verdicts and the copies of everything that is due."""
        verdicts = self._verdicts
        now_ns = time.monotonic_ns()
        overdue = self._held.pop_overdue(now_ns - LATE_NS)
        verdicts += [verdict for _, verdict in overdue]
        verdicts += self._held.pop_due(now_ns)
        for start in range(0, len(verdicts), VERDICTS_AT_ONCE):
            self._netlink.send(b"".join(verdicts[start : start + VERDICTS_AT_ONCE]))
        verdicts.clear()
        overdue_copies = self._copies.pop_overdue(now_ns - LATE_NS)
        for copy in (*(copy for _, copy in overdue_copies), *self._copies.pop_due(now_ns)):
            address = socket.inet_ntoa(copy.packet[16:20])
            try:
                self._raw.sendto(copy.packet, (address, 0))
            except OSError:  # a full queue behind us, as the kernel treats its own packets
                self._refused += 1
        if overdue or overdue_copies:
            late = [(due_ns, verdict[_QUEUE_BYTES]) for due_ns, verdict in overdue]
            late += [(due_ns, copy.queue.to_bytes(2)) for due_ns, copy in overdue_copies]
            self._note_late(late)

    def _note_late(self, released: list[tuple[int, bytes]]) -> None:
        """Count what was just sent: when each was due, and its queue. An overloaded handler does
        this for every packet."""
        now_ns = time.monotonic_ns()
        for queue, count in Counter(queue for _, queue in released).items():
            first_due_ns = min(due_ns for due_ns, late in released if late == queue)
            number = int.from_bytes(queue)
            self._links[number].note_late(count, now_ns - first_due_ns)

    def _serve(self, client: socket.socket) -> None:
        """Answer the requests of one client; a line each way."""
        number = client.fileno()
        waiting = self._clients[number][1]
        try:
            data = client.recv(1 << 20)
            waiting += data
            while (end := waiting.find(b"\n")) >= 0:
                reply = self._answer(bytes(waiting[:end]))
                del waiting[: end + 1]
                client.sendall(json.dumps(reply).encode() + b"\n")
        except ConnectionError:
            data = b""
        if not data:
            del self._clients[number]
            client.close()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            return self._set(request) if request["do"] == "set" else self._stats()
        except Exception as error:  # the caller must know; packets must keep moving
            return {"error": f"{type(error).__name__}: {error}"}

    def _set(self, request: dict[str, Any]) -> dict[str, Any]:
        for order in request["links"]:
            self._set_link(order["link"], decode(order["condition"]), order["stream"])
        self._held.keep_fifos({link.fates.wait_ns for link in self._links.values()})
        return {}

    def _set_link(self, queue: int, condition: LinkCondition, stream: str) -> None:
        fates = LinkFates(condition, stream)
        link = self._links.get(queue)
        if link is None and not condition.shapes_packets:
            return  # never shaped, so it holds nothing that a cut could lose
        if link is None:
            # Known before it is bound: from then on a packet may come.
            link = self._links[queue] = _Link(queue, fates)
            self._ask(netlink.bind, queue)
            self._ask(netlink.queue_length, queue, QUEUE_PACKETS)
        # Packets that the kernel queued before its answer meet the old fates, those after it the
        # new ones; what the link holds already stays due when it was.
        self._ask(netlink.copy_mode, queue, fates.copied is not None)
        link.fates = fates
        wait_ns = fates.wait_ns
        link.fifo = None if wait_ns is None else self._held.fifo(wait_ns)
        if condition.cut:
            self._drop_held(link)

    def _drop_held(self, link: _Link) -> None:
        """Nothing passes a cut link, so what it holds is lost too."""
        accept = link.accept
        lost = self._held.remove(lambda verdict: verdict[:-4] == accept)
        self._copies.remove(lambda copy: copy.queue == link.queue)
        link.dropped += len(lost)
        self._verdicts += [link.drop + verdict[-4:] for verdict in lost]

    def _stats(self) -> dict[str, Any]:
        overflowed = _overflows()
        return {
            "links": [
                {
                    "link": link.queue,
                    "packets": link.seen,
                    "dropped": link.dropped,
                    "duplicated": link.duplicated,
                    "reordered": link.reordered,
                    "overflowed": overflowed.get(link.queue, 0),
                    "late": link.late,
                    "worst_late_ms": link.worst_late_ns / 1e6,
                }
                for link in self._links.values()
            ],
            "refused_verdicts": self._refused,
        }

    def _ask(self, message: Callable[..., bytes], *values: int) -> None:
        """Configure a queue and wait for the kernel's answer; packets keep moving meanwhile."""
        self._sequence += 1
        sequence = self._sequence
        self._netlink.send(message(sequence, *values))
        while sequence not in self._answers:
            select.select([self._netlink], [], [], IDLE_S)
            self._receive()
            self._release()
        if code := self._answers.pop(sequence):
            raise OSError(-code, os.strerror(-code))

    def _note_answer(self) -> None:
        """An answer to `_ask`, or (sequence 0) to a verdict on a packet that is no longer there."""
        _, kind, _, sequence, _ = netlink.HEADER.unpack_from(self._buffer, 0)
        code = struct.unpack_from("=i", self._buffer, netlink.ERROR_CODE_AT)[0]
        if kind == netlink.ERROR_TYPE and sequence:
            self._answers[sequence] = code
        elif code:
            self._refused += 1


def _netlink_socket() -> socket.socket:
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, netlink.NETLINK_NETFILTER)
    channel.bind((0, 0))
    channel.setsockopt(socket.SOL_SOCKET, netlink.SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    # A full buffer then costs the packets that do not fit (the kernel counts them), and not an
    # error that says nothing about which.
    channel.setsockopt(netlink.SOL_NETLINK, netlink.NETLINK_NO_ENOBUFS, 1)
    channel.setblocking(False)
    return channel


def _overflows() -> dict[int, int]:
    """Queue → packets that found it or the socket's buffer full."""
    dropped = {}
    for line in Path("/proc/self/net/netfilter/nfnetlink_queue").read_text().splitlines():
        queue, _, _, _, _, queue_dropped, user_dropped, *_ = map(int, line.split())
        dropped[queue] = queue_dropped + user_dropped
    return dropped


def _raise_priority() -> str:
    """A wire does not wait for its turn on the processor."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        return "SCHED_FIFO"
    except OSError:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        return "nice -20"


def main(directory: Path) -> None:
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        handler = Handler(control)
        handler.check()
    except OSError as error:
        # No nfnetlink at all, or nfnetlink without the part for queues.
        if error.errno in (errno.EPROTONOSUPPORT, errno.EINVAL):
            print("this kernel has no NFQUEUE", flush=True)
            sys.exit(NO_NFQUEUE)
        raise
    with socket_address(directory) as address:
        control.bind(address)
    control.listen()
    print(f"pid {os.getpid()}, {_raise_priority()}", flush=True)
    # Nothing here makes reference cycles, and a collection of a heap of held packets takes 10 ms.
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        handler.turn()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
