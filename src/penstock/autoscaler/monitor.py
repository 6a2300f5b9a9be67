"""The monitor: measures the write speed of every partition (S2, 4.2)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.autoscaler.core.write_speed import PERIOD_S, Sample, WriteSpeed
from penstock.domain.autoscaling import PartitionSpeed, SpeedMeasurement
from penstock.domain.lake.partition import Partition
from penstock.domain.lake.pipeline import Pipeline
from penstock.domain.lake.stall import Stalls
from penstock.kafka.brokers import Brokers
from penstock.kafka.log_sizes import LogSizes

# Slow brokers give fewer samples: an answer is used if it took no more than this share of the time
# since the last one.
_VAGUE = 0.2


class Monitor:
    """Measures the partitions of a pipeline; call `look` every `PERIOD_S`."""

    def __init__(self, pipeline: Pipeline, config: Mapping[str, Any]) -> None:
        self._pipeline = pipeline
        self._brokers = Brokers(config)
        self._sizes = LogSizes(config)
        self._speeds: dict[Partition, WriteSpeed] = {}
        self._reported: dict[str, PartitionSpeed] = {}
        self._partitions: set[Partition] = set()
        # A topic that existed may be deleted; one that never existed is a mistake in the file.
        self._known_topics: set[str] = set()
        self._sampled_s = float("-inf")
        self._discovered_s = float("-inf")
        self._problem: str | None = None
        self._stalls = Stalls()
        # Partitions that have not answered for a while, each with the time since.
        self.stalled: Mapping[Partition, float] = {}

    def close(self) -> None:
        self._sizes.close()

    def new_problem(self) -> str | None:
        """Why sizes are not known; reported once, until they are known again."""
        before, self._problem = self._problem, self._sizes.problem
        return self._problem if before is None else None

    def knows(self, partitions: Iterable[str]) -> None:
        """Note that these partitions existed once."""
        self._known_topics |= {Partition.parse(name).topic for name in partitions}

    @property
    def skipped(self) -> tuple[str, ...]:
        """Topics that the pipeline's streams name or match, but that are never landed."""
        return self._brokers.skipped

    def look(self) -> SpeedMeasurement | None:
        """None if there is nothing new. Raises `BrokersUnavailable` if no broker answers."""
        silent = self._partitions
        try:
            measurement = self._measure()
            silent = {p for p in self._partitions if p in self._brokers.silent}
        finally:
            self.stalled = self._stalls.look(silent, time.time())
        return measurement

    def _measure(self) -> SpeedMeasurement | None:
        if time.monotonic() - self._discovered_s >= self._pipeline.discover_s:
            self._partitions, _ = self._brokers.discover(self._pipeline, self._known_topics)
            self._known_topics |= {partition.topic for partition in self._partitions}
            self._discovered_s = time.monotonic()
            for gone in self._speeds.keys() - self._partitions:
                del self._speeds[gone]
                self._reported.pop(str(gone), None)
        sizes = self._sizes.of(self._partitions)
        asked_s = time.monotonic()
        marks = self._brokers.marks(self._partitions)
        took_s = time.monotonic() - asked_s
        if took_s > max(PERIOD_S, _VAGUE * (asked_s - self._sampled_s)):
            return None  # the time of the sample is too uncertain
        self._sampled_s = asked_s
        for partition, mark in marks.items():
            watched = self._speeds.setdefault(partition, WriteSpeed())
            at_s = asked_s + took_s / 2
            watched.add(Sample(at_s, mark.low, mark.high, sizes.get(partition)))
        # A partition without a leader, or that was just re-created, keeps its last known speed.
        measured = ((str(partition), watched.speed) for partition, watched in self._speeds.items())
        self._reported |= {name: speed for name, speed in measured if speed is not None}
        if not self._reported:
            return None
        return SpeedMeasurement(at_ms=round(time.time() * 1000), partitions=dict(self._reported))
