"""Nothing stays: after success, an error, Ctrl-C, SIGTERM, kill −9 of the owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from penstock.domain.cluster import ClusterSpec
from penstock.kafka.waiting import wait_until
from penstock.testbed import lease
from penstock.testbed.cluster import Cluster
from penstock.testbed.lease import Lease
from penstock.testbed.ownership import Standing
from penstock.testbed.toolchain import Toolchain

pytestmark = pytest.mark.integration

OWNER = """
import os, sys
from pathlib import Path
from penstock.domain.cluster import ClusterSpec
from penstock.testbed.cluster import Cluster
from penstock.testbed.toolchain import find_toolchain

place = "namespaces" if os.geteuid() == 0 else "loopback"
toolchain = find_toolchain(os.environ, root=Path(sys.argv[1]))
with Cluster(ClusterSpec(brokers=1, place=place), toolchain=toolchain) as cluster:
    print("ready", flush=True)
    sys.stdin.readline()
    if sys.argv[2] == "error":
        raise RuntimeError("on purpose")
"""

# A container of its own: other processes, the same directory. Its broker is a sleeper.
CONTAINER = """
import os, subprocess, sys
from pathlib import Path
from penstock.testbed import lease

root = Path(sys.argv[1])
held = lease.take(root, owner_pid=os.getpid())
with lease.lifeline(held) as lock:
    subprocess.Popen(
        ["sleep", "600"], env={**os.environ, **held.environment}, pass_fds=(lock,)
    )
print(held.id, flush=True)
sys.stdin.readline()
print(lease.sweep(root), flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""


def _start_owner(root: Path, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, str(root), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _until_ready(owner: subprocess.Popen[str], root: Path) -> Lease:
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    (held,) = lease.leases(root)
    assert any(lease.processes(held)), "the broker carries the mark"
    if os.geteuid() == 0:
        assert lease.namespaces(held), "the hosts carry the mark"
    return held


def _nothing_is_left(held: Lease) -> bool:
    return (
        not any(lease.processes(held))
        and not lease.namespaces(held)
        and not lease.cgroups(held)
        and not held.directory.exists()
    )


@pytest.mark.parametrize(
    ("what", "number"),
    [
        ("end", None),
        ("error", None),
        ("wait", signal.SIGINT),
        ("wait", signal.SIGTERM),
        ("wait", signal.SIGKILL),
    ],
)
def test_nothing_is_left(tmp_path: Path, what: str, number: signal.Signals | None) -> None:
    owner = _start_owner(tmp_path, what)
    held = _until_ready(owner, tmp_path)
    if number is not None:
        owner.send_signal(number)
    owner.communicate("go on\n", timeout=60)
    wait_until(lambda: _nothing_is_left(held), timeout_s=20, what="everything to be gone")


def test_killed_while_it_starts(tmp_path: Path) -> None:
    owner = _start_owner(tmp_path, "wait")
    wait_until(lambda: bool(lease.leases(tmp_path)), timeout_s=30, what="the lease")
    (held,) = lease.leases(tmp_path)
    wait_until(lambda: any(lease.processes(held)), timeout_s=30, what="the first process")
    owner.kill()
    owner.wait()
    wait_until(lambda: _nothing_is_left(held), timeout_s=20, what="everything to be gone")


def test_the_next_command_sweeps_if_even_the_janitor_was_killed(tmp_path: Path) -> None:
    owner = _start_owner(tmp_path, "wait")
    held = _until_ready(owner, tmp_path)
    children = psutil.Process(owner.pid).children()
    (janitor,) = [c for c in children if "penstock.testbed.janitor" in " ".join(c.cmdline())]
    janitor.kill()
    owner.kill()
    owner.wait()
    assert any(lease.processes(held))
    assert lease.sweep(tmp_path) == [held.id]
    assert _nothing_is_left(held)


def test_two_side_by_side_do_not_disturb_each_other(
    cluster: Cluster, toolchain: Toolchain, unique: Callable[[str], str]
) -> None:
    with Cluster(ClusterSpec(brokers=1, place=cluster.spec.place), toolchain=toolchain) as second:
        assert lease.sweep(toolchain.root) == []
        assert second.admin.broker_ids() == {1}
        assert cluster.admin.broker_ids() == {1, 2, 3}
        other = second.lease
    assert _nothing_is_left(other)
    assert cluster.admin.broker_ids() == {1, 2, 3}
    assert cluster.admin.out_of_sync() == []


@pytest.mark.root
def test_containers_that_share_a_directory_do_not_sweep_each_other(tmp_path: Path) -> None:
    mine = lease.take(tmp_path, owner_pid=os.getpid())
    container = subprocess.Popen(
        [
            *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *(sys.executable, "-c", CONTAINER, str(tmp_path)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert container.stdin is not None and container.stdout is not None
    try:
        other = lease.Lease(name := container.stdout.readline().strip(), tmp_path / name)
        assert lease.standing(other) is Standing.ELSEWHERE
        assert lease.sweep(tmp_path) == []
        container.stdin.write("sweep\n")
        container.stdin.flush()
        assert container.stdout.readline() == "[]\n"
        assert mine.directory.exists() and other.directory.exists()
    finally:
        container.communicate("end\n", timeout=20)  # its init dies, and with it all its processes
    assert lease.sweep(tmp_path) == [other.id]
    lease.release(mine)
