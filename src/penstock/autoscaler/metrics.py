"""What Prometheus may ask the autoscaler."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock.autoscaler.actions import (
    Commanded,
    Decided,
    Event,
    HandedOver,
    Heard,
    Looked,
    Started,
)
from penstock.autoscaler.view import View
from penstock.pipeline.lake.metrics import SECONDS

_BRIEF = (0.001, 0.0025, 0.005, 0.01, 0.025, *SECONDS)


class Metrics:
    """Counted from what it tells."""

    def __init__(self, pipeline: str, registry: CollectorRegistry) -> None:
        self._pipeline = pipeline
        self._now = _Now(pipeline)
        registry.register(self._now)
        one = ["pipeline"]
        self._decisions = Counter(
            "penstock_autoscaler_decisions",
            "Plans, by what made it decide.",
            [*one, "trigger"],
            registry=registry,
        )
        self._moves = Counter(
            "penstock_autoscaler_moves",
            "Partitions that went from one lane to another.",
            one,
            registry=registry,
        )
        self._decide = Histogram(
            "penstock_autoscaler_decide_seconds",
            "From a measurement to the command that follows from it.",
            one,
            buckets=_BRIEF,
            registry=registry,
        )
        self._hand_over = Histogram(
            "penstock_autoscaler_hand_over_seconds",
            "From a plan to the last acknowledgement that it holds.",
            one,
            buckets=SECONDS,
            registry=registry,
        )
        self._start = Histogram(
            "penstock_autoscaler_start_seconds",
            "From the start of a consumer until it is heard of.",
            one,
            buckets=SECONDS,
            registry=registry,
        )
        self._latency = Histogram(
            "penstock_autoscaler_latency_seconds",
            "Age of the oldest record of a lane's cycle when it could be read.",
            [*one, "lane"],
            buckets=SECONDS,
            registry=registry,
        )

    def add(self, event: Event) -> None:
        name = self._pipeline
        match event:
            case Looked():
                self._now.view = event.view
            case Decided():
                self._decisions.labels(name, event.trigger.value).inc()
                self._moves.labels(name).inc(event.moves)
            case Commanded():
                self._decide.labels(name).observe(event.took_s)
            case HandedOver():
                self._hand_over.labels(name).observe(event.took_s)
            case Started():
                self._start.labels(name).observe(event.took_s)
            case Heard():
                for cycle in event.answer.cycles:
                    if cycle.oldest_s is not None:
                        self._latency.labels(name, str(cycle.lane)).observe(cycle.oldest_s)


class _Now(Collector):
    """The group as it is: made when it is asked for, so what is gone is not shown for ever."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self.view: View | None = None

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if (view := self.view) is None:
            return
        for name, text, values in (
            ("write_bytes_per_second", "Bytes/s written to a partition.", view.speeds),
            ("lag_bytes", "Bytes that are not landed yet.", view.lag_bytes),
            ("plan_lane", "The lane that a partition is read by.", view.current),
        ):
            labels = ["pipeline", "topic", "partition"]
            gauge = GaugeMetricFamily(f"penstock_autoscaler_{name}", text, labels=labels)
            for (topic, number), value in values.items():
                gauge.add_metric([self._pipeline, topic, str(number)], value)
            yield gauge
        lanes = sorted(set(view.current.values()))
        loads = view.loads
        for name, text, by_lane in (
            ("lane_load_bytes_per_second", "Bytes/s written to what a lane reads.", loads),
            (
                "lane_capacity_bytes_per_second",
                "Bytes/s that a lane can read, as far as it was seen at its limit.",
                {lane: view.capacity_of(lane) for lane in lanes},
            ),
        ):
            gauge = GaugeMetricFamily(
                f"penstock_autoscaler_{name}", text, labels=["pipeline", "lane"]
            )
            for lane in lanes:
                gauge.add_metric([self._pipeline, str(lane)], by_lane.get(lane, 0.0))
            yield gauge
        total = GaugeMetricFamily(
            "penstock_autoscaler_lanes", "Lanes that have partitions.", labels=["pipeline"]
        )
        total.add_metric([self._pipeline], len(lanes))
        yield total
