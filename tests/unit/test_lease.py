"""The mark: what carries it is found and removed, and nothing else is touched."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.domain.errors import BadInput, TestbedError
from penstock.kafka.waiting import wait_until
from penstock.testbed import attached, janitor, lease, ownership
from penstock.testbed.attached import sole_user
from penstock.testbed.ownership import Claim, Owner, Place, Standing

HERE, NEXT_DOOR = Place(1, "1:1", "1:1"), Place(2, "1:2", "1:3")
# Takes a testbed, and holds it until its input ends.
HOLDER = """
import os, sys
from pathlib import Path
from penstock.testbed import lease
held = lease.take(Path(sys.argv[1]), owner_pid=os.getpid(), name=sys.argv[2])
print(held.id, flush=True)
sys.stdin.read()
"""
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
    assert lease.standing(left) is not Standing.ABANDONED
    claim["owner"]["start_ticks"] += 1
    owner.write_text(json.dumps(claim))
    assert lease.standing(left) is Standing.ABANDONED


def test_a_detached_testbed_outlives_its_owner_but_not_the_machine(tmp_path: Path) -> None:
    owner = subprocess.Popen(SLEEPER)
    held = lease.take(tmp_path, owner_pid=owner.pid, name="kept")
    lease.detach(held)
    owner.kill()
    owner.wait()
    assert lease.standing(held) is Standing.DETACHED
    assert held.name == "kept"
    assert lease.sweep(tmp_path) == []  # even with no process left: its brokers may be down
    claim = json.loads((held.directory / "owner.json").read_text())
    (held.directory / "owner.json").write_text(json.dumps({**claim, "boot": "another"}))
    assert lease.sweep(tmp_path) == [], "somebody holds its lock: a container with its own boot id"
    os.close(lease._locks.pop(held.directory))
    assert lease.sweep(tmp_path) == ["kept"]


def test_a_root_that_others_can_write_to_is_not_believed(tmp_path: Path) -> None:
    """Whoever plants a directory there could otherwise have anything removed."""
    root = tmp_path / "root"
    victim = tmp_path / "victim"
    victim.mkdir()
    planted = root / "planted"
    planted.mkdir(parents=True)
    (planted / "owner.json").write_text(
        Claim(owner=Owner(0, 0), boot="another", place=None).to_json()
    )
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
def test_an_invalid_name_is_refused(tmp_path: Path, name: str) -> None:
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


# --- containers that share /tmp ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "is_alive", "is_locked", "expected"),
    [
        (Claim(Owner(7, 1), "now", HERE), True, None, Standing.OWNED),
        (Claim(Owner(7, 1), "now", HERE), False, None, Standing.ABANDONED),
        (Claim(None, "now", HERE), None, None, Standing.DETACHED),
        (Claim(Owner(7, 1), "before", HERE), None, False, Standing.ABANDONED),
        (Claim(None, "before", NEXT_DOOR), None, False, Standing.ABANDONED),
        # A container may have a boot id of its own: then its processes hold the lock.
        (Claim(Owner(7, 1), "before", NEXT_DOOR), None, True, Standing.ELSEWHERE),
        (Claim(None, "before", NEXT_DOOR), None, True, Standing.ELSEWHERE),
        # Whether pid 7 runs here says nothing about pid 7 of another PID namespace.
        (Claim(Owner(7, 1), "now", NEXT_DOOR), None, True, Standing.ELSEWHERE),
        (Claim(Owner(7, 1), "now", NEXT_DOOR), None, False, Standing.ABANDONED),
        (Claim(None, "now", NEXT_DOOR), None, False, Standing.ELSEWHERE),
        (Claim(Owner(7, 1), "now", None), None, True, Standing.ELSEWHERE),
    ],
)
def test_a_claim_is_judged_by_what_can_be_known_from_here(
    claim: Claim, is_alive: bool | None, is_locked: bool | None, expected: Standing
) -> None:
    """None: must not be asked."""

    def alive(_: Owner) -> bool:
        assert is_alive is not None
        return is_alive

    def locked() -> bool:
        assert is_locked is not None
        return is_locked

    standing = ownership.judge(claim, boot="now", here=HERE, is_alive=alive, is_locked=locked)
    assert standing is expected


def test_a_claim_is_read_as_it_was_written() -> None:
    claim = Claim(Owner(7, 1), "now", NEXT_DOOR, "orders")
    assert Claim.from_json(claim.to_json()) == claim
    for text in ("", "[]", "null", "{}", '{"owner": 3, "boot": "now"}', '{"owner": null}'):
        assert Claim.from_json(text) is None


@pytest.mark.parametrize("field", ["pid_namespace", "run", "cgroups"])
def test_two_places_are_one_only_if_all_is_seen_alike(field: str) -> None:
    here = ownership.here(lease.CGROUP_ROOTS)
    assert here == ownership.here(lease.CGROUP_ROOTS)
    assert here.pid_namespace and here.run
    other: dict[str, Any] = {field: "other"}
    assert dataclasses.replace(here, **other) != here


def _move_next_door(held: lease.Lease) -> None:
    """As if another container had taken it."""
    path = held.directory / lease.OWNER_FILE
    claim = json.loads(path.read_text())
    claim["place"]["pid_namespace"] += 1
    path.write_text(json.dumps(claim))


@pytest.fixture
def next_door(tmp_path: Path) -> Iterator[tuple[lease.Lease, subprocess.Popen[str]]]:
    """A testbed that a living process of another container holds."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), "orders"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    lease_id = holder.stdout.readline().strip()
    held = lease.Lease(lease_id, tmp_path / lease_id)
    _move_next_door(held)
    yield held, holder
    holder.kill()
    holder.communicate()


