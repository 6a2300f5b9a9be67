"""Bytes on their way to the brokers, read from the kernel's tables."""

from __future__ import annotations

import os
import socket

from penstock.kafka.waiting import wait_until
from penstock.load.unsent import queued_bytes, unacknowledged_bytes, unread_bytes

HEADER = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  inode\n"
)


def line(port: int, state: str, unsent: int, unread: int = 0) -> str:
    return (
        f"   0: 0100000A:D2F0 0200000A:{port:04X} {state} {unsent:08X}:{unread:08X} "
        "00:00000000 00000000     0        0 7 1 0000 20 4 30 10 -1\n"
    )


def test_bytes_to_the_brokers_are_counted_in_every_state_that_still_sends() -> None:
    table = HEADER + line(9092, "01", 300) + line(9093, "04", 4000) + line(9092, "08", 5)
    assert unacknowledged_bytes(table, {9092, 9093}) == 4305
    assert unacknowledged_bytes(table, {9093}) == 4000


def test_other_ports_listeners_and_unread_answers_are_not() -> None:
    table = HEADER + line(8080, "01", 300) + line(9092, "0A", 128) + line(9092, "01", 0, unread=9)
    assert unacknowledged_bytes(table, {9092}) == 0


def test_what_a_peer_does_not_read_shows_and_a_closed_socket_still_counts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        peer, _ = server.accept()
        client.setblocking(False)
        assert queued_bytes([os.getpid()], {port}, unacknowledged_bytes) == 0
        try:
            while True:
                client.send(bytes(1 << 16))
        except BlockingIOError:
            pass
        one, two = [os.getpid()], [os.getpid(), os.getppid()]
        assert queued_bytes(one, {port}, unacknowledged_bytes) > 0
        # The kernel may still move some to the peer's buffer between two looks.
        wait_until(
            lambda: (
                queued_bytes(two, {port}, unacknowledged_bytes)
                == queued_bytes(one, {port}, unacknowledged_bytes)
            ),
            timeout_s=10,
            what="the same number for two processes of one host",
        )
        client.close()
        assert queued_bytes([os.getpid()], {port}, unacknowledged_bytes) > 0, (
            "the kernel goes on sending"
        )
        peer.close()


def test_a_process_that_has_ended_has_nothing() -> None:
    assert queued_bytes([2**22 + 1], {9092}, unacknowledged_bytes) == 0


def test_bytes_that_a_server_has_not_read_are_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            with accepted:
                client.sendall(b"x" * 5_000)
                wait_until(
                    lambda: queued_bytes([os.getpid()], {port}, unread_bytes) == 5_000,
                    timeout_s=5,
                    what="the bytes to come",
                )
                assert accepted.recv(5_000, socket.MSG_WAITALL)
                assert queued_bytes([os.getpid()], {port}, unread_bytes) == 0
