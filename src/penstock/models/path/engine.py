"""The event loop of the path simulator, compiled by numba.

What happens to a message, and the event with which it happens:

    it is due               its partition's queue; the linger timer starts with the first of a batch
    SERVE                   the client's thread forms a request from a batch that is full or due
    REQUEST_IN              the broker reads it, one request of a connection at a time
    APPENDED                it is in the leader's log; with acks=0 and 1 the answer leaves
    FOLLOWER_ANSWER_OUT …   a follower's fetch carries it over, and the next one acknowledges it:
    FOLLOWER_FETCH_DONE     all replicas have it. It is readable; with acks=all the answer leaves
    READER_ANSWER_OUT …     a consumer's fetch carries it over

Work takes a core of its machine: cores are shared first come, first served. Every hand-over between
threads takes the time that a thread needs to wake up. What all messages of a batch share is kept
once per batch; `simulate` spreads it to messages.

Things are rows of tables, which functions change in place: compiled code has no objects, and rows
are passed as pointers, while a tuple of arrays would be counted at every call. `o` are the options
(`tables.OPTIONS`), `c` the costs (`Physics`). Times are in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from penstock.models.path.tables import (
    ANSWER_IN,
    ANSWER_OUT,
    APPENDED,
    BACK,
    BACKGROUND,
    BATCHES,
    DONE,
    EVENTS,
    FOLLOWER_ANSWER_IN,
    FOLLOWER_ANSWER_OUT,
    FOLLOWER_FETCH_DONE,
    FOLLOWER_FETCH_IN,
    LINGER,
    ORDER,
    OUT,
    READER_ANSWER_IN,
    READER_ANSWER_OUT,
    READER_FETCH_DONE,
    READER_FETCH_IN,
    READER_WAITED,
    REQUEST_IN,
    REQUESTS,
    SERVE,
)

F = TypeVar("F", bound=Callable[..., Any])
# A table or a row of one. (Numpy's types do not know the fields of a row.)
Table = Any
Row = Any


def _compiled(function: F) -> F:
    return cast(F, numba.njit(cache=True, error_model="numpy")(function))


_SEGMENT_BYTES = 1448.0
# Of the delays of many packets, the longest of so many is close to the longest there is.
_MOST_DRAWS = 100
# A fetch response with records counts as three packets or more: what comes before the records, the
# records from the page cache, what comes after. Inferred from one measurement with delays of 5 to
# 15 ms (bench/RESULTS.md, `bench/models.py`), not from captured packets.
_FETCH_PIECES = 3
# TCP's, in segments.
FIRST_WINDOW = 10.0
# TCP's shortest retransmission time-out on Linux.
_RETRANSMIT_S = 0.2
# Packets behind a lost one that make TCP resend it without waiting for the time-out.
_FAST_RETRANSMIT_PACKETS = 3


# --- events --------------------------------------------------------------------------------------


@_compiled
def _push(heap: Table, counts: Table, at_s: float, kind: int, what: int) -> None:
    place = counts[EVENTS]
    counts[EVENTS] += 1
    while place > 0:
        parent = (place - 1) >> 1
        if heap[parent].at_s <= at_s:  # it is older, so it also comes first at the same time
            break
        heap[place] = heap[parent]
        place = parent
    event = heap[place]
    event.at_s, event.order, event.kind, event.what = at_s, counts[ORDER], kind, what
    counts[ORDER] += 1


@_compiled
def _pop(heap: Table, counts: Table) -> None:
    """Remove the first event; the caller has read it."""
    counts[EVENTS] -= 1
    end = counts[EVENTS]
    at_s, order = heap[end].at_s, heap[end].order
    place = 0
    while True:
        child = 2 * place + 1
        if child >= end:
            break
        right = child + 1
        if right < end and (
            heap[right].at_s < heap[child].at_s
            or (heap[right].at_s == heap[child].at_s and heap[right].order < heap[child].order)
        ):
            child = right
        if at_s < heap[child].at_s or (at_s == heap[child].at_s and order < heap[child].order):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = heap[end]


# --- machines and links --------------------------------------------------------------------------


@_compiled
def _burst(
    hosts: Table, machines: Table, cores: Table, c: Row, host: int, now_s: float, cpu_s: float
) -> float:
    """When the result of a piece of work is out that takes so much CPU."""
    slower = 1.0
    if c.cold > 1:
        # It cools while it does nothing, since others take its caches, and warms up as it works.
        idle_s = max(0.0, now_s - hosts[host].worked_s)
        warmth = hosts[host].warmth * math.exp(-idle_s / c.cooling)
        slower = 1 + (c.cold - 1) * (1 - warmth)
        hosts[host].warmth = 1 - (1 - warmth) * math.exp(-cpu_s * (1 + c.after) / c.warming)
    begin_s: float = now_s + slower * c.wake
    if cpu_s <= 0:
        return begin_s
    cpu_s *= slower
    if c.spread > 0:
        cpu_s *= math.exp(c.spread * np.random.randn() - 0.5 * c.spread * c.spread)
    return _occupy(hosts, machines, cores, c, host, begin_s, cpu_s, cpu_s * (1 + c.after))


@_compiled
def _occupy(
    hosts: Table,
    machines: Table,
    cores: Table,
    c: Row,
    host: int,
    now_s: float,
    result_s: float,
    total_s: float,
) -> float:
    """On the core that is free first: the result after `result_s`; it is busy for `total_s`. Both
    take `contention` times as long while all other cores work."""
    row = machines[hosts[host].machine]
    if row.begin == row.end:
        row.cpu_s += total_s
        hosts[host].worked_s = now_s + total_s
        return now_s + result_s
    core = row.begin
    for other in range(row.begin + 1, row.end):
        if cores[other] < cores[core]:
            core = other
    begin_s: float = max(now_s, cores[core])
    slower = 1.0
    others = row.end - row.begin - 1
    if c.contention > 1 and others > 0:
        busy = 0
        for other in range(row.begin, row.end):
            if other != core and cores[other] > begin_s:
                busy += 1
        slower = 1 + (c.contention - 1) * busy / others
    row.cpu_s += slower * total_s
    cores[core] = begin_s + slower * total_s
    hosts[host].worked_s = cores[core]
    return begin_s + slower * result_s


@_compiled
def _carry(
    lines: Table, delays_s: Table, number: int, now_s: float, size: float, pieces: int = 1
) -> float:
    """When the last byte of a transfer arrives: after its turn on the line, the delay, what TCP's
    slow start adds, and retransmissions; never before an earlier transfer on the same line.
    `pieces`: in how many writes it is sent, each of which begins a packet."""
    line = lines[number]
    delay_s = delays_s[line.begin]
    if line.end > line.begin + 1:
        # Every packet has a delay of its own, and none overtakes another: the longest counts.
        packets = min(_MOST_DRAWS, pieces - 1 + math.ceil(size / _SEGMENT_BYTES))
        delay_s = delays_s[np.random.randint(line.begin, line.end)]
        for _ in range(packets - 1):
            delay_s = max(delay_s, delays_s[np.random.randint(line.begin, line.end)])
    delay_s += line.extra_s
    leaves_s = now_s
    if line.rate_bytes_per_s > 0:
        leaves_s = max(now_s, line.free_s) + size / line.rate_bytes_per_s
        line.free_s = leaves_s
    extra_s = 0.0
    round_s = 2 * delay_s
    if delay_s > 0:
        idle_s = now_s - line.used_s
        window = line.window
        while idle_s > _RETRANSMIT_S + round_s and window > FIRST_WINDOW:
            window = max(FIRST_WINDOW, window / 2)
            idle_s -= _RETRANSMIT_S + round_s
        segments = size / _SEGMENT_BYTES
        while segments > window:
            segments -= window
            window *= 2
            extra_s += round_s
        line.window = window
        line.used_s = now_s + extra_s
    if line.loss > 0:
        extra_s += _retransmissions(line.loss, size, round_s)
    line.arrives_s = max(leaves_s + delay_s + extra_s, line.arrives_s)
    return float(line.arrives_s)


@_compiled
def _retransmissions(loss: float, size: float, round_s: float) -> float:
    """What lost packets of one transfer cost: a round trip if enough packets follow, or TCP's
    time-out, which doubles with every further loss."""
    packets = math.ceil(size / _SEGMENT_BYTES)
    longest_s = 0.0
    for number in range(packets):
        wait_s, timeout_s = 0.0, _RETRANSMIT_S + round_s
        is_followed = packets - number > _FAST_RETRANSMIT_PACKETS
        while np.random.random() < loss:
            if is_followed:
                wait_s += round_s
                is_followed = False
            else:
                wait_s += timeout_s
                timeout_s *= 2
        longest_s = max(longest_s, wait_s)
    return longest_s


@_compiled
def _is_paused(
    brokers: Table,
    hosts: Table,
    machines: Table,
    cores: Table,
    c: Row,
    broker: int,
    now_s: float,
    heap: float,
) -> bool:
    """Whether the broker collects garbage, or begins to because of this work. If not, the work's
    memory is allocated."""
    row = brokers[broker]
    if row.pause_until_s > now_s:
        return True
    row.heap_bytes += heap
    if row.heap_bytes < c.heap_young_bytes:
        return False
    row.heap_bytes = 0.0
    pause_s = c.heap_pause * (0.7 + 0.6 * np.random.random())
    row.pause_until_s = now_s + pause_s
    _occupy(hosts, machines, cores, c, row.host, now_s, pause_s, pause_s)
    return True


# --- the producer --------------------------------------------------------------------------------


@_compiled
def _is_due(queue: Row, messages: Table, o: Row, now_s: float) -> bool:
    """Whether the first batch of a queue can be sent."""
    if queue.messages == 0:
        return False
    if queue.messages >= o.batch_messages or queue.size_bytes >= o.batch_bytes:
        return True
    return bool(now_s >= messages[queue.first].due_s + o.linger_s - 1e-9)


@_compiled
def _form(queue: Row, number: int, messages: Table, batches: Table, counts: Table, o: Row) -> int:
    """A batch from the head of a queue; the caller adds the time and the request."""
    batch = counts[BATCHES]
    counts[BATCHES] += 1
    row = batches[batch]
    message, count, size = queue.first, 0, 0.0
    most = min(queue.messages, o.batch_messages)
    while count < most:
        more = messages[message].size_bytes
        if count > 0 and size + more > o.batch_bytes:
            break
        size += more
        count += 1
        message = messages[message].next
    row.queue, row.place, row.messages, row.size_bytes = number, queue.formed, count, size
    row.next = -1
    queue.first = message
    queue.messages -= count
    queue.formed += count
    # Subtractions of floats would leave a rest.
    queue.size_bytes = queue.size_bytes - size if queue.messages > 0 else 0.0
    return int(batch)


@_compiled
def _next_request(
    thread: Row,
    thread_queues: Table,
    queues: Table,
    messages: Table,
    connections: Table,
    batches: Table,
    requests: Table,
    heap: Table,
    counts: Table,
    o: Row,
    c: Row,
    now_s: float,
) -> int:
    """Form the thread's next request; −1 if no batch is due or no connection has room."""
    many = thread.end - thread.begin
    for step in range(many):
        place = (thread.turn + step) % many
        number = thread_queues[thread.begin + place]
        queue = queues[number]
        connection = connections[queue.connection]
        if connection.in_flight >= o.in_flight and (o.is_java or connection.waiting >= 0):
            continue
        if not _is_due(queue, messages, o, now_s):
            continue
        thread.turn = place + 1
        request = counts[REQUESTS]
        counts[REQUESTS] += 1
        row = requests[request]
        row.connection, row.next = queue.connection, -1
        row.batch, row.messages, row.left, row.size_bytes = -1, 0, 0, o.request_bytes
        # Java: once a broker is sent to, every partition there sends what it has.
        for other in range(many if o.is_java else 1):
            number = thread_queues[thread.begin + (place + other) % many]
            mine = queues[number]
            if mine.connection != row.connection or mine.messages == 0:
                continue
            batch = _form(mine, number, messages, batches, counts, o)
            batches[batch].formed_s = now_s
            batches[batch].request = request
            batches[batch].next = row.batch
            row.batch = batch
            row.messages += batches[batch].messages
            row.size_bytes += batches[batch].size_bytes
            row.left += 1
            if o.linger_s > 0 and mine.messages > 0:  # the timer of what stayed
                at_s = messages[mine.first].due_s + o.linger_s + c.tick * np.random.random()
                _push(heap, counts, max(now_s, at_s), LINGER, number)
        return int(request)
    return -1


