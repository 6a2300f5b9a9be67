"""The monitor: what is written to each partition, again and again (S2, 4.2)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.autoscaler.log_sizes import LogSizes
from penstock.autoscaler.write_speed import PERIOD_S, Sample, WriteSpeed
from penstock.domain.autoscaling import Measurement, PartitionSpeed
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline
from penstock.pipeline.lake.brokers import Brokers

# Brokers that are slow to answer are asked less often: an answer is taken if it took no more than
# this share of the time since the last one.
_VAGUE = 0.2


class Monitor:
    """Looks at the partitions of a pipeline; call `look` every `PERIOD_S`."""

    def __init__(self, pipeline: Pipeline, config: Mapping[str, Any]) -> None:
        self._pipeline = pipeline
        self._brokers = Brokers(config)
        self._sizes = LogSizes(config)
        self._speeds: dict[Partition, WriteSpeed] = {}
        self._told: dict[Partition, PartitionSpeed] = {}
        self._partitions: set[Partition] = set()
        # A topic that was there may be deleted; one that never was is a mistake in the file.
        self._known_topics: set[str] = set()
        self._sampled_s = float("-inf")
        self._discovered_s = float("-inf")
        self._problem: str | None = None

    def close(self) -> None:
        self._sizes.close()

    def new_problem(self) -> str | None:
        """Why sizes are not known; once, until they were."""
        before, self._problem = self._problem, self._sizes.problem
        return self._problem if before is None else None

    def knows(self, partitions: Iterable[str]) -> None:
        """That they were there once."""
        self._known_topics |= {Partition.parse(name).topic for name in partitions}

    def look(self) -> Measurement | None:
        """None if there is nothing new to tell. `Away` if no broker answers."""
        if time.monotonic() - self._discovered_s >= self._pipeline.discover_s:
            self._partitions, _ = self._brokers.discover(self._pipeline, self._known_topics)
            self._known_topics |= {partition.topic for partition in self._partitions}
            self._discovered_s = time.monotonic()
            for gone in self._speeds.keys() - self._partitions:
                del self._speeds[gone]
                self._told.pop(gone, None)
        sizes = self._sizes.of(self._partitions)
        asked_s = time.monotonic()
        marks = self._brokers.marks(self._partitions)
        took_s = time.monotonic() - asked_s
        if took_s > max(PERIOD_S, _VAGUE * (asked_s - self._sampled_s)):
            return None  # nobody knows when in that time it was so
        self._sampled_s = asked_s
        for partition, mark in marks.items():
            watched = self._speeds.setdefault(partition, WriteSpeed())
            at_s = asked_s + took_s / 2
            watched.add(Sample(at_s, mark.low, mark.high, sizes.get(partition)))
        for partition in self._partitions:
            # One that has no leader just now keeps what is known of it.
            watched = self._speeds.setdefault(partition, WriteSpeed())
            if (speed := watched.speed) is not None:
                self._told[partition] = PartitionSpeed(
                    records_per_s=speed.records_per_s,
                    bytes_per_record=speed.bytes_per_record,
                    end=marks[partition].high if partition in marks else self._told[partition].end,
                )
        if not self._told:
            return None
        told = {str(partition): speed for partition, speed in self._told.items()}
        return Measurement(at_ms=round(time.time() * 1000), partitions=told)
