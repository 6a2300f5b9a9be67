"""Testbeds that outlive the command which started them, by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from penstock.domain.errors import BadInput, PenstockError, TestbedError
from penstock.specs.files import sole_owner
from penstock.testbed import lease
from penstock.testbed.cluster import Cluster
from penstock.testbed.lease import Lease
from penstock.testbed.ownership import Standing, is_locked
from penstock.testbed.toolchain import Toolchain


def find(name: str) -> Lease:
    """The detached testbed of this name. Refused: one that a running command owns, and one of
    another container, whose brokers and names cannot be reached from here."""
    standings = _standings()
    named = {standing: it for it, standing in standings.items() if it.name == name}
    if Standing.DETACHED in named:
        return named[Standing.DETACHED]
    if Standing.OWNED in named:
        raise TestbedError(
            f"testbed {name!r} belongs to a running command", "stop that command instead"
        )
    if Standing.ELSEWHERE in named:
        raise TestbedError(
            f"testbed {name!r} belongs to another container",
            "use it there; if that container is gone, `penstock testbed down "
            f"{name}` removes it here",
        )
    ours = [it.name for it, s in standings.items() if s is Standing.DETACHED]
    known = f"running: {', '.join(ours)}" if ours else "none runs"
    if others := [it.name for it, s in standings.items() if s is Standing.ELSEWHERE]:
        known += f"; of another container: {', '.join(others)}"
    raise TestbedError(f"there is no testbed {name!r} ({known})", "start one: penstock testbed up")


def find_removable(name: str) -> Lease:
    """The same to remove it: also one of another container, if nothing of it runs any more."""
    elsewhere = {testbed.name: testbed for testbed in of_other_containers()}
    try:
        return find(name)
    except TestbedError:
        if name not in elsewhere:
            raise
    if is_locked(elsewhere[name].directory):
        raise TestbedError(
            f"testbed {name!r} belongs to another container and runs there",
            f"run `penstock testbed down {name}` in that container, or stop the container",
        )
    return elsewhere[name]


def of_other_containers() -> list[Lease]:
    """Testbeds in the same directory that this container must leave alone."""
    return [it for it, standing in _standings().items() if standing is Standing.ELSEWHERE]


def detached() -> list[Lease]:
    """Testbeds of this user that stay until somebody removes them."""
    return [it for it, standing in _standings().items() if standing is Standing.DETACHED]


def _standings() -> dict[Lease, Standing]:
    return {testbed: lease.standing(testbed) for testbed in lease.leases(lease.default_root())}


def remove(testbed: Lease) -> None:
    """Remove a detached testbed; refused while another command uses it."""
    with sole_user(testbed):
        lease.take_over(testbed, os.getpid())
        lease.release(testbed)


def attach(name: str, toolchain: Toolchain) -> Cluster:
    """The cluster of that testbed."""
    return Cluster.attach(find(name), toolchain)


@contextmanager
def sole_user(testbed: Lease) -> Iterator[None]:
    """Keep other commands from measuring on it, changing it or removing it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(sole_owner(testbed.directory))
        except BadInput:
            raise TestbedError(
                f"another command is using testbed {testbed.name!r}",
                "wait for it, or stop it",
            ) from None
        except PenstockError:
            if testbed.directory.exists():
                raise
            raise TestbedError("another command has removed this testbed") from None
        yield