@_compiled
def _finish(batches: Table, counts: Table, batch: int, now_s: float) -> None:
    """The client knows the outcome of a request, from its first batch on."""
    while batch >= 0:
        row = batches[batch]
        row.answered_s = now_s
        counts[DONE] += row.messages
        batch = row.next


# --- the leader ----------------------------------------------------------------------------------


@_compiled
def _handle(
    request: int,
    requests: Table,
    batches: Table,
    connections: Table,
    brokers: Table,
    hosts: Table,
    machines: Table,
    cores: Table,
    heap: Table,
    counts: Table,
    o: Row,
    c: Row,
    now_s: float,
) -> None:
    row = requests[request]
    batch = row.batch
    while batch >= 0:
        batches[batch].handled_s = now_s
        batch = batches[batch].next
    host = brokers[connections[row.connection].broker].host
    work_s = c.broker_request + c.broker_message * row.messages + c.broker_byte * row.size_bytes
    done_s = _burst(hosts, machines, cores, c, host, now_s, work_s)
    _push(heap, counts, done_s, APPENDED, request)


@_compiled
def _advance(
    partition: Row,
    copies: Table,
    partition_copies: Table,
    reads: Table,
    partition_reads: Table,
    log: Table,
    batches: Table,
    requests: Table,
    readers: Table,
    brokers: Table,
    hosts: Table,
    machines: Table,
    cores: Table,
    heap: Table,
    counts: Table,
    o: Row,
    c: Row,
    now_s: float,
) -> None:
    """Move the high watermark to what all replicas have: readable, acknowledged with acks=all."""
    end = partition.log_end
    for place in range(partition.copies_begin, partition.copies_end):
        end = min(end, copies[partition_copies[place]].replicated)
    begin = partition.high_watermark
    if end <= begin:
        return
    partition.high_watermark = end
    host = brokers[partition.leader].host
    size = 0.0
    for place in range(begin, end):
        batch = batches[log[partition.log_from + place]]
        batch.readable_s = now_s
        counts[DONE] += batch.messages
        size += batch.size_bytes
        request = requests[batch.request]
        request.left -= 1
        if o.acks == -1 and request.left == 0:
            done_s = _burst(hosts, machines, cores, c, host, now_s, c.broker_answer)
            _push(heap, counts, done_s, ANSWER_OUT, batch.request)
    for place in range(partition.reads_begin, partition.reads_end):
        number = reads[partition_reads[place]].reader
        reader = readers[number]
        reader.available_bytes += size
        if reader.is_waiting and reader.available_bytes >= reader.fetch_min_bytes:
            _answer_reader(reader, number, brokers, hosts, machines, cores, heap, counts, c, now_s)


