"""Finds where a batch of records ends that Kafka's client cannot read.

The client reports such a batch (its compression fails, its checksum is wrong, its format is
unknown) by its first offset, and nothing says how many records it holds. But a fetch from any
offset within the batch brings the same batch, so the first offset that brings another one follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from penstock.domain.lake.partition import Partition
from penstock.kafka import client_log

# Errors that are about the records of one batch.
UNREADABLE = (
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError.INVALID_MSG,
)
_TIMEOUT_S = 20.0
_POLL_S = 0.1


def first_outside(inside: int, is_inside: Callable[[int], bool]) -> int:
    """The first offset after `inside` for which `is_inside` does not hold: doubling steps, then
    halving. Batches are small."""
    step = 1
    while is_inside(inside + step):
        inside += step
        step *= 2
    outside = inside + step
    while outside - inside > 1:
        middle = (inside + outside) // 2
        if is_inside(middle):
            inside = middle
        else:
            outside = middle
    return outside


class BatchProber:
    """Reads single batches with a consumer of its own."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = {
            "check.crcs": True,
            **config,
            "group.id": "penstock-prober",  # it must have one, and never joins it
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }

    def end_of_batch(self, partition: Partition, base_offset: int, first: int) -> int:
        """The offset after the batch that begins at `base_offset` and contains `first`.

        Raises `TimeoutError` if no broker answers in time.
        """
        until_s = time.monotonic() + _TIMEOUT_S
        consumer = Consumer(self._config, logger=client_log.log)

        def is_inside(offset: int) -> bool:
            consumer.assign([TopicPartition(*partition, offset)])
            while time.monotonic() < until_s:
                message = consumer.poll(_POLL_S)
                if message is None or message.topic() is None:
                    continue
                error, at = message.error(), message.offset()
                if at is None:
                    continue
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    if at >= offset:  # an answer to an earlier assignment has a lower one
                        return False
                elif error.code() in UNREADABLE:
                    # Of another batch that cannot be read either, it is the first offset of that.
                    return at <= base_offset
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    return False  # beyond the end of the log
            raise TimeoutError(f"no answer for offset {offset} within {_TIMEOUT_S:g} s")

        try:
            return first_outside(first, is_inside)
        finally:
            consumer.close()
