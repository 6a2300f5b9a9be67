"""Throughput of a consumer that is behind: it always has more to read (S0, 4.2.3).

Symbols:

    N_b      messages per batch, S_b its bytes (`record_batch`)
    k        whole batches of a partition in an answer: as many as `max.partition.fetch.bytes` holds,
             and one at least. (The document's S_f lacks the k.)
    S_f      bytes of an answer: k·S_b for each partition of the broker, `fetch.max.bytes` at most
    G        s between two answers: f_c = base + per message + per byte, calibrated on short readings
    X_c      messages/s: those of an answer over G

Assumptions: one thread of the client hands over what all brokers send, so answers follow one another,
whichever broker they are of. (In the document, connections work side by side; then a consumer would
be faster with more brokers, which it is not.) The application does nothing with a message; what it
does comes on top, per message. Kafka's quota is per broker and client.
Valid within the range of message sizes and partitions that f_c was fitted on, without compression.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.optimize import nnls

from penstock.domain.errors import BadInput
from penstock.domain.run import RunSpec
from penstock.domain.value import Bound, Doc, Value
from penstock.models.observation import MeasuredReading
from penstock.models.path.from_run import KEY_BYTES, number
from penstock.models.ranges import beyond
from penstock.models.record_batch import batch_bytes, record_bytes
from penstock.models.storage import leaders

LEAST_READINGS, _LEAST_SIZES = 4, 2
# librdkafka's defaults, which are Kafka's.
_PARTITION_BYTES, _ANSWER_BYTES = 1_048_576, 52_428_800


@dataclass(frozen=True, kw_only=True)
class FittedReading(Value):
    """f_c: the time between two answers, by what is in them; and what it was fitted on."""

    base_s: Annotated[float, Bound(ge=0), Doc("of an answer")]
    per_message_s: Annotated[float, Bound(ge=0), Doc("more for every message of it")]
    per_byte_s: Annotated[float, Bound(ge=0), Doc("more for every byte of records in it")]
    typical_error: Annotated[float, Doc("median of |measured / fitted − 1|, in sample")]
    message_bytes: Annotated[tuple[int, int], Doc("least and most that was measured")]
    partitions: tuple[int, int]

    def seconds(self, messages: float, size_bytes: float) -> float:
        return self.base_s + self.per_message_s * messages + self.per_byte_s * size_bytes


def can_fit_reading(readings: Sequence[MeasuredReading]) -> bool:
    """Whether there are enough, of different sizes."""
    sizes = {one.message_bytes for one in readings}
    return len(readings) >= LEAST_READINGS and len(sizes) >= _LEAST_SIZES


def fit_reading(readings: Sequence[MeasuredReading]) -> FittedReading:
    """f_c by least squares, relative to the interval; no cost is below 0."""
    if not can_fit_reading(readings):
        raise BadInput(
            f"{len(readings)} readings of "
            f"{len({one.message_bytes for one in readings})} message sizes are too few",
            f"measure at least {LEAST_READINGS}, of {_LEAST_SIZES} sizes or more",
        )
    design = np.array(
        [
            [1.0, one.fetch_messages, one.fetch_messages * float(record_bytes(one.message_bytes))]
            for one in readings
        ]
    )
    seconds = np.array([one.interval_s for one in readings])
    # Costs differ by orders of magnitude: each column in its own unit.
    unit = (design / seconds[:, None]).max(axis=0)
    found, _ = nnls(design / seconds[:, None] / unit, np.ones_like(seconds))
    base, per_message, per_byte = found / unit
    sizes = [one.message_bytes for one in readings]
    counts = [one.partitions for one in readings]
    return FittedReading(
        base_s=float(base),
        per_message_s=float(per_message),
        per_byte_s=float(per_byte),
        typical_error=float(np.median(np.abs(seconds / (design @ (found / unit)) - 1))),
        message_bytes=(min(sizes), max(sizes)),
        partitions=(min(counts), max(counts)),
    )


@dataclass(frozen=True)
class ReadThroughput:
    """The most that one consumer reads."""

    messages_per_s: float
    # Keys and values.
    payload_mb_per_s: float
    # Of a mean answer.
    fetch_messages: float
    limited_by: str = "client"
    # What the fit does not cover, a sentence each.
    outside: tuple[str, ...] = ()


def most_read(fitted: FittedReading, run: RunSpec, messages_per_batch: float) -> ReadThroughput:
    """The most that one consumer of a run could read, of batches of so many messages."""
    key = None if run.workload.keys is None else KEY_BYTES
    value = run.workload.payload.mean_bytes
    count = max(1, round(messages_per_batch))
    batch = float(batch_bytes(count, value, key_bytes=key))
    read = run.consumers.settings
    limit = number(
        read,
        "max.partition.fetch.bytes",
        number(read, "fetch.message.max.bytes", _PARTITION_BYTES, 1),
        1,
    )
    most = number(read, "fetch.max.bytes", _ANSWER_BYTES)
    # A batch is sent whole if it is the first, however large.
    whole = max(1, int(limit // batch))
    led = np.array(leaders(run.topic.partitions, run.cluster.brokers), np.float64)
    of_consumer = led / max(1, run.consumers.count)
    batches = np.minimum(of_consumer * whole, max(1.0, most // batch))
    # Every broker with a partition answers as often as the others.
    per_answer = float(batches[led > 0].mean())
    messages = per_answer * count
    each = float(record_bytes(round(value), key_bytes=key))
    per_s = messages / fitted.seconds(messages, messages * each)
    payload = value + (key or 0)
    limited_by = "client"
    quota = run.cluster.quotas.consumer_mb_per_s
    if quota is not None:
        allowed = 1e6 * quota * np.count_nonzero(led) / (batch / count)
        if allowed < per_s:
            per_s, limited_by = float(allowed), "quota"
    return ReadThroughput(per_s, per_s * payload / 1e6, messages, limited_by, _outside(fitted, run))


def _outside(fitted: FittedReading, run: RunSpec) -> tuple[str, ...]:
    measured = "that consumers were measured with"
    notes = (
        beyond(
            "bytes per message", run.workload.payload.mean_bytes, *fitted.message_bytes, measured
        ),
        beyond("partitions", run.topic.partitions, *fitted.partitions, measured),
    )
    return tuple(note for note in notes if note is not None)
