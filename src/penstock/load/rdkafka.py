"""librdkafka's batch interface to a producer: thousands of messages per call, reports as arrays.

It is the library that confluent-kafka brings and has loaded, with all its settings; only the way
to it is another one. confluent-kafka makes a Python object for every message that it reports on:
on the machine these parts were made on, 1.4 µs of the generator's own thread for each message
sent and 1.4 µs more for each report. Here a call hands over a whole array of messages (0.4 µs
each, in C), and the reports of a request come back as one event whose messages numpy reads where
they lie. That is what makes a trace of every message cheaper than a bare loop without any
(`bench/load.py`). Not a general client: one topic, values and keys only.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from collections.abc import Callable, Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_size_t, c_void_p
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from time import monotonic_ns
from typing import Any, NamedTuple

import confluent_kafka
import numpy as np
import numpy.typing as npt

from penstock.domain.errors import BadInput, MissingPart, TestbedError
from penstock.domain.settings import ProducerSettings, kafka_name

Ints = npt.NDArray[np.int64]

# rd_kafka_message_t of rdkafka.h, the public layout that programs are compiled against.
MESSAGE = np.dtype(
    {
        "names": ["err", "topic", "partition", "value", "size", "key", "key_size", "offset", "tag"],
        "formats": ["i4", "u8", "i4", "u8", "u8", "u8", "u8", "i8", "i8"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64],
        "itemsize": 72,
    }
)
# The 8-byte words of it that a report is read from: err, partition, offset, tag.
_WORDS = np.array([0, 2, 7, 8], dtype=np.uint64)

# Constants of rdkafka.h.
_PRODUCER, _ANY_PARTITION, _COPY = 0, -1, 2
_REPORTS, _LOG, _ERROR, _STATISTICS = 1, 4, 8, 0x40
_PURGE_QUEUE_AND_IN_FLIGHT = 3
_DEBUG_LEVEL = 7
_UNKNOWN = -2  # the result of conf_set for a name that it does not know
QUEUE_FULL = -184
PURGED = (-152, -151)

# Messages whose reports are gathered with one pass over their pointers.
_ROOM = 1 << 16
# Fewer than this many wait for others: a pass costs 15 µs however few they are.
_ENOUGH = 512
# Too short to be woken for a report before: to sleep costs half of what it does to watch.
_SHORT_WAIT_NS = 200_000
_LONGEST_WAIT_NS = 100_000_000
# Where the view of memory begins; the first page is never mapped.
_FIRST_ADDRESS = 4096


class LogLine(NamedTuple):
    """One line of librdkafka's log; levels as in syslog, 7 is debug."""

    at_ns: int
    level: int
    facility: bytes
    text: bytes


@dataclass(frozen=True)
class Reports:
    """Delivery reports of messages, by their tags."""

    tags: Ints
    at_ns: Ints
    errors: npt.NDArray[np.int32]
    partitions: npt.NDArray[np.int32]
    offsets: Ints

    def where(self, which: npt.NDArray[np.bool_]) -> Reports:
        """Only some of them."""
        return Reports(
            self.tags[which],
            self.at_ns[which],
            self.errors[which],
            self.partitions[which],
            self.offsets[which],
        )


class _MetadataTopic(ctypes.Structure):
    _fields_ = (
        ("topic", c_char_p),
        ("partition_count", c_int),
        ("partitions", c_void_p),
        ("err", c_int),
    )


class _Metadata(ctypes.Structure):
    _fields_ = (
        ("broker_count", c_int),
        ("brokers", c_void_p),
        ("topic_count", c_int),
        ("topics", POINTER(_MetadataTopic)),
    )


# Function → (its result, its arguments).
_SHORT_CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "conf_new": (c_void_p, ()),
    "conf_destroy": (None, (c_void_p,)),
    "conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "conf_dump": (POINTER(c_char_p), (c_void_p, POINTER(c_size_t))),
    "conf_dump_free": (None, (POINTER(c_char_p), c_size_t)),
    "conf_set_events": (None, (c_void_p, c_int)),
    "new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "topic_new": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "queue_get_main": (c_void_p, (c_void_p,)),
    "set_log_queue": (c_int, (c_void_p, c_void_p)),
    "queue_io_event_enable": (None, (c_void_p, c_int, c_void_p, c_size_t)),
    "produce_batch": (c_int, (c_void_p, c_int32, c_int, c_void_p, c_int)),
    "queue_poll": (c_void_p, (c_void_p, c_int)),
    "event_type": (c_int, (c_void_p,)),
    "event_message_array": (c_size_t, (c_void_p, c_void_p, c_size_t)),
    "event_log": (c_int, (c_void_p, c_void_p, c_void_p, c_void_p)),
    "event_error": (c_int, (c_void_p,)),
    "event_stats": (c_char_p, (c_void_p,)),
    "event_destroy": (None, (c_void_p,)),
    "err2name": (c_char_p, (c_int,)),
    "metadata_destroy": (None, (c_void_p,)),
    "purge": (c_int, (c_void_p, c_int)),
}
_LONG_CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "metadata": (c_int, (c_void_p, c_int, c_void_p, POINTER(POINTER(_Metadata)), c_int)),
    "topic_destroy": (None, (c_void_p,)),
    "queue_destroy": (None, (c_void_p,)),
    "destroy": (None, (c_void_p,)),
}


