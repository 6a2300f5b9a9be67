"""What the processes of a load are to do, and whether Kafka's client would do it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.domain.arrivals import RecordedArrivals
from penstock.domain.consumers import Consumers
from penstock.domain.errors import BadInput
from penstock.domain.run import Experiment
from penstock.domain.settings import ProducerSettings
from penstock.domain.workload import Workload
from penstock.measure import rdkafka, schedule

# Above this rate the doorstep reader would cost the brokers as much as what is measured.
WATCHED_UP_TO_PER_S = 5_000
_WARM_UP_MESSAGES = 3_000_000
# What the test of the run's own load needs, on a busy machine.
_TEST_S = 8.0
# From the last look at the limit until the measured time begins, with room to spare.
WARM_UP_MARGIN_S = 5.0
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
    warm_up_s: float  # the shortest
    seed: int
    watch_visibility: bool  # a reader on the brokers' doorstep writes down when records appear
    partitions: int
    longest_warm_up_s: float = (
        0.0  # if longer: until somebody says that it is warm (`Load.measure`)
    )

    @property
    def waits_for_warmth(self) -> bool:
        return self.longest_warm_up_s > self.warm_up_s

    @property
    def length_s(self) -> float:
        return max(self.warm_up_s, self.longest_warm_up_s) + self.workload.duration_s

    def check(self) -> None:
        """Raise `BadInput` for what could not be carried out, without asking any broker."""
        for name, reason in _REFUSED.items():
            if name in self.settings.other:
                raise BadInput(f"settings: {name} cannot be used: {reason}", "leave it out")
        rdkafka.check_config(self.settings.properties())
        rdkafka.check_config(self.consumers.settings)
        schedule.check(self.workload, self.length_s)


def plan_of(experiment: Experiment) -> LoadPlan:
    """What the processes of its load are to do."""
    return LoadPlan(
        topic=experiment.topic.name,
        workload=experiment.workload,
        settings=experiment.settings,
        consumers=experiment.consumers,
        warm_up_s=experiment.warm_up_s,
        seed=experiment.seed,
        watch_visibility=_is_watched(experiment),
        partitions=experiment.topic.partitions,
        longest_warm_up_s=_longest_warm_up_s(experiment),
    )


def _longest_warm_up_s(experiment: Experiment) -> float:
    """The schedule is made in advance, in memory, so a fast load has less time to get warm."""
    arrivals, limit_s = experiment.workload.arrivals, experiment.cluster_warm_up.limit_s
    if isinstance(arrivals, RecordedArrivals) or not limit_s:
        return 0.0  # it begins when it begins
    affordable_s = _WARM_UP_MESSAGES / arrivals.mean_per_s
    longest_s = max(experiment.warm_up_s, min(limit_s, affordable_s), _TEST_S)
    return longest_s + WARM_UP_MARGIN_S


def _is_watched(experiment: Experiment) -> bool:
    if experiment.visibility != "auto":
        return experiment.visibility == "on"
    # With one copy a record is visible as soon as it is appended.
    return (
        experiment.topic.replication > 1
        and experiment.workload.messages_per_s <= WATCHED_UP_TO_PER_S
    )
