"""One run executed on a cluster: load, faults and network, until its traces are written.

Not the analysis: what the traces mean is found out later, by `penstock.analysis`.
"""

from __future__ import annotations

import platform
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from os import cpu_count, getloadavg
from pathlib import Path

import confluent_kafka
import psutil

from penstock.domain.errors import PenstockError, TestbedError
from penstock.domain.progress import Progress, silent
from penstock.domain.run import ClockAnchor, ProducerReport, Run, RunEvent, RunSpec
from penstock.domain.warm_up import WarmUp
from penstock.kafka.connection import KafkaCluster
from penstock.load.load import Load
from penstock.load.plan import plan_of
from penstock.load.scheduled_producer import GRACE_S
from penstock.runs.fresh_topic import fresh_topic
from penstock.runs.run_directory import RunDirectory
from penstock.runs.sampling import Sampler
from penstock.runs.settled_ends import settled_ends
from penstock.runs.validity import unchecked, uncounted
from penstock.runs.warm_up import state_of, warm_up_run
from penstock.testbed.cluster import Cluster
from penstock.testbed.fault_injector import FaultInjector
from penstock.testbed.network.profile_player import ProfilePlayer
from penstock.version import __version__

_TOPIC_WAS_THERE = (
    "the topic existed already: its replication and settings are not those of the scenario"
)
# Until the measured time begins: time for every producer to get the order, and to write run.json.
_LEAD_NS = 500_000_000
# Cores that librdkafka's threads of one producer use when they spin; sending takes a tenth of it.
_SPINS = 0.2
# Longer than a group takes to notice that a member or its coordinator is gone.
DRAIN_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Place:
    """The place of a run in its campaign."""

    cell: Mapping[str, str]
    repeat: int = 0
    is_again: bool = False


