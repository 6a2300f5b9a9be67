"""Simulate the path of messages: when each is acknowledged, appended, readable and received."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.domain.errors import BadInput
from penstock.models.path import engine
from penstock.models.path import tables as layout
from penstock.models.path.physics import Physics
from penstock.models.path.spec import (
    Arrivals,
    Floats,
    Ints,
    Line,
    Lines,
    PathSpec,
    SimulatedMachines,
)

_ACKS = {"0": 0, "1": 1, "all": -1}
_EVENTS = ("formed", "handled", "appended", "answered", "readable", "received", "seen")
# librdkafka's defaults, which the watcher has.
_WATCHER_FETCH_BYTES, _WATCHER_FETCH_WAIT_S = 1.0, 0.5
# The watcher's links, which have no condition.
_BESIDE = Line()
# What is still under way this long after the last message was due counts as never done.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class PathTimes:
    """Per message, in seconds by one clock; NaN: not within the simulated time."""

    due_s: Floats
    formed_s: Floats
    handled_s: Floats
    appended_s: Floats
    answered_s: Floats
    readable_s: Floats
    received_s: Floats
    # By the watcher, if there is one.
    seen_s: Floats
    # Messages in the batch of each.
    batch_messages: Ints
    # Requests per producer and broker altogether, and used CPU per machine.
    requests: int
    cpu_s: Floats
    ended_s: float

    @property
    def produce_s(self) -> Floats:
        """From due to acknowledged."""
        return self.answered_s - self.due_s

    @property
    def append_to_visible_s(self) -> Floats:
        """As a run measures it: until the watcher or a consumer receives the message, whichever
        comes first; without a watcher, until the message is readable."""
        if np.all(np.isnan(self.seen_s)):
            return self.readable_s - self.appended_s
        return np.fmin(self.seen_s, self.received_s) - self.appended_s

    @property
    def end_to_end_s(self) -> Floats:
        return self.received_s - self.due_s

    @property
    def parts_s(self) -> dict[str, Floats]:
        """End-to-end latency by what it is spent on; the parts add up to it."""
        return {
            "wait": self.formed_s - self.due_s,
            "queue": self.handled_s - self.formed_s,
            "append": self.appended_s - self.handled_s,
            "replicate": self.readable_s - self.appended_s,
            "fetch": self.received_s - self.readable_s,
        }


def simulate(
    spec: PathSpec,
    arrivals: Arrivals,
    physics: Physics,
    *,
    lines: Lines | None = None,
    machines: SimulatedMachines | None = None,
    seed: int = 1,
    until_s: float | None = None,
) -> PathTimes:
    """Simulate until every message is received, or for `PATIENCE_S` after the last was due."""
    if arrivals.due_s.size == 0:
        raise BadInput("there are no messages to simulate", "use a higher rate or a longer time")
    end_s = float(arrivals.due_s[-1] + PATIENCE_S if until_s is None else until_s)
    tables = _tables(spec, arrivals, lines or Lines(), machines or SimulatedMachines())
    for name, extra_s in (
        ("connection_lines", physics.client_delay),
        ("follower_lines", physics.broker_delay),
        ("reader_lines", physics.client_delay),
    ):
        tables[name]["extra_s"] = extra_s
    ended_s = engine.run(costs=physics.table(), **tables, seed=seed, until_s=end_s)
    return _times(arrivals, tables, physics.reader_message, ended_s)


def _rows(dtype: np.dtype[np.void], count: int, **columns: Any) -> npt.NDArray[np.void]:
    """A table; columns that are not given are zero."""
    table = np.zeros(count, dtype)
    for name, values in columns.items():
        table[name] = values
    return table


def _ranges(groups: Ints, count: int) -> tuple[Ints, Ints]:
    """Where each of `count` groups begins and ends in a sorted list of group numbers."""
    return np.searchsorted(groups, np.arange(count)), np.searchsorted(
        groups, np.arange(count), "right"
    )


def _tables(
    spec: PathSpec, arrivals: Arrivals, lines: Lines, machines: SimulatedMachines
) -> dict[str, npt.NDArray[Any]]:
    """Everything that the engine works on, by the names of its arguments."""
    messages, producers, brokers = arrivals.due_s.size, spec.producers, spec.brokers
    count = producers + brokers + spec.consumers + spec.is_watched
    of_producer, of_broker, of_reader = np.split(np.arange(count), [producers, producers + brokers])
    machine = np.zeros(count, np.int64) if machines.is_shared else np.arange(count)
    used = int(machine[-1]) + 1
    queue = arrivals.producer * spec.partitions + arrivals.partition
    topic = _topic(spec, queue)
    clients = _clients(spec, of_producer)
    readers = _readers(spec, of_reader)
    followers = topic["followers"]
    draws, starts = _draws([*vars(lines).values(), _BESIDE])
    leads_begin, leads_end = _ranges(followers["leader"], brokers)
    # Per message at most a request, two timers of its batch and one of a reader, which stay until they
    # are over; timers per queue and reader; one per thread, follower and machine.
    most_events = 4 * messages + 2 * clients["queues"].size + 4 * readers["readers"].size
    most_events += clients["threads"].size + followers.size + used + 64

    def both(out: Line, back: Line, count: int) -> npt.NDArray[np.void]:
        """The lines of so many connections: there and back in turn."""
        pair = [out, back]
        return _rows(
            layout.LINE,
            2 * count,
            begin=np.tile([starts[id(line)] for line in pair], count),
            end=np.tile([starts[id(line)] + line.delays_s.size for line in pair], count),
            rate_bytes_per_s=np.tile([line.rate_bytes_per_s for line in pair], count),
            loss=np.tile([line.loss for line in pair], count),
            window=engine.FIRST_WINDOW,
            used_s=-np.inf,
        )

    return {
        "options": _options(spec),
        "messages": _rows(
            layout.MESSAGE,
            messages,
            due_s=arrivals.due_s,
            size_bytes=arrivals.size_bytes,
            queue=queue,
            next=-1,
        ),
        **clients,
        "batches": _rows(
            layout.BATCH,
            messages,
            **{f"{event}_s": np.nan for event in _EVENTS},
        ),
        "requests": _rows(layout.REQUEST, messages),
        **topic,
        "log": np.zeros(messages, np.int64),
        **readers,
        "brokers": _rows(layout.BROKER, brokers, host=of_broker, begin=leads_begin, end=leads_end),
        # The last ones are other work, on each machine.
        "hosts": _rows(
            layout.HOST,
            count + used,
            machine=np.concatenate([machine, np.arange(used)]),
            worked_s=-np.inf,
        ),
        "machines": _rows(
            layout.MACHINE,
            used,
            begin=machines.cores * np.arange(used),
            end=machines.cores * np.arange(1, used + 1),
        ),
        "cores": np.zeros(max(1, machines.cores * used)),
        "connection_lines": both(lines.to_broker, lines.to_producer, producers * brokers),
        "follower_lines": both(lines.to_leader, lines.to_follower, followers.size),
        "reader_lines": np.concatenate(
            [
                both(lines.from_reader, lines.to_reader, spec.consumers * brokers),
                both(_BESIDE, _BESIDE, spec.is_watched * brokers),
            ]
        ),
        "delays_s": draws,
        "heap": _rows(layout.EVENT, most_events),
        "counts": np.zeros(layout.COUNTS, np.int64),
    }


def _options(spec: PathSpec) -> npt.NDArray[np.void]:
    return _rows(
        layout.OPTIONS,
        1,
        is_java=spec.client == "java",
        acks=_ACKS[spec.acks],
        linger_s=spec.linger_s,
        batch_messages=spec.batch_messages,
        batch_bytes=spec.batch_bytes,
        in_flight=spec.in_flight,
        request_bytes=spec.request_bytes,
    )


def _draws(lines: Iterable[Line]) -> tuple[Floats, dict[int, int]]:
    """The delays of all lines in one array, and where those of each begin."""
    starts, parts, begin = {}, [], 0
    for line in lines:
        starts[id(line)] = begin
        parts.append(line.delays_s)
        begin += line.delays_s.size
    return np.concatenate(parts).astype(np.float64), starts


def _clients(spec: PathSpec, host: Ints) -> dict[str, npt.NDArray[Any]]:
    """Queues, threads and connections of producers."""
    producer = np.repeat(np.arange(spec.producers), spec.partitions)
    partition = np.tile(np.arange(spec.partitions), spec.producers)
    connection = producer * spec.brokers + spec.leaders[partition]
    is_java = spec.client == "java"
    thread = producer if is_java else connection
    threads = spec.producers if is_java else spec.producers * spec.brokers
    by_thread = np.argsort(thread, kind="stable")
    begin, end = _ranges(thread[by_thread], threads)
    connections = np.arange(spec.producers * spec.brokers)
    return {
        "queues": _rows(
            layout.QUEUE,
            producer.size,
            partition=partition,
            connection=connection,
            thread=thread,
        ),
        "threads": _rows(layout.THREAD, threads, begin=begin, end=end),
        "thread_queues": by_thread,
        "connections": _rows(
            layout.CONNECTION,
            connections.size,
            host=host[connections // spec.brokers],
            broker=connections % spec.brokers,
            thread=connections // spec.brokers if is_java else connections,
            waiting=-1,
            unread_first=-1,
        ),
    }


def _topic(spec: PathSpec, queue: Ints) -> dict[str, npt.NDArray[Any]]:
    """Partitions, their copies on followers, and the followers' fetches."""
    counts = np.bincount(queue % spec.partitions, minlength=spec.partitions)
    has = spec.replicas.copy()
    has[spec.leaders, np.arange(spec.partitions)] = False
    broker, partition = np.nonzero(has)
    # By leader, then by follower: the fetches of a leader are together, as are a fetch's copies.
    fetch = spec.leaders[partition] * spec.brokers + broker
    order = np.argsort(fetch, kind="stable")
    broker, partition, fetch = broker[order], partition[order], fetch[order]
    fetches, first = np.unique(fetch, return_index=True)
    by_partition = np.argsort(partition, kind="stable")
    copies_begin, copies_end = _ranges(partition[by_partition], spec.partitions)
    # Each is read by its consumer, if there are consumers, and then by the watcher.
    times_read = (spec.consumers > 0) + spec.is_watched
    reads_begin = times_read * np.arange(spec.partitions)
    return {
        "partitions": _rows(
            layout.PARTITION,
            spec.partitions,
            leader=spec.leaders,
            log_from=np.cumsum(counts) - counts,
            copies_begin=copies_begin,
            copies_end=copies_end,
            reads_begin=reads_begin,
            reads_end=reads_begin + times_read,
        ),
        "copies": _rows(layout.COPY, partition.size, partition=partition),
        "partition_copies": by_partition,
        "followers": _rows(
            layout.FOLLOWER,
            fetches.size,
            broker=fetches % spec.brokers,
            leader=fetches // spec.brokers,
            begin=first,
            end=np.append(first[1:], fetch.size),
            is_parked=True,
        ),
    }


