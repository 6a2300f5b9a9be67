"""Consumption: how much a consumer group reads of a full topic, and how long it takes to rebalance.

On one fresh cluster: the topic is filled; members start one after the other, at random; once every
partition is read, T_c is measured for a while; then one more member joins, and leaves again.

What differs from an application: members read the topic over and over, commit nothing, and throw
away what they read. A fetch at the end of a partition is answered after 10 ms instead of 500, or
they would wait there before they begin anew.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock import specs
from penstock.domain.cluster import TopicSpec
from penstock.domain.facts import Conditions
from penstock.domain.grid import ExperimentGrid
from penstock.domain.metrics import Estimate
from penstock.files import write_file
from penstock.measure.experiments import group_member
from penstock.measure.experiments.clients import START_S, TOLD, Clients, clients
from penstock.measure.experiments.measured import Measured
from penstock.measure.experiments.rebalance import GroupEvent, Rest, rebalance_ns, rests
from penstock.measure.experiments.usage import usage
from penstock.measure.experiments.window import Tally, throughput
from penstock.measure.sampling import Sampler
from penstock.measure.workers import Worker
from penstock.progress import Progress
from penstock.testbed.cluster import Cluster
from penstock.testbed.waiting import wait_until

_TOPIC, _GROUP = "consumption", "penstock-consumption"
# Enough that going back to the beginning is rare, little enough to be written in seconds.
_LEAST_BYTES, _LEAST_BYTES_PER_PARTITION = 64_000_000, 1_000_000
_PIECE_BYTES, _PIECE_MESSAGES = 30_000_000, 50_000
# Two heartbeats of the brokers' protocol (5 s each), and as much again.
_SETTLE_S = 60.0
# At rest for so long, a group is not in the middle of a rebalance in several steps.
_QUIET_S = 1.0


def measure(
    cluster: Cluster,
    where: Conditions,
    grid: ExperimentGrid,
    directory: Path,
    seed: int,
    say: Progress,
) -> Measured:
    """One point."""
    say("filling the topic")
    ends = _fill(cluster, where)
    with clients(cluster, directory) as processes:
        group = _Group(processes, where.assignor, ends)
        members = [group.add() for _ in range(where.consumers)]
        processes.wait_for("ready", START_S)
        say(f"{where.consumers} consumers join")
        joined_ns = _join_at_random(members, grid.start_spread_s, random.Random(seed))
        group.wait_at_rest(joined_ns)
        formed_ms = group.rebalance_ms(joined_ns)
        say(f"reading for {grid.seconds:g} s")
        from_ns, to_ns = _read_for(cluster, processes, directory, grid)
        say("one more consumer joins, and leaves")
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
        told = [member.said("report") or {} for member in members]
        errors = group.errors
        about = {"events": sorted(group.events, key=lambda e: e.at_ns), "members": told}
        write_file(directory / TOLD, specs.dump_json(about))
    tallies = [Tally.of(words) for words in told]
    # With more members than partitions some have nothing to do, for good.
    busy = [t for t in tallies if t.works_from_ns is not None]
    done = throughput(busy, from_ns, to_ns)
    times = {
        "rebalance_form_ms": formed_ms,
        "rebalance_join_ms": joined_ms,
        "rebalance_leave_ms": left_ms,
    }
    figures = {
        "throughput_mb_per_s": done.mb_per_s,
        "throughput_records_per_s": done.records_per_s,
        "consumer_mb_per_s": _divided(done.mb_per_s, len(busy)),
        **{name: Estimate(value=ms) for name, ms in times.items() if ms is not None},
        **{n: Estimate(value=v) for n, v in usage(directory, done.from_ns, done.to_ns).items()},
    }
    warnings = [f"a consumer was told {error}" for error in sorted(errors)]
    if len(busy) < where.consumers:
        warnings.append(f"{where.consumers - len(busy)} of {where.consumers} consumers had nothing")
    return Measured(figures, warnings=tuple(warnings))


def member_settings(assignor: str) -> dict[str, Any]:
    """How a member is configured; all that is not said here is the client's default."""
    by_broker: dict[str, Any] = {"group.protocol": "consumer"}
    by_client = {"group.protocol": "classic", "partition.assignment.strategy": assignor}
    return {
        "group.id": _GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 10,
        **(by_broker if assignor == "broker" else by_client),
    }


def _fill(cluster: Cluster, where: Conditions) -> dict[int, int]:
    """A topic with equally many messages in every partition; where each ends."""
    partitions, size = where.partitions, where.message_bytes
    cluster.create_topic(
        TopicSpec(name=_TOPIC, partitions=partitions, replication=where.replication)
    )
    wanted_bytes = max(_LEAST_BYTES, _LEAST_BYTES_PER_PARTITION * partitions)
    each = max(4, -(-wanted_bytes // (size * partitions)))
    # In pieces that the client's queue has room for, and that are acknowledged well in time.
    most = max(1, min(_PIECE_BYTES // size, _PIECE_MESSAGES) // partitions)
    while each > 0:
        cluster.admin.send(_TOPIC, partitions, min(each, most) * partitions, size_bytes=size)
        each -= most
    return cluster.admin.end_offsets(_TOPIC)


def _join_at_random(members: Sequence[Worker], spread_s: float, rng: random.Random) -> int:
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


def _read_for(
    cluster: Cluster, processes: Clients, directory: Path, grid: ExperimentGrid
) -> tuple[int, int]:
    """Let them read, and look at what everybody uses; from when to when is measured."""
    from_ns = time.monotonic_ns() + round(grid.warm_up_s * 1e9)
    to_ns = from_ns + round(grid.seconds * 1e9)
    with Sampler(cluster, processes.processes, directory):
        wait_until(
            lambda: time.monotonic_ns() >= to_ns,
            timeout_s=grid.warm_up_s + grid.seconds + START_S,
            what="the consumers to read",
        )
    return from_ns, to_ns


class _Group:
    """The members of the group, and what they told."""

    def __init__(self, processes: Clients, assignor: str, ends: dict[int, int]) -> None:
        self._processes, self._ends = processes, ends
        self._settings = member_settings(assignor)
        self._hear_of_nothing = assignor != "broker"

    def add(self) -> Worker:
        """A process that will join when it is told to."""
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
        found = rebalance_ns(
            self.events,
            len(self._ends),
            began_ns,
            until_ns,
            hear_of_nothing=self._hear_of_nothing,
        )
        return None if found is None else found / 1e6

    def _explain(self) -> str:
        told = sorted(self.errors)
        return f"consumers were told {', '.join(told)}" if told else ""


def _divided(whole: Estimate, parts: int) -> Estimate:
    def part(value: float | None) -> float | None:
        return None if value is None else value / parts

    return Estimate(value=whole.value / parts, low=part(whole.low), high=part(whole.high))
