"""Sets Kafka's client quotas (bytes/s sent and fetched) and waits until every broker has them.

librdkafka's admin client does not have these requests, so kafka-python sends them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from penstock.domain.cluster import ClientQuotas
from penstock.domain.errors import TestbedError
from penstock.kafka.log_sizes import kafka_python_options, mechanism_of
from penstock.kafka.waiting import wait_until

_CLIENT_ID = "client-id"
_DEFAULT = 1  # match type of DescribeClientQuotas: the default entity


def set_client_quotas(config: Mapping[str, Any], quotas: ClientQuotas) -> None:
    """For every client.id without its own quota; returns when every broker knows them."""
    # Imported here since it takes a third of a second.
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    options = kafka_python_options(config)
    if options is None:
        raise TestbedError(f"quotas cannot be set with {mechanism_of(config)}")
    rates = quotas.bytes_per_s()
    try:
        with closing(KafkaAdminClient(**options)) as client:
            _alter(client, rates)
            wait_until(
                lambda: all(known == rates for known in _known(client)),
                timeout_s=10,
                what="every broker to know the client quotas",
            )
    except KafkaError as error:
        raise TestbedError(f"client quotas were not set: {error}") from None


def _alter(client: Any, rates: Mapping[str, float]) -> None:
    from kafka.protocol.admin import AlterClientQuotasRequest

    data = AlterClientQuotasRequest.EntryData
    everyone = data.EntityData(entity_type=_CLIENT_ID, entity_name=None)
    changes = [data.OpData(key=key, value=rate, remove=False) for key, rate in rates.items()]
    entry = data(entity=[everyone], ops=changes)
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    for answer in _ask(client, request).entries:
        if answer.error_code:
            raise TestbedError(f"client quotas were refused: {answer.error_message}")


def _known(client: Any) -> list[dict[str, float]]:
    """Per broker, the quotas of clients without their own quota."""
    from kafka.protocol.admin import DescribeClientQuotasRequest

    component = DescribeClientQuotasRequest.ComponentData(
        entity_type=_CLIENT_ID, match_type=_DEFAULT, match=None
    )
    request = DescribeClientQuotasRequest(components=[component], strict=True)
    brokers = client.describe_cluster()["brokers"]
    answers = [_ask(client, request, broker["broker_id"]) for broker in brokers]
    return [
        {quota.key: quota.value for entry in answer.entries or () for quota in entry.values}
        for answer in answers
    ]


def _ask(client: Any, request: Any, node_id: int | None = None) -> Any:
    # kafka-python has these requests, but no method of its admin client sends them.
    return client._manager.run(client._manager.send, request, node_id)
