"""What became of a message. Standard words, used by every count and table."""

from __future__ import annotations

from enum import StrEnum


class Acknowledgement(StrEnum):
    """What the producer was told."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"  # the producer ended before it heard


class MessageState(StrEnum):
    """Whether it is in the topic, and how often. P_l and P_d are shares of messages *sent*."""

    DELIVERED = "delivered"
    LOST = "lost"
    DUPLICATED = "duplicated"


def state(copies: int) -> MessageState:
    """The state of a message that was received `copies` times."""
    if copies == 0:
        return MessageState.LOST
    return MessageState.DELIVERED if copies == 1 else MessageState.DUPLICATED


def is_broken_promise(told: Acknowledgement, became: MessageState) -> bool:
    """Acknowledged yet lost."""
    return told is Acknowledgement.ACKNOWLEDGED and became is MessageState.LOST


def is_false_alarm(told: Acknowledgement, became: MessageState) -> bool:
    """Reported failed yet delivered: sending it again would make a duplicate."""
    return told is Acknowledgement.FAILED and became is not MessageState.LOST
