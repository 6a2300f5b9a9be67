"""What the controller knows of the load."""

from __future__ import annotations

import pytest

from penstock.autoscaler.core.load_estimate import Load
from penstock.domain.autoscaling import Autoscaling, HostAnswer, PartitionSpeed, SpeedMeasurement
from penstock.domain.lake.cycle import LaneCycle
from penstock.domain.lake.partition import Partition

PARTITION = Partition("t", 0)


def overdue_bytes(took_s: list[float]) -> float:
    """Of 300 bytes that wait, while 100 come per second, after cycles that took so long."""
    load = Load(Autoscaling())
    speed = PartitionSpeed(records_per_s=100.0, bytes_per_record=1.0, end=300)
    load.on_measured(SpeedMeasurement(at_ms=0, partitions={"t-0": speed}), 0.0)
    for host, seconds in enumerate(took_s):
        cycle = LaneCycle(lane=host, took_s=seconds, is_saturated=False, size_bytes=1)
        load.on_answer(HostAnswer(host=host, version=1, positions={"t-0": 0}, cycles=(cycle,)))
    return load.view(0.0, 0.0, {}, 8).overdue_bytes[PARTITION]


def test_what_comes_during_a_cycle_is_not_overdue() -> None:
    assert overdue_bytes([2.0]) == pytest.approx(0)
    assert overdue_bytes([0.1]) > 0


def test_first_cycles_whose_time_is_not_known_do_not_make_it_overdue() -> None:
    assert overdue_bytes([2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]) == pytest.approx(0)
