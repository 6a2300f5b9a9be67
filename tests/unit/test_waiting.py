"""Waiting for a condition: asked at least once, not longer than the limit, and with a reason."""

from __future__ import annotations

import time

import pytest

from penstock.domain.errors import TestbedError
from penstock.kafka.waiting import holds_within, wait_until


def test_a_condition_is_asked_even_without_time() -> None:
    assert holds_within(0.0, lambda: True)
    assert not holds_within(-1.0, lambda: False)


def test_a_condition_that_comes_to_hold_ends_the_wait() -> None:
    answers = iter([False, False, True])
    assert holds_within(60, lambda: next(answers), every_s=0.001)


def test_the_last_pause_ends_with_the_limit() -> None:
    began = time.monotonic()
    assert not holds_within(0.05, lambda: False, every_s=30)
    assert time.monotonic() - began < 10


def test_the_error_names_what_was_awaited_and_why_it_did_not_come() -> None:
    with pytest.raises(TestbedError, match="waited 0 s for the broker: it is down"):
        wait_until(lambda: False, timeout_s=0, what="the broker", explain=lambda: "it is down")
