"""Warms a cluster up for a run, until its requests cost the brokers the same from second to second.

Two steps. First as many requests of the run's kind as the brokers take, over a network
without conditions: Java compiles what was called often enough, so requests count and not seconds. What the brokers of a testbed are warm for is kept beside them, so the next run or command
leaves this step out. Then the run's own load: its measured time begins when that is warm, and
what is known then is written down with the run. `flatness` is the test in both.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Protocol

from penstock import specs
from penstock.domain.broker_view import BrokerView
from penstock.domain.progress import Progress, silent
from penstock.domain.run import RunSpec
from penstock.domain.warm_up import ClusterState, RequestKind, WarmUp, WarmUpLimits
from penstock.kafka.connection import KafkaCluster
from penstock.load.load import Load
from penstock.load.plan import FIRST_LOOK_S, WARM_UP_MARGIN_S
from penstock.runs.warm_up_load import RunLoad, SaturatingLoad, without_conditions
from penstock.specs.files import write_file
from penstock.stats import flatness
from penstock.stats.flatness import WINDOW, Interval
from penstock.testbed.cluster import Cluster

_WARM_FOR = "warm-for.json"
# Of the run's own load; so a cluster that is warm already is known to be after five seconds.
_RUN_INTERVAL_S = 0.5
_SECOND_STEP_S = 10.0
# librdkafka's default.
_LINGER_MS, _BATCH_MESSAGES, _BATCH_BYTES = 5.0, 10_000, 1_000_000


def kind_of(spec: RunSpec) -> RequestKind:
    """What the requests of a run will look like, as far as its settings decide it."""
    workload, settings, topic = spec.workload, spec.settings, spec.topic
    message_bytes = max(1, round(workload.payload.mean_bytes))
    linger_ms = _LINGER_MS if settings.linger_ms is None else settings.linger_ms
    # Without keys the client fills one partition at a time, with keys it spreads them over all.
    spread = topic.partitions if workload.keys else 1
    gathered = 1 if workload.loop == "closed" else workload.arrivals.mean_per_s * linger_ms / 1e3
    most = min(
        settings.batch_num_messages or _BATCH_MESSAGES,
        (settings.batch_size or _BATCH_BYTES) // message_bytes,
    )
    return RequestKind(
        acks=settings.acks or "all",
        message_bytes=message_bytes,
        messages_per_request=max(1, min(most, round(gathered / spread))),
        partitions=topic.partitions,
        replication=topic.replication,
        compression=settings.compression_type or "none",
        is_idempotent=bool(settings.enable_idempotence),
    )


def warm_up(
    cluster: KafkaCluster,
    kind: RequestKind | None = None,
    limits: WarmUpLimits | None = None,
    on_progress: Progress = silent,
) -> WarmUp | None:
    """The first step: full load with this kind of requests.

    None if nothing was done: the brokers are known to be warm for this kind; or it is a cluster of
    the user's own and `rate_per_s` is not given, or it shows nothing to judge warmth by.
    """
    limits = limits or WarmUpLimits()
    kind = kind or RequestKind(replication=min(3, len(cluster.admin.broker_ids(timeout_s=10))))
    if isinstance(cluster, Cluster):
        if _is_known(cluster, kind):
            return None
    elif limits.rate_per_s is None or not _shows_warmth(cluster, kind):
        return None
    if not limits.limit_s:
        return NOT_WARMED_UP
    step = _Step(1, limits.limit_s, 1.0, on_progress)
    with ExitStack() as stack:
        if isinstance(cluster, Cluster):
            stack.enter_context(without_conditions(cluster))
        load = stack.enter_context(SaturatingLoad(cluster, kind, limits.rate_per_s))
        done = step.until_warm(load)
    # With a cap on the rate it may be flat, but not as warm as without.
    if isinstance(cluster, Cluster) and done.state == "warm" and limits.rate_per_s is None:
        _remember(cluster, kind)
    return done


def warm_up_run(
    cluster: KafkaCluster,
    load: Load,
    spec: RunSpec,
    before: WarmUp | None,
    on_progress: Progress = silent,
) -> WarmUp | None:
    """The second step: the run's own load, which has begun, until that is warm.

    `before` is the result of the first step; the answer is for both, and warm only if both were. A
    load whose measured time is fixed is waited for until shortly before that. None: whether the
    cluster is warm cannot be known.
    """
    limits, kind = spec.cluster_warm_up, kind_of(spec)
    if not load.waits_for_warmth:
        on_progress(f"warming up for {spec.warm_up_s:g} s")
        load.wait(until_ns=load.measured_from_ns - round(FIRST_LOOK_S * 1e9))
        if before is not None or limits.limit_s:
            return before
        return _unwarmed(cluster, kind)
    if not _shows_warmth(cluster, kind):
        on_progress(f"warming up for {spec.warm_up_s:g} s")
        load.wait(until_ns=time.monotonic_ns() + round(spec.warm_up_s * 1e9))
        return None
    spent_s = before.took_s if before else 0.0
    latest_s = min(
        max(spec.warm_up_s, limits.limit_s - spent_s),
        load.longest_warm_up_s - WARM_UP_MARGIN_S,
    )
    step = _Step(
        2,
        latest_s,
        _RUN_INTERVAL_S,
        on_progress,
        at_least_s=spec.warm_up_s,
        at_least_intervals=2 * WINDOW,
        spent_s=spent_s,
    )
    done = step.until_warm(RunLoad(cluster, load, kind.messages_per_request))
    done = replace(
        done,
        first_cpu_ms_per_request=None,
        cpu_ms_per_request=None,
        run_cpu_ms_per_request=done.cpu_ms_per_request,
    )
    if before is None:
        return done
    is_warm = before.state == "warm"
    return replace(
        done,
        state=done.state if is_warm else before.state,
        sentence=done.sentence if is_warm else before.sentence,
        requests=before.requests + done.requests,
        first_cpu_ms_per_request=before.first_cpu_ms_per_request,
        cpu_ms_per_request=before.cpu_ms_per_request,
    )


def _shows_warmth(cluster: KafkaCluster, kind: RequestKind) -> bool:
    """By CPU or by latency. With acks=0 nobody answers, and only a testbed shows its processes."""
    return isinstance(cluster, Cluster) or kind.acks != "0"


def _unwarmed(cluster: KafkaCluster, kind: RequestKind) -> WarmUp | None:
    """Without a warm-up: of a cluster of the user's own nothing is known."""
    if not isinstance(cluster, Cluster):
        return None
    return WarmUp(state="warm") if _is_known(cluster, kind) else NOT_WARMED_UP


