"""Counts the tries of each message from librdkafka's log of its requests. No I/O.

confluent-kafka does not tell, but with `debug=msg` librdkafka logs every request with messages
and every answer:

    PRODUCE  …: orders [2]: Produce MessageSet with 37 message(s) (4094 bytes, …, MsgId 0, …)
    MSGSET   …: orders [2]: MessageSet with 37 message(s) (MsgId 0, BaseSeq -1) delivered
    MSGSET   …: orders [2]: MessageSet with 45 message(s) (…) encountered error: Local: Timed out
                (actions Retry,MsgPossiblyPersisted)
    TIMEOUT  …: orders [2]: timed out 138+0 message(s) (MsgId 1753..1890): message.timeout.ms …

MsgId numbers the messages of a partition from 1 on, in the order they were handed over. Requests
give it for idempotent producers only (otherwise 0). For the others it follows from how librdkafka
works: a request takes the lowest numbers that wait; a broker's connection answers in the order of
its requests; what is to be tried again waits again. If the numbers do not come out even in the
end (another version of librdkafka may log or work otherwise), the tries of that partition are
unknown rather than wrong.

To log, fetch and read the lines of a request takes 40 to 80 µs of CPU here (a request without
them 70 µs, on both sides of the client's queue): nothing for requests of a hundred messages, but
too much where every message has its own and they come by the thousand. See
`ProducerJob.records_requests`.
"""

from __future__ import annotations

import re
from bisect import insort
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.load.rdkafka import LogLine

# Neither a topic nor the name of a broker has a space in it.
_BEGIN = rb"\[thrd:(?P<broker>[^\]]*)\]: (?:\S+ )?\S+ \[(?P<partition>\d+)\]: "
_PRODUCE = re.compile(
    _BEGIN + rb"Produce MessageSet with (\d+) message\(s\) \((\d+) bytes, .*? MsgId (\d+),"
)
_ANSWER = re.compile(_BEGIN + rb"MessageSet with (\d+) message\(s\) \(MsgId \d+, [^)]*\) (.*)")
_TIMEOUT = re.compile(_BEGIN + rb"timed out \d+\+\d+ message\(s\) \(MsgId (\d+)\.\.(\d+)\)")
_ACTIONS = re.compile(rb"\(actions ([^)]*)\)")
# These errors mean stale knowledge of the leader: to try again does not count as a retry.
_COUNTED_REFRESH = (b"Broker transport failure", b"Disk error")

# What a produce request (version 10, of one partition) has around a message set: a header of 22
# bytes with librdkafka's own client.id, and 19 beside the name of the topic.
FRAMING_BYTES = 41
FACILITIES = frozenset((b"PRODUCE", b"MSGSET", b"TIMEOUT"))

# A run of message numbers: from the first up to and without the second.
Span = tuple[int, int]


@dataclass(frozen=True)
class Request:
    """One request that carried messages, as a row of the trace has it."""

    partition: int
    first: int
    messages: int
    size_bytes: int
    at_ns: int


