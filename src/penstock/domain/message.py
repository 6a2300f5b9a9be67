"""What a producer was told of a message. Standard words; what became of it is in `metrics.Counts`."""

from __future__ import annotations

from enum import StrEnum


class Acknowledgement(StrEnum):
    """What the producer was told."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"  # the producer ended before it heard
