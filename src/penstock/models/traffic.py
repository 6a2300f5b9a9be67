"""What a predicted run takes of networks and disks: bytes on the wire, per broker, until when. Pure.

By the sizes of `record_batch` and `requests` for the batches that `path` predicts, and the rules of
`storage`. Messages without keys are spread evenly over partitions; with keys, as librdkafka's CRC32
spreads them. TCP's headers are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from penstock.domain.run import RunSpec
from penstock.domain.value import Doc, Value
from penstock.models.path.from_run import KEY_BYTES, key_partitions, path_spec
from penstock.models.path.predict import Prediction
from penstock.models.path.spec import Floats
from penstock.models.record_batch import batch_bytes
from penstock.models.requests import produce_request_bytes
from penstock.models.storage import DAY_S, BrokerUse, broker_use

_MB = 1e6


@dataclass(frozen=True, kw_only=True)
class PredictedTraffic(Value):
    """In 10⁶ bytes/s; lists are by broker."""

    payload_mb_per_s: Annotated[float, Doc("keys and values, before compression")]
    sent_mb_per_s: Annotated[float, Doc("produce requests, after compression")]
    overhead_share: Annotated[float, Doc("of what is sent: what is not payload (compressed)")]
    network_in_mb_per_s: Annotated[tuple[float, ...], Doc("from producers and leaders")]
    network_out_mb_per_s: Annotated[tuple[float, ...], Doc("to followers and consumers")]
    disk_mb_per_s: Annotated[tuple[float, ...], Doc("of logs and their indexes")]

    def days_until_full(self, disk_gb: float) -> float:
        """Until the first broker's disk of so many 10⁹ bytes is full, without retention."""
        return disk_gb * 1e9 / (max(self.disk_mb_per_s) * _MB) / DAY_S

    @property
    def imbalance(self) -> float:
        """The fullest disk over the mean of all."""
        return max(self.disk_mb_per_s) / float(np.mean(self.disk_mb_per_s))


def traffic(
    run: RunSpec, prediction: Prediction, compression_ratio: float = 1.0
) -> PredictedTraffic:
    """What the run takes, by the prediction of its requests."""
    spec, workload = path_spec(run), run.workload
    key = None if workload.keys is None else KEY_BYTES
    value = workload.payload.mean_bytes
    count = max(1, round(prediction.batch_messages))
    # Batches vary; the mean over a whole number of messages is close enough per message.
    batch = (
        batch_bytes(count, value, key_bytes=key, compression_ratio=compression_ratio)
        / count
        * prediction.batch_messages
    )
    request = produce_request_bytes(batch, topic=run.topic.name)
    shares = np.zeros(spec.brokers)
    np.add.at(shares, spec.leaders, _partition_shares(run))
    use: BrokerUse = broker_use(
        prediction.requests_per_s * batch * shares,
        batch,
        replication=run.topic.replication,
        request_bytes_per_s=prediction.requests_per_s * request * shares,
        readers=1.0 + spec.is_watched if spec.consumers else float(spec.is_watched),
    )
    payload = prediction.messages_per_s * (value + (key or 0))
    sent = prediction.requests_per_s * request
    return PredictedTraffic(
        payload_mb_per_s=payload / _MB,
        sent_mb_per_s=sent / _MB,
        overhead_share=max(0.0, 1 - payload / compression_ratio / sent),
        network_in_mb_per_s=tuple((use.network_in_bytes_per_s / _MB).tolist()),
        network_out_mb_per_s=tuple((use.network_out_bytes_per_s / _MB).tolist()),
        disk_mb_per_s=tuple((use.disk_bytes_per_s / _MB).tolist()),
    )


def _partition_shares(run: RunSpec) -> Floats:
    """The share of messages that each partition gets."""
    partitions = run.topic.partitions
    if run.workload.keys is None:
        return np.full(partitions, 1 / partitions)
    counts = np.bincount(key_partitions(run.workload.keys, partitions), minlength=partitions)
    return np.asarray(counts / counts.sum())
