"""The messages of NFQUEUE (linux/netfilter/nfnetlink_queue.h), packed and unpacked. No sockets.

A message is a netlink header (16 bytes), the nfnetlink header (4 bytes: family, version, queue
number in network order), and attributes (length, type, value, padded to 4). Netlink's own fields
are in the machine's order, NFQUEUE's values in network order.
"""

from __future__ import annotations

import socket
import struct

NETLINK_NETFILTER = 12
SOL_NETLINK, NETLINK_NO_ENOBUFS = 270, 5
SO_RCVBUFFORCE, SO_TIMESTAMPNS = 33, 35

SUBSYSTEM = 3  # of nfnetlink; the high byte of the message type
_VERDICT, _CONFIG = 1, 2
_REQUEST, _ACK = 1, 4
_CFG_CMD, _CFG_PARAMS, _CFG_QUEUE_MAXLEN = 1, 2, 3
_CMD_BIND = 1
_COPY_META, _COPY_PACKET = 1, 2
_ATTRIBUTE_VERDICT, _ATTRIBUTE_TIMESTAMP, _ATTRIBUTE_PAYLOAD = 2, 4, 10
_DROP, _ACCEPT = 0, 1

HEADER = struct.Struct("=IHHII")
_QUEUE = struct.Struct(">BBH")
_ATTRIBUTE = struct.Struct("=HH")
# Where a packet's queue and id are: its header is the first attribute of the message, always.
QUEUE_AT, _PACKET_ID_AT, _ATTRIBUTES_AT = 18, 24, 20
# When it came in follows the two interfaces and the sender's hardware address, and on some kernels
# something else.
USUAL_STAMP_AT = 64
STAMP_HEAD = _ATTRIBUTE.pack(20, _ATTRIBUTE_TIMESTAMP)
ERROR_TYPE, ERROR_CODE_AT = 2, 16


def bind(sequence: int, queue: int) -> bytes:
    return _config(queue, sequence, _CFG_CMD, struct.pack(">BxH", _CMD_BIND, socket.AF_INET))


def copy_mode(sequence: int, queue: int, whole_packets: bool) -> bytes:
    """Whether the packet itself comes along, or only the word that there is one."""
    mode, length = (_COPY_PACKET, 0xFFFF) if whole_packets else (_COPY_META, 0)
    return _config(queue, sequence, _CFG_PARAMS, struct.pack(">IB", length, mode))


def queue_length(sequence: int, queue: int, packets: int) -> bytes:
    return _config(queue, sequence, _CFG_QUEUE_MAXLEN, struct.pack(">I", packets))


def verdict_prefixes(queue: int) -> tuple[bytes, bytes]:
    """(accept, drop): complete verdicts but for the four bytes of the packet's id."""
    head = _header(16 + 4 + 12, _VERDICT, _REQUEST, 0) + _QUEUE.pack(0, 0, queue)
    head += _ATTRIBUTE.pack(12, _ATTRIBUTE_VERDICT)
    return head + struct.pack(">I", _ACCEPT), head + struct.pack(">I", _DROP)


def payload(message: memoryview) -> bytes:
    """The packet in a message, from its IP header on; empty if it did not come along."""
    at, length = _find(message, _ATTRIBUTE_PAYLOAD)
    return bytes(message[at + 4 : at + length])


def packet(stamp_at: int) -> struct.Struct:
    """From `QUEUE_AT` on: queue, packet id, the stamp's `STAMP_HEAD`, seconds, microseconds.

    The stamp is of the clock of `time.time()`. In one go: this is done for every packet.
    """
    return struct.Struct(f">H4x4s{stamp_at - _PACKET_ID_AT - 4}x4sQQ")


def stamp_at(message: memoryview) -> int | None:
    """Where a message says when the packet came in; None if it does not."""
    at, length = _find(message, _ATTRIBUTE_TIMESTAMP)
    return at if length else None


def _find(message: memoryview, attribute: int) -> tuple[int, int]:
    """Where an attribute is, and its length; 0 if there is none."""
    at = _ATTRIBUTES_AT
    while at + 4 <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == attribute:
            return at, length
        at += (length + 3) & ~3
    return at, 0


def _config(queue: int, sequence: int, attribute: int, value: bytes) -> bytes:
    padded = value + b"\0" * (-len(value) % 4)
    body = _QUEUE.pack(0, 0, queue) + _ATTRIBUTE.pack(4 + len(value), attribute) + padded
    return _header(16 + len(body), _CONFIG, _REQUEST | _ACK, sequence) + body


def _header(length: int, message: int, flags: int, sequence: int) -> bytes:
    return HEADER.pack(length, SUBSYSTEM << 8 | message, flags, sequence, 0)
