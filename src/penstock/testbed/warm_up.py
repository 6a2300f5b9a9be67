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
        cluster.admin.send(topic, partitions=partitions, messages=2000, size_bytes=500)
        for _ in range(3):
            observe(cluster)
    cluster.admin.delete_topic(topic)
