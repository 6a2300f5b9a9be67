"""One experiment carried out on a cluster: load, faults and network, until its traces are written.

Not the analysis: what the traces mean is found out later, by `penstock.pipeline`.
"""

from __future__ import annotations

import platform
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from os import cpu_count, getloadavg

import confluent_kafka
import psutil

from penstock import __version__
from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import BadInput, PenstockError, TestbedError
from penstock.domain.run import ClockAnchor, Experiment, ProducerReport, Run, RunEvent
from penstock.domain.warm_up import WarmUp
from penstock.measure.load import Load
from penstock.measure.load_plan import plan_of
from penstock.measure.producing import GRACE_S
from penstock.measure.run_directory import RunDirectory
from penstock.measure.sampling import Sampler
from penstock.measure.warm_up import state_of, warm_up_run
from penstock.progress import Progress, silent
from penstock.testbed.cluster import Cluster
from penstock.testbed.connection import KafkaCluster
from penstock.testbed.faults import FaultInjector
from penstock.testbed.network.trace import TracePlayer
from penstock.testbed.waiting import wait_until

_TOPIC_WAS_THERE = (
    "the topic was there already: its replication and settings are its own, not the scenario's"
)
# Until the measured time begins: every producer has heard of it, and the run is written down.
_LEAD_NS = 500_000_000
# Cores that librdkafka's threads of one producer use when they spin; sending takes a tenth of it.
_SPINS = 0.2
# Longer than a group takes to notice that a member or its coordinator is gone.
DRAIN_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Place:
    """Where a run stands in its campaign."""

    cell: Mapping[str, str]
    repeat: int = 0
    is_again: bool = False


def carry_out(
    experiment: Experiment,
    cluster: KafkaCluster,
    directory: RunDirectory,
    *,
    place: Place | None = None,
    warm_up: WarmUp | None = None,
    after_load: Callable[[KafkaCluster, Run], object] = lambda *_: None,
    on_progress: Progress = silent,
) -> Run:
    """Carry the experiment out and write its run directory. What fails is in the run's reason.

    `warm_up` is what the first step of warming the cluster came to; `after_load` is called when all
    is measured and the topic is still there.

    Bad input and a lack of disk are raised, since the next run would meet them too; such a run
    counts as interrupted. Everything else (a fault that did not take, a client that died) is the
    outcome of this run.
    """
    run = new_run(experiment, directory, place or Place({}), cluster)
    directory.write_run(run)
    try:
        with _fresh_topic(cluster, experiment.topic) as is_ours:
            run = _run(run, cluster, directory, warm_up, on_progress)
            after_load(cluster, run)
            if not is_ours:
                run = replace(run, warnings=(*run.warnings, _TOPIC_WAS_THERE))
    except TestbedError as error:
        # With the measured time, if it got that far.
        run = replace(directory.run(), status="failed", reason=str(error))
    except PenstockError as error:
        # Not this run's failure: it is still to be done, and what it wrote can be analysed.
        directory.write_run(replace(directory.run(), reason=str(error)))
        raise
    directory.write_run(run)
    return run


def new_run(
    experiment: Experiment, directory: RunDirectory, place: Place, cluster: KafkaCluster | None
) -> Run:
    """What is known of a run before it begins."""
    return Run(
        id=f"{directory.path.name}-{secrets.token_hex(3)}",
        cell=place.cell,
        repeat=place.repeat,
        is_again=place.is_again,
        experiment=experiment,
        status="interrupted",  # until it has ended: a run that was killed says so
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions(cluster),
        machine=machine(),
    )