# --- readers -------------------------------------------------------------------------------------


@_compiled
def _answer_reader(
    reader: Row,
    number: int,
    brokers: Table,
    hosts: Table,
    machines: Table,
    cores: Table,
    heap: Table,
    counts: Table,
    c: Row,
    now_s: float,
) -> None:
    reader.is_waiting = False
    done_s = _burst(hosts, machines, cores, c, brokers[reader.leader].host, now_s, c.reader_answer)
    _push(heap, counts, done_s, READER_ANSWER_OUT, number)


# --- the loop ------------------------------------------------------------------------------------


@_compiled
def run(
    options: Table,
    costs: Table,
    messages: Table,
    queues: Table,
    threads: Table,
    thread_queues: Table,
    connections: Table,
    batches: Table,
    requests: Table,
    partitions: Table,
    log: Table,
    copies: Table,
    partition_copies: Table,
    followers: Table,
    readers: Table,
    reads: Table,
    partition_reads: Table,
    brokers: Table,
    hosts: Table,
    machines: Table,
    cores: Table,
    connection_lines: Table,
    follower_lines: Table,
    reader_lines: Table,
    delays_s: Table,
    heap: Table,
    counts: Table,
    seed: int,
    until_s: float,
) -> float:
    """Simulate until all messages are received or `until_s`; returns the time reached."""
    np.random.seed(seed)
    o, c = options[0], costs[0]
    collects = c.heap_young_bytes > 0
    if collects:
        for number in range(brokers.size):
            brokers[number].heap_bytes = np.random.random() * c.heap_young_bytes
    if c.background_per_s > 0:
        for number in range(machines.size):
            _push(heap, counts, np.random.exponential(1 / c.background_per_s), BACKGROUND, number)
    times_read = partitions[0].reads_end - partitions[0].reads_begin
    for number in range(readers.size):
        # Readers are waiting already, each since another time.
        if readers[number].fetch_min_bytes > 1:
            waited_s = readers[number].fetch_wait_s * np.random.random()
            _push(heap, counts, waited_s, READER_WAITED, number)
    arrived, now_s = 0, 0.0
    all_done = messages.size * (2 + times_read)
    while counts[DONE] < all_done:
        has_event = counts[EVENTS] > 0
        if arrived < messages.size and (not has_event or messages[arrived].due_s <= heap[0].at_s):
            message = messages[arrived]
            now_s = message.due_s
            queue = queues[message.queue]
            if queue.messages == 0:
                queue.first = arrived
            else:
                messages[queue.last].next = arrived
            queue.last = arrived
            queue.messages += 1
            queue.size_bytes += message.size_bytes
            if c.client_produce > 0:
                host = connections[queue.connection].host
                _occupy(hosts, machines, cores, c, host, now_s, 0.0, c.client_produce)
            if queue.messages == 1 and o.linger_s > 0:
                at_s = now_s + o.linger_s + c.tick * np.random.random()
                _push(heap, counts, at_s, LINGER, message.queue)
            if _is_due(queue, messages, o, now_s) and not threads[queue.thread].is_serving:
                threads[queue.thread].is_serving = True
                _push(heap, counts, now_s, SERVE, queue.thread)
            arrived += 1
            continue
        if not has_event or heap[0].at_s > until_s:
            break
        now_s, kind, what = heap[0].at_s, heap[0].kind, heap[0].what
        _pop(heap, counts)

        if collects and kind in (
            REQUEST_IN,
            FOLLOWER_ANSWER_IN,
            FOLLOWER_FETCH_IN,
            READER_FETCH_IN,
        ):
            # What a broker that collects garbage gets, it handles afterwards.
            used = c.heap_request_bytes
            if kind == REQUEST_IN:
                number = connections[requests[what].connection].broker
                used += c.heap_per_byte * requests[what].size_bytes
            elif kind == FOLLOWER_ANSWER_IN:  # a fetch is work of both brokers
                number = followers[what].broker
                used = used / 2 + c.heap_per_byte * followers[what].size_bytes
            elif kind == FOLLOWER_FETCH_IN:
                number = followers[what].leader
                used /= 2
            else:
                number = readers[what].leader
            if _is_paused(brokers, hosts, machines, cores, c, number, now_s, used):
                _push(heap, counts, brokers[number].pause_until_s + 1e-9, kind, what)
                continue

        if kind == LINGER:
            queue = queues[what]
            thread = threads[queue.thread]
            if _is_due(queue, messages, o, now_s) and not thread.is_serving:
                thread.is_serving = True
                _push(heap, counts, now_s, SERVE, queue.thread)

        elif kind == SERVE:
            thread = threads[what]
            number = _next_request(
                thread, thread_queues, queues, messages, connections, batches, requests, heap,
                counts, o, c, now_s,
            )  # fmt: skip
            thread.is_serving = number >= 0
            if number >= 0:
                request = requests[number]
                connection = connections[request.connection]
                work_s = (
                    c.client_request
                    + c.client_message * request.messages
                    + c.client_byte * request.size_bytes
                )
                done_s = _burst(hosts, machines, cores, c, connection.host, now_s, work_s)
                if connection.in_flight < o.in_flight:
                    if o.acks == 0:  # nobody answers: sent is done
                        _finish(batches, counts, request.batch, done_s)
                    else:
                        connection.in_flight += 1
                    line = 2 * request.connection + OUT
                    at_s = _carry(connection_lines, delays_s, line, done_s, request.size_bytes)
                    _push(heap, counts, at_s, REQUEST_IN, number)
                else:
                    connection.waiting = number
                _push(heap, counts, done_s, SERVE, what)

        elif kind == REQUEST_IN:
            connection = connections[requests[what].connection]
            if not connection.is_reading:
                connection.is_reading = True
                _handle(
                    what, requests, batches, connections, brokers, hosts, machines, cores, heap,
                    counts, o, c, now_s,
                )  # fmt: skip
            else:
                if connection.unread_first < 0:
                    connection.unread_first = what
                else:
                    requests[connection.unread_last].next = what
                connection.unread_last = what

        elif kind == APPENDED:
            request = requests[what]
            leader = connections[request.connection].broker
            number = request.batch
            while number >= 0:
                batch = batches[number]
                partition = partitions[queues[batch.queue].partition]
                log[partition.log_from + partition.log_end] = number
                partition.log_end += 1
                batch.appended_s = now_s
                number = batch.next
                if partition.copies_begin == partition.copies_end:
                    # Without followers it is readable at once.
                    _advance(
                        partition, copies, partition_copies, reads, partition_reads, log,
                        batches, requests, readers, brokers, hosts, machines, cores, heap,
                        counts, o, c, now_s,
                    )  # fmt: skip
            host = brokers[leader].host
            if o.acks == 0:
                _push(heap, counts, now_s, ANSWER_OUT, what)  # only to read the next one
            elif o.acks == 1:
                done_s = _burst(hosts, machines, cores, c, host, now_s, c.broker_answer)
                _push(heap, counts, done_s, ANSWER_OUT, what)
            for number in range(brokers[leader].begin, brokers[leader].end):
                if followers[number].is_parked:
                    followers[number].is_parked = False
                    done_s = _burst(hosts, machines, cores, c, host, now_s, c.follower_answer)
                    _push(heap, counts, done_s, FOLLOWER_ANSWER_OUT, number)

        elif kind == ANSWER_OUT:  # and the connection's next request is read
            number = requests[what].connection
            connection = connections[number]
            if o.acks != 0:
                line = 2 * number + BACK
                at_s = _carry(connection_lines, delays_s, line, now_s, o.request_bytes)
                _push(heap, counts, at_s, ANSWER_IN, what)
            following = connection.unread_first
            if following < 0:
                connection.is_reading = False
            else:
                connection.unread_first = requests[following].next
                _handle(
                    following, requests, batches, connections, brokers, hosts, machines, cores,
                    heap, counts, o, c, now_s,
                )  # fmt: skip

        elif kind == ANSWER_IN:
            request = requests[what]
            connection = connections[request.connection]
            work_s = c.client_answer + c.client_answer_message * request.messages
            done_s = _burst(hosts, machines, cores, c, connection.host, now_s, work_s)
            _finish(batches, counts, request.batch, done_s + c.wake)
            connection.in_flight -= 1
            if connection.waiting >= 0:
                number = connection.waiting
                connection.waiting = -1
                connection.in_flight += 1
                line = 2 * request.connection + OUT
                size = requests[number].size_bytes
                at_s = _carry(connection_lines, delays_s, line, now_s, size)
                _push(heap, counts, at_s, REQUEST_IN, number)
            if not threads[connection.thread].is_serving:
                threads[connection.thread].is_serving = True
                _push(heap, counts, now_s, SERVE, connection.thread)

        elif kind == FOLLOWER_ANSWER_OUT:
            follower = followers[what]
            size = 0.0
            for number in range(follower.begin, follower.end):
                copy = copies[number]
                partition = partitions[copy.partition]
                for place in range(copy.carried, partition.log_end):
                    size += batches[log[partition.log_from + place]].size_bytes
                copy.carried = partition.log_end
            follower.size_bytes = size
            line = 2 * what + BACK
            pieces = _FETCH_PIECES if size > 0 else 1
            at_s = _carry(follower_lines, delays_s, line, now_s, o.request_bytes + size, pieces)
            _push(heap, counts, at_s, FOLLOWER_ANSWER_IN, what)

        elif kind == FOLLOWER_ANSWER_IN:  # the follower appends, and fetches again
            follower = followers[what]
            work_s = c.follower_append + c.follower_byte * follower.size_bytes
            host = brokers[follower.broker].host
            done_s = _burst(hosts, machines, cores, c, host, now_s, work_s)
            at_s = _carry(follower_lines, delays_s, 2 * what + OUT, done_s, o.request_bytes)
            _push(heap, counts, at_s, FOLLOWER_FETCH_IN, what)

        elif kind == FOLLOWER_FETCH_IN:
            host = brokers[followers[what].leader].host
            done_s = _burst(hosts, machines, cores, c, host, now_s, c.follower_fetch)
            _push(heap, counts, done_s, FOLLOWER_FETCH_DONE, what)

        elif kind == FOLLOWER_FETCH_DONE:
            # It says what the follower has; it is answered if there is more, else it waits.
            follower = followers[what]
            has_more = False
            for number in range(follower.begin, follower.end):
                copy = copies[number]
                partition = partitions[copy.partition]
                has_more = has_more or partition.log_end > copy.carried
                if copy.replicated < copy.carried:
                    copy.replicated = copy.carried
                    _advance(
                        partition, copies, partition_copies, reads, partition_reads, log,
                        batches, requests, readers, brokers, hosts, machines, cores, heap,
                        counts, o, c, now_s,
                    )  # fmt: skip
            if has_more:
                host = brokers[follower.leader].host
                done_s = _burst(hosts, machines, cores, c, host, now_s, c.follower_answer)
                _push(heap, counts, done_s, FOLLOWER_ANSWER_OUT, what)
            else:
                follower.is_parked = True

        elif kind == READER_ANSWER_OUT:
            reader = readers[what]
            size = o.request_bytes
            for number in range(reader.begin, reader.end):
                read = reads[number]
                partition = partitions[read.partition]
                for place in range(read.fetched, partition.high_watermark):
                    size += batches[log[partition.log_from + place]].size_bytes
                read.fetched = partition.high_watermark
            reader.available_bytes = 0.0
            at_s = _carry(reader_lines, delays_s, 2 * what + BACK, now_s, size, _FETCH_PIECES)
            _push(heap, counts, at_s, READER_ANSWER_IN, what)

        elif kind == READER_ANSWER_IN:
            # The application gets messages one by one, while the next fetch is under way.
            reader = readers[what]
            done_s = _burst(hosts, machines, cores, c, reader.host, now_s, c.reader_request)
            received = 0
            for number in range(reader.begin, reader.end):
                read = reads[number]
                partition = partitions[read.partition]
                for place in range(read.position, read.fetched):
                    batch = batches[log[partition.log_from + place]]
                    if reader.is_watcher:
                        batch.seen_s = done_s
                    else:
                        batch.received_s = done_s
                        batch.received_place = received
                    received += batch.messages
                read.position = read.fetched
            counts[DONE] += received
            if received > 0 and c.reader_message > 0:
                work_s = received * c.reader_message
                _occupy(hosts, machines, cores, c, reader.host, done_s, work_s, work_s)
            at_s = _carry(reader_lines, delays_s, 2 * what + OUT, done_s, o.request_bytes)
            _push(heap, counts, at_s, READER_FETCH_IN, what)

        elif kind == READER_FETCH_IN:
            host = brokers[readers[what].leader].host
            done_s = _burst(hosts, machines, cores, c, host, now_s, c.reader_fetch)
            _push(heap, counts, done_s, READER_FETCH_DONE, what)

        elif kind == READER_FETCH_DONE:
            reader = readers[what]
            reader.is_waiting = True
            reader.number += 1
            if reader.available_bytes >= reader.fetch_min_bytes:
                _answer_reader(
                    reader, what, brokers, hosts, machines, cores, heap, counts, c, now_s
                )
            elif reader.fetch_min_bytes > 1:
                # A wait for one byte ends with the first message: no timer is needed.
                timer = reader.number * readers.size + what
                _push(heap, counts, now_s + reader.fetch_wait_s, READER_WAITED, timer)

        elif kind == READER_WAITED:
            number = what % readers.size
            reader = readers[number]
            if reader.is_waiting and reader.number == what // readers.size:
                _answer_reader(
                    reader, number, brokers, hosts, machines, cores, heap, counts, c, now_s
                )

        else:
            burst_s = np.random.exponential(c.background_burst)
            host = hosts.size - machines.size + what
            _occupy(hosts, machines, cores, c, host, now_s, burst_s, burst_s)
            gap_s = np.random.exponential(1 / c.background_per_s)
            _push(heap, counts, now_s + gap_s, BACKGROUND, what)
    return now_s
