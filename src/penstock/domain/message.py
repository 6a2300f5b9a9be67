"""What the client reported about a message. The real outcome is in `metrics.MessageCounts`."""

from __future__ import annotations

from enum import StrEnum


class Acknowledgement(StrEnum):
    """What the client reported."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"  # the producer ended before the report
