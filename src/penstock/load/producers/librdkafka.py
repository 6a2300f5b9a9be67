"""librdkafka as it is: every message is a record."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.domain.client_kind import ProducerKind
from penstock.load.producer_job import ProducerJob
from penstock.load.producers import LoadProducer


@dataclass(frozen=True, kw_only=True)
class LibrdkafkaProducer(ProducerKind):
    """Kafka's C client, which confluent-kafka and most languages use. Every message is a record."""

    kind = "librdkafka"

    def producer(self, job: ProducerJob) -> LoadProducer:
        from penstock.load.scheduled_producer import ScheduledProducer

        return ScheduledProducer(job)
