"""Faults as data: what can be said, and what cannot."""

from __future__ import annotations

import pytest

from penstock.domain.fault import LeaderOf, When, parse_broker
from penstock.domain.value import FieldError
from penstock.testbed.faults.kill import Kill
from penstock.testbed.faults.restart import Restart
from penstock.testbed.faults.slow_cpu import SlowCpu


def test_a_broker_is_meant_by_id_role_or_partition() -> None:
    assert parse_broker(2) == 2
    assert parse_broker("controller") is None
    assert parse_broker("leader of my-topic.v2-11") == LeaderOf("my-topic.v2", 11)
    with pytest.raises(FieldError, match="leader of TOPIC-PARTITION"):
        parse_broker("the third one")


def test_a_fault_strikes_at_a_time_or_on_a_condition() -> None:
    with pytest.raises(FieldError, match="together with `when`"):
        Kill(broker=1, at_s=1, when=When(signal="x", at_least=1))


def test_a_restart_has_no_length() -> None:
    with pytest.raises(FieldError, match="use `stop`"):
        Restart(broker=1, for_s=3)


@pytest.mark.parametrize("share", [0, -1, float("nan")])
def test_cores_are_positive(share: float) -> None:
    with pytest.raises(FieldError):
        SlowCpu(broker=1, cores=share)
