"""The producer of a run: sends every message when it is due, and records its own lag.

Open loop: the schedule decides. What the cluster does, and what it fails to do, moves no message
that is due; only a client whose queue is full can, and that is counted apart (`queue_full_s`).
Closed loop: as many programs do, the next message waits until the previous one was answered; its
intended time is the time it was really sent, which is the flaw of closed loops.

The generator's own lag of a message is the time it was sent minus the time it could have been
sent: the later of
  - its intended time,
  - if the client's queue was full: the moment it had room again, and
  - while the backlog of such a block is worked off: the moment the messages before it were taken.
So what the client's queue delays is not the generator's fault, but its own hiccups are, even then.

What counts as acknowledged is what the client says: with acks=0 it says so on sending.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Mapping
from functools import partial
from time import monotonic_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.domain.run import ProducerReport
from penstock.load import schedule
from penstock.load.client_counters import counters
from penstock.load.in_flight import UNPLACED, InFlight, Rows
from penstock.load.journal import Writer
from penstock.load.payload_buffer import PayloadBuffer
from penstock.load.producer_job import ProducerJob
from penstock.load.rdkafka import MESSAGE, PURGED, QUEUE_FULL, Client, Reports
from penstock.load.realtime import keep_python_out_of_the_way, make_realtime
from penstock.load.sent_trace import SentTrace

# Handed over in one call at most, under one reading of the clock: 64 × 0.4 µs.
GROUP = 64
# How long it sleeps at least. To wake up costs 35 µs of a processor here, most of it the kernel's
# and the hypervisor's: at 20,000 messages/s, for every single one, that would take from the
# brokers more than half of one. It matters above 6,000 messages/s only.
_REST_NS = 150_000
# How long it keeps sending without reading reports.
_HEARS_NS = 100_000
# How long after the end of its schedule a late generator may keep sending, at least.
GRACE_S = 30.0
CONNECT_S = 30.0
_MARGIN_S = 5.0
# Complete rows go to the writer in blocks: 8,192 are copied in 100 µs.
_BLOCK = 8192
_MANY_ROWS = 4096
_OFTEN_NS, _SELDOM_NS = 10_000_000, 250_000_000
_RETRY_NS = 10_000_000
_NEVER_NS = 2**62


class ScheduledProducer:
    """One producer: make it (it is connected then), `run` it once, `finish` it."""

    def __init__(self, job: ProducerJob, client: Client | None = None) -> None:
        self._job = job
        self._is_closed = job.workload.loop == "closed"
        self._client = client or Client(job.client_config, job.topic)
        self._due_ns = schedule.due_ns(
            job.workload.arrivals,
            job.length_s,
            schedule.random_stream(job.seed, job.producer, "arrivals"),
        )
        self._messages = PayloadBuffer(
            job.workload.payload,
            job.workload.keys,
            job.producer,
            schedule.random_stream(job.seed, job.producer, "messages"),
        )
        self._in_flight = InFlight(_in_flight_room(job.config))
        self._trace = SentTrace(
            directory=job.directory,
            name=job.name,
            producer=job.producer,
            messages=self._messages,
            due_ns=self._due_ns,
            is_closed_loop=self._is_closed,
            measured_from_ns=_NEVER_NS if job.waits_for_warmth else round(job.warm_up_s * 1e9),
            retries=job.retries,
            keep_debug_lines="debug" in job.config,
        )
        # It holds the interpreter now and then; a thread that waits for that is as late as the writer.
        self._writer = Writer(on_start=make_realtime)
        self._tidy_at_ns = 0
        self._blocked_ns = 0  # since when the client's queue has been full; 0: it is not
        self._queue_full_ns = 0
        self._ends_ns = _NEVER_NS  # what is due from then on is not sent
        self._next = 0
        self._was_abandoned = True  # until it has run
        self._client_cores = 0.0
        self._client.partitions(CONNECT_S)
        keep_python_out_of_the_way()

    def progress(self) -> dict[str, int]:
        """For any thread."""
        in_flight = self._in_flight
        return {
            "sent": in_flight.sent,
            "acknowledged": in_flight.acknowledged,
            "failed": in_flight.failed,
            "waited_ns": in_flight.waited_ns,
            "at_ns": monotonic_ns(),
        }

    def measure(self, from_ns: int, to_ns: int) -> None:
        """The cluster is warm: what is due in this time counts, and after it nothing is sent. For
        any thread, before that time."""
        self._trace.measured_from_ns = from_ns - self._trace.begins_ns
        self._ends_ns = to_ns

    def run(self, begins_ns: int, abandoned: threading.Event) -> None:
        """Send the schedule and wait for the report on each message. `abandoned` ends it early."""
        self._trace.begins_ns = begins_ns
        self._tidy_at_ns = begins_ns
        make_realtime()
        cpu_s, own_s = time.process_time(), time.thread_time()
        self._ends_ns = min(self._ends_ns, begins_ns + round(self._job.length_s * 1e9))
        if self._is_closed:
            self._send_closed(begins_ns, abandoned)
        else:
            self._send_open(begins_ns, abandoned)
        if self._blocked_ns:
            self._queue_full_ns += monotonic_ns() - self._blocked_ns
        self._flush(abandoned)
        used_s = time.process_time() - cpu_s - (time.thread_time() - own_s)
        self._client_cores = used_s / max(1e-3, (monotonic_ns() - begins_ns) / 1e9)
        self._was_abandoned = abandoned.is_set()

    # --- sending -------------------------------------------------------------------------------

    def _send_open(self, begins_ns: int, abandoned: threading.Event) -> None:
        """The hot loop. Everything that is due goes to the client in groups, then it waits."""
        late_ns = round(max(GRACE_S, self._job.timeout_s) * 1e9)
        messages, client, note_sent = self._messages, self._client, self._in_flight.note_sent
        hand_over, is_abandoned = client.hand_over, abandoned.is_set
        due_ns, count, window = self._due_ns, len(self._due_ns), messages.window
        message_bytes = MESSAGE.itemsize
        served_ns = 0
        freed_ns = 0  # while a backlog is worked off: when the messages before were taken
        while self._next < count:
            begin, at = self._next, 0
            messages.prepare(begin)
            address = messages.address(begin)
            times = (due_ns[begin : begin + window] + begins_ns).tolist()
            size = len(times)
            while at < size:
                now = monotonic_ns()
                if times[at] >= self._ends_ns:
                    return
                if times[at] > now:
                    if is_abandoned():
                        return
                    freed_ns = 0
                    self._serve(now)
                    client.wait(min(times[at], self._tidy_at_ns), _REST_NS)
                    continue
                if now > self._ends_ns + late_ns or is_abandoned():
                    return
                end = bisect_right(times, min(now, self._ends_ns - 1), at, min(size, at + GROUP))
                if hand_over(address + message_bytes * at, end - at) == end - at:
                    if self._blocked_ns:
                        freed_ns = now
                        self._queue_full_ns += now - self._blocked_ns
                        self._blocked_ns = 0
                    note_sent(end - at, now, freed_ns)
                    if freed_ns:
                        freed_ns = now
                    at = end
                else:
                    at += self._part_taken(begin + at, end - at, now, freed_ns)
                self._next = begin + at
                if now > served_ns + _HEARS_NS:  # it may be behind, and then it never waits
                    self._serve(now)
                    served_ns = now

    def _part_taken(self, first: int, count: int, now: int, freed_ns: int) -> int:
        """The client did not take all of them: it has no room, or refuses some permanently."""
        slot = first % self._messages.count
        errors = self._messages.array["err"][slot : slot + count]
        full = np.flatnonzero(errors == QUEUE_FULL)
        handed = int(full[0]) if len(full) else count
        if handed:
            if self._blocked_ns:
                self._queue_full_ns += now - self._blocked_ns
                freed_ns, self._blocked_ns = now, 0
            self._in_flight.note_sent(handed, now, freed_ns)
            refused = np.flatnonzero(errors[:handed])
            if len(refused):
                self._in_flight.note_reported(_refusals(first + refused, errors[refused], now))
        if len(full):
            if not self._blocked_ns:
                self._blocked_ns = now
            self._serve(now, force=True)
            self._client.wait(now + _RETRY_NS, _REST_NS)
        return handed

    def _send_closed(self, begins_ns: int, abandoned: threading.Event) -> None:
        messages, client, in_flight = self._messages, self._client, self._in_flight
        for message, due_ns in enumerate(self._due_ns.tolist()):
            if not message % messages.window:
                messages.prepare(message)
            while (now := monotonic_ns()) < begins_ns + due_ns or in_flight.under_way:
                if abandoned.is_set() or now >= self._ends_ns:
                    return
                self._serve(now, force=True)
                if in_flight.under_way:
                    client.wait(min(self._ends_ns, self._tidy_at_ns))
                else:
                    client.wait(min(begins_ns + due_ns, self._tidy_at_ns))
            while not in_flight.under_way and self._next == message:
                now = monotonic_ns()
                if abandoned.is_set() or now >= self._ends_ns:
                    return
                if client.hand_over(messages.address(message), 1) == 1:
                    in_flight.note_sent(1, now)
                    self._next += 1
                else:
                    self._next += self._part_taken(message, 1, now, 0)

    def _flush(self, abandoned: threading.Event) -> None:
        """Wait for the answers, for as long as the client may wait for them."""
        until_ns = monotonic_ns() + round((self._job.timeout_s + _MARGIN_S) * 1e9)
        forced_ns = 0
        while self._in_flight.under_way and not abandoned.is_set():
            now = monotonic_ns()
            if now > until_ns:
                break
            # To read a few reports costs as much as to read many.
            is_time = now - forced_ns > _RETRY_NS
            self._serve(now, force=is_time)
            forced_ns = now if is_time else forced_ns
            if self._in_flight.under_way:
                self._client.wait(now + _RETRY_NS, _REST_NS)

    # --- reports -------------------------------------------------------------------------------

    def _serve(self, now: int, force: bool = False) -> None:
        for reports in self._client.serve(force):
            self._in_flight.note_reported(reports)
        if now >= self._tidy_at_ns:
            self._tidy(now)

    def _tidy(self, now: int) -> None:
        """Pass complete rows to the writer."""
        in_flight, trace = self._in_flight, self._trace
        written = 0
        while (rows := in_flight.take_complete(_BLOCK)) is not None:
            self._writer.give(partial(trace.add, rows))
            written += len(rows)
        if not written:
            self._writer.give(trace.write_if_old)
            if in_flight.under_way:
                in_flight.pass_over()
        if self._client.lines:
            lines, self._client.lines = self._client.lines, []
            self._writer.give(partial(trace.add_lines, lines))
        self._writer.check()
        self._tidy_at_ns = now + (_OFTEN_NS if written >= _MANY_ROWS else _SELDOM_NS)

    # --- ending --------------------------------------------------------------------------------

    def finish(self) -> ProducerReport:
        """Write down what is left and make the trace readable."""
        client, in_flight, trace = self._client, self._in_flight, self._trace
        if in_flight.under_way:
            self._give_up()
        self._tidy(monotonic_ns())
        self._writer.give(partial(trace.add, in_flight.take_rest()))
        client.close()
        # A closed loop has no schedule of its own, and one that was cut off is not to blame.
        if not self._is_closed and not self._was_abandoned:
            self._writer.give(self._add_never_sent)
        self._writer.give(partial(trace.add_lines, client.lines))
        self._writer.give(trace.close)
        self._writer.finish()
        lag, outcomes = trace.lag, trace.outcomes
        p50, p99 = lag.percentiles((50, 99)) if lag.count else (0, 0)
        return ProducerReport(
            producer=self._job.producer,
            scheduled=self._next if self._is_closed else self._scheduled,
            sent=in_flight.sent,
            acknowledged=outcomes.acknowledged,
            failed=outcomes.failed,
            unknown=outcomes.unknown,
            lag_p50_us=p50 / 1000,
            lag_p99_us=p99 / 1000,
            lag_max_us=lag.max_ns / 1000,
            queue_full_s=self._queue_full_ns / 1e9,
            cpu_s=time.process_time(),
            client_cores=self._client_cores,
            retries=trace.sent_again,
            counters=counters(client.statistics),
        )

    def _give_up(self) -> None:
        """Purge messages that will get no report; at least their partition is known then."""
        self._client.purge()
        until_ns = monotonic_ns() + 2_000_000_000
        left = self._in_flight.under_way
        while left > 0 and (now := monotonic_ns()) < until_ns:
            for reports in self._client.serve(force=True):
                purged = np.isin(reports.errors, PURGED)
                self._in_flight.note_given_up(reports.where(purged))
                self._in_flight.note_reported(reports.where(~purged))
                left -= len(reports.tags)
            self._client.wait(now + _RETRY_NS)

    @property
    def _scheduled(self) -> int:
        """Messages that were due before the end."""
        return int(np.searchsorted(self._due_ns, self._ends_ns - self._trace.begins_ns))

    def _add_never_sent(self) -> None:
        for begin in range(self._next, self._scheduled, _BLOCK):
            sequence = np.arange(begin, min(begin + _BLOCK, self._scheduled))
            none = np.zeros(len(sequence), dtype=np.int64)
            nowhere = np.full(len(sequence), UNPLACED, dtype=np.int32)
            zeros = np.zeros(len(sequence), dtype=np.int32)
            self._trace.add(Rows(sequence, none, none, none, zeros, nowhere, none))


def _refusals(tags: npt.NDArray[np.int64], errors: npt.NDArray[np.int32], now: int) -> Reports:
    count = len(tags)
    return Reports(
        tags=tags,
        at_ns=np.full(count, now),
        errors=errors.copy(),
        partitions=np.full(count, UNPLACED, dtype=np.int32),
        offsets=np.full(count, -1),
    )


def _in_flight_room(config: Mapping[str, Any]) -> int:
    """Rows for twice the messages that the client may have under way, within reason."""
    most = int(config.get("queue.buffering.max.messages", 100_000))
    return max(1 << 16, min(1 << 20, 1 << (2 * most - 1).bit_length()))