def execute(
    spec: RunSpec,
    cluster: KafkaCluster,
    directory: RunDirectory,
    *,
    place: Place | None = None,
    warm_up: WarmUp | None = None,
    after_load: Callable[[KafkaCluster, Run], object] = lambda *_: None,
    on_progress: Progress = silent,
) -> Run:
    """Execute the spec and write its run directory. A failure is in the run's `reason`.

    `warm_up` is the result of the first step of the warm-up; `after_load` is called when all
    is measured and the topic is still there.

    Bad input and a lack of disk are raised, since the next run would meet them too; such a run
    counts as interrupted. Everything else (a fault that did not take, a client that died) is the
    outcome of this run.
    """
    run = new_run(spec, directory, place or Place({}), cluster)
    directory.write_run(run)
    try:
        with fresh_topic(cluster, spec.topic) as is_ours:
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
    spec: RunSpec, directory: RunDirectory, place: Place, cluster: KafkaCluster | None
) -> Run:
    """The record of a run before it begins."""
    return Run(
        id=f"{directory.path.name}-{secrets.token_hex(3)}",
        cell=place.cell,
        repeat=place.repeat,
        is_again=place.is_again,
        spec=spec,
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
    spec = run.spec
    # What earlier runs left would make this one's pauses longer.
    cluster.collect_garbage()
    with Load(cluster, plan_of(spec), directory.path, on_progress=say) as load:
        load.start()
        warmed = warm_up_run(cluster, load, spec, warm_up, say)
        # It asks the brokers first; only then is fixed when the measured time begins.
        with Sampler(cluster, load.clients, directory.path) as sampler:
            before = anchor()
            if load.waits_for_warmth:
                load.measure(from_ns=time.monotonic_ns() + _LEAD_NS)
            sampler.spare(load.measured_from_ns, load.measured_to_ns)
            run = replace(
                run,
                brokers=len(cluster.admin.broker_ids()) or None,
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
                if spec.network_profile is not None:
                    assert isinstance(cluster, Cluster)
                    player = ProfilePlayer(cluster.emulated, spec.network_profile)
                    stack.enter_context(player)
                if spec.faults:
                    assert isinstance(cluster, Cluster)
                    injector = FaultInjector(
                        cluster,
                        spec.faults,
                        signals=load.signals,
                        on_event=lambda event: say(event.sentence),
                    )
                    stack.enter_context(injector)
                load.wait()
        # What a broker's own death costs is not the settings' doing.
        cluster.check_alive()
        say("draining consumers")
        settled = settled_ends(
            cluster,
            spec.topic,
            load.unsent_bytes,
            unread_bytes=load.unread_bytes,
            quiet_s=_quiet_s(spec),
        )
        unread = load.drain(settled.end_offsets, DRAIN_PATIENCE_S)
        after = anchor()
        run = replace(
            run,
            status="complete",
            anchors=(before, after),
            producers=load.producers,
            consumers=load.consumers,
            end_offsets={str(p): end for p, end in sorted(settled.end_offsets.items())},
            unreadable=settled.leaderless,
            unread=unread,
            events=_events(spec, injector, player),
            observer=sampler.cost,
        )
    return replace(run, invalid=_invalid(run), warnings=(*_warnings(run), *settled.warnings))


def _quiet_s(spec: RunSpec) -> float:
    """How long end offsets must stay unchanged. Nobody waits for the followers of acks=0 and acks=1, and
    those may be far away."""
    return 2.0 if spec.settings.acks == "0" or spec.cluster.network is not None else 1.0


def anchor() -> ClockAnchor:
    """Both clocks at one moment: the closest of three readings."""
    readings = []
    for _ in range(3):
        first, wall, last = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((last - first, ClockAnchor(monotonic_ns=(first + last) // 2, wall_ns=wall)))
    return min(readings, key=lambda reading: reading[0])[1]


def versions(cluster: KafkaCluster | None) -> dict[str, str]:
    """The versions that must be equal to repeat a run."""
    return {
        "penstock": __version__,
        "librdkafka": confluent_kafka.libversion()[0],
        "confluent-kafka": version("confluent-kafka"),
        "python": platform.python_version(),
        "kernel": platform.release(),
        **(cluster.versions if cluster is not None else {}),
    }


def machine() -> dict[str, str | int | float]:
    return {
        "cores": cpu_count() or 1,
        "memory_mb": psutil.virtual_memory().total // 2**20,
        "processor": _processor(),
        "load_average": round(getloadavg()[0], 2),
    }


def _processor() -> str:
    """Its name, by the system; empty if it does not say."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return ""


# --- what a run says of itself ------------------------------------------------------------------


def _events(
    spec: RunSpec, injector: FaultInjector | None, player: ProfilePlayer | None
) -> tuple[RunEvent, ...]:
    events = [
        RunEvent(at_s=e.at_s, took_s=e.took_s, sentence=e.sentence)
        for e in (injector.events if injector else ())
    ]
    steps = spec.network_profile.steps if spec.network_profile else ()
    # Without those that lie after the end of the run.
    applied = zip(steps, player.applied if player else (), strict=False)
    for number, (step, (meant_s, applied_s)) in enumerate(applied, 1):
        changed = ", ".join(f"{link.src} → {link.dst}" for link in step.links)
        sentence = f"network step {number}: {changed}"
        events.append(RunEvent(at_s=meant_s, took_s=applied_s - meant_s, sentence=sentence))
    return tuple(sorted(events, key=lambda event: event.at_s))


def _invalid(run: Run) -> tuple[str, ...]:
    """Why the run is invalid; empty if it is valid."""
    limit_us = run.spec.schedule_lag_ms * 1e3
    reasons = [
        f"producer-{p.producer + 1} was {p.lag_p99_us / 1e3:.1f} ms behind its schedule (p99); "
        f"up to {limit_us / 1e3:g} ms is allowed (schedule_lag_ms){_spinning(p)}"
        for p in run.producers
        if p.lag_p99_us > limit_us and run.spec.workload.loop == "open"
    ]
    reasons += [
        f"producer-{p.producer + 1} did not send {p.scheduled - p.sent} of its {p.scheduled} "
        f"messages: {_why_unsent(p)}"
        for p in run.producers
        if p.sent < p.scheduled and run.spec.workload.loop == "open"
    ]
    if run.unread:
        listed = ", ".join(map(str, run.unread))
        reasons.append(
            f"the consumers did not read partitions {listed} to their end, and made no progress for "
            f"{DRAIN_PATIENCE_S:g} s: what is left there would count as lost"
        )
    read = sum(c.records for c in run.consumers)
    if sum(run.end_offsets.values()) and not read:
        errors = {error for c in run.consumers for error in c.errors}
        detail = f" ({'; '.join(sorted(errors))})" if errors else ""
        reasons.append(f"no consumer received anything, though the topic has records{detail}")
    elif (difference := uncounted(run, read, is_exact=False)) is not None:
        reasons.append(difference)
    return tuple(reasons)


def _warnings(run: Run) -> tuple[str, ...]:
    warnings = []
    if run.unreadable:
        listed = ", ".join(map(str, run.unreadable))
        warnings.append(f"partitions {listed} have no leader: what they hold counts as lost")
    if (why := unchecked(run)) is not None:
        warnings.append(why)
    steps = len(run.spec.network_profile.steps) if run.spec.network_profile else 0
    applied = sum(event.sentence.startswith("network step") for event in run.events)
    if applied < steps:
        warnings.append(f"{steps - applied} of {steps} network steps lie after the end of the run")
    idle = [c.consumer for c in run.consumers if not c.received]
    if idle and len(idle) < len(run.consumers):
        listed = ", ".join(f"consumer-{number + 1}" for number in idle)
        warnings.append(
            f"{listed} received nothing: {len(run.consumers)} consumers share "
            f"{run.spec.topic.partitions} partitions"
        )
    length_s = run.spec.workload.duration_s
    warnings += [_blocked(p) for p in run.producers if p.queue_full_s > 0.01 * length_s]
    return tuple(warnings)


def _spinning(producer: ProducerReport) -> str:
    """librdkafka's threads do not sleep while the limit of requests under way is reached: they take
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
        return "the client's queue was full because the cluster accepts less: lower the rate"
    return "lower the rate or use more producers"


def _blocked(producer: ProducerReport) -> str:
    return (
        f"producer-{producer.producer + 1} found the client's queue full for "
        f"{producer.queue_full_s:.1f} s: the cluster accepts less than the schedule offers"
    )
