"""The readers of a run: consumers of a group, and the watcher beside the brokers.

Both write down every record they get, with the time. What a value says beyond its number is of no
interest here.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)

from penstock.domain.client_kind import ReaderKind
from penstock.domain.errors import BadInput, TestbedError
from penstock.domain.run import ConsumerReport
from penstock.domain.sizes.sizes import ID_BYTES
from penstock.load.journal import JOURNAL, Journal, Writer, to_parquet
from penstock.load.readers.plain import PlainReader

# Taken from the client at a time; handling them spreads their times by 0.5 ms.
_MOST = 1000
_POLL_S = 0.1
_ENOUGH_ROWS = 1 << 15
_OLD_S = 0.5
_CONNECT_S = 30.0
FOREIGN_ID = -1
_NO_ID = FOREIGN_ID.to_bytes(ID_BYTES, "big", signed=True)
_MOST_ERRORS = 100


@dataclass(frozen=True)
class ReaderJob:
    """The job of one reader. Its number counts from 0; `group` is empty for the watcher."""

    reader: int
    topic: str
    config: Mapping[str, Any]
    group: str
    partitions: int
    directory: Path
    kind: ReaderKind

    @property
    def is_watcher(self) -> bool:
        return not self.group

    @property
    def name(self) -> str:
        return f"{'watcher' if self.is_watcher else 'consumer'}-{self.reader + 1}"

    @property
    def trace(self) -> str:
        return "seen" if self.is_watcher else "received"


@dataclass
class _Trace:
    """The trace of one reader: columns are gathered, the writer's thread writes them."""

    job: ReaderJob
    columns: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0  # of rows not written yet
    messages: int = 0  # in all

    def __post_init__(self) -> None:
        path = self.job.directory / self.job.trace / (self.job.name + JOURNAL)
        self._journal, self._path = Journal(path, self.job.trace), path
        self._writer = Writer()
        self._written_s = time.monotonic()

    def add(self, records: list[Message], at_ns: int) -> list[tuple[int, int]]:
        """Write them down; (partition, offset) of each."""
        places: list[Any] = [(r.partition(), r.offset()) for r in records]
        if self.job.is_watcher:
            partitions, offsets = zip(*places, strict=True)
            times = np.full(len(records), at_ns)
            self.columns.append({"partition": partitions, "offset": offsets, "seen_ns": times})
            self.count += len(records)
        else:
            self._add_messages(records, places, at_ns)
        if self.count >= _ENOUGH_ROWS:
            self.write()
        return places

    def _add_messages(
        self, records: list[Message], places: list[tuple[int, int]], at_ns: int
    ) -> None:
        values: list[bytes] = [r.value() or b"" for r in records]
        times = [r.timestamp() for r in records]
        indexes: list[int] = [0] * len(values)
        if not isinstance(self.job.kind, PlainReader):  # which takes half a microsecond a record
            unpacked = list(map(self.job.kind.messages, values))
            counts = [len(messages) for messages in unpacked]
            values = [message for messages in unpacked for message in messages]
            indexes = [index for count in counts for index in range(count)]
            times = [at for at, count in zip(times, counts, strict=True) for _ in range(count)]
            places = [at for at, count in zip(places, counts, strict=True) for _ in range(count)]
        numbers = [v[:ID_BYTES] if len(v) >= ID_BYTES else _NO_ID for v in values]
        partitions, offsets = zip(*places, strict=True)
        self.columns.append(
            {
                "id": np.frombuffer(b"".join(numbers), dtype=">i8"),
                "received_ns": np.full(len(values), at_ns),
                "partition": partitions,
                "offset": offsets,
                "index": indexes,
                "appended_ms": times,
                "size_bytes": list(map(len, values)),
            }
        )
        self.count += len(values)
        self.messages += len(values)

    def write_if_old(self) -> None:
        if self.count and time.monotonic() - self._written_s > _OLD_S:
            self.write()

    def write(self) -> None:
        if self.columns:
            self._writer.give(partial(self._append, self.columns))
        self.columns, self.count = [], 0
        self._written_s = time.monotonic()

    def check(self) -> None:
        self._writer.check()

    def close(self) -> None:
        """Make it readable."""
        self.write()
        self._writer.give(self._journal.close)
        self._writer.give(lambda: _discard(to_parquet(self._path, self.job.trace)))
        self._writer.finish()

    def _append(self, parts: list[dict[str, Any]]) -> None:
        joined = {name: [part[name] for part in parts] for name in parts[0]}
        columns = {
            name: _appended_ms(lists) if name == "appended_ms" else _joined(lists)
            for name, lists in joined.items()
        }
        arrays = {
            name: pa.array(column, _NARROW.get(name, pa.int64()))
            if not isinstance(column, pa.Array)
            else column
            for name, column in columns.items()
        }
        if not self.job.is_watcher:
            count = len(arrays["id"])
            arrays["consumer"] = pa.array(np.full(count, self.job.reader, dtype=np.int16))
        self._journal.append(arrays)


_NARROW = {"partition": pa.int32(), "index": pa.int32(), "size_bytes": pa.int32()}


