"""Consumption: throughput of a consumer group on a full topic, and time to rebalance.

On one fresh cluster: the topic is filled; members start one after the other, at random; once every
partition is read, T_c is measured for a while; then one more member joins, and leaves again.

What differs from an application: members read the topic over and over, commit nothing, and throw
away what they read. A fetch at the end of a partition is answered after 10 ms instead of 500, or
they would wait there before they start over.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

from penstock import specs
from penstock.domain.facts import ClusterFacts
from penstock.domain.grid import ExperimentGrid
from penstock.domain.metrics import Estimate
from penstock.kafka.waiting import wait_until
from penstock.load.client_process import ClientProcess
from penstock.runs.experiments import group_member
from penstock.runs.experiments.clients import REPORTS, START_S, Clients, clients
from penstock.runs.experiments.kinds.experiment_kind import (
    PARTITIONS,
    SHARED_AXES,
    ExperimentKind,
    FactFigure,
    FigureFormat,
    PointJob,
    PointResults,
)
from penstock.runs.experiments.point_figures import PointFigures
from penstock.runs.experiments.points import base, conditions
from penstock.runs.experiments.rebalance import GroupEvent, Rest, rebalance_ns, rests
from penstock.runs.experiments.window import Tally, throughput
from penstock.runs.observation import usage
from penstock.runs.sampling import Sampler
from penstock.specs.files import write_file

_TOPIC, _GROUP = "consumption", "penstock-consumption"
# Enough that going back to the beginning is rare, little enough to be written in seconds.
_LEAST_BYTES, _LEAST_BYTES_PER_PARTITION = 64_000_000, 1_000_000
_PIECE_BYTES, _PIECE_MESSAGES = 30_000_000, 50_000
# Two heartbeats of the brokers' protocol (5 s each), and as much again.
_SETTLE_S = 60.0
# At rest for so long, a group is not in the middle of a rebalance in several steps.
_QUIET_S = 1.0


class ConsumptionExperiment(ExperimentKind):
    """Throughput of a consumer group, and how long it takes to rebalance."""

    kind = "consumption"
    axes = (*SHARED_AXES, "consumers", "assignors")
    grid = ExperimentGrid(
        partitions=PARTITIONS,
        message_bytes=(1_000, 100_000),
        replication=(3, 1),
        brokers=(3, 5),
        policies=("bro-min", "bro-max"),
        consumers=(2, 1, 4, 8),
        assignors=("range", "cooperative-sticky", "broker"),
    )
    sends_batches = True
    beyond_s = 45.0
    fitted = (
        ("throughput_mb_per_s", "partitions"),
        ("rebalance_join_ms", "partitions"),
        ("rebalance_leave_ms", "partitions"),
        ("rebalance_form_ms", "partitions"),
        ("broker_open_handles", "replicas_per_broker"),
    )
    reported_figures = (
        FactFigure("throughput_mb_per_s", "throughput", "mb_per_s"),
        FactFigure("throughput_records_per_s", "records", "per_s"),
        FactFigure("rebalance_form_ms", "group forms", "ms"),
        FactFigure("rebalance_join_ms", "member joins", "ms"),
        FactFigure("rebalance_leave_ms", "member leaves", "ms"),
    )
    caveats = (
        "a group does not wait for its first members "
        "(group.initial.rebalance.delay.ms=0; default 3 s)",
    )

    def measure(self, job: PointJob) -> PointFigures:
        """One point."""
        where, grid, directory = job.where, job.grid, job.directory
        job.say("filling the topic")
        ends = _fill(job)
        with clients(job.cluster, directory) as processes:
            group = _Group(processes, where.assignor, ends)
            members = [group.add() for _ in range(where.consumers)]
            processes.wait_for("ready", START_S)
            job.say(f"{where.consumers} consumers join")
            joined_ns = _join_at_random(members, grid.start_spread_s, random.Random(job.seed))
            group.wait_at_rest(joined_ns)
            formed_ms = group.rebalance_ms(joined_ns)
            job.say(f"reading for {grid.seconds:g} s")
            from_ns, to_ns = _read_for(job, processes)
            job.say("one more consumer joins, and leaves")
            extra = group.add()
            processes.wait_for("ready", START_S)
            join_ns = time.monotonic_ns()
            extra.order("join")
            group.wait_at_rest(join_ns)
            leave_ns = time.monotonic_ns()
            extra.order("leave")
            group.wait_at_rest(leave_ns)
            joined_ms = group.rebalance_ms(join_ns, until_ns=leave_ns)
            left_ms = group.rebalance_ms(leave_ns)
            for member in members:
                member.order("leave")
            processes.wait_for("report", START_S, members)
            reports = [member.said("report") or {} for member in members]
            errors = group.errors
            about = {"events": sorted(group.events, key=lambda e: e.at_ns), "members": reports}
            write_file(directory / REPORTS, specs.dump_json(about))
        tallies = [Tally.of(words) for words in reports]
        # With more members than partitions some have nothing to do, or had their partition taken by
        # a later member.
        busy = [t for t in tallies if t.works_to_ns is not None and t.works_to_ns > from_ns]
        done = throughput(busy, from_ns, to_ns)
        times = {
            "rebalance_form_ms": formed_ms,
            "rebalance_join_ms": joined_ms,
            "rebalance_leave_ms": left_ms,
        }
        fetches = sum(report["fetches"] for report in reports)
        figures = {
            "throughput_mb_per_s": done.mb_per_s,
            "throughput_records_per_s": done.records_per_s,
            "consumer_mb_per_s": _divided(done.mb_per_s, len(busy)),
            **{name: Estimate(value=ms) for name, ms in times.items() if ms is not None},
            "fetch_messages": Estimate(
                value=sum(report["fetched_messages"] for report in reports) / max(1, fetches)
            ),
            **{n: Estimate(value=v) for n, v in usage(directory, done.from_ns, done.to_ns).items()},
        }
        warnings = [f"a consumer got {error}" for error in sorted(errors)]
        if len(busy) < where.consumers:
            warnings.append(
                f"{where.consumers - len(busy)} of {where.consumers} consumers got no records"
            )
        return PointFigures(figures, warnings=tuple(warnings))

    def facts(self, results: PointResults) -> dict[str, object]:
        middle = base(results.kind, results.grid)
        lonely = [
            c
            for c in conditions(results.kind, results.grid)
            if c.consumers == 1 and c.message_bytes == middle.message_bytes
        ]
        nearest = min(lonely, key=lambda c: abs(c.partitions - middle.partitions), default=None)
        return {
            "consumer_mb_per_s": results.figure(nearest, "throughput_mb_per_s")
            if nearest
            else None,
            "group_mb_per_s": results.figure(middle, "throughput_mb_per_s"),
            "group_records_per_s": results.figure(middle, "throughput_records_per_s"),
            "rebalance_ms": results.figure(middle, "rebalance_join_ms"),
        }

    def outcome(self, facts: ClusterFacts, text: FigureFormat) -> list[str]:
        parts = []
        if facts.group_mb_per_s is not None:
            parts.append(f"The group reads {text(facts.group_mb_per_s, 'mb_per_s')} at most")
        if facts.consumer_mb_per_s is not None:
            figure = text(facts.consumer_mb_per_s, "mb_per_s")
            parts.append(f"a single consumer {figure}")
        if facts.rebalance_ms is not None:
            figure = text(facts.rebalance_ms, "ms")
            parts.append(f"when a member joins, every partition is read again after {figure}")
        return parts


def member_settings(assignor: str) -> dict[str, Any]:
    """The configuration of a member; the rest is the client's default."""
    by_broker: dict[str, Any] = {"group.protocol": "consumer"}
    by_client = {"group.protocol": "classic", "partition.assignment.strategy": assignor}
    return {
        "group.id": _GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 10,
        **(by_broker if assignor == "broker" else by_client),
    }


