"""The metrics of a run. Made by `analysis` from traces; read by reports, comparisons and models.

Shares are of messages sent in the measured time. Every estimate carries the interval that holds
its true value with 95 % confidence, from batch means: neighbouring messages share their fate, so
the usual formulas would be far too sure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from penstock.domain.kpi import Kpi
from penstock.domain.steadiness import Steadiness
from penstock.domain.value import Doc, Value

# Of a distribution; and the parts of a latency, in the order of a message's way.
PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
PARTS = ("waiting", "produce", "commit", "fetch", "commit+fetch", "answer")


@dataclass(frozen=True, kw_only=True)
class Estimate(Value):
    """A figure and its 95 % interval; the interval is absent if there were too few batches."""

    value: float
    low: float | None = None
    high: float | None = None
    batches: Annotated[
        tuple[float, ...], Doc("the batch means it rests on, in order of time; for comparisons")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class MessageCounts(Value):
    """Messages of the measured time, counted by outcome."""

    sent: Annotated[int, Doc("handed to the client")] = 0
    unsent: Annotated[int, Doc("scheduled, but not sent by the generator")] = 0
    warm_up: Annotated[
        int, Doc("sent before the measured time; excluded from the other counts")
    ] = 0
    acknowledged: int = 0
    failed: int = 0
    unknown: Annotated[int, Doc("no report from the client")] = 0
    delivered: Annotated[int, Doc("in the topic, once")] = 0
    lost: Annotated[int, Doc("not in the topic")] = 0
    duplicated: Annotated[int, Doc("in the topic, more than once")] = 0
    copies: Annotated[int, Doc("of these messages in the topic")] = 0
    acknowledged_yet_lost: Annotated[int, Doc("acknowledged but not in the topic")] = 0
    failed_yet_delivered: Annotated[int, Doc("reported failed but in the topic")] = 0
    redelivered: Annotated[int, Doc("the same record given to the application again")] = 0
    records: Annotated[int, Doc("distinct records read of the topic, warm-up included")] = 0
    foreign: Annotated[int, Doc("messages that no producer of this run sent")] = 0
    stale: Annotated[
        int, Doc("persisted later than the stream's timeliness, from when it was due")
    ] = 0
    # S0's cases, numbered as in its Table 5.1; case 5 is `duplicated`.
    first_try: Annotated[int, Doc("case 1: delivered at the first try")] = 0
    lost_first_try: Annotated[int, Doc("case 2: lost, sent once")] = 0
    lost_after_retries: Annotated[int, Doc("case 3: lost after all retries")] = 0
    after_retries: Annotated[int, Doc("case 4: delivered after retries")] = 0
    never_left: Annotated[int, Doc("lost in the client's queue: no request carried it")] = 0
    tries_unknown: Annotated[int, Doc("the number of tries was not recorded")] = 0


@dataclass(frozen=True, kw_only=True)
class Distribution(Value):
    """A distribution of times as an HDR histogram, percentiles derived late."""

    checks_types = False  # there are many

    count: int
    mean_ms: Estimate
    deviation_ms: Annotated[float, Doc("the standard deviation")]
    percentiles_ms: Annotated[Mapping[str, Estimate], Doc("'50', '90', '99', '99.9', …")]
    min_ms: float
    max_ms: float
    buckets: Annotated[
        tuple[tuple[int, int], ...],
        Doc("(lower edge in ns, count), 3 significant digits; of parts, 2"),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class RunSecond(Value):
    """One second of the run, by the time messages were due (received: by the time of receipt)."""

    checks_types = False  # there are many

    at_s: Annotated[int, Doc("from the measured start; negative: warm-up")]
    due: int = 0
    acknowledged: int = 0
    failed: int = 0
    lost: int = 0
    duplicated: int = 0
    received: int = 0
    received_bytes: int = 0
    timely_bytes: Annotated[
        int | None, Doc("of those, within the objective's latency; if there is an objective")
    ] = None
    late: Annotated[
        Mapping[str, int], Doc("ζ in ms → how many of those due arrived later than ζ")
    ] = field(default_factory=dict)
    stale: int = 0
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunMetrics(Value):
    """Metrics of a run (`metrics.json`).

    Of a run that was not steady, times are what was seen and not what the setting gives.
    """

    run: Annotated[str, Doc("id of the run")]
    seconds_measured: float
    counts: MessageCounts
    lost_share: Annotated[Estimate, Doc("P_l")]
    duplicated_share: Annotated[Estimate, Doc("P_d")]
    latency: Annotated[Distribution | None, Doc("intended → received, first copy")] = None
    acknowledgement: Annotated[Distribution | None, Doc("intended → acknowledged")] = None
    corrected: Annotated[
        Distribution | None,
        Doc(
            "of a closed loop that kept a constant schedule: its acknowledgement with what it did "
            "not send while it waited, as HdrHistogram corrects for coordinated omission"
        ),
    ] = None
    parts: Annotated[
        Mapping[str, Distribution],
        Doc(
            "waiting (intended→sent), produce (sent→appended), commit (appended→visible), "
            "fetch (visible→received), or commit+fetch without a watcher; answer (sent→reported)"
        ),
    ] = field(default_factory=dict)
    violation_share: Annotated[
        Mapping[str, Estimate],
        Doc("ζ in ms → η_v, the share of arrived messages that came later than ζ"),
    ] = field(default_factory=dict)
    throughput_per_s: Annotated[
        Estimate | None, Doc("messages acknowledged in the measured time")
    ] = None
    throughput_mb_per_s: Estimate | None = None
    goodput_mb_per_s: Annotated[Estimate | None, Doc("values that arrived in it, counted once")] = (
        None
    )
    timely_mb_per_s: Annotated[
        Estimate | None,
        Doc(
            "χ': values that arrived in it, once, within the objective's latency; without such a "
            "limit none is late, and it is the goodput"
        ),
    ] = None
    kpi: Annotated[Kpi | None, Doc("γ and its terms; None: nothing was sent")] = None
    overhead_share: Annotated[
        Estimate | None,
        Doc(
            "of the bytes in produce requests, what is not a value; negative: compression saved more"
        ),
    ] = None
    steadiness: Annotated[
        Steadiness | None, Doc("whether latency is a property of the setting; None: not looked at")
    ] = None
    seconds: tuple[RunSecond, ...] = ()
    warnings: Annotated[tuple[str, ...], Doc("what these figures leave out, and why")] = ()

    @property
    def unsteadiness(self) -> str:
        """Why the times of the run are not those of its setting; empty if they may be."""
        if self.steadiness is None or self.steadiness.state != "unsteady":
            return ""
        return self.steadiness.sentence
