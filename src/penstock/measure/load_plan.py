"""What the processes of a load are to do, and whether Kafka's client would do it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.domain.consumers import Consumers
from penstock.domain.errors import BadInput
from penstock.domain.settings import ProducerSettings
from penstock.domain.workload import Workload
from penstock.measure import rdkafka, schedule

# What a run decides itself, with the reason.
_REFUSED = {
    "bootstrap.servers": "the cluster says where it is",
    "delivery.report.only.error": "a run traces every message, and needs to hear of each",
    "transactional.id": "a run sends messages outside of transactions",
}


@dataclass(frozen=True)
class LoadPlan:
    """What the processes are to do."""

    topic: str
    workload: Workload  # its duration is the measured time, after the warm-up
    settings: ProducerSettings
    consumers: Consumers
    warm_up_s: float
    seed: int
    watch_visibility: bool  # a reader on the brokers' doorstep writes down when records appear
    partitions: int

    @property
    def length_s(self) -> float:
        return self.warm_up_s + self.workload.duration_s

    def check(self) -> None:
        """Raise `BadInput` for what could not be carried out, without asking any broker."""
        for name, reason in _REFUSED.items():
            if name in self.settings.other:
                raise BadInput(f"settings: {name} cannot be used: {reason}", "leave it out")
        rdkafka.check_config(self.settings.properties())
        rdkafka.check_config(self.consumers.settings)
        schedule.check(self.workload, self.length_s)
