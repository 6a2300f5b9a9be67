"""The tables that the engine works on, and the kinds of its events."""

from __future__ import annotations

import numpy as np


def _table(**fields: type) -> np.dtype[np.void]:
    return np.dtype(list(fields.items()), align=True)


_int, _float, _bool = np.int64, np.float64, np.bool_

OPTIONS = _table(
    # One thread sends to all brokers, and a request has a batch of every partition (Java);
    # otherwise a thread per broker, and one partition per request (librdkafka).
    is_java=_bool,
    acks=_int,  # −1: all
    linger_s=_float,
    batch_messages=_int,
    batch_bytes=_float,
    in_flight=_int,
    request_bytes=_float,
)
# `next` is the next message of the same queue.
MESSAGE = _table(due_s=_float, size_bytes=_float, queue=_int, next=_int)
# Of a producer and a partition: messages that are not in a request yet. `formed` counts the others.
QUEUE = _table(
    partition=_int,
    connection=_int,
    thread=_int,
    first=_int,
    last=_int,
    messages=_int,
    size_bytes=_float,
    formed=_int,
)
# Of a client: its queues are thread_queues[begin:end]; `turn` is the one after that served last.
THREAD = _table(is_serving=_bool, begin=_int, end=_int, turn=_int)
# Of a producer and a broker; `waiting` is the request formed beyond the limit; unread: at the broker.
CONNECTION = _table(
    host=_int,
    broker=_int,
    thread=_int,
    in_flight=_int,
    waiting=_int,
    is_reading=_bool,
    unread_first=_int,
    unread_last=_int,
)
# `place`: of its first message in its queue; `next` batch of the same request.
BATCH = _table(
    queue=_int,
    place=_int,
    messages=_int,
    size_bytes=_float,
    request=_int,
    next=_int,
    formed_s=_float,
    handled_s=_float,
    appended_s=_float,
    answered_s=_float,
    readable_s=_float,
    received_s=_float,
    seen_s=_float,
    received_place=_int,
)
# `left`: batches that are not replicated yet.
REQUEST = _table(
    connection=_int, batch=_int, messages=_int, size_bytes=_float, left=_int, next=_int
)
# Its batches are log[log_from:log_from + log_end]; its copies on followers are
# partition_copies[copies_begin:copies_end], who reads it partition_reads[reads_begin:reads_end].
PARTITION = _table(
    leader=_int,
    log_from=_int,
    log_end=_int,
    high_watermark=_int,
    copies_begin=_int,
    copies_end=_int,
    reads_begin=_int,
    reads_end=_int,
)
# A partition on a follower: what the answer under way carries, and what the leader knows it has.
COPY = _table(partition=_int, carried=_int, replicated=_int)
# The fetches of a follower from a leader: its copies are copies[begin:end].
FOLLOWER = _table(
    broker=_int, leader=_int, begin=_int, end=_int, is_parked=_bool, size_bytes=_float
)
# A partition as one reader reads it: what the answer under way carries, and what it has received.
READ = _table(partition=_int, reader=_int, fetched=_int, position=_int)
# The fetches of a reader from a leader: its partitions are reads[begin:end]. The watcher is a second
# reader of everything, beside the brokers.
READER = _table(
    host=_int,
    leader=_int,
    begin=_int,
    end=_int,
    is_watcher=_bool,
    fetch_min_bytes=_float,
    fetch_wait_s=_float,
    is_waiting=_bool,
    available_bytes=_float,
    number=_int,
)
# Its followers (fetches of others from it) are followers[begin:end].
BROKER = _table(host=_int, heap_bytes=_float, pause_until_s=_float, begin=_int, end=_int)
# A client or a broker: where it runs, when it last worked, and how warm its caches were then, 0 to 1.
HOST = _table(machine=_int, worked_s=_float, warmth=_float)
# cpu_s: used altogether. Its cores are cores[begin:end]; none: as many as needed.
MACHINE = _table(cpu_s=_float, begin=_int, end=_int)
# One direction of a connection or of a fetch. Delays are drawn from delays_s[begin:end], and
# `extra_s` is added.
LINE = _table(
    begin=_int,
    end=_int,
    extra_s=_float,
    rate_bytes_per_s=_float,
    loss=_float,
    arrives_s=_float,
    free_s=_float,
    window=_float,
    used_s=_float,
)
EVENT = _table(at_s=_float, order=_int, kind=_int, what=_int)

# Of `counts`. DONE: messages that are acknowledged, and again when readable, and when received.
EVENTS, ORDER, BATCHES, REQUESTS, DONE, COUNTS = range(6)

(
    LINGER,
    SERVE,
    REQUEST_IN,
    APPENDED,
    ANSWER_OUT,
    ANSWER_IN,
    FOLLOWER_ANSWER_OUT,
    FOLLOWER_ANSWER_IN,
    FOLLOWER_FETCH_IN,
    FOLLOWER_FETCH_DONE,
    READER_ANSWER_OUT,
    READER_ANSWER_IN,
    READER_FETCH_IN,
    READER_FETCH_DONE,
    READER_WAITED,
    BACKGROUND,
) = range(16)

# The lines of a connection or of a fetch: requests, and answers.
OUT, BACK = 0, 1
