"""Kinds of clients: how the producers of a run publish, and how its consumers unpack records.

The abstract words; the kinds are in `load.producers` and `load.readers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.domain import plugins
from penstock.domain.value import Value


@dataclass(frozen=True, kw_only=True)
class ProducerKind(Value, ABC):
    """How messages are published. Its fields are what it takes beside `settings`."""

    plugin_group = "penstock.producers"

    @abstractmethod
    def producer(self, job: Any) -> Any:
        """A connected `penstock.LoadProducer` for a `penstock.ProducerJob`."""


@dataclass(frozen=True, kw_only=True)
class ReaderKind(Value, ABC):
    """How the messages of a record are unpacked."""

    plugin_group = "penstock.readers"

    @abstractmethod
    def messages(self, value: bytes) -> Sequence[bytes]:
        """The messages in the value of one record, in their order, at least one. A value that it
        cannot unpack is one message: the run counts it as foreign."""


def plain_producer() -> ProducerKind:
    """The default: librdkafka, as it is."""
    kind: ProducerKind = plugins.get("penstock.producers", "librdkafka")()
    return kind


def plain_reader() -> ReaderKind:
    """The default: a record is a message."""
    kind: ReaderKind = plugins.get("penstock.readers", "plain")()
    return kind
