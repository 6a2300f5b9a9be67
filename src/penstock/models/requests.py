"""Sizes of Kafka's produce and fetch traffic around the record batches, to the byte.

Source: Kafka's protocol guide (flexible versions: Produce from 9, Fetch from 12), checked against
librdkafka's own counters. Strings and arrays have a length as unsigned varint; every structure ends
with a byte for tagged fields.

librdkafka puts one partition into a request, the Java client one batch of every partition that the
broker leads. Both identify a topic by its name here; from Produce version 13 on, which the Java
client uses with brokers from 4.0 on, by an id of 16 bytes.

On the wire, every TCP segment has headers of its own (`wire_bytes`): 14 bytes of Ethernet, 20 of IP
and 32 of TCP with timestamps. Acknowledgements of TCP and frames' preambles are not counted.
"""

from __future__ import annotations

import math

_LENGTH, _API, _VERSION, _CORRELATION, _TAGS = 4, 2, 2, 4, 1
_ACKS, _TIMEOUT = 2, 4
_PARTITION_INDEX = 4
TOPIC_ID_BYTES = 16
SEGMENT_BYTES = 1448
SEGMENT_HEADER_BYTES = 14 + 20 + 32


def uvarint_bytes(value: int) -> int:
    """The size of a whole number as unsigned varint."""
    return max(1, math.ceil(value.bit_length() / 7))


def produce_request_bytes(
    batch: float,
    *,
    partitions: int = 1,
    topic: str | None,
    client_id: str = "rdkafka",
    transactional_id: str | None = None,
) -> float:
    """A produce request with one batch of this size for each of so many partitions of a topic.

    `topic` is None where the client sends the topic's id.
    """
    header = _LENGTH + _API + _VERSION + _CORRELATION + 2 + len(client_id.encode()) + _TAGS
    transaction = _string_bytes(transactional_id)
    name = TOPIC_ID_BYTES if topic is None else _string_bytes(topic)
    each = _PARTITION_INDEX + uvarint_bytes(math.ceil(batch) + 1) + batch + _TAGS
    topics = uvarint_bytes(2) + name + uvarint_bytes(partitions + 1) + partitions * each + _TAGS
    return header + transaction + _ACKS + _TIMEOUT + topics + _TAGS


def wire_bytes(request: float) -> float:
    """A request or an answer on the wire, with the headers of its TCP segments."""
    return request + math.ceil(request / SEGMENT_BYTES) * SEGMENT_HEADER_BYTES


def _string_bytes(text: str | None) -> int:
    """A compact string: its length + 1 as unsigned varint, then its bytes; 0 for none."""
    size = 0 if text is None else len(text.encode())
    return uvarint_bytes(size + 1) + size
