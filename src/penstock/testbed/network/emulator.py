"""What carries out link conditions, seen from `Network`; and the choice between its two kinds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from penstock.domain.errors import MissingPart, TestbedError
from penstock.domain.network.condition import LinkCondition
from penstock.testbed.lease import NETNS_DIR
from penstock.testbed.network.namespaces import command, run, tool
from penstock.testbed.network.topology import Pair

_PROBE = "penstock-probe-"

Backend = Literal["netem", "nfqueue"]
Conditions = Mapping[Pair, LinkCondition]


@dataclass(frozen=True)
class LinkStats:
    """What a link did to packets since the testbed started. None: this backend does not count it."""

    packets: int = 0
    # As the condition asked. By a cut of the NFQUEUE backend: a train of TCP segments is one.
    dropped: int = 0
    duplicated: int | None = 0
    reordered: int | None = 0  # skipped the delay
    # Found a full queue: of the rate limit, or of a handler that is too slow (then a lower bound:
    # the kernel counts a train of TCP segments as one).
    overflowed: int = 0
    # Passed on more than 1 ms after they were due, since the handler is too slow or was kept from
    # running; and how long after at worst, 0 if none was.
    late: int | None = 0
    worst_late_ms: float | None = 0.0


class Emulator(Protocol):
    """Does to packets what conditions say. Needs no teardown: what it makes carries the mark."""

    def start(self) -> None:
        """Make whatever must run before the first `apply`. Returns before it is ready."""

    def apply(self, before: Conditions, after: Conditions, streams: Mapping[Pair, str]) -> None:
        """Go from one state to another; effective on return.

        `streams` names the links whose random numbers restart, each with the seed of its random numbers.
        """

    def stats(self) -> dict[Pair, LinkStats]:
        """Counts per link that was ever shaped. Raises `TestbedError` if the emulator is dead."""


def has_netem(namespace: str) -> bool:
    """Whether this kernel has netem: tried on the loopback of a namespace of our own."""
    try:
        run([tool("tc"), "-n", namespace, "qdisc", "add", "dev", "lo", "root", "netem"])
    except TestbedError:
        return False
    run([tool("tc"), "-n", namespace, "qdisc", "del", "dev", "lo", "root"])
    return True


def available_backends() -> list[Backend]:
    """What this machine could use: tried in a namespace that is gone again afterwards."""
    for stale in NETNS_DIR.glob(f"{_PROBE}*"):  # of one that was killed while it probed
        if not Path(f"/proc/{stale.name.removeprefix(_PROBE)}").exists():
            run([tool("ip"), "netns", "delete", stale.name])
    name = f"{_PROBE}{os.getpid()}"
    try:
        run([tool("ip"), "netns", "add", name])
    except (MissingPart, TestbedError):
        return []
    try:
        backends: list[Backend] = ["netem"] if has_netem(name) else []
        rule = "*mangle\n-A FORWARD -j NFQUEUE --queue-num 1\nCOMMIT\n"
        with suppress(MissingPart, TestbedError):
            run(command(name, [tool("iptables-legacy-restore")]), text=rule)
            backends.append("nfqueue")
        return backends
    finally:
        run([tool("ip"), "netns", "delete", name])


def choose_backend(
    asked: Literal["auto", "netem", "nfqueue"], probe: Callable[[], bool]
) -> Backend:
    """The backend to use; `probe` says whether the kernel has netem and is asked only if needed."""
    if asked == "nfqueue":
        return "nfqueue"
    if probe():
        return "netem"
    if asked == "netem":
        raise MissingPart(
            "this kernel has no netem (module sch_netem)",
            "use `backend: auto` or `backend: nfqueue`, which needs no kernel module of its own",
        )
    return "nfqueue"
