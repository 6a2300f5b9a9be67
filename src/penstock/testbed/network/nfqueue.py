"""The NFQUEUE backend: the router asks a process of ours about every packet of a shaped link.

Works on any kernel with NFQUEUE, and decides per packet with our own random numbers, so the same
seed repeats the same fates. One process serves all links: it decides on 100,000 packets a second
and more, and on a small machine the hosts want the other cores.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from penstock.domain.errors import MissingPart, TestbedError
from penstock.domain.network.condition import PERFECT, LinkCondition
from penstock.kafka.waiting import wait_until
from penstock.testbed.lease import spawn
from penstock.testbed.network import shaping
from penstock.testbed.network.control import ask
from penstock.testbed.network.emulator import Conditions, LinkStats
from penstock.testbed.network.encoding import encode
from penstock.testbed.network.namespaces import command, run, tool
from penstock.testbed.network.nfqueue_handler import NO_NFQUEUE
from penstock.testbed.network.topology import Pair, Topology

LOG_NAME = "emulator.log"
READY_WITHIN_S = 20
# The lock is one for the whole machine; another testbed may hold it for a moment.
WAIT_FOR_LOCK = ("--wait", "10")


def render_rules(topology: Topology, conditions: Conditions) -> str:
    """What the router's mangle table says of the links, for `iptables-legacy-restore --noflush`.

    It takes effect in one step. Chains not named here stay as they are and keep their counts: those
    of `render_cuts`.

    A chain per source, so that a packet meets the rules of its own source only. On FORWARD: a
    packet held at its sender would count against that socket's share of the queue (TCP small
    queues) and choke the flow. No --queue-bypass: without a handler nothing passes, since a
    perfect network in its place would go unnoticed.
    """
    chains: dict[str, list[str]] = {}
    for pair in sorted(conditions, key=topology.link_number):
        (src, dst), condition = pair, conditions[pair]
        if condition.cut:
            target = cut_chain(topology, pair)
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
            ":FORWARD ACCEPT [0:0]",
            "-F FORWARD",
            # Naming a chain empties it, so all are named, those that nothing leads to as well.
            *(f":{chain} - [0:0]" for chain in addresses),
            *(f"-A FORWARD -s {addresses[chain]}/32 -j {chain}" for chain in chains),
            *(rule for rules in chains.values() for rule in rules),
            "",
        ]
    )


def cut_chain(topology: Topology, pair: Pair) -> str:
    return f"cut-{topology.link_number(pair)}"


def render_cuts(chains: Iterable[str]) -> str:
    """A chain per link that is ever cut, permanently: healing takes away only what leads there.

    So a count is never lost with its rule, whatever passes at the moment of the change.
    """
    return "".join(f":{chain} - [0:0]\n-A {chain} -j DROP\n" for chain in chains)


def parse_cuts(listing: str) -> dict[str, int]:
    """Chain of a cut → packets dropped there, from what `iptables -S -v` says."""
    counts = re.findall(r"^-A (cut-\d+) -c (\d+) \d+ -j DROP$", listing, re.MULTILINE)
    return {chain: int(packets) for chain, packets in counts}


class NfqueueEmulator:
    """Conditions as iptables rules, a packet handler, and HTB classes for the rates."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._directory = topology.lease.directory
        self._started: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        for name in ("iptables-legacy", "iptables-legacy-restore"):
            tool(name)
        module = "penstock.testbed.network.nfqueue_handler"
        argv = [sys.executable, "-m", module, str(self._directory)]
        self._started = spawn(
            self._topology.lease,
            command(self._topology.router, argv),
            log=self._directory / LOG_NAME,
            cwd=Path("/"),  # it must not hold the caller's directory
            env=os.environ,
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
            chains = [
                cut_chain(topology, pair)
                for pair, condition in after.items()
                if condition.cut and not before.get(pair, PERFECT).cut
            ]
            known = self._read_cuts() if chains else {}
            cuts = render_cuts(chain for chain in chains if chain not in known)
            self._restore(f"*mangle\n{cuts}{rules}COMMIT\n")
        shaping.apply(topology, before, after)

    def stats(self) -> dict[Pair, LinkStats]:
        topology, hosts = self._topology, self._topology.hosts
        pairs = {topology.link_number(pair): pair for pair in product(hosts, hosts)}
        answer = self._ask({"do": "stats"})
        links = {pairs[counts.pop("link")]: LinkStats(**counts) for counts in answer["links"]}
        for pair, queue in shaping.read_queues(topology).items():
            known = links.get(pair, LinkStats(packets=queue.passed + queue.dropped))
            links[pair] = replace(known, overflowed=known.overflowed + queue.dropped)
        for chain, cut in self._read_cuts().items():
            pair = pairs[int(chain.removeprefix("cut-"))]
            known = links.get(pair, LinkStats())
            links[pair] = replace(known, packets=known.packets + cut, dropped=known.dropped + cut)
        return links

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        def ready() -> bool:
            if process.poll() == NO_NFQUEUE:
                raise _no_nfqueue()
            if process.poll() is not None:
                raise TestbedError(f"the packet handler ended: {self._log()}")
            with suppress(OSError):
                return bool(ask(self._directory, {"do": "stats"}))
            return False

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
                f"the end of its log: {self._log() or 'none'}",
                "start the testbed again; discard results since then",
            ) from error
        if "error" in answer:
            raise TestbedError(f"the packet handler refused: {answer['error']}")
        return answer

    def _read_cuts(self) -> dict[str, int]:
        # Waits for the lock too (iptables-legacy-save does not): a change puts the counts back only
        # after the new rules are in place.
        show = [tool("iptables-legacy"), *WAIT_FOR_LOCK, "-t", "mangle", "-S", "-v"]
        return parse_cuts(run(command(self._topology.router, show)))

    def _restore(self, rules: str) -> None:
        restore = [tool("iptables-legacy-restore"), *WAIT_FOR_LOCK, "--noflush"]
        try:
            run(command(self._topology.router, restore), text=rules)
        except TestbedError as error:
            show = [tool("cat"), "/proc/net/ip_tables_targets"]
            targets = run(command(self._topology.router, show))
            if "NFQUEUE" in rules and "NFQUEUE" not in targets.split():
                raise _no_nfqueue() from error
            raise

    def _log(self) -> str:
        with suppress(OSError):
            return (self._directory / LOG_NAME).read_text(errors="replace").strip()[-2000:]
        return ""


def _concerns_handler(condition: LinkCondition) -> bool:
    # A cut is a rule of its own, but a link that was shaped at any time before may hold packets.
    return condition.shapes_packets or condition.cut


def _no_nfqueue() -> MissingPart:
    return MissingPart(
        "this kernel has no NFQUEUE (modules nfnetlink_queue and xt_NFQUEUE)",
        "load them (modprobe nfnetlink_queue xt_NFQUEUE), or use `backend: netem`",
    )
