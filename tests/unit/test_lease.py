"""The mark: what carries it is found and removed, and nothing else is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.domain.errors import BadInput, TestbedError
from penstock.testbed import lease
from penstock.testbed.attached import sole_user
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
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    data = lease.adopt(left, elsewhere)
    owner.kill()
    owner.wait()
    assert lease.sweep(tmp_path) == [left.id]
    assert not left.directory.exists()
    assert not data.exists()
    assert elsewhere.exists()


def test_a_pid_given_to_another_process_is_not_the_owner(tmp_path: Path) -> None:
    left = lease.take(tmp_path, owner_pid=os.getpid())
    owner = left.directory / "owner.json"
    claim = json.loads(owner.read_text())
    assert claim["owner"]["pid"] == os.getpid()
    assert not lease.is_abandoned(left)
    claim["owner"]["start_ticks"] += 1
    owner.write_text(json.dumps(claim))
    assert lease.is_abandoned(left)


def test_a_detached_testbed_outlives_its_owner_but_not_the_machine(tmp_path: Path) -> None:
    owner = subprocess.Popen(SLEEPER)
    held = lease.take(tmp_path, owner_pid=owner.pid, name="kept")
    lease.detach(held)
    owner.kill()
    owner.wait()
    assert lease.is_detached(held)
    assert held.name == "kept"
    assert lease.sweep(tmp_path) == []  # even with no process left: its brokers may be down
    claim = json.loads((held.directory / "owner.json").read_text())
    (held.directory / "owner.json").write_text(json.dumps({**claim, "boot": "another"}))
    assert lease.sweep(tmp_path) == ["kept"]


def test_a_root_that_others_can_write_to_is_not_believed(tmp_path: Path) -> None:
    """Whoever plants a directory there could otherwise have anything removed."""
    root = tmp_path / "root"
    victim = tmp_path / "victim"
    victim.mkdir()
    planted = root / "planted"
    planted.mkdir(parents=True)
    (planted / "owner.json").write_text('{"owner": {"pid": 0}, "boot": "another", "name": null}')
    (planted / "adopted").write_text(f"{victim}\n")
    root.chmod(0o777)
    with pytest.raises(TestbedError, match="only this user"):
        lease.sweep(root)
    root.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(root)
    with pytest.raises(TestbedError, match="only this user"):
        lease.sweep(link)
    # And even then only directories of its own name are removed elsewhere.
    assert lease.sweep(root) == ["planted"]
    assert victim.exists()


def test_one_name_that_begins_like_another_is_another(tmp_path: Path) -> None:
    short = lease.take(tmp_path, name="a", owner_pid=os.getpid())
    long = lease.take(tmp_path, name="a-b", owner_pid=os.getpid())
    assert not long.namespace("broker-1").startswith(short.prefix)


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo").write_text("mine")
    assert lease.sweep(tmp_path) == []
    assert (tmp_path / "notes" / "todo").read_text() == "mine"


def test_a_name_is_given_once(tmp_path: Path) -> None:
    lease.take(tmp_path, name="mine", owner_pid=os.getpid())
    with pytest.raises(TestbedError, match="exists already"):
        lease.take(tmp_path, name="mine", owner_pid=os.getpid())
    assert [held.name for held in lease.leases(tmp_path)] == ["mine"]


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 40, "two words"])
def test_a_name_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="cannot be the name"):
        lease.take(tmp_path, name=name, owner_pid=os.getpid())


def test_a_testbed_that_a_command_uses_is_refused_to_the_next(tmp_path: Path) -> None:
    mine = lease.take(tmp_path, name="orders", owner_pid=os.getpid())
    with (
        sole_user(mine),
        pytest.raises(TestbedError, match="another command is using testbed 'orders'"),
        sole_user(mine),
    ):
        pass
    with sole_user(mine):
        lease.release(mine)  # as `testbed down` does
    assert lease.leases(tmp_path) == []