def _fill(job: PointJob) -> dict[int, int]:
    """A topic with equally many messages in every partition; where each ends."""
    partitions, size, admin = job.where.partitions, job.where.message_bytes, job.cluster.admin
    job.cluster.create_topic(job.topic(_TOPIC))
    wanted_bytes = max(_LEAST_BYTES, _LEAST_BYTES_PER_PARTITION * partitions)
    per_partition = max(4, -(-wanted_bytes // (size * partitions)))
    # In pieces that the client's queue has room for, and that are acknowledged well in time.
    most = max(1, min(_PIECE_BYTES // size, _PIECE_MESSAGES) // partitions)
    while per_partition > 0:
        admin.send(_TOPIC, partitions, min(per_partition, most) * partitions, size_bytes=size)
        per_partition -= most
    return admin.end_offsets(_TOPIC)


def _join_at_random(members: Sequence[ClientProcess], spread_s: float, rng: random.Random) -> int:
    """Let them join within a time; when the last did."""
    begin = time.monotonic()
    at_s = sorted(rng.uniform(0, spread_s) for _ in members)
    last_ns = 0
    for member, offset in zip(members, at_s, strict=True):
        while (left := begin + offset - time.monotonic()) > 0:
            time.sleep(left)
        last_ns = time.monotonic_ns()
        member.order("join")
    return last_ns


def _read_for(job: PointJob, processes: Clients) -> tuple[int, int]:
    """Let them read and sample their use; returns the measured interval."""
    grid = job.grid
    from_ns = time.monotonic_ns() + round(grid.warm_up_s * 1e9)
    to_ns = from_ns + round(grid.seconds * 1e9)
    with Sampler(job.cluster, processes.processes, job.directory):
        wait_until(
            lambda: time.monotonic_ns() >= to_ns,
            timeout_s=grid.warm_up_s + grid.seconds + START_S,
            what="the consumers to read",
        )
    return from_ns, to_ns


class _Group:
    """The members of the group, and the events that they reported."""

    def __init__(self, processes: Clients, assignor: str, ends: dict[int, int]) -> None:
        self._processes, self._ends = processes, ends
        self._settings = member_settings(assignor)
        self._hear_of_nothing = assignor != "broker"

    def add(self) -> ClientProcess:
        """A process that joins on its `join` order."""
        number = len(self._processes.workers)
        return self._processes.start(
            group_member.__name__,
            "consumer",
            number,
            topic=_TOPIC,
            settings=self._settings,
            ends=self._ends,
        )

    @property
    def events(self) -> list[GroupEvent]:
        return [
            GroupEvent(at_ns, member.name, what, tuple(partitions))
            for member in self._processes.workers
            for at_ns, what, partitions in (member.said("seen") or {}).get("events", ())
        ]

    @property
    def errors(self) -> set[str]:
        said = [member.said("seen") or {} for member in self._processes.workers]
        return {error for seen in said for error in seen.get("errors", ())}

    def wait_at_rest(self, since_ns: int) -> None:
        """Until the group has been at rest for a while, after something happened."""

        def is_at_rest() -> bool:
            self._processes.check()
            now = list(self._rests())
            return (
                bool(now)
                and now[-1].to_ns is None
                and time.monotonic_ns() - max(now[-1].from_ns, since_ns) >= _QUIET_S * 1e9
            )

        wait_until(
            is_at_rest,
            timeout_s=_SETTLE_S,
            what="every partition to be read",
            every_s=0.1,
            explain=self._explain,
        )

    def _rests(self) -> Iterator[Rest]:
        return rests(self.events, len(self._ends), hear_of_nothing=self._hear_of_nothing)

    def rebalance_ms(self, began_ns: int, until_ns: int | None = None) -> float | None:
        """None if the group was never out of rest: nothing had to be moved."""
        rested_ns = rebalance_ns(
            self.events,
            len(self._ends),
            began_ns,
            until_ns,
            hear_of_nothing=self._hear_of_nothing,
        )
        return None if rested_ns is None else rested_ns / 1e6

    def _explain(self) -> str:
        errors = sorted(self.errors)
        return f"consumers got {', '.join(errors)}" if errors else ""


def _divided(whole: Estimate, parts: int) -> Estimate:
    def part(value: float | None) -> float | None:
        return None if value is None else value / parts

    return Estimate(value=whole.value / parts, low=part(whole.low), high=part(whole.high))
