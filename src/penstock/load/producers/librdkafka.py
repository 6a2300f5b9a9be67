"""librdkafka as it is: every message is a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.domain.client_kind import ProducerKind
from penstock.load.producers import LoadProducer


@dataclass(frozen=True, kw_only=True)
class Librdkafka(ProducerKind):
    """Kafka's C client, which confluent-kafka and most languages use. Every message is a record."""

    kind = "librdkafka"

    def producer(self, job: Any) -> LoadProducer:
        from penstock.load.scheduled_producer import Producing

        return Producing(job)