def test_a_testbed_of_another_container_is_swept_only_when_nothing_of_it_runs(
    tmp_path: Path, next_door: tuple[lease.Lease, subprocess.Popen[str]]
) -> None:
    held, holder = next_door
    # A broker outlives its owner and the janitor, both killed.
    with lease.lifeline(held) as lock:
        broker = subprocess.Popen(SLEEPER, pass_fds=(lock,))
    try:
        assert lease.standing(held) is Standing.ELSEWHERE
        assert lease.sweep(tmp_path) == []
        holder.kill()
        holder.wait()
        assert lease.sweep(tmp_path) == []
        assert held.directory.exists()
    finally:
        broker.kill()
        broker.wait()
    assert lease.standing(held) is Standing.ABANDONED
    assert lease.sweep(tmp_path) == ["orders"]
    assert not held.directory.exists()


def test_a_janitor_keeps_other_containers_away(tmp_path: Path) -> None:
    held = lease.take(tmp_path, owner_pid=os.getpid())
    watching = janitor.watch(held)
    os.close(lease._locks.pop(held.directory))  # as if the owner had died, and the janitor lagged
    try:
        assert ownership.is_locked(held.directory)
        lease.release(held)
    finally:
        janitor.dismiss(watching)
    assert lease.leases(tmp_path) == []


