"""The mark: what carries it is found and removed, and nothing else is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.domain.errors import TestbedError
from penstock.testbed import lease
from penstock.testbed.waiting import wait_until

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not ours, though its command line looks like it."""
    process = subprocess.Popen([*SLEEPER, "penstock-broker"])
    yield process
    process.kill()
    process.wait()


def test_release_ends_marked_processes_only(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    mine = lease.take(tmp_path, owner_pid=os.getpid())
    other = lease.take(tmp_path, owner_pid=os.getpid())
    marked = subprocess.Popen(SLEEPER, env={**os.environ, **mine.environment})
    foreign = subprocess.Popen(SLEEPER, env={**os.environ, **other.environment})
    try:
        wait_until(lambda: any(lease.processes(mine)), timeout_s=5, what="the mark")
        lease.release(mine)
        assert marked.wait(5) == -9
        assert not mine.directory.exists()
        assert foreign.poll() is None
        assert bystander.poll() is None
        assert other.directory.exists()
    finally:
        lease.release(other)
        foreign.wait()


def test_release_can_be_repeated(tmp_path: Path) -> None:
    mine = lease.take(tmp_path, owner_pid=os.getpid())
    lease.release(mine)
    lease.release(mine)
    assert lease.leases(tmp_path) == []


def test_sweep_spares_the_living(tmp_path: Path) -> None:
    mine = lease.take(tmp_path, owner_pid=os.getpid())
    assert lease.sweep(tmp_path) == []
    assert mine.directory.exists()


def test_sweep_removes_what_a_dead_owner_left(tmp_path: Path) -> None:
    owner = subprocess.Popen(SLEEPER)
    left = lease.take(tmp_path, owner_pid=owner.pid)
    data = lease.adopt(left, tmp_path / "elsewhere")
    owner.kill()
    owner.wait()
    assert lease.sweep(tmp_path) == [left.id]
    assert not left.directory.exists()
    assert not data.exists()


def test_a_pid_given_to_another_process_is_not_the_owner(tmp_path: Path) -> None:
    left = lease.take(tmp_path, owner_pid=os.getpid())
    owner = left.directory / "owner.json"
    identity = json.loads(owner.read_text())["owner"]
    assert identity["pid"] == os.getpid()
    owner.write_text(json.dumps({"owner": {**identity, "create_time": 1.0}}))
    assert lease.is_abandoned(left)


def test_a_detached_testbed_lives_as_long_as_its_processes(tmp_path: Path) -> None:
    held = lease.take(tmp_path, owner_pid=os.getpid())
    process = subprocess.Popen(SLEEPER, env={**os.environ, **held.environment})
    wait_until(lambda: any(lease.processes(held)), timeout_s=5, what="the mark")
    lease.detach(held)
    assert lease.is_detached(held)
    assert lease.sweep(tmp_path) == []
    process.kill()
    process.wait()
    assert lease.sweep(tmp_path) == [held.id]


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo").write_text("mine")
    assert lease.sweep(tmp_path) == []
    assert (tmp_path / "notes" / "todo").read_text() == "mine"


def test_a_name_is_given_once(tmp_path: Path) -> None:
    lease.take(tmp_path, name="mine", owner_pid=os.getpid())
    with pytest.raises(TestbedError, match="exists already"):
        lease.take(tmp_path, name="mine", owner_pid=os.getpid())
    assert [held.id for held in lease.leases(tmp_path)] == ["mine"]


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 40, "two words"])
def test_a_name_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TestbedError, match="cannot be the name"):
        lease.take(tmp_path, name=name, owner_pid=os.getpid())