def _joined(lists: list[Any]) -> Any:
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in lists])


def _appended_ms(lists: list[list[tuple[int, int]]]) -> Any:
    """Only the broker's own time counts, not a producer's timestamp."""
    pairs = np.array([pair for part in lists for pair in part], dtype=np.int64)
    return pa.array(pairs[:, 1], mask=pairs[:, 0] != TIMESTAMP_LOG_APPEND_TIME)


def _discard(_: object) -> None: ...


class TraceReader:
    """One reader: make it, `run` it until it is stopped, `finish` it."""

    def __init__(self, job: ReaderJob, tell: Callable[..., None]) -> None:
        self._job = job
        self._tell = tell
        self._trace = _Trace(job)
        self._held: set[int] = set()
        self._assignments = 0
        self._first_assigned_ns: int | None = None
        self._errors: dict[str, None] = {}
        self._last: dict[int, int] = {}  # partition → the last offset read
        self._records = 0
        self._log = _Log()
        try:
            self._consumer = Consumer(_config(job), logger=self._log)
        except KafkaException as error:
            raise BadInput(
                f"Kafka's client refuses its configuration: {error.args[0].str()}",
                "correct that property of the consumers",
            ) from None
        self._begin()

    def _begin(self) -> None:
        job, consumer = self._job, self._consumer
        try:
            topic = consumer.list_topics(job.topic, timeout=_CONNECT_S).topics[job.topic]
        except KafkaException as error:
            raise TestbedError(
                f"no broker can be reached: {error.args[0].str()}{self._log}",
                "check the addresses and the security settings",
            ) from None
        if topic.error is not None:
            raise TestbedError(f"the topic {job.topic} cannot be read: {topic.error.str()}")
        if job.is_watcher:
            consumer.assign(
                [TopicPartition(job.topic, p, OFFSET_BEGINNING) for p in range(job.partitions)]
            )
        else:
            consumer.subscribe(
                [job.topic],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._revoked,
            )

    def progress(self) -> dict[str, Any]:
        """For any thread: where it is, as the next offset of each partition."""
        positions = {partition: offset + 1 for partition, offset in self._last.copy().items()}
        errors = list(self._errors.copy())
        return {"received": self._trace.messages, "positions": positions, "errors": errors}

    def run(self, stopped: Callable[[], bool]) -> None:
        sys.setswitchinterval(0.0005)
        poll, consume = self._consumer.poll, self._consumer.consume
        while not stopped():
            first = poll(_POLL_S)
            self._trace.write_if_old()
            self._trace.check()
            if first is None:
                continue
            self._take([first], monotonic_ns())
            # With a timeout it would wait until it has as many; without, it takes what is there.
            while rest := consume(_MOST, 0):
                self._take(rest, monotonic_ns())
                if len(rest) < _MOST:
                    break

    def _take(self, records: list[Message], at_ns: int) -> None:
        if any(r.error() is not None for r in records):
            records = self._without_errors(records)
            if not records:
                return
        # In order within a partition, so the last one is the furthest.
        self._last.update(self._trace.add(records, at_ns))
        self._records += len(records)

    def _without_errors(self, records: list[Message]) -> list[Message]:
        for error in (r.error() for r in records):
            if error is None:
                continue
            if error.fatal():
                raise TestbedError(f"the reader stopped: {error.str()}")
            if len(self._errors) < _MOST_ERRORS:
                self._errors[f"{error.name()}: {error.str()}"] = None
        return [r for r in records if r.error() is None]

    def finish(self) -> ConsumerReport:
        self._trace.close()
        return ConsumerReport(
            consumer=self._job.reader,
            received=self._trace.messages,
            records=self._records,
            first_assigned_ns=self._first_assigned_ns,
            rebalances=max(0, self._assignments - 1),
            cpu_s=time.process_time(),
            errors=tuple(self._errors),
        )

    def close(self) -> None:
        """Leave the group. May take a while if its broker is gone."""
        self._consumer.close()

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignments += 1
        # With cooperative assignment these are only the new ones.
        self._held |= {p.partition for p in partitions}
        if self._held and self._first_assigned_ns is None:
            self._first_assigned_ns = monotonic_ns()
        self._tell_holding()

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._held -= {p.partition for p in partitions}
        self._tell_holding()

    def _tell_holding(self) -> None:
        self._tell("holds", partitions=sorted(self._held), assignments=self._assignments)


class _Log:
    """Keeps the last lines of librdkafka's log, to explain why nothing can be reached."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=3)

    def log(self, _level: int, form: str, *arguments: object) -> None:
        self._lines.append(form % arguments if arguments else form)

    def __str__(self) -> str:
        return "".join(f"\n    {line}" for line in self._lines)


def _config(job: ReaderJob) -> dict[str, Any]:
    return {
        # As an application would: after a rebalance the next owner of a partition continues there.
        # From the beginning, it would be busy with old records when new ones come.
        "auto.commit.interval.ms": 1000,
        **job.config,
        # The watcher's group is a name only: it is assigned partitions and commits nothing.
        "group.id": job.group or f"penstock-watcher-{threading.get_native_id()}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": not job.is_watcher,
    }