def _readers(spec: PathSpec, host: Ints) -> dict[str, npt.NDArray[Any]]:
    """The fetches of consumers and of the watcher, one per reader and broker."""
    watcher = spec.consumers
    count = (spec.consumers + spec.is_watched) * spec.brokers
    who = [spec.readers, np.full(spec.partitions if spec.is_watched else 0, watcher)]
    partition = np.concatenate([np.arange(each.size) for each in who])
    reader = np.concatenate(who) * spec.brokers + spec.leaders[partition]
    order = np.argsort(reader, kind="stable")
    partition, reader = partition[order], reader[order]
    begin, end = _ranges(reader, count)
    number = np.arange(count) // spec.brokers
    is_watcher = number == watcher
    return {
        "readers": _rows(
            layout.READER,
            count,
            host=host[number],
            leader=np.arange(count) % spec.brokers,
            begin=begin,
            end=end,
            is_watcher=is_watcher,
            fetch_min_bytes=np.where(is_watcher, _WATCHER_FETCH_BYTES, spec.fetch_min_bytes),
            fetch_wait_s=np.where(is_watcher, _WATCHER_FETCH_WAIT_S, spec.fetch_wait_s),
            is_waiting=True,
        ),
        "reads": _rows(layout.READ, partition.size, partition=partition, reader=reader),
        "partition_reads": np.argsort(partition, kind="stable"),
    }


