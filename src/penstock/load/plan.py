"""The plan of a load: the jobs of its processes, and whether Kafka's client accepts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from penstock import specs
from penstock.domain.arrivals import RecordedArrivals
from penstock.domain.client_kind import ProducerKind, plain_producer
from penstock.domain.consumers import Consumers
from penstock.domain.errors import BadInput
from penstock.domain.run import RunSpec
from penstock.domain.settings import ProducerSettings
from penstock.domain.workload import Workload
from penstock.load import rdkafka, schedule
from penstock.load.bodies import bodies
from penstock.load.producer_job import ProducerJob

_WARM_UP_MESSAGES = 3_000_000
# What the test of the run's own load needs, on a busy machine.
_TEST_S = 8.0
# From the last look at the limit until the measured time begins, with room to spare.
WARM_UP_MARGIN_S = 5.0
# Before a measured time that is fixed: for the first look at the brokers.
FIRST_LOOK_S = 1.0
# From the order to start until the first message may be due: time for every process to get it.
_AHEAD_S = 0.5
# Of the content, before anything starts: enough to find one that does not work.
_TRIED_BYTES = 100_000
# What a run decides itself, with the reason.
_REFUSED = {
    "bootstrap.servers": "the cluster says where it is",
    "delivery.report.only.error": "a run traces every message and needs a delivery report for each",
    "transactional.id": "a run sends messages outside of transactions",
}


@dataclass(frozen=True)
class LoadPlan:
    """The load of one run: what producers, consumers and the watcher do."""

    topic: str
    workload: Workload  # its duration is the measured time, after the warm-up
    settings: ProducerSettings
    consumers: Consumers
    warm_up_s: float  # the shortest
    seed: int
    watch_visibility: bool  # a reader next to the brokers records when records appear
    partitions: int
    longest_warm_up_s: float = 0.0  # if longer: until `Load.measure` is called
    producer: ProducerKind = field(default_factory=plain_producer)

    @property
    def waits_for_warmth(self) -> bool:
        return self.longest_warm_up_s > self.warm_up_s

    @property
    def ahead_s(self) -> float:
        """From the order to start until the first message is due. A fixed measured time that comes
        soon after leaves no room for the first look at the brokers, so that comes before."""
        if self.waits_for_warmth:
            return _AHEAD_S
        return _AHEAD_S + max(0.0, FIRST_LOOK_S - self.warm_up_s)

    @property
    def length_s(self) -> float:
        return max(self.warm_up_s, self.longest_warm_up_s) + self.workload.duration_s

    def check(self) -> None:
        """Raise `BadInput` for what Kafka's client or the schedule refuses; asks no broker."""
        for name, reason in _REFUSED.items():
            if name in self.settings.other:
                raise BadInput(f"settings: {name} cannot be used: {reason}", "remove it")
        rdkafka.check_config(self.settings.properties())
        rdkafka.check_config(self.consumers.settings, "consumers.settings")
        schedule.check(self.workload, self.length_s)
        bodies(self.workload.payload.content, Random(self.seed))(_TRIED_BYTES)

    def any_producer(self, client: Mapping[str, Any], directory: Path) -> ProducerJob:
        """For what follows from the settings alone, which is the same for every producer."""
        config = {**client, **self.settings.properties()}
        return ProducerJob(
            0, self.topic, config, self.workload, self.warm_up_s, self.seed, directory
        )

    # What `client_main` reads. `client` is the configuration that reaches the cluster.

    def producer_job(
        self, number: int, client: Mapping[str, Any], directory: Path
    ) -> dict[str, Any]:
        return {
            "role": "producer",
            "kind": specs.to_data(self.producer),
            "number": number,
            "topic": self.topic,
            "config": {**client, **self.settings.properties()},
            "workload": specs.to_data(self.workload),
            "warm_up_s": self.warm_up_s,
            "longest_warm_up_s": self.longest_warm_up_s,
            "seed": self.seed,
            "directory": str(directory.resolve()),
        }

    def reader_job(
        self, role: str, number: int, client: Mapping[str, Any], group: str, directory: Path
    ) -> dict[str, Any]:
        is_watcher = role == "watcher"
        return {
            "role": role,
            "kind": specs.to_data(self.consumers.reader),
            "number": number,
            "topic": self.topic,
            "config": {**client, **({} if is_watcher else self.consumers.settings)},
            "group": "" if is_watcher else group,
            "partitions": self.partitions,
            "directory": str(directory.resolve()),
        }


def plan_of(spec: RunSpec) -> LoadPlan:
    """The plan for the load of a run."""
    return LoadPlan(
        topic=spec.topic.name,
        workload=spec.workload,
        settings=spec.settings,
        consumers=spec.consumers,
        warm_up_s=spec.warm_up_s,
        seed=spec.seed,
        watch_visibility=spec.is_watched,
        partitions=spec.topic.partitions,
        longest_warm_up_s=_longest_warm_up_s(spec),
        producer=spec.producer,
    )


def _longest_warm_up_s(spec: RunSpec) -> float:
    """The schedule is made in advance, in memory, so a fast load has less time to get warm."""
    arrivals, limit_s = spec.workload.arrivals, spec.cluster_warm_up.limit_s
    if isinstance(arrivals, RecordedArrivals) or not limit_s:
        return 0.0  # recorded times are not extended
    if not (rate_per_s := arrivals.mean_per_s):
        return 0.0  # they end some time, and not before the measured time
    longest_s = max(spec.warm_up_s, min(limit_s, _WARM_UP_MESSAGES / rate_per_s), _TEST_S)
    return longest_s + WARM_UP_MARGIN_S
