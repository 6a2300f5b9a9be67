"""What Prometheus is told of the autoscaler."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from penstock.autoscaler.actions import Commanded, Decided, HandedOver, Heard, Looked, Started, Tell
from penstock.autoscaler.metrics import Metrics
from penstock.autoscaler.view import Trigger, View
from penstock.domain.autoscaling import Answer, Cycle, Measurement
from penstock.domain.lake.partition import Partition

A, B = Partition("t", 0), Partition("t", 1)


def view(current: dict[Partition, int]) -> View:
    return View(
        now_s=0.0,
        since_change_s=0.0,
        speeds={A: 100.0, B: 50.0},
        peaks={},
        lag_bytes={A: 7.0},
        overdue_bytes={},
        current=current,
        capacities={1: 80.0},
        capacity=200.0,
        most_lanes=4,
    )


def test_every_figure_of_the_group_is_there_and_what_is_gone_is_not() -> None:
    registry = CollectorRegistry()
    metrics = Metrics("p", registry)
    assert "plan_lane{" not in generate_latest(registry).decode()  # nothing was measured yet
    metrics.add(Looked(Measurement(at_ms=0), view({A: 0, B: 1})))
    metrics.add(Decided(1.0, Trigger.EXCEEDED, "because.", {A: 0, B: 0}, 1, 1, 50.0))
    metrics.add(Commanded(0.004))
    metrics.add(HandedOver(0.7))
    metrics.add(Started(1, 3.0))
    metrics.add(Tell("something"))
    cycle = Cycle(lane=1, took_s=1.0, is_saturated=False, size_bytes=1, oldest_s=0.2)
    metrics.add(Heard(Answer(host=0, cycles=(cycle,))))
    text = generate_latest(registry).decode()
    for line in (
        'write_bytes_per_second{partition="1",pipeline="p",topic="t"} 50.0',
        'lag_bytes{partition="0",pipeline="p",topic="t"} 7.0',
        'plan_lane{partition="1",pipeline="p",topic="t"} 1.0',
        'lane_load_bytes_per_second{lane="0",pipeline="p"} 100.0',
        'lane_capacity_bytes_per_second{lane="1",pipeline="p"} 80.0',
        'lanes{pipeline="p"} 2.0',
        'decisions_total{pipeline="p",trigger="capacity exceeded"} 1.0',
        'moves_total{pipeline="p"} 1.0',
        'decide_seconds_bucket{le="0.005",pipeline="p"} 1.0',
        'hand_over_seconds_sum{pipeline="p"} 0.7',
        'start_seconds_sum{pipeline="p"} 3.0',
        'latency_seconds_sum{lane="1",pipeline="p"} 0.2',
    ):
        assert f"penstock_autoscaler_{line}\n" in text
    metrics.add(Looked(Measurement(at_ms=0), view({A: 0})))
    text = generate_latest(registry).decode()
    assert 'plan_lane{partition="1"' not in text
    assert 'lane_load_bytes_per_second{lane="1"' not in text
