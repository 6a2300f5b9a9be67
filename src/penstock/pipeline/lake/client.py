"""What all of a pipeline's Kafka clients share: their log, and what is said if one cannot be made."""

from __future__ import annotations

import logging

from confluent_kafka import KafkaException

from penstock.domain.errors import BadInput

log = logging.getLogger("penstock.kafka")
log.setLevel(logging.CRITICAL)  # a broker that is away is no news: the report has it


def refusal(error: KafkaException) -> BadInput:
    return BadInput(
        f"Kafka's client refuses its configuration: {error.args[0].str()}",
        "correct that property in `settings` or client.properties",
    )
