"""A run: one experiment that was carried out, and where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.fault import Fault
from penstock.domain.network import NetworkTrace
from penstock.domain.objective import Objective
from penstock.domain.settings import ProducerSettings
from penstock.domain.value import Doc, FieldError, Value
from penstock.domain.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Experiment(Value):
    """Workload × settings × network × cluster, with the faults that strike meanwhile."""

    name: str
    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    topic: TopicSpec
    workload: Workload
    settings: ProducerSettings = field(default_factory=ProducerSettings)
    trace: Annotated[NetworkTrace | None, Doc("how the network changes meanwhile")] = None
    faults: tuple[Fault, ...] = ()
    objective: Objective | None = None
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            self.topic.check_fits(self.cluster.brokers)
        except FieldError as error:
            raise FieldError(f"topic.{error.field}", error.value, error.fix) from None


@dataclass(frozen=True, kw_only=True)
class Run(Value):
    """An experiment that was carried out: what explains it later."""

    id: str
    experiment: Experiment
    started_at: Annotated[str, Doc("ISO 8601, UTC")]
    versions: Annotated[Mapping[str, str], Doc("of Penstock, Kafka, librdkafka, Java, kernel")]
    machine: Mapping[str, str | int] = field(default_factory=dict)
