"""A cluster as its clients see it: how to connect to it, and its admin client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.domain.client import ClientProperties
from penstock.domain.cluster import ROUTER, TopicSpec
from penstock.domain.errors import TestbedError
from penstock.domain.value import fitting
from penstock.kafka import client_properties
from penstock.kafka.admin import Admin

if TYPE_CHECKING:
    from psutil import Process


class KafkaCluster(ABC):
    """What every cluster offers, a testbed or not. Only a testbed has faults and networks; what it
    does for the processes of a run, other clusters do by doing nothing."""

    # It goes away as a whole, so topics and groups may stay on it.
    is_temporary = False

    def __init__(self) -> None:
        # The processes that a run has put on this cluster, by name, for faults that strike them.
        self.clients: dict[str, Process] = {}
        self._admin: Admin | None = None

    @property
    @abstractmethod
    def client_config(self) -> dict[str, Any]:
        """The configuration of a confluent-kafka client. It may hold secrets: never show it."""

    def inside(self, host: str = ROUTER) -> AbstractContextManager[None]:
        """Clients made in this context live on `host`, where a cluster has hosts."""
        return nullcontext()

    # --- processes of a run ---------------------------------------------------------------------

    def client_command(self, role: str, number: int, argv: list[str]) -> list[str]:
        """The command line that runs a producer, consumer or watcher on the host it belongs to."""
        return argv

    @property
    def client_environment(self) -> dict[str, str]:
        """What every process of a run must have in its environment."""
        return {}

    # --- brokers ----------------------------------------------------------------------------------

    @property
    def broker_pids(self) -> tuple[int, ...]:
        """Of those that run on this machine."""
        return ()

    @property
    def versions(self) -> dict[str, str]:
        """Of the software that the brokers run, where that is known."""
        return {}

    def collect_garbage(self) -> None:  # noqa: B027 (nobody else's brokers)
        """Let brokers collect the garbage of what was before, where that is possible."""

    def check_alive(self) -> None:  # noqa: B027 (there is nothing to see on most clusters)
        """Raise if a broker has died by itself, where that can be seen."""

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(self.client_config, place=self.inside)
        return self._admin

    def create_topic(self, topic: TopicSpec) -> None:
        """Create a topic; returns when all its replicas are in sync."""
        fitting("topic", topic, TopicSpec)
        brokers = self.admin.broker_ids(timeout_s=10)
        if not brokers:
            raise TestbedError(f"topic {topic.name} was not created: no broker answered")
        self.admin.create_topic(topic, len(brokers))


class ExistingCluster(KafkaCluster):
    """A cluster that is not a testbed, reached by `bootstrap.servers` and `client.properties`.

    It is only measured: no faults, no network conditions, no view of its processes.
    """

    def __init__(
        self, bootstrap_servers: str, properties: str | Path | ClientProperties | None = None
    ) -> None:
        """`properties`: a client.properties, as a file or a value."""
        super().__init__()
        fitting("bootstrap_servers", bootstrap_servers, str)
        fitting("properties", properties, str | Path | ClientProperties | None)
        if isinstance(properties, str | Path):
            properties = client_properties.load(Path(properties))
        values: Mapping[str, str] = properties.values if properties else {}
        # What the properties say that has no meaning for this client, one sentence each.
        self.warnings = properties.warnings if properties else ()
        self._config = {**values, "bootstrap.servers": bootstrap_servers}

    @property
    def bootstrap_servers(self) -> str:
        return self._config["bootstrap.servers"]

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
