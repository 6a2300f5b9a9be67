"""The NFQUEUE backend: the router asks a process of ours about every packet of a shaped link.

Works on any kernel with NFQUEUE, and decides per packet with our own random numbers, so the same
seed repeats the same fates. One process serves all links: it decides on 100,000 packets a second
and more, and on a small machine the hosts want the other cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.domain.errors import MissingPart, TestbedError
from penstock.domain.network.condition import PERFECT, LinkCondition
from penstock.testbed.network import shaping
from penstock.testbed.network.control import ask
from penstock.testbed.network.emulator import Conditions, LinkStats
from penstock.testbed.network.encoding import encode
from penstock.testbed.network.namespaces import command, run, tool
from penstock.testbed.network.nfqueue_handler import NO_NFQUEUE
from penstock.testbed.network.topology import Pair, Topology
from penstock.testbed.waiting import wait_until

LOG_NAME = "emulator.log"
READY_WITHIN_S = 20


def render_rules(topology: Topology, conditions: Conditions) -> str:
    """The router's mangle table, for `iptables-legacy-restore`, which replaces it in one step.

    A chain per source, so that a packet meets the rules of its own source only. On FORWARD: a
    packet held at its sender would count against that socket's share of the queue (TCP small
    queues) and choke the flow. No --queue-bypass: without a handler nothing passes, since a
    perfect network in its place would go unnoticed.
    """
    chains: dict[str, list[str]] = {}
    for pair, condition in sorted(
        conditions.items(), key=lambda item: topology.link_number(item[0])
    ):
        src, dst = pair
        if condition.cut:
            target = "DROP"
        elif condition.shapes_packets:
            target = f"NFQUEUE --queue-num {topology.link_number(pair)}"
        else:
            continue
        chain = f"from-{topology.index(src) + 1}"
        chains.setdefault(chain, []).append(f"-A {chain} -d {topology.address(dst)}/32 -j {target}")
    addresses = {
        f"from-{topology.index(host) + 1}": topology.address(host) for host in topology.hosts
    }
    return "\n".join(
        [
            "*mangle",
            ":FORWARD ACCEPT [0:0]",
            *(f":{chain} - [0:0]" for chain in chains),
            *(f"-A FORWARD -s {addresses[chain]}/32 -j {chain}" for chain in chains),
            *(rule for rules in chains.values() for rule in rules),
            "COMMIT\n",
        ]
    )


class NfqueueEmulator:
    """Conditions as iptables rules, a packet handler, and HTB classes for the rates."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._directory = topology.lease.directory
        self._started: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        tool("iptables-legacy-restore")
        module = "penstock.testbed.network.nfqueue_handler"
        argv = [sys.executable, "-m", module, str(self._directory)]
        with (self._directory / LOG_NAME).open("wb") as log:
            self._started = subprocess.Popen(
                command(self._topology.router, argv),
                env={**os.environ, **self._topology.lease.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",  # it must not hold the caller's directory
            )

    def apply(self, before: Conditions, after: Conditions, streams: Mapping[Pair, str]) -> None:
        if self._started is not None:
            self._wait_until_ready(self._started)
            self._started = None
        topology = self._topology
        # The queues are bound before a rule sends packets there, and what a link holds when it is
        # cut is dropped; a link that became perfect keeps its queue, for what it still holds.
        changed = [
            {
                "link": topology.link_number(pair),
                "stream": f"{stream}:{pair[0]}>{pair[1]}",
                "condition": encode(after[pair]),
            }
            for pair, stream in streams.items()
            if _concerns_handler(after[pair]) or _concerns_handler(before.get(pair, PERFECT))
        ]
        self._ask({"do": "set", "links": changed})
        rules = render_rules(topology, after)
        if rules != render_rules(topology, before):
            self._restore(rules)
        shaping.apply(
            topology,
            shaping.classes(before, shaping.rate_class),
            shaping.classes(after, shaping.rate_class),
        )

    def stats(self) -> dict[Pair, LinkStats]:
        topology = self._topology
        pairs = {
            topology.link_number((src, dst)): (src, dst)
            for src in topology.hosts
            for dst in topology.hosts
        }
        answer = self._ask({"do": "stats"})
        found = {pairs[counts.pop("link")]: LinkStats(**counts) for counts in answer["links"]}
        for pair, queue in shaping.read_queues(topology).items():
            known = found.get(pair, LinkStats(packets=queue.passed + queue.dropped))
            found[pair] = replace(known, overflowed=known.overflowed + queue.dropped)
        return found

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        def ready() -> bool:
            if process.poll() == NO_NFQUEUE:
                raise _no_nfqueue()
            if process.poll() is not None:
                raise TestbedError(f"the packet handler ended: {self._log()}")
            try:
                ask(self._directory, {"do": "stats"})
            except OSError:
                return False
            return True

        wait_until(
            ready,
            timeout_s=READY_WITHIN_S,
            every_s=0.005,
            what="the packet handler to start",
            explain=self._log,
        )

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = ask(self._directory, request)
        except OSError as error:
            raise TestbedError(
                f"the packet handler is dead ({error}), so shaped links pass nothing; "
                f"its last words: {self._log() or 'none'}",
                "start the testbed again; results since it died are void",
            ) from error
        if "error" in answer:
            raise TestbedError(f"the packet handler refused: {answer['error']}")
        return answer

    def _restore(self, rules: str) -> None:
        # The lock is one for the whole machine; another testbed may hold it for a moment.
        restore = [tool("iptables-legacy-restore"), "--wait", "10"]
        try:
            run(command(self._topology.router, restore), text=rules)
        except TestbedError as error:
            targets = run(
                command(self._topology.router, [tool("cat"), "/proc/net/ip_tables_targets"])
            )
            if "NFQUEUE" in rules and "NFQUEUE" not in targets.split():
                raise _no_nfqueue() from error
            raise

    def _log(self) -> str:
        try:
            return (self._directory / LOG_NAME).read_text(errors="replace").strip()[-2000:]
        except OSError:
            return ""


def _concerns_handler(condition: LinkCondition) -> bool:
    # A cut is a rule of its own, but a link that was shaped at any time before may hold packets.
    return condition.shapes_packets or condition.cut


def _no_nfqueue() -> MissingPart:
    return MissingPart(
        "this kernel has no NFQUEUE (modules nfnetlink_queue and xt_NFQUEUE)",
        "load them (modprobe nfnetlink_queue xt_NFQUEUE), or use `backend: netem`",
    )
