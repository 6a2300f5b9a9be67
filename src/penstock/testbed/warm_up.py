"""Load before a measurement: a cold cluster shows medians a hundred times those of a warm one."""

from __future__ import annotations

import time

from penstock.domain.cluster import TopicSpec
from penstock.testbed.cluster import Cluster
from penstock.testbed.observe import observe


def warm_up(cluster: Cluster, seconds: float) -> None:
    """Use the brokers until Java has compiled their hot paths, those that answer us included:
    the first looks at a broker cost it twenty times what later ones do."""
    topic = f"penstock-warm-up-{cluster.held.id}"
    brokers = len(cluster.broker_ids)
    partitions = 2 * brokers
    cluster.create_topic(TopicSpec(name=topic, partitions=partitions, replication=min(3, brokers)))
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        # Many small requests: it is the handling of requests that must be compiled. acks=1, or
        # an emulated network between the brokers would hold them back.
        small: dict[str, str | int] = {"acks": "1", "linger.ms": 0, "batch.num.messages": 5}
        cluster.admin.send(topic, partitions, messages=5000, size_bytes=100, **small)
        for _ in range(3):
            observe(cluster)
    cluster.admin.delete_topic(topic)