@dataclass
class _Partition:
    waiting: list[Span] = field(default_factory=list)  # those to be tried again, sorted
    next_fresh: int = 1  # the lowest number that was never tried
    in_flight: dict[bytes, deque[list[Span]]] = field(default_factory=lambda: defaultdict(deque))
    tries: npt.NDArray[np.int16] = field(default_factory=lambda: np.zeros(1024, np.int16))
    is_certain: bool = True

    def take(self, count: int) -> list[Span]:
        """The lowest `count` numbers that wait."""
        spans: list[Span] = []
        while count and self.waiting:
            first, after = self.waiting.pop(0)
            if after - first > count:
                self.waiting.insert(0, (first + count, after))
                after = first + count
            spans.append((first, after))
            count -= after - first
        if count:
            spans.append((self.next_fresh, self.next_fresh + count))
            self.next_fresh += count
        return spans

    def count_try(self, spans: list[Span]) -> None:
        for first, after in spans:
            if after > len(self.tries):
                longer = np.zeros(max(after, len(self.tries) * 5 // 4), np.int16)
                longer[: len(self.tries)] = self.tries
                self.tries = longer
            self.tries[first:after] += 1

    def remove(self, first: int, after: int) -> None:
        """These wait no longer."""
        kept: list[Span] = []
        for begins, ends in self.waiting:
            kept += [(begins, min(ends, first))] if begins < first else []
            kept += [(max(begins, after), ends)] if ends > after else []
        self.waiting = [span for span in kept if span[0] < span[1]]
        self.next_fresh = max(self.next_fresh, after)


class RequestLog:
    """Reads the lines of one producer in their order."""

    def __init__(self, retries: int) -> None:
        """`retries`: how often the client tries a message again (`retries` of its settings)."""
        self._retries = retries
        self._partitions: dict[int, _Partition] = defaultdict(_Partition)
        self.sent_again = 0  # requests that carried at least one message for another time

    def read(self, lines: Iterable[LogLine]) -> list[Request]:
        """The requests in these lines; other lines are passed over."""
        requests = []
        for line in lines:
            if line.facility == b"PRODUCE":
                if match := _PRODUCE.match(line.text):
                    requests.append(self._produced(match, line.at_ns))
            elif line.facility == b"MSGSET":
                if match := _ANSWER.match(line.text):
                    self._answered(match)
            elif line.facility == b"TIMEOUT" and (match := _TIMEOUT.match(line.text)):
                partition = self._partitions[int(match["partition"])]
                partition.remove(int(match[3]), int(match[4]) + 1)
        return requests

    def _produced(self, match: re.Match[bytes], at_ns: int) -> Request:
        count, size, msg_id = int(match[3]), int(match[4]), int(match[5])
        number = int(match["partition"])
        partition = self._partitions[number]
        if msg_id:
            spans = [(msg_id, msg_id + count)]
            partition.next_fresh = max(partition.next_fresh, msg_id + count)
        else:
            spans = partition.take(count)
            partition.in_flight[match["broker"]].append(spans)
        partition.count_try(spans)
        self.sent_again += int(partition.tries[spans[0][0]] > 1)
        return Request(number, spans[0][0], count, size, at_ns)

    def _answered(self, match: re.Match[bytes]) -> None:
        partition = self._partitions[int(match["partition"])]
        in_flight = partition.in_flight[match["broker"]]
        if not in_flight:  # an idempotent producer: every request says what it carries
            return
        spans = in_flight.popleft()
        if sum(after - first for first, after in spans) != int(match[3]):
            partition.is_certain = False
        outcome = match[4]
        if not (actions := _ACTIONS.search(outcome)):
            return
        again = actions[1]
        if b"Refresh" in again and not any(error in outcome for error in _COUNTED_REFRESH):
            limit = np.iinfo(np.int16).max
        elif b"Retry" in again or b"Refresh" in again:
            limit = self._retries
        else:
            return
        for first, after in spans:
            if int(partition.tries[first]) <= limit:
                insort(partition.waiting, (first, after))

    def tries(
        self, partitions: npt.NDArray[np.int32], is_unknown: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int16]:
        """Requests that carried each message, in the order of handing over; −1 is unknown.

        `partitions` says where each was put, −1 if nowhere; `is_unknown` whether it was given up
        before its fate was known.
        """
        result = np.full(len(partitions), -1, dtype=np.int16)
        # As int16 since numpy sorts those in linear time.
        order = np.argsort(partitions.astype(np.int16), kind="stable")
        numbers, begins = np.unique(partitions[order], return_index=True)
        for number, places in zip(numbers.tolist(), np.split(order, begins[1:]), strict=True):
            if number >= 0:
                given_up = int(np.count_nonzero(is_unknown[places]))
                tries = self._tries_of(self._partitions[number], len(places), given_up)
                if tries is not None:
                    result[places] = tries
        return result

    @staticmethod
    def _tries_of(partition: _Partition, count: int, given_up: int) -> npt.NDArray[np.int16] | None:
        waiting = sum(after - first for first, after in partition.waiting)
        untried = count + 1 - partition.next_fresh
        if not partition.is_certain or untried < 0 or untried + waiting > given_up:
            return None
        result = np.zeros(count, dtype=np.int16)
        known = partition.tries[1 : count + 1]
        result[: len(known)] = known
        return result
