"""Prometheus metrics of the autoscaler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock.autoscaler.core import actions
from penstock.autoscaler.core.policy import View
from penstock.lake.metrics import SECONDS, NotLanded

_PREFIX = "penstock_autoscaler_"
_BRIEF = (0.001, 0.0025, 0.005, 0.01, 0.025, *SECONDS)


class Metrics:
    """Metrics of the autoscaler's events. `is_plain`: also rejects and stalls of its hosts, which a
    pipeline on Spark counts itself."""

    def __init__(
        self, pipeline: str, registry: CollectorRegistry, *, is_plain: bool = False
    ) -> None:
        self._pipeline = pipeline
        self._now = _Now(pipeline)
        registry.register(self._now)
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        whole, trigger, lane = ["pipeline"], ["pipeline", "trigger"], ["pipeline", "lane"]
        self._decisions = counter(f"{_PREFIX}decisions", "New plans, by trigger.", trigger)
        text = "Partitions moved from one lane to another."
        self._moves = counter(f"{_PREFIX}moves", text, whole)
        text = "Time from a measurement to the resulting command."
        self._decide = histogram(f"{_PREFIX}decide_seconds", text, whole, buckets=_BRIEF)
        text = "Time from a plan to its last acknowledgement."
        self._hand_over = histogram(f"{_PREFIX}hand_over_seconds", text, whole, buckets=SECONDS)
        text = "Time from the start of a consumer to its first answer."
        self._start = histogram(f"{_PREFIX}start_seconds", text, whole, buckets=SECONDS)
        text = "Age of the oldest record of a lane's cycle when it became readable."
        self._latency = histogram(f"{_PREFIX}latency_seconds", text, lane, buckets=SECONDS)
        self._not_landed = NotLanded(pipeline, registry) if is_plain else None

    def add(self, event: actions.AutoscalerEvent) -> None:
        name = self._pipeline
        match event:
            case actions.GroupMeasured():
                self._now.view, self._now.busy_s = event.view, event.busy_s
            case actions.LanesDecided():
                self._decisions.labels(name, event.trigger.value).inc()
                self._moves.labels(name).inc(event.moves)
            case actions.LanesCommanded():
                self._decide.labels(name).observe(event.took_s)
            case actions.LanesHandedOver():
                self._hand_over.labels(name).observe(event.took_s)
            case actions.HostStarted():
                self._start.labels(name).observe(event.took_s)
            case actions.HostAnswered():
                for cycle in event.answer.cycles:
                    if cycle.oldest_s is not None:
                        self._latency.labels(name, str(cycle.lane)).observe(cycle.oldest_s)
                    if self._not_landed is not None:
                        self._not_landed.reject(cycle.rejects)
            case actions.PartitionsUnread() if self._not_landed is not None:
                self._not_landed.see(event.stalled, event.skipped)


class _Now(Collector):
    """The present state of the group. Gauges are made when they are collected, so that partitions
    that are gone disappear."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self.view: View | None = None
        self.busy_s: Mapping[int, float] = {}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if (view := self.view) is None:
            return
        lanes = sorted(set(view.current.values()))
        loads, partition = view.loads, ("topic", "partition")
        text = "Bytes/s written to a partition."
        yield self._gauge("write_bytes_per_second", text, partition, view.speeds)
        yield self._gauge("lag_bytes", "Bytes not landed yet.", partition, view.lag_bytes)
        text = "The lane that reads a partition."
        yield self._gauge("plan_lane", text, partition, view.current)
        text = "Bytes/s written to the partitions of a lane."
        by_lane = {(lane,): loads.get(lane, 0.0) for lane in lanes}
        yield self._gauge("lane_load_bytes_per_second", text, ("lane",), by_lane)
        text = "Bytes/s that a lane can read, measured while it was at its limit."
        by_lane = {(lane,): view.capacity_of(lane) for lane in lanes}
        yield self._gauge("lane_capacity_bytes_per_second", text, ("lane",), by_lane)
        text = "Seconds since the main thread of a host last finished a turn."
        by_host = {(host,): busy_s for host, busy_s in self.busy_s.items()}
        yield self._gauge("host_busy_seconds", text, ("host",), by_host)
        yield self._gauge("lanes", "Lanes that have partitions.", (), {(): len(lanes)})

    def _gauge(
        self, name: str, text: str, labels: Sequence[str], values: Mapping[Any, float]
    ) -> GaugeMetricFamily:
        """`values` by labels."""
        gauge = GaugeMetricFamily(f"{_PREFIX}{name}", text, labels=["pipeline", *labels])
        for place, value in values.items():
            gauge.add_metric([self._pipeline, *map(str, place)], value)
        return gauge