class _Library:
    """The functions of librdkafka without their prefix."""

    def __init__(self, path: str) -> None:
        # Calls that return at once keep the GIL: to let go of it and get it back costs as much as
        # they do, and the thread that writes the trace would step in between.
        for library, calls in (
            (ctypes.PyDLL(path), _SHORT_CALLS),
            (ctypes.CDLL(path), _LONG_CALLS),
        ):
            for name, (result, arguments) in calls.items():
                function = getattr(library, f"rd_kafka_{name}")
                function.restype, function.argtypes = result, arguments
                setattr(self, name, function)

    def __getattr__(self, name: str) -> Callable[..., Any]:  # for the type checker
        raise AttributeError(name)


@cache
def _library() -> _Library:
    """The very library that confluent-kafka has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "librdkafka" in Path(path).name:
            return _Library(path)
    where = Path(confluent_kafka.__file__).parent
    raise MissingPart(
        f"confluent-kafka in {where} came without its own librdkafka",
        "install the wheel: pip install --force-reinstall --only-binary :all: confluent-kafka",
    )


def error_name(code: int) -> str:
    """As `KafkaError.name()` has it: _MSG_TIMED_OUT, NOT_LEADER_FOR_PARTITION, …"""
    name: bytes = _library().err2name(code)
    return name.decode()


def check_config(config: Mapping[str, object], field: str = "settings") -> None:
    """Raise `BadInput` if librdkafka would not take this configuration, which is that of `field`."""
    _library().conf_destroy(_configuration(config, field))


def _configuration(config: Mapping[str, object], field: str = "settings") -> int:
    lib = _library()
    made: int = lib.conf_new()
    problem = ctypes.create_string_buffer(512)
    for name, value in config.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        result = lib.conf_set(made, name.encode(), text.encode(), problem, len(problem))
        if result == _UNKNOWN:
            close = get_close_matches(name, _property_names(made), n=1)
            lib.conf_destroy(made)
            hint = f"did you mean '{close[0]}'?" if close else "correct its name, or leave it out"
            raise BadInput(f"{field}.{name}: Kafka's client has no such property", hint)
        if result != 0:
            lib.conf_destroy(made)
            raise BadInput(
                f"Kafka's client refuses its configuration: {problem.value.decode()}",
                "correct that property in `settings` or `consumers`",
            )
    return made


def _property_names(configuration: int) -> list[str]:
    """Those of the client, and those of a producer's topics that Penstock reasons about."""
    lib, count = _library(), c_size_t()
    texts = lib.conf_dump(configuration, byref(count))
    names = [texts[i].decode() for i in range(0, count.value, 2)]  # each is followed by its value
    lib.conf_dump_free(texts, count)
    return [*names, *(kafka_name(f.name) for f in fields(ProducerSettings) if f.name != "other")]


@cache
def _memory() -> npt.NDArray[np.uint64]:
    """The memory of this process as an array, to read from many pointers at once.

    Only addresses that librdkafka has just given are looked at, and only while the event that
    owns them lives.
    """
    words = ((1 << 48) - _FIRST_ADDRESS) // 8
    return np.ctypeslib.as_array((ctypes.c_uint64 * words).from_address(_FIRST_ADDRESS))


