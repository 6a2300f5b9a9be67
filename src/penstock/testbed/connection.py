"""A cluster as its clients see it: how to reach it, and its admin protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from penstock.domain.client import ClientProperties
from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import TestbedError
from penstock.testbed.admin import Admin
from penstock.testbed.network.topology import ROUTER


class KafkaCluster(ABC):
    """What every cluster offers, whoever made it. Faults and networks are a testbed's only."""

    _admin: Admin | None = None

    @property
    @abstractmethod
    def client_config(self) -> dict[str, Any]:
        """The configuration of a confluent-kafka client. It may hold secrets: never show it."""

    def inside(self, host: str = ROUTER) -> AbstractContextManager[None]:
        """Clients made in this context live on `host`, where a cluster has hosts."""
        return nullcontext()

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(self.client_config, place=self.inside)
        return self._admin

    def create_topic(self, topic: TopicSpec) -> None:
        """Make a topic; returns when all its copies are in sync."""
        brokers = self.admin.broker_ids(timeout_s=10)
        if not brokers:
            raise TestbedError(f"no broker answered when topic {topic.name} was to be made")
        self.admin.create_topic(topic, len(brokers))


class ExistingCluster(KafkaCluster):
    """Somebody's cluster, reached by `bootstrap.servers` and a Kafka `client.properties`.

    It is measured and never touched: no faults, no network, no view of its processes.
    """

    def __init__(self, bootstrap_servers: str, properties: ClientProperties | None = None) -> None:
        given: Mapping[str, str] = properties.values if properties else {}
        self._config = {**given, "bootstrap.servers": bootstrap_servers}

    @property
    def client_config(self) -> dict[str, Any]:
        return dict(self._config)

    def check_reachable(self, timeout_s: float = 10) -> set[int]:
        """The ids of its brokers; raises if none answers."""
        brokers = self.admin.broker_ids(timeout_s=timeout_s)
        if not brokers:
            raise TestbedError(
                f"no broker answers at {self._config['bootstrap.servers']} within {timeout_s:g} s",
                "check the address, and security.protocol and credentials in client.properties",
            )
        return brokers