def _run(
    run: Run,
    cluster: KafkaCluster,
    directory: RunDirectory,
    warm_up: WarmUp | None,
    say: Progress,
) -> Run:
    experiment = run.experiment
    with Load(cluster, plan_of(experiment), directory.path, on_progress=say) as load:
        load.start()
        warmed = warm_up_run(cluster, load, experiment, warm_up, say)
        # It asks the brokers first; only then is fixed when the measured time begins.
        with Sampler(cluster, load.clients, directory.path) as sampler:
            before = anchor()
            if load.waits_for_warmth:
                load.measure(from_ns=time.monotonic_ns() + _LEAD_NS)
            sampler.spare(load.measured_from_ns, load.measured_to_ns)
            run = replace(
                run,
                cluster_state=state_of(cluster, warmed, sampler.brokers),
                measured_from_ns=load.measured_from_ns,
                measured_to_ns=load.measured_to_ns,
                anchors=(before,),
            )
            # So that what a killed run leaves behind can be analysed.
            directory.write_run(run)
            load.wait(until_ns=load.measured_from_ns)
            load.count_from_here()
            with ExitStack() as stack:
                player = injector = None
                if experiment.trace is not None:
                    assert isinstance(cluster, Cluster)
                    player = TracePlayer(cluster.emulated, experiment.trace)
                    stack.enter_context(player)
                if experiment.faults:
                    assert isinstance(cluster, Cluster)
                    injector = FaultInjector(
                        cluster,
                        experiment.faults,
                        signals=load.signals,
                        on_event=lambda event: say(event.sentence),
                    )
                    stack.enter_context(injector)
                load.wait()
        if isinstance(cluster, Cluster):
            # What a broker's own death costs is not the settings' doing.
            cluster.check_alive()
        say("reading what is left")
        ends, unreadable = _end_offsets(cluster, experiment)
        unread = load.drain(ends, DRAIN_PATIENCE_S)
        after = anchor()
        run = replace(
            run,
            status="complete",
            anchors=(before, after),
            producers=load.producers,
            consumers=load.consumers,
            end_offsets={str(p): end for p, end in sorted(ends.items())},
            unreadable=tuple(unreadable),
            unread=unread,
            events=_events(experiment, injector, player),
            observer=sampler.cost,
        )
    return replace(run, invalid=_invalid(run), warnings=_warnings(run))


