"""Consumers that end at once are restarted with growing delays; some must not be restarted."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.autoscaler import host_managers
from penstock.autoscaler.core.actions import AutoscalerEvent
from penstock.autoscaler.host_managers import ProcessHosts, Restarts
from penstock.domain.autoscaling import HostAnswer
from penstock.domain.errors import GroupStopped
from penstock.kafka.waiting import wait_until


def test_a_consumer_that_ends_at_once_is_started_later_and_later() -> None:
    it = Restarts()
    now_s, waits_s = 0.0, []
    for _ in range(8):
        assert it.may_start(0, now_s)
        it.on_start(0, now_s)
        ended_s = now_s = now_s + 1.0
        it.on_end(0, now_s)
        while not it.may_start(0, now_s):
            now_s += 0.5
        waits_s.append(now_s - ended_s)
    assert waits_s == [1, 2, 4, 8, 16, 30, 30, 30]
    assert it.may_start(1, 0.0), "others are not held up"
    it.on_start(0, now_s)
    it.on_end(0, now_s + 3600.0)
    assert it.may_start(0, now_s + 3600.0), "it had worked for an hour"


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Python code of the consumers to come, instead of `penstock autoscaler consumer`."""
    codes: list[str] = []
    original = subprocess.Popen

    def start(_: list[str]) -> subprocess.Popen[bytes]:
        return original([sys.executable, "-c", codes.pop(0)])

    monkeypatch.setattr(subprocess, "Popen", start)
    yield codes


def test_a_consumer_that_must_not_be_started_again_ends_the_group_once(
    consumers: list[str], tmp_path: Path
) -> None:
    events: list[AutoscalerEvent] = []
    manager = ProcessHosts(tmp_path / "p.yaml", events.append)
    consumers += [f"raise SystemExit({GroupStopped.exit_code})"] * 2
    manager.start({0, 1})
    try:
        wait_until(
            lambda: all(p.poll() is not None for p in manager._processes.values()),
            timeout_s=30,
            what="both to end",
        )
        with pytest.raises(GroupStopped, match=r"consumer \d stopped"):
            manager.alive()
        assert manager.alive() == []
    finally:
        manager.close()


def test_a_consumer_that_fails_is_started_again_after_a_while(
    consumers: list[str], tmp_path: Path
) -> None:
    manager = ProcessHosts(tmp_path / "p.yaml", lambda _: None)
    consumers += ["raise SystemExit(1)", "input()"]
    manager.start({0})
    try:
        manager._processes[0].wait(30)
        manager.start({0})
        assert len(consumers) == 1, "it ended just now"

        def is_started_again() -> bool:
            manager.start({0})
            return not consumers

        wait_until(is_started_again, timeout_s=30, what="its second life")
    finally:
        manager.close()


def test_stopped_consumer_is_killed_and_replaced(
    consumers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[AutoscalerEvent] = []
    manager = ProcessHosts(tmp_path / "p.yaml", events.append)
    consumers += ["input()", "input()"]
    manager.start({0})
    try:
        first = manager._processes[0]
        manager.heard(HostAnswer(host=0))
        manager.start({0})
        assert len(consumers) == 1, "it has just answered"
        first.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(host_managers, "_SILENT_S", 0.2)

        def is_replaced() -> bool:
            manager.start({0})
            return not consumers

        wait_until(is_replaced, timeout_s=30, what="the stopped consumer to be replaced")
        assert first.poll() == -signal.SIGKILL
        assert manager._processes[0].poll() is None
        assert "consumer 0 has not answered for" in str(events[-1])
    finally:
        manager.close()


def test_silent_consumer_that_runs_is_left_alone_for_long(
    consumers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = ProcessHosts(tmp_path / "p.yaml", lambda _: None)
    monkeypatch.setattr(host_managers, "_SILENT_S", 0.0)
    consumers += ["input()", "input()"]
    manager.start({0})
    try:
        for _ in range(3):
            manager.start({0})
        assert len(consumers) == 1, "brokers may be away, or it is starting"
        monkeypatch.setattr(host_managers, "_HANGS_S", 0.0)
        manager.start({0})
        assert not consumers
    finally:
        manager.close()
