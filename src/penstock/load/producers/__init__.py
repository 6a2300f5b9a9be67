"""Producers of a run, one file per kind. A new one is one new file here (`domain.plugins`).

Files that name a kind are read without Kafka's client too, so these modules import it when they
make a producer.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

from penstock.domain.client_kind import ProducerKind
from penstock.domain.run import ProducerReport

__all__ = ["LoadProducer", "ProducerKind"]


class LoadProducer(Protocol):
    """One producer of a run: connected when it is made, `run` once, then `finish`ed.

    It publishes every message of its schedule when the message is due and writes the trace `sent`.
    `load.scheduled_producer` is the one for librdkafka.
    """

    def progress(self) -> dict[str, Any]:
        """For any thread: sent, acknowledged, failed, waited_ns, at_ns."""

    def measure(self, from_ns: int, to_ns: int) -> None:
        """For any thread: what is due in this time counts, and nothing is sent after it."""

    def run(self, begins_ns: int, abandoned: threading.Event) -> None:
        """Send the schedule and wait for the report on each message; `abandoned` ends it early."""

    def finish(self) -> ProducerReport:
        """Complete the trace; if it never ran, leave nothing behind."""