def anchor() -> ClockAnchor:
    """Both clocks at one moment: the closest of three readings."""
    readings = []
    for _ in range(3):
        first, wall, last = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((last - first, ClockAnchor(monotonic_ns=(first + last) // 2, wall_ns=wall)))
    return min(readings, key=lambda reading: reading[0])[1]


def versions(cluster: KafkaCluster | None) -> dict[str, str]:
    """What has to be the same for a run to be repeated."""
    found = {
        "penstock": __version__,
        "librdkafka": confluent_kafka.libversion()[0],
        "confluent-kafka": version("confluent-kafka"),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }
    if isinstance(cluster, Cluster):
        jar = next(j.stem for j in cluster.parts.kafka_jars if j.name.startswith("kafka_2"))
        found |= {"kafka": jar.rpartition("-")[2], "java": cluster.parts.java.version_text}
    return found


def machine() -> dict[str, str | int | float]:
    return {
        "cores": cpu_count() or 1,
        "memory_mb": psutil.virtual_memory().total // 2**20,
        "load_average": round(getloadavg()[0], 2),
    }


# --- the topic --------------------------------------------------------------------------------


@contextmanager
def _fresh_topic(cluster: KafkaCluster, topic: TopicSpec) -> Iterator[bool]:
    """The topic of the run, empty at its start; removed afterwards if the run made it: whether."""
    if topic.name in cluster.admin.topics():
        _check_empty(cluster, topic)
        yield False
        return
    # With it the broker stamps the time of the append, which splits produce from fetch.
    config = {"message.timestamp.type": "LogAppendTime", **topic.config}
    is_ours = True
    try:
        try:
            cluster.create_topic(replace(topic, config=config))
        except PenstockError:  # somebody else made it meanwhile, or nobody could
            is_ours = False
            raise
        yield True
    finally:  # also if Ctrl-C came while it was being made
        if is_ours:
            _remove(cluster, topic.name)


def _remove(cluster: KafkaCluster, topic: str) -> None:
    # On a cluster with a dead broker it may stay; whoever uses it next is told.
    with suppress(TestbedError):
        cluster.admin.delete_topic(topic)
        wait_until(
            lambda: topic not in cluster.admin.topics(),
            timeout_s=30,
            what=f"{topic} to be deleted",
        )


def _check_empty(cluster: KafkaCluster, topic: TopicSpec) -> None:
    ends = cluster.admin.end_offsets(topic.name)
    if any(ends.values()):
        raise BadInput(
            f"topic {topic.name} has {sum(ends.values())} records already, which would be counted",
            "give `topic.name` a name that is not used, or delete that topic",
        )
    if len(ends) != topic.partitions:
        raise BadInput(
            f"topic {topic.name} is there with {len(ends)} partitions, and the scenario wants "
            f"{topic.partitions}",
            "make them equal, or use another `topic.name`",
        )


def _end_offsets(cluster: KafkaCluster, experiment: Experiment) -> tuple[dict[int, int], list[int]]:
    """The end of every partition once nothing moves any more, and those that have no leader.

    What was sent may still be on its way: in a socket (acks=0), or above the high watermark.
    """
    topic: TopicSpec = experiment.topic
    slow = experiment.settings.acks == "0" or experiment.cluster.network is not None
    quiet_s = 4.0 if slow else 1.0
    last: dict[int, int] = {}
    since = time.monotonic()

    def is_settled() -> bool:
        nonlocal last, since
        ends = cluster.admin.end_offsets(topic.name, only_led=True)
        if ends != last:
            last, since = ends, time.monotonic()
        return len(ends) == topic.partitions and time.monotonic() - since >= quiet_s

    try:
        wait_until(is_settled, timeout_s=30, every_s=0.25, what="the topic to come to rest")
    except TestbedError:
        if not last:
            raise
    return last, [p for p in range(topic.partitions) if p not in last]


# --- what a run says of itself ------------------------------------------------------------------


def _events(
    experiment: Experiment, injector: FaultInjector | None, player: TracePlayer | None
) -> tuple[RunEvent, ...]:
    events = [
        RunEvent(at_s=e.at_s, took_s=e.took_s, sentence=e.sentence)
        for e in (injector.events if injector else ())
    ]
    steps = experiment.trace.steps if experiment.trace else ()
    # Without those that lie after the end of the run.
    applied = zip(steps, player.applied if player else (), strict=False)
    for number, (step, (meant_s, applied_s)) in enumerate(applied, 1):
        changed = ", ".join(f"{link.src} → {link.dst}" for link in step.links)
        sentence = f"network step {number}: {changed}"
        events.append(RunEvent(at_s=meant_s, took_s=applied_s - meant_s, sentence=sentence))
    return tuple(sorted(events, key=lambda event: event.at_s))


def _invalid(run: Run) -> tuple[str, ...]:
    """Why the figures say nothing about the cluster, if so."""
    limit_us = run.experiment.schedule_lag_ms * 1e3
    reasons = [
        f"producer-{p.producer + 1} was {p.lag_p99_us / 1e3:.1f} ms late (p99) by its own fault; "
        f"up to {limit_us / 1e3:g} ms is allowed (schedule_lag_ms){_spinning(p)}"
        for p in run.producers
        if p.lag_p99_us > limit_us and run.experiment.workload.loop == "open"
    ]
    reasons += [
        f"producer-{p.producer + 1} never got to {p.scheduled - p.sent} of its {p.scheduled} "
        f"messages: {_why_unsent(p)}"
        for p in run.producers
        if p.sent < p.scheduled and run.experiment.workload.loop == "open"
    ]
    if run.unread:
        listed = ", ".join(map(str, run.unread))
        reasons.append(
            f"the consumers did not read partitions {listed} to their end, and got nowhere for "
            f"{DRAIN_PATIENCE_S:g} s: what is left there would count as lost"
        )
    received = sum(c.received for c in run.consumers)
    if sum(run.end_offsets.values()) and not received:
        errors = {error for c in run.consumers for error in c.errors}
        detail = f" ({'; '.join(sorted(errors))})" if errors else ""
        reasons.append(f"no consumer received anything, though the topic has records{detail}")
    return tuple(reasons)


def _warnings(run: Run) -> tuple[str, ...]:
    found = []
    if run.unreadable:
        listed = ", ".join(map(str, run.unreadable))
        found.append(f"partitions {listed} have no leader: what they hold counts as lost")
    steps = len(run.experiment.trace.steps) if run.experiment.trace else 0
    applied = sum(event.sentence.startswith("network step") for event in run.events)
    if applied < steps:
        found.append(f"{steps - applied} of {steps} network steps lie after the end of the run")
    idle = [c.consumer for c in run.consumers if not c.received]
    if idle and len(idle) < len(run.consumers):
        listed = ", ".join(f"consumer-{number + 1}" for number in idle)
        found.append(
            f"{listed} received nothing: {len(run.consumers)} consumers share "
            f"{run.experiment.topic.partitions} partitions"
        )
    length_s = run.experiment.workload.duration_s
    found += [_blocked(p) for p in run.producers if p.queue_full_s > 0.01 * length_s]
    return tuple(found)


def _spinning(producer: ProducerReport) -> str:
    """librdkafka's threads do not sleep while as many requests are under way as may be: they take
    all the CPU there is, and hold the lock that the generator needs when another thread runs."""
    if producer.client_cores < _SPINS:
        return ""
    return (
        f". librdkafka used {producer.client_cores:.2f} cores: it spins while "
        "max.in.flight.requests.per.connection requests are under way; fewer requests help, by a "
        "longer linger.ms"
    )


def _why_unsent(producer: ProducerReport) -> str:
    if producer.queue_full_s > GRACE_S / 2:
        return "the client's queue was full, so the cluster takes less than that: lower the rate"
    return "lower the rate or use more producers"


def _blocked(producer: ProducerReport) -> str:
    return (
        f"producer-{producer.producer + 1} found the client's queue full for "
        f"{producer.queue_full_s:.1f} s: the cluster takes less than the schedule offers"
    )
