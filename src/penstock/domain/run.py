"""A run: one experiment that was carried out, and what explains it later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from penstock.domain.arrivals import RecordedArrivals
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.consumers import Consumers
from penstock.domain.fault import Fault
from penstock.domain.network import NetworkTrace
from penstock.domain.objective import Objective
from penstock.domain.settings import ProducerSettings
from penstock.domain.steadiness import Disturbance
from penstock.domain.value import Bound, Doc, FieldError, Value
from penstock.domain.warm_up import ClusterState, WarmUpLimits
from penstock.domain.workload import Workload

# Of the run directory. A directory of another format is refused, with its number.
RUN_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Existing(Value):
    """A cluster of the user's own. Nothing on it is changed but the topic of the run."""

    bootstrap_servers: Annotated[str, Doc("HOST:PORT, …")]
    client_properties: Annotated[
        str | None, Doc("a Kafka client.properties, for security; its content is kept nowhere")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Experiment(Value):
    """Workload × settings × network × cluster, with the faults that strike meanwhile."""

    name: Annotated[str, Doc("of the run; becomes part of its directory's name")]
    cluster: Annotated[ClusterSpec, Doc("a cluster made for this run")] = field(
        default_factory=ClusterSpec
    )
    existing: Annotated[Existing | None, Doc("or one that is there already")] = None
    topic: TopicSpec
    workload: Workload
    settings: ProducerSettings = field(default_factory=ProducerSettings)
    consumers: Consumers = field(default_factory=Consumers)
    trace: Annotated[NetworkTrace | None, Doc("how the network changes meanwhile")] = None
    faults: Annotated[tuple[Fault, ...], Doc("times count from the end of the warm-up")] = ()
    objective: Objective | None = None
    warm_up_s: Annotated[
        float, Bound(ge=0, le=3600), Doc("load before the measurement; excluded, and shown")
    ] = 5.0
    cluster_warm_up: Annotated[
        WarmUpLimits, Doc("load of the same kind before that, until the brokers are warm")
    ] = field(default_factory=WarmUpLimits)
    steady: Annotated[
        bool,
        Doc(
            "false: the load is meant to be more than the cluster can carry, or to change; then no "
            "trend is reported. Faults and network traces need no mention"
        ),
    ] = True
    timeliness_ms: Annotated[
        float | None, Bound(gt=0), Doc("a message later than this is stale: of no use any more")
    ] = None
    visibility: Annotated[
        Literal["auto", "on", "off"],
        Doc(
            "a reader beside the brokers that sees when messages become readable; costs a consumer"
        ),
    ] = "auto"
    schedule_lag_ms: Annotated[
        float,
        Bound(gt=0),
        Doc("the run is invalid if the generator itself is later than this (p99)"),
    ] = 10.0
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        good = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        self.require(
            0 < len(self.name) <= 100 and set(self.name) <= good and self.name[0].isalnum(),
            "name",
            "must be 1 to 100 letters, digits, '.', '_' or '-', and begin with a letter or digit",
        )
        if self.existing is not None:
            self._check_existing()
            return
        try:
            self.topic.check_fits(self.cluster.brokers)
        except FieldError as error:
            raise FieldError(f"topic.{error.field}", error.value, error.fix) from None

    def _check_existing(self) -> None:
        for field_name, given in (("faults", self.faults), ("trace", self.trace)):
            self.require(
                not given,
                field_name,
                "cannot be used with `existing`: Penstock injects faults only into clusters that it started",
            )
        self.require(
            self.cluster == ClusterSpec(), "cluster", "cannot be given together with `existing`"
        )


@dataclass(frozen=True, kw_only=True)
class ClockAnchor(Value):
    """Wall clock and monotonic clock, read together: it ties the brokers' times to ours."""

    monotonic_ns: int
    wall_ns: int


@dataclass(frozen=True, kw_only=True)
class RunEvent(Value):
    """Something that happened to the cluster or its network, in seconds from the measured start."""

    at_s: float
    took_s: float
    sentence: str


@dataclass(frozen=True, kw_only=True)
class ProducerReport(Value):
    """What one producer process says of itself at its end."""

    producer: int
    scheduled: Annotated[int, Doc("messages that the schedule asked for")]
    sent: int
    acknowledged: int
    failed: int
    unknown: int
    lag_p50_us: Annotated[float, Doc("how late the generator itself was; a full queue excluded")]
    lag_p99_us: float
    lag_max_us: float
    queue_full_s: Annotated[float, Doc("how long the client had no room for more")]
    cpu_s: float
    client_cores: Annotated[
        float, Doc("cores that librdkafka's threads and the writing of the trace used")
    ] = 0.0
    retries: Annotated[int, Doc("requests sent again, by librdkafka's count")] = 0


@dataclass(frozen=True, kw_only=True)
class ConsumerReport(Value):
    """What one consumer process says of itself at its end."""

    consumer: int
    received: int
    first_assigned_ns: Annotated[int | None, Doc("when it was first given partitions")] = None
    rebalances: int = 0
    cpu_s: float = 0.0
    errors: Annotated[tuple[str, ...], Doc("distinct ones")] = ()


@dataclass(frozen=True, kw_only=True)
class ObserverCost(Value):
    """The CPU that observing brokers and clients took from the measured time."""

    looks: Annotated[int, Doc("samples of what brokers and clients use")]
    cpu_s: float
    share: Annotated[float, Doc("of all cores, over the measured time")]


@dataclass(frozen=True, kw_only=True)
class Run(Value):
    """An experiment that was carried out: what explains it later. `run.json` in its directory."""

    format: int = RUN_FORMAT
    id: str
    cell: Annotated[Mapping[str, str], Doc("what is special to this run in its campaign")] = field(
        default_factory=dict
    )
    repeat: int = 0
    is_again: Annotated[
        bool, Doc("the first cell of a campaign once more, last: for drift, and in no other figure")
    ] = False
    experiment: Experiment
    status: Literal["complete", "failed", "interrupted"] = "complete"
    reason: Annotated[str, Doc("why it failed")] = ""
    invalid: Annotated[tuple[str, ...], Doc("why its figures must not be used")] = ()
    warnings: tuple[str, ...] = ()
    started_at: Annotated[str, Doc("ISO 8601, UTC")]
    versions: Annotated[Mapping[str, str], Doc("of Penstock, Kafka, librdkafka, Java, kernel")]
    machine: Mapping[str, str | int | float] = field(default_factory=dict)
    cluster_state: Annotated[
        ClusterState | None, Doc("age of the cluster and how warm it was when the load began")
    ] = None
    observer: Annotated[
        ObserverCost | None, Doc("what looking at the cluster cost during the measured time")
    ] = None
    measured_from_ns: Annotated[int, Doc("end of the warm-up")] = 0
    measured_to_ns: Annotated[int, Doc("end of the schedule")] = 0
    anchors: Annotated[tuple[ClockAnchor, ...], Doc("before and after the load")] = ()
    events: tuple[RunEvent, ...] = ()
    producers: tuple[ProducerReport, ...] = ()
    consumers: tuple[ConsumerReport, ...] = ()
    end_offsets: Annotated[
        Mapping[str, int], Doc("end of each partition after the load, asked of the brokers")
    ] = field(default_factory=dict)
    unreadable: Annotated[tuple[int, ...], Doc("partitions without a leader at the end")] = ()
    unread: Annotated[
        tuple[int, ...],
        Doc("partitions with a leader that were not read to their end all the same"),
    ] = ()

    @property
    def disturbance(self) -> Disturbance | None:
        """From when on the run was changed on purpose; None: never."""
        experiment = self.experiment
        if not experiment.steady:
            return Disturbance(at_s=0.0, sentence="the scenario says so (`steady: false`)")
        if isinstance(experiment.workload.arrivals, RecordedArrivals):
            return Disturbance(at_s=0.0, sentence="its arrivals are a recording")
        if self.events:
            first = min(self.events, key=lambda event: event.at_s)
            return Disturbance(
                at_s=max(0.0, first.at_s), sentence=f"from {first.at_s:.3g} s on, {first.sentence}"
            )
        return None

    @property
    def coldness(self) -> str:
        """Why the cluster must be taken for cold, in a sentence; empty if it was warm."""
        warm_up = self.cluster_state.warm_up if self.cluster_state else None
        return warm_up.sentence if warm_up else ""
