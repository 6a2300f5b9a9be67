"""Throughput of producers that always have more to send (S0, 4.2.1); consumers are in `reading`.

Symbols:

    N_b      messages per batch; batches are full
    S_m      bytes of a message's key and value
    S_b      bytes of a batch (`record_batch`)
    p_i      partitions that broker i leads
    S_r,i    bytes of a request to broker i: Java sends a batch for each of the p_i partitions in
             one request, librdkafka one partition per request (`requests`)
    G_i      s between two requests to broker i: f_p(S_r,i), linear, calibrated on short runs
    R_i      1/G_i, requests/s
    X_sp     Σ R_i, requests/s; X'_sp = Σ R_i·S_r,i, bytes/s; X_sm = Σ R_i·N_b·batches, messages/s
    φ_ps     S_m·X_sm / X'_sp, the share of the bytes sent that is payload; 1 − φ_ps is overhead

Assumptions: connections work side by side, each as fast as its requests allow. If messages are
spread over partitions by their keys, the slowest partition limits all others, since the client's
queue fills with what is for it (`by_key`). Kafka's quotas are per broker and client.
Valid within the range of sizes and partition counts that f was fitted on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from penstock.domain.errors import BadInput
from penstock.domain.run import RunSpec
from penstock.domain.value import Bound, Doc, Value
from penstock.models.observation import MeasuredSending
from penstock.models.path.from_run import KEY_BYTES, client_spec
from penstock.models.path.spec import ClientName
from penstock.models.ranges import beyond
from penstock.models.record_batch import batch_bytes, record_bytes
from penstock.models.requests import produce_request_bytes
from penstock.models.storage import leaders

Floats = npt.NDArray[np.float64]

LEAST_POINTS = 3


@dataclass(frozen=True, kw_only=True)
class RequestInterval(Value):
    """f: the time between two requests of a connection, by their size."""

    base_s: Annotated[float, Doc("of an empty request")]
    per_partition_s: Annotated[
        float, Doc("more for every partition of the topic: the client looks at each")
    ] = 0.0
    per_byte_s: Annotated[float, Bound(ge=0), Doc("more for every byte of the request")] = 0.0

    def seconds(self, partitions: npt.ArrayLike, size_bytes: npt.ArrayLike) -> Floats:
        counts, sizes = np.asarray(partitions), np.asarray(size_bytes)
        return np.asarray(self.base_s + self.per_partition_s * counts + self.per_byte_s * sizes)


@dataclass(frozen=True, kw_only=True)
class FittedRequestInterval(Value):
    """f with how well it fits, and the range of what it was fitted on."""

    interval: RequestInterval
    r_squared: float
    r_squared_by_partitions: Annotated[
        Mapping[str, float], Doc("where a number of partitions has enough points")
    ] = field(default_factory=dict)
    sizes_bytes: Annotated[tuple[float, float], Doc("of requests")]
    partitions: tuple[int, int]

    def outside(self, partitions: int, size_bytes: float) -> str | None:
        """What is outside the range of the fit, and by how much; None if nothing is."""
        for what, value, (low, high) in (
            ("bytes per request", size_bytes, self.sizes_bytes),
            ("partitions", float(partitions), self.partitions),
        ):
            if (note := beyond(what, value, low, high, "fitted")) is not None:
                return note
        return None


def fit_interval(
    partitions: npt.ArrayLike, size_bytes: npt.ArrayLike, interval_s: npt.ArrayLike
) -> FittedRequestInterval:
    """Least squares, relative to the interval: its errors grow with it."""
    counts, sizes, seconds = (
        np.asarray(a, np.float64) for a in (partitions, size_bytes, interval_s)
    )
    if not counts.shape == sizes.shape == seconds.shape or counts.ndim != 1:
        raise BadInput("partitions, sizes and intervals must be lists of the same length")
    if counts.size < LEAST_POINTS or np.unique(sizes).size < 2:
        raise BadInput(
            f"{counts.size} measurements of {np.unique(sizes).size} sizes are too few",
            f"measure at least {LEAST_POINTS}, with two sizes of requests or more",
        )
    if np.any(seconds <= 0) or not np.all(np.isfinite(seconds)):
        raise BadInput("an interval must be a number of seconds above 0")
    several = np.unique(counts).size > 1
    columns = [np.ones_like(sizes), sizes, *([counts] if several else [])]
    design = np.stack(columns, axis=1) / seconds[:, None]
    # No cost is below 0; each column in its own unit, since they differ by orders of magnitude.
    unit = design.max(axis=0)
    found, _ = nnls(design / unit, np.ones_like(seconds))
    found = found / unit
    interval = RequestInterval(
        base_s=float(found[0]),
        per_partition_s=float(found[2]) if several else 0.0,
        per_byte_s=float(found[1]),
    )
    predicted = interval.seconds(counts, sizes)
    return FittedRequestInterval(
        interval=interval,
        r_squared=_r_squared(seconds, predicted),
        r_squared_by_partitions={
            f"{count:g}": _r_squared(seconds[where], predicted[where])
            for count in np.unique(counts)
            if (where := counts == count).sum() >= LEAST_POINTS
        },
        sizes_bytes=(float(sizes.min()), float(sizes.max())),
        partitions=(int(counts.min()), int(counts.max())),
    )


def fit_sending(runs: Sequence[MeasuredSending]) -> FittedRequestInterval:
    """f_p from runs whose producers always had more to send."""
    return fit_interval(
        [run.spec.topic.partitions for run in runs],
        [run.request_bytes for run in runs],
        [run.interval_s for run in runs],
    )


def most_sent(
    fitted: FittedRequestInterval,
    run: RunSpec,
    compression_ratio: float = 1.0,
    *,
    client: ClientName = "librdkafka",
) -> SendThroughput:
    """The most that one producer of a run could send, in batches that are full."""
    key = None if run.workload.keys is None else KEY_BYTES
    value = run.workload.payload.mean_bytes
    count = full_batch(run, compression_ratio, client=client)
    quota = run.cluster.quotas.producer_mb_per_s
    model = ProducerThroughput(
        interval=fitted.interval,
        client=client,
        topic=run.topic.name,
        by_key=run.workload.keys is not None,
    )
    return model.predict(
        leaders(run.topic.partitions, run.cluster.brokers),
        count,
        value,
        key_bytes=key,
        compression_ratio=compression_ratio,
        quota_bytes_per_s=None if quota is None else 1e6 * quota,
    )


def full_batch(
    run: RunSpec, compression_ratio: float = 1.0, *, client: ClientName = "librdkafka"
) -> int:
    """Messages in a batch that is full."""
    path = client_spec(run, client)
    key = None if run.workload.keys is None else KEY_BYTES
    size = float(record_bytes(round(run.workload.payload.mean_bytes), key_bytes=key))
    return max(1, min(path.batch_messages, int(path.batch_bytes * compression_ratio / size)))


def _r_squared(measured: Floats, predicted: Floats) -> float:
    total = float(((measured - measured.mean()) ** 2).sum())
    return 1.0 - float(((measured - predicted) ** 2).sum()) / total if total else 1.0


@dataclass(frozen=True)
class SendThroughput:
    """What a client that always has more to send achieves; lists are by broker."""

    requests_per_s: Floats
    request_bytes: Floats
    messages_per_s: float
    payload_bytes_per_s: float
    # What limits a broker's share: "client", "quota", or another broker's ("balance").
    limited_by: tuple[str, ...]

    @property
    def bytes_per_s(self) -> Floats:
        """Sent to each broker; X'_sp is the sum."""
        return self.requests_per_s * self.request_bytes

    @property
    def payload_share(self) -> float:
        """φ_ps."""
        total = float(self.bytes_per_s.sum())
        return self.payload_bytes_per_s / total if total else 0.0