def test_each_container_has_names_of_its_own(
    tmp_path: Path,
    next_door: tuple[lease.Lease, subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease, "default_root", lambda: tmp_path)
    foreign, holder = next_door
    with pytest.raises(TestbedError, match="belongs to another container"):
        attached.find("orders")
    with pytest.raises(TestbedError, match=r"\(none runs; of another container: orders\)"):
        attached.find("other")
    assert attached.of_other_containers() == [foreign]
    mine = lease.take(tmp_path, name="orders", owner_pid=os.getpid())
    lease.detach(mine)
    assert attached.find("orders") == mine
    assert attached.find_removable("orders") == mine
    attached.remove(mine)
    assert lease.leases(tmp_path) == [foreign]
    with pytest.raises(TestbedError, match="another container and runs there"):
        attached.find_removable("orders")
    holder.kill()
    holder.wait()
    claim = json.loads((foreign.directory / lease.OWNER_FILE).read_text())
    (foreign.directory / lease.OWNER_FILE).write_text(json.dumps({**claim, "owner": None}))
    # Detached and silent: its brokers may be down while the container lives, so only on request.
    assert lease.sweep(tmp_path) == []
    attached.remove(attached.find_removable("orders"))
    assert lease.leases(tmp_path) == []


# --- processes that do not end ----------------------------------------------------------------


class Unkillable:
    """A process in an uninterruptible sleep: signals are taken and change nothing."""

    pid = 4242

    def __init__(self) -> None:
        self.is_stuck = True
        self.signals: list[signal.Signals] = []

    def is_running(self) -> bool:
        return self.is_stuck

    def status(self) -> str:
        return psutil.STATUS_DISK_SLEEP

    def name(self) -> str:
        return "java"

    def send_signal(self, number: signal.Signals) -> None:
        self.signals.append(number)


@pytest.fixture
def stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[lease.Lease, lease.Lease, Unkillable]:
    """Two testbeds of a dead owner; a process of the first does not end."""
    owner = subprocess.Popen(SLEEPER)
    both = [lease.take(tmp_path, owner_pid=owner.pid, name=name) for name in ("first", "second")]
    owner.kill()
    owner.wait()
    both.sort(key=lambda held: held.name)
    process = Unkillable()

    def processes(held: lease.Lease) -> list[Unkillable]:
        return [process] if held == both[0] and process.is_stuck else []

    monkeypatch.setattr(lease, "processes", processes)
    monkeypatch.setattr(lease, "_SWEEP_S", 0.1)
    return both[0], both[1], process


def test_a_sweep_skips_what_it_cannot_kill(
    tmp_path: Path, stuck: tuple[lease.Lease, lease.Lease, Unkillable]
) -> None:
    first, second, process = stuck
    notes: list[str] = []
    assert lease.sweep(tmp_path, notes.append) == ["second"]
    assert signal.SIGKILL in process.signals
    assert len(notes) == 1
    assert "testbed first cannot be removed yet" in notes[0]
    assert "java (pid 4242, disk-sleep)" in notes[0]
    assert first.directory.exists() and not second.directory.exists()
    # Its name is free, so that a testbed can be started with it.
    lease.release(lease.take(tmp_path, name="first", owner_pid=os.getpid()))
    process.is_stuck = False
    assert lease.sweep(tmp_path, notes.append) == ["first"]
    assert len(notes) == 1


def test_a_sweep_waits_for_an_unkillable_process_only_once(
    tmp_path: Path,
    stuck: tuple[lease.Lease, lease.Lease, Unkillable],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, _, _ = stuck
    lease.sweep(tmp_path)
    waited: list[float] = []
    release = lease.release

    def watched(held: lease.Lease, *, patience_s: float) -> None:
        waited.append(patience_s)
        release(held, patience_s=patience_s)

    monkeypatch.setattr(lease, "release", watched)
    assert lease.sweep(tmp_path) == []
    assert waited == [0]
    assert first.directory.exists()


def test_the_owner_gets_an_error_if_a_process_does_not_end(
    stuck: tuple[lease.Lease, lease.Lease, Unkillable],
) -> None:
    first, _, process = stuck
    with pytest.raises(TestbedError, match=r"to end: java \(pid 4242, disk-sleep\)"):
        lease.release(first, patience_s=0.1)
    process.is_stuck = False
    lease.release(first)
    assert not first.directory.exists()


def test_what_a_failed_removal_leaves_is_swept_later(tmp_path: Path) -> None:
    held = lease.take(tmp_path, owner_pid=os.getpid(), name="kept")
    lease.detach(held)
    owner = subprocess.Popen(SLEEPER)  # `testbed down`, which is killed on the way
    lease.take_over(held, owner.pid)
    assert lease.sweep(tmp_path) == []
    owner.kill()
    owner.wait()
    assert lease.sweep(tmp_path) == ["kept"]
