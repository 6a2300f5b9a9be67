"""A run: what was asked for (`RunSpec`) and the record of its execution (`Run`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from penstock.domain.arrivals import RecordedArrivals
from penstock.domain.client_kind import ProducerKind, plain_producer
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.consumers import Consumers
from penstock.domain.fault import Fault
from penstock.domain.network import NetworkProfile
from penstock.domain.objective import Objective
from penstock.domain.settings import ProducerSettings
from penstock.domain.steadiness import Disturbance
from penstock.domain.value import Bound, Doc, FieldError, Value
from penstock.domain.warm_up import ClusterState, WarmUpLimits
from penstock.domain.workload import Workload

# Of the run directory. A directory of another format is refused, with its number.
RUN_FORMAT = 4
# Above this rate the watcher would cost the brokers as much as the measured load.
WATCHED_UP_TO_PER_S = 5_000


@dataclass(frozen=True, kw_only=True)
class Existing(Value):
    """An existing cluster. Only the run's topic is modified."""

    bootstrap_servers: Annotated[str, Doc("HOST:PORT, …")]
    client_properties: Annotated[
        str | None, Doc("a Kafka client.properties, for security; its content is never stored")
    ] = None


@dataclass(frozen=True, kw_only=True)
class RunSpec(Value):
    """One run: workload, settings, network, cluster and faults."""

    name: Annotated[str, Doc("of the run; becomes part of its directory's name")]
    cluster: Annotated[ClusterSpec, Doc("a cluster made for this run")] = field(
        default_factory=ClusterSpec
    )
    existing: Annotated[Existing | None, Doc("or an existing cluster")] = None
    topic: TopicSpec
    workload: Workload
    producer: Annotated[ProducerKind, Doc("what publishes the messages")] = field(
        default_factory=plain_producer
    )
    settings: ProducerSettings = field(default_factory=ProducerSettings)
    consumers: Consumers = field(default_factory=Consumers)
    network_profile: Annotated[
        NetworkProfile | None, Doc("how the network changes during the run")
    ] = None
    faults: Annotated[tuple[Fault, ...], Doc("times count from the end of the warm-up")] = ()
    objective: Objective | None = None
    warm_up_s: Annotated[
        float,
        Bound(ge=0, le=3600),
        Doc("shortest time of the run's own load before the measured time, s"),
    ] = 5.0
    cluster_warm_up: Annotated[
        WarmUpLimits, Doc("limits of the warm-up before the measured time")
    ] = field(default_factory=WarmUpLimits)
    steady: Annotated[
        bool,
        Doc(
            "false: the load exceeds the capacity of the cluster, or changes, on purpose; trends are "
            "then not reported. Not needed for faults and network profiles"
        ),
    ] = True
    timeliness_ms: Annotated[
        float | None,
        Bound(gt=0),
        Doc("a message persisted later than this after it was due is stale"),
    ] = None
    visibility: Annotated[
        Literal["auto", "on", "off"],
        Doc("a reader next to the brokers records when messages become readable; costs a consumer"),
    ] = "auto"
    schedule_lag_ms: Annotated[
        float,
        Bound(gt=0),
        Doc("the run is invalid if the generator lags its schedule by more than this (p99)"),
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
            raise FieldError(f"topic.{error.field}", error.value, error.rule) from None

    @property
    def is_watched(self) -> bool:
        """Whether a reader beside the brokers watches when messages become readable."""
        if self.visibility != "auto":
            return self.visibility == "on"
        # With one replica a record is visible as soon as it is appended.
        return self.topic.replication > 1 and self.workload.messages_per_s <= WATCHED_UP_TO_PER_S

    def _check_existing(self) -> None:
        for field_name, is_given in (
            ("faults", self.faults),
            ("network_profile", self.network_profile),
        ):
            self.require(
                not is_given,
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
class ClientCounters(Value):
    """A producer's own counters, from its start to shortly before its end."""

    messages: Annotated[int, Doc("sent to brokers")]
    message_bytes: Annotated[int, Doc("of their keys and values, before compression")]
    requests: Annotated[int, Doc("produce requests")]
    sent_bytes: Annotated[int, Doc("of all requests, after compression, without TCP's headers")]
    received_bytes: int
    round_trip_ms: Annotated[
        float | None, Doc("recent mean time from a request to its answer; none with acks=0")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ProducerReport(Value):
    """The final report of a producer process."""

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
    control_markers: Annotated[
        int, Doc("that its transactions left: one per transaction and partition")
    ] = 0
    counters: Annotated[
        ClientCounters | None, Doc("none if the run was too short for the client to count")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ConsumerReport(Value):
    """The final report of a consumer process."""

    consumer: int
    received: Annotated[int, Doc("messages")]
    records: Annotated[int, Doc("records, of which each may hold several messages")] = 0
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
    """An executed run (`run.json`): spec, versions, machine, events, reports."""

    format: int = RUN_FORMAT
    id: str
    cell: Annotated[Mapping[str, str], Doc("what is special to this run in its campaign")] = field(
        default_factory=dict
    )
    repeat: int = 0
    is_again: Annotated[
        bool, Doc("the first cell of a campaign once more, last: for drift, and in no other figure")
    ] = False
    spec: RunSpec
    status: Literal["complete", "failed", "interrupted"] = "complete"
    reason: Annotated[str, Doc("why it failed")] = ""
    invalid: Annotated[tuple[str, ...], Doc("why its figures must not be used")] = ()
    warnings: tuple[str, ...] = ()
    started_at: Annotated[str, Doc("ISO 8601, UTC")]
    versions: Annotated[Mapping[str, str], Doc("of Penstock, Kafka, librdkafka, Java, kernel")]
    machine: Mapping[str, str | int | float] = field(default_factory=dict)
    brokers: Annotated[int | None, Doc("of the cluster; none if it did not answer")] = None
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
        Doc("partitions with a leader, yet not read to the end"),
    ] = ()

    @property
    def disturbance(self) -> Disturbance | None:
        """The first planned change of the run, and when; None: there was none."""
        spec = self.spec
        if not spec.steady:
            return Disturbance(at_s=0.0, sentence="steadiness is not judged (`steady: false`)")
        if isinstance(spec.workload.arrivals, RecordedArrivals):
            return Disturbance(
                at_s=0.0, sentence="steadiness is not judged: arrivals are a recording"
            )
        if self.events:
            first = min(self.events, key=lambda event: event.at_s)
            return Disturbance(
                at_s=max(0.0, first.at_s), sentence=f"{first.sentence} at {first.at_s:.3g} s"
            )
        return None

    @property
    def coldness(self) -> str:
        """Why the cluster counts as cold, in a sentence; empty if it was warm."""
        warm_up = self.cluster_state.warm_up if self.cluster_state else None
        return warm_up.sentence if warm_up else ""