@dataclass(frozen=True, kw_only=True)
class ProducerThroughput(Value):
    """The model of one producer."""

    interval: RequestInterval
    client: ClientName = "librdkafka"
    topic: str = "topic"
    client_id: str = "rdkafka"
    by_key: Annotated[
        bool, Doc("keys spread messages evenly over partitions; false: the client chooses freely")
    ] = False

    def predict(
        self,
        leaders: Sequence[int],
        messages_per_batch: int,
        value_bytes: float,
        *,
        key_bytes: int | None = None,
        compression_ratio: float = 1.0,
        quota_bytes_per_s: float | None = None,
    ) -> SendThroughput:
        """`leaders`: p_i, the partitions that each broker leads; `quota_bytes_per_s`: per broker."""
        led = np.asarray(leaders, np.int64)
        if led.ndim != 1 or led.size == 0 or np.any(led < 0) or led.sum() == 0:
            raise BadInput(f"leaders: {list(leaders)} has no partition of a broker")
        batch = batch_bytes(
            messages_per_batch,
            value_bytes,
            key_bytes=key_bytes,
            compression_ratio=compression_ratio,
        )
        batches = led if self.client == "java" else np.minimum(led, 1)
        sizes = np.array([self._request_bytes(batch, int(count)) for count in batches])
        intervals = self.interval.seconds(led.sum(), sizes)
        if np.any(intervals <= 0):
            raise BadInput(
                "the fitted interval between requests is not above 0 for this size",
                "stay within the range of the fit, or measure this size too",
            )
        rates = np.where(led > 0, 1 / intervals, 0.0)
        limited = np.where(led > 0, "client", "nothing")
        if quota_bytes_per_s is not None:
            over = rates * sizes > quota_bytes_per_s
            rates = np.where(over, quota_bytes_per_s / sizes, rates)
            limited = np.where(over, "quota", limited)
        if self.by_key:
            per_partition = np.divide(
                rates * batches, led, where=led > 0, out=np.full(led.size, np.inf)
            )
            slowest = per_partition.min()
            held = (led > 0) & (per_partition > slowest)
            rates = np.where(held, slowest * led / np.maximum(batches, 1), rates)
            limited = np.where(held, "balance", limited)
        messages_per_s = float((rates * batches * messages_per_batch).sum())
        return SendThroughput(
            rates,
            sizes,
            messages_per_s,
            messages_per_s * (value_bytes + (key_bytes or 0)),
            tuple(map(str, limited)),
        )

    def _request_bytes(self, batch: float, partitions: int) -> float:
        topic = None if self.client == "java" else self.topic
        return produce_request_bytes(
            batch, partitions=max(1, partitions), topic=topic, client_id=self.client_id
        )


def largest_batch(
    model: ProducerThroughput,
    leaders: Sequence[int],
    value_bytes: float,
    quota_bytes_per_s: float,
    *,
    most: int = 10_000,
) -> int:
    """The most messages per batch with which no broker's quota is exceeded: the document's rule for
    the batch size under a quota (4.3.2)."""

    def fits(count: int) -> bool:
        sent = model.predict(leaders, count, value_bytes).bytes_per_s
        return bool(np.all(sent <= quota_bytes_per_s))

    if not fits(1):
        raise BadInput(
            f"a quota of {quota_bytes_per_s:g} bytes/s per broker is exceeded by single messages",
            "raise the quota, or send less",
        )
    low, high = 1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
