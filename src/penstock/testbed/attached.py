"""Testbeds that outlive the command which started them, by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from penstock.domain.errors import BadInput, TestbedError
from penstock.files import sole_owner
from penstock.testbed import lease
from penstock.testbed.cluster import Cluster
from penstock.testbed.lease import Lease
from penstock.testbed.parts import Parts


def find(name: str) -> Lease:
    """The detached testbed of this name. One that a running command owns is refused."""
    found = {held.name: held for held in lease.leases(lease.default_root())}
    if name not in found:
        known = ", ".join(found) or "none runs"
        raise TestbedError(
            f"there is no testbed {name!r} ({known})", "start one: penstock testbed up"
        )
    if not lease.is_detached(found[name]):
        raise TestbedError(
            f"testbed {name!r} belongs to a command that runs now", "end that command instead"
        )
    return found[name]


def attach(name: str, parts: Parts) -> Cluster:
    """The cluster of that testbed."""
    return Cluster.attach(find(name), parts)


@contextmanager
def sole_user(testbed: Lease) -> Iterator[None]:
    """Meanwhile no other command measures on it, changes its links, injects faults or removes it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(sole_owner(testbed.directory))
        except BadInput:
            raise TestbedError(
                f"another command is using testbed {testbed.name!r}",
                "wait until it has ended, or end it first",
            ) from None
        yield