def first_step_limits(limits: WarmUpLimits) -> WarmUpLimits:
    """What the first step may use of the limit, so that the second one has time for its test."""
    left_s = min(_SECOND_STEP_S, 0.4 * limits.limit_s)
    return replace(limits, limit_s=limits.limit_s - left_s)


NOT_WARMED_UP = WarmUp(
    state="not warmed up",
    sentence="the brokers were not warmed up: the limit of the warm-up is 0 s",
)


_LOADS = {1: "at full speed", 2: "the run's own load"}
_LONGER = ". A higher `cluster_warm_up.limit_s` gives it longer"


class _Load(Protocol):
    def work(self, seconds: float) -> Interval: ...


class _Step:
    """The time that one step has, in intervals of equal length."""

    def __init__(
        self,
        number: int,
        limit_s: float,
        interval_s: float,
        say: Progress,
        at_least_s: float = 0.0,
        at_least_intervals: int = 0,
        spent_s: float = 0.0,
    ) -> None:
        self._began, self._limit_s, self._at_least_s = time.monotonic(), limit_s, at_least_s
        self._at_least_intervals = at_least_intervals
        self._spent_s = spent_s  # by the step before
        self._interval_s, self._say = interval_s, say
        self._name = f"warm-up, step {number} of 2 ({_LOADS[number]})"
        say(f"{self._name}: {limit_s:.0f} s at most")

    def until_warm(self, load: _Load) -> WarmUp:
        """Run the load until it is warm or the time is over."""
        intervals: list[Interval] = []
        changing = flatness.reasons(intervals, self._interval_s)
        while len(intervals) < self._at_least_intervals or self._took_s < (
            self._limit_s if changing else self._at_least_s
        ):
            intervals.append(load.work(self._interval_s))
            changing = flatness.reasons(intervals, self._interval_s)
            if changing:
                self._say(self._progress(intervals[-1], changing))
        all_s = self._spent_s + self._took_s
        sentence = f"the cluster was still warming up after {all_s:.0f} s in {self._name}: "
        return WarmUp(
            state="still warming up" if changing else "warm",
            sentence=sentence + "; ".join(changing) + _LONGER if changing else "",
            took_s=round(all_s, 1),
            requests=sum(interval.requests for interval in intervals),
            cpu_ms_per_request=flatness.cost_ms(intervals[-WINDOW:]),
            first_cpu_ms_per_request=flatness.cost_ms(intervals[:WINDOW]),
        )

    @property
    def _took_s(self) -> float:
        return time.monotonic() - self._began

    def _progress(self, last: Interval, changing: list[str]) -> str:
        cost = last.cpu_ms_per_request
        per_request = f", {cost:.2g} ms of CPU each" if cost else ""
        return (
            f"{self._name}: {self._took_s:.0f} of at most {self._limit_s:.0f} s, "
            f"{last.requests / self._interval_s:,.0f} requests/s{per_request}; {changing[0]}"
        )


# --- what is known of a cluster ------------------------------------------------------------------


def state_of(
    cluster: KafkaCluster, done: WarmUp | None, views: Sequence[BrokerView]
) -> ClusterState | None:
    """How old its brokers are and how much they have done, by the latest look at them. None for a
    cluster of the user's own that was not warmed up."""
    if not isinstance(cluster, Cluster):
        return None if done is None else ClusterState(warm_up=done)
    started = [
        process.create_time()
        for broker in cluster.broker_ids
        if (process := cluster.process(broker).process) is not None
    ]
    own = [view.own for view in views if view.own is not None]
    served = sum(times.total.count for counters in own for times in counters.requests.values())
    return ClusterState(
        age_s=round(time.time() - max(started), 1) if started else None,
        requests_served=served if own and len(own) == len(views) else None,
        warm_up=done,
    )


def _is_known(cluster: Cluster, kind: RequestKind) -> bool:
    """Whether these very processes were warmed up for it; a broker that was restarted is cold."""
    return any(known.covers(kind) for known in _warm_for(cluster))


def _remember(cluster: Cluster, kind: RequestKind) -> None:
    kinds = [specs.to_data(known) for known in (*_warm_for(cluster), kind)]
    state = {"pids": _pids(cluster), "kinds": kinds}
    write_file(cluster.directory / _WARM_FOR, json.dumps(state))


def _warm_for(cluster: Cluster) -> list[RequestKind]:
    with suppress(OSError, ValueError, KeyError):
        state = json.loads((cluster.directory / _WARM_FOR).read_text())
        if state["pids"] == _pids(cluster):
            return [specs.parse(kind, RequestKind) for kind in state["kinds"]]
    return []


def _pids(cluster: Cluster) -> list[int | None]:
    return [cluster.process(broker).pid for broker in cluster.broker_ids]
