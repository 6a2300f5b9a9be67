"""What Prometheus is told of the autoscaler."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from penstock.autoscaler.core.actions import (
    AutoscalerNotice,
    GroupMeasured,
    HostAnswered,
    HostStarted,
    LanesCommanded,
    LanesDecided,
    LanesHandedOver,
    PartitionsUnread,
)
from penstock.autoscaler.core.policy import Trigger, View
from penstock.autoscaler.metrics import Metrics
from penstock.domain.autoscaling import HostAnswer, SpeedMeasurement
from penstock.domain.lake.cycle import LaneCycle
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
    metrics.add(GroupMeasured(SpeedMeasurement(at_ms=0), view({A: 0, B: 1}), {0: 0.5, 1: 75.0}))
    metrics.add(LanesDecided(1.0, Trigger.EXCEEDED, "because.", {A: 0, B: 0}, 1, 1, 50.0))
    metrics.add(LanesCommanded(0.004))
    metrics.add(LanesHandedOver(0.7))
    metrics.add(HostStarted(1, 3.0))
    metrics.add(AutoscalerNotice("something"))
    cycle = LaneCycle(lane=1, took_s=1.0, is_saturated=False, size_bytes=1, oldest_s=0.2)
    metrics.add(HostAnswered(HostAnswer(host=0, cycles=(cycle,))))
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
        'host_busy_seconds{host="1",pipeline="p"} 75.0',
    ):
        assert f"penstock_autoscaler_{line}\n" in text
    metrics.add(GroupMeasured(SpeedMeasurement(at_ms=0), view({A: 0}), {0: 0.5}))
    text = generate_latest(registry).decode()
    assert 'host_busy_seconds{host="1"' not in text
    assert 'plan_lane{partition="1"' not in text
    assert 'lane_load_bytes_per_second{lane="1"' not in text


def test_what_plain_consumers_do_not_land_is_counted() -> None:
    registry = CollectorRegistry()
    metrics = Metrics("p", registry, is_plain=True)
    for rejects in ({"not-json": 2, "no-table": 1}, {"not-json": 3}):
        cycle = LaneCycle(lane=1, took_s=1.0, is_saturated=False, size_bytes=1, rejects=rejects)
        metrics.add(HostAnswered(HostAnswer(host=0, cycles=(cycle,))))
    text = generate_latest(registry).decode()
    assert 'penstock_rejects_total{kind="not-json",pipeline="p"} 5.0' in text
    assert 'penstock_rejects_total{kind="no-table",pipeline="p"} 1.0' in text
    metrics.add(PartitionsUnread(stalled=2, skipped=1))
    text = generate_latest(registry).decode()
    assert 'penstock_stalled_partitions{pipeline="p"} 2.0' in text
    assert 'penstock_skipped_topics{pipeline="p"} 1.0' in text
