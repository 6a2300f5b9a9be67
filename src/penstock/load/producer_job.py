"""The job of one producer process, and what follows from its settings alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.domain.workload import Workload

# A message that has no timeout is waited for as long as librdkafka's default is.
LONGEST_TIMEOUT_S = 300.0
# More requests than this are not recorded one by one; then it is not known how often a message
# was tried. It concerns batches of a few messages only: a process sends a million messages/s at
# most, and librdkafka puts up to 10,000 into a batch by default.
MOST_REQUESTS_PER_S = 2_000
MOST_PER_S = 1_000_000
BATCH_NUM_MESSAGES = 10_000
# How often librdkafka counts what it did: rarely, since it takes it a millisecond.
STATISTICS_MS = 5_000


@dataclass(frozen=True)
class ProducerJob:
    """The job of one producer. Its number counts from 0."""

    producer: int
    topic: str
    config: Mapping[str, Any]
    workload: Workload
    warm_up_s: float
    seed: int
    directory: Path
    longest_warm_up_s: float = 0.0

    @property
    def name(self) -> str:
        return f"producer-{self.producer + 1}"

    @property
    def waits_for_warmth(self) -> bool:
        return self.longest_warm_up_s > self.warm_up_s

    @property
    def length_s(self) -> float:
        return max(self.warm_up_s, self.longest_warm_up_s) + self.workload.duration_s

    @property
    def timeout_s(self) -> float:
        """How long the client tries to send a message."""
        timeout_ms = _first(self.config, "message.timeout.ms", "delivery.timeout.ms")
        return LONGEST_TIMEOUT_S if not timeout_ms else float(timeout_ms) / 1000

    @property
    def retries(self) -> int:
        retries = _first(self.config, "retries", "message.send.max.retries")
        return 2**31 - 1 if retries is None else int(retries)

    @property
    def client_config(self) -> dict[str, Any]:
        """The user's configuration, with the client's counters, and with the log that the number of
        tries is read from."""
        counted = {"statistics.interval.ms": STATISTICS_MS, **self.config}
        if not self.records_requests:
            return counted
        debug = [part for part in str(self.config.get("debug", "")).split(",") if part]
        return {
            **counted,
            "debug": ",".join(dict.fromkeys([*debug, "msg"])),
            # Or librdkafka would keep back these lines; what goes to a file is chosen later.
            "log_level": 7,
        }

    @property
    def records_requests(self) -> bool:
        """False if there are so many requests that recording them would slow the producer down."""
        rate_per_s = min(MOST_PER_S, self.workload.arrivals.mean_per_s)
        batch = int(self.config.get("batch.num.messages", BATCH_NUM_MESSAGES))
        return rate_per_s / batch <= MOST_REQUESTS_PER_S


def _first(config: Mapping[str, Any], *names: str) -> Any:
    return next((config[name] for name in names if name in config), None)
