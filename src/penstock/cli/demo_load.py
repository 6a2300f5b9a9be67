"""The load of the demo's lanes, as a separate process on the network of the cluster's clients:

python -m penstock.cli.demo_load BOOTSTRAP_SERVERS TOPIC PARTITIONS SECONDS:RECORDS_PER_S …
"""

from __future__ import annotations

import sys

from penstock.load.paced_producer import PacedProducer, Rates

SIZE_BYTES = 1000


def send(
    bootstrap_servers: str, topic: str, partitions: int, phases: list[tuple[float, float]]
) -> None:
    """Send to all partitions alike, at the rate of each phase."""

    def rates_at(at_s: float) -> Rates | None:
        for seconds, per_s in phases:
            if at_s < seconds:
                return dict.fromkeys(range(partitions), per_s / partitions)
            at_s -= seconds
        return None

    config = {"bootstrap.servers": bootstrap_servers, "linger.ms": 20}
    PacedProducer(config, topic, SIZE_BYTES).send(rates_at)


if __name__ == "__main__":
    _, servers, name, count, *texts = sys.argv
    phases = [text.split(":") for text in texts]
    send(servers, name, int(count), [(float(s), float(per_s)) for s, per_s in phases])