def _times(
    arrivals: Arrivals, tables: dict[str, Any], reader_message_s: float, ended_s: float
) -> PathTimes:
    """Spread what is known of batches to their messages."""
    counts = tables["counts"]
    batches = tables["batches"][: int(counts[layout.BATCHES])]
    sizes = batches["messages"]
    number = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # A batch names its messages by their place in its queue.
    queue = tables["messages"]["queue"]
    by_queue = np.argsort(queue, kind="stable")
    starts = np.searchsorted(queue[by_queue], np.arange(tables["queues"].size))
    first = starts[batches["queue"]] + batches["place"]
    messages = by_queue[np.repeat(first, sizes) + number]

    def spread(of_batch: npt.NDArray[Any], missing: float = np.nan) -> npt.NDArray[Any]:
        of_message = np.full(queue.size, missing, of_batch.dtype)
        of_message[messages] = np.repeat(of_batch, sizes)
        return of_message

    times = {f"{event}_s": spread(batches[f"{event}_s"]) for event in _EVENTS}
    times["received_s"][messages] += reader_message_s * (
        np.repeat(batches["received_place"], sizes) + number
    )
    return PathTimes(
        due_s=arrivals.due_s,
        **times,
        batch_messages=spread(sizes, 0),
        requests=int(counts[layout.REQUESTS]),
        cpu_s=tables["machines"]["cpu_s"],
        ended_s=float(ended_s),
    )
