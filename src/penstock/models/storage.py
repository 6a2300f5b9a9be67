"""Disks and network of brokers: what a stream takes, until when, and how unevenly (S0, 4.2.2, 4.3.3).

Symbols:

    w_i     bytes/s of record batches that broker i leads, R_i·S_b·batches (`throughput`)
    r       replicas of each partition
    H_i     bytes on broker i after T seconds: T·(1 + index share)·(what it leads + what it copies);
            T times `disk_bytes_per_s`
    index   one entry of 8 + 12 bytes (offset and time index) per `index.interval.bytes`, at most
            one per batch

The document's eq. 4.2 counts request headers as stored, one index of the two, and no replicas; the
three are corrected here. Segments are deleted as a whole, so up to one segment per partition more is
on disk than retention allows (`segment_bytes`).

Assumptions: followers of a leader's partitions are spread evenly over the other brokers; nothing is
compacted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.domain.errors import BadInput
from penstock.models.record_batch import stored_bytes

Floats = npt.NDArray[np.float64]
DAY_S = 86_400.0


@dataclass(frozen=True)
class BrokerUse:
    """Bytes/s, by broker."""

    disk_bytes_per_s: Floats
    network_in_bytes_per_s: Floats
    network_out_bytes_per_s: Floats

    def retention_s(
        self, capacity_bytes: float, *, partitions: int = 0, segment_bytes: float = 0.0
    ) -> float:
        """The longest retention that fits the fullest broker, with room for the segments that are
        being written, one per partition on it. Without segments: the time until it is full."""
        room = capacity_bytes - partitions * segment_bytes
        if room <= 0:
            raise BadInput(
                f"{partitions} partitions with segments of {segment_bytes:g} bytes do not fit "
                f"{capacity_bytes:g} bytes",
                "use smaller segments (segment.bytes), fewer partitions or a larger disk",
            )
        return float(room / self.disk_bytes_per_s.max())


def broker_use(
    led_bytes_per_s: npt.ArrayLike,
    batch: float,
    *,
    replication: int = 1,
    request_bytes_per_s: npt.ArrayLike | None = None,
    readers: float = 1.0,
    index_interval_bytes: int = 4096,
) -> BrokerUse:
    """`led_bytes_per_s`: record batches that each broker gets from producers; `batch`: bytes of one;
    `request_bytes_per_s`: the same with everything around batches; `readers`: consumer groups."""
    led = np.asarray(led_bytes_per_s, np.float64)
    if not 1 <= replication <= led.size:
        raise BadInput(f"replication: {replication} replicas need as many brokers, not {led.size}")
    if batch <= 0 or np.any(led < 0):
        raise BadInput("batches and their rates must not be negative")
    others = led.size - 1
    # Each follower's share of what another broker leads.
    copied = (led.sum() - led) * (replication - 1) / others if others else np.zeros_like(led)
    factor = stored_bytes(batch, index_interval_bytes) / batch
    received = led if request_bytes_per_s is None else np.asarray(request_bytes_per_s, np.float64)
    return BrokerUse(
        disk_bytes_per_s=factor * (led + copied),
        network_in_bytes_per_s=received + copied,
        network_out_bytes_per_s=led * (replication - 1 + readers),
    )


def leaders(partitions: int, brokers: int) -> tuple[int, ...]:
    """p_i: how many of so many partitions each broker leads, as Kafka assigns them."""
    if partitions < 1 or brokers < 1:
        raise BadInput("there must be a partition and a broker")
    return tuple(math.ceil((partitions - number) / brokers) for number in range(brokers))