class Client:
    """A producer to one topic. Used by one thread; `close` it.

    `wakeup` becomes readable when there is something to `serve`.
    """

    def __init__(self, config: Mapping[str, object], topic: str) -> None:
        self._lib = lib = _library()
        # Log lines come through the queue too, in their order with the reports.
        made = _configuration({**config, "log.queue": "true"})
        lib.conf_set_events(made, _REPORTS | _LOG | _ERROR | _STATISTICS)
        problem = ctypes.create_string_buffer(512)
        self._client = lib.new(_PRODUCER, made, problem, len(problem))
        if not self._client:
            lib.conf_destroy(made)
            raise BadInput(
                f"Kafka's client refuses its configuration: {problem.value.decode()}",
                "correct that property of the producer",
            )
        self._queue = lib.queue_get_main(self._client)
        lib.set_log_queue(self._client, self._queue)
        self._topic_name = topic
        self._topic = lib.topic_new(self._client, topic.encode(), None)
        # Readable from the start: librdkafka tells only of what comes to an empty queue, and
        # something may be in it already.
        self.wakeup = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        event = (1).to_bytes(8, "little")
        lib.queue_io_event_enable(self._queue, self.wakeup, event, len(event))
        self.lines: list[LogLine] = []
        # Where librdkafka puts the parts of a log line: made once, for there are many.
        self._log = (c_char_p(), c_char_p(), c_int())
        self._log_at = tuple(map(byref, self._log))
        self.errors: set[str] = set()
        # The last ones, as JSON; none unless `statistics.interval.ms` asks for them.
        self.statistics: bytes | None = None
        _memory()  # the first time takes a while
        self._pointers = np.zeros(_ROOM, dtype=np.uint64)
        self._pointers_at = self._pointers.ctypes.data
        # Events whose messages are not read yet, and until which pointer each reaches, and when.
        self._events: list[int] = []
        self._ends: list[int] = []
        self._times: list[int] = []
        self._last_ns = 0
        self._woken_ns = 0

    def partitions(self, timeout_s: float) -> int:
        """How many the topic has: the client is connected when it knows."""
        metadata = POINTER(_Metadata)()
        code = self._lib.metadata(
            self._client, 0, self._topic, byref(metadata), round(timeout_s * 1000)
        )
        if code == 0:
            topic = metadata.contents.topics[0]
            code, count = topic.err, topic.partition_count
            self._lib.metadata_destroy(metadata)
            if code == 0 and count:
                return int(count)
        self.serve(force=True)
        log = [line.text.decode() for line in self.lines if line.level < _DEBUG_LEVEL]
        raise TestbedError(
            f"the topic {self._topic_name} cannot be reached: {error_name(code)}"
            + "".join(f"\n    {line}" for line in log[-3:]),
            "check that it exists, the addresses and the security settings",
        )

    def hand_over(self, address: int, count: int) -> int:
        """Give librdkafka the `MESSAGE`s at this address, and say how many it took.

        It copies them. Of those it did not take, `err` says why; when that is `QUEUE_FULL`, so it
        is for all that follow.
        """
        taken: int = self._lib.produce_batch(self._topic, _ANY_PARTITION, _COPY, address, count)
        return taken

    def serve(self, force: bool = False) -> list[Reports]:
        """What librdkafka has reported meanwhile. A few reports wait for more, unless forced.

        The time of each is when it was fetched from the queue, not when it was read.
        """
        lib, queue = self._lib, self._queue
        poll, type_of, messages_of = lib.queue_poll, lib.event_type, lib.event_message_array
        events, ends, times = self._events, self._ends, self._times
        reports: list[Reports] = []
        filled = ends[-1] if ends else 0
        while event := poll(queue, 0):
            kind = type_of(event)
            if kind != _REPORTS:
                self._note(kind, event)
                continue
            now = monotonic_ns()
            while True:
                room = _ROOM - filled
                filled += messages_of(event, self._pointers_at + 8 * filled, room)
                ends.append(filled)
                times.append(now)
                if filled < _ROOM:
                    break
                reports.append(self._read())
                filled = 0
            events.append(event)
            if filled >= _ROOM // 2:
                reports.append(self._read())
                filled = 0
        if events:
            now = monotonic_ns()
            waited_ns = now - self._last_ns
            if force or reports or filled >= _ENOUGH or waited_ns > _LONGEST_WAIT_NS:
                self._last_ns = now
                if filled:
                    reports.append(self._read())
                for event in events:
                    lib.event_destroy(event)
                events.clear()
        return reports

    def wait(self, until_ns: int, rest_ns: int = 0) -> None:
        """Wait until then, or until there is something to `serve`; but never less than `rest_ns`
        from the end of the last wait."""
        now = monotonic_ns()
        rest_until_ns = self._woken_ns + rest_ns
        sleep_ns = max(rest_until_ns, until_ns if until_ns - now < _SHORT_WAIT_NS else 0) - now
        if sleep_ns > 0:
            time.sleep(sleep_ns / 1e9)
            now = monotonic_ns()
        if until_ns > now:
            readable, _, _ = select.select((self.wakeup,), (), (), (until_ns - now) / 1e9)
            if readable:
                os.eventfd_read(self.wakeup)
            now = monotonic_ns()
        self._woken_ns = now

    def purge(self) -> None:
        """Give up what is still queued or in flight; `serve` reports which (`PURGED`)."""
        self._lib.purge(self._client, _PURGE_QUEUE_AND_IN_FLIGHT)

    def close(self) -> None:
        self.serve(force=True)
        self._lib.queue_destroy(self._queue)
        self._lib.topic_destroy(self._topic)
        self._lib.destroy(self._client)
        os.close(self.wakeup)

    def _read(self) -> Reports:
        """Read all messages that the pointers lead to."""
        ends = np.array(self._ends)
        at = (self._pointers[: ends[-1]] - _FIRST_ADDRESS) >> 3
        words = _memory()[at[:, None] + _WORDS].view(np.int64)
        halves = words.view(np.int32)
        counts = np.diff(ends, prepend=0)
        reports = Reports(
            tags=words[:, 3],
            at_ns=np.repeat(np.array(self._times), counts),
            errors=halves[:, 0],
            partitions=halves[:, 2],
            offsets=words[:, 2],
        )
        self._ends.clear()
        self._times.clear()
        return reports

    def _note(self, kind: int, event: int) -> None:
        if kind == _LOG:
            self._lib.event_log(event, *self._log_at)
            facility, text, level = self._log
            self.lines.append(
                LogLine(monotonic_ns(), level.value, facility.value or b"", text.value or b"")
            )
        elif kind == _ERROR:
            self.errors.add(error_name(self._lib.event_error(event)))
        elif kind == _STATISTICS:
            self.statistics = self._lib.event_stats(event)
        self._lib.event_destroy(event)
