"""Log and errors of Kafka clients."""

from __future__ import annotations

import logging

from confluent_kafka import KafkaException

from penstock.domain.errors import BadInput

log = logging.getLogger("penstock.kafka")
# A broker that cannot be reached, or is not up yet, is expected or in the report already.
log.setLevel(logging.CRITICAL)


def reason(error: KafkaException) -> str:
    """What Kafka says, without the code."""
    return str(error.args[0].str())


def refusal(error: KafkaException, where: str = "`settings` or client.properties") -> BadInput:
    """The error if a client cannot be created. `where` its configuration comes from."""
    return BadInput(
        f"Kafka's client refuses its configuration: {reason(error)}",
        f"correct that property in {where}",
    )
