"""The NFQUEUE backend without a kernel: its rules, messages, draws, what it holds; and a trace."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.domain.network.condition import (
    HostNames,
    Link,
    LinkCondition,
    NetworkProfile,
    ProfileStep,
)
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.network.delay_normal import NormalDelay
from penstock.domain.network.delay_pareto import ParetoDelay
from penstock.domain.network.delay_uniform import UniformDelay
from penstock.domain.network.loss_bernoulli import BernoulliLoss
from penstock.domain.network.loss_gilbert_elliott import GilbertElliottLoss
from penstock.domain.value import FieldError
from penstock.testbed.lease import Lease
from penstock.testbed.network import netlink
from penstock.testbed.network.delay_queue import Held
from penstock.testbed.network.encoding import decode, encode
from penstock.testbed.network.nfqueue import parse_cuts, render_cuts, render_rules
from penstock.testbed.network.packet_draws import LinkFates
from penstock.testbed.network.profile_player import ProfilePlayer
from penstock.testbed.network.topology import Topology

TOPOLOGY = Topology(Lease("t", Path("/nowhere/t")), ("a", "b", "c"))
SHAPED = LinkCondition(delay=ConstantDelay(ms=5))
CUT = LinkCondition(cut=True)


def test_no_shaped_link_is_an_empty_table() -> None:
    conditions = {("a", "b"): LinkCondition(), ("b", "a"): LinkCondition(rate_mbit=5)}
    assert "-A" not in render_rules(TOPOLOGY, conditions)


def test_a_chain_per_source_a_rule_per_link() -> None:
    rules = render_rules(TOPOLOGY, {("b", "a"): SHAPED, ("a", "c"): CUT, ("a", "b"): SHAPED})
    assert rules.splitlines() == [
        ":FORWARD ACCEPT [0:0]",
        "-F FORWARD",
        ":from-1 - [0:0]",
        ":from-2 - [0:0]",
        ":from-3 - [0:0]",
        "-A FORWARD -s 10.77.1.2/32 -j from-1",
        "-A FORWARD -s 10.77.2.2/32 -j from-2",
        "-A from-1 -d 10.77.2.2/32 -j NFQUEUE --queue-num 1",
        "-A from-1 -d 10.77.3.2/32 -j cut-2",
        "-A from-2 -d 10.77.1.2/32 -j NFQUEUE --queue-num 250",
    ]
    assert render_cuts(["cut-2"]) == ":cut-2 - [0:0]\n-A cut-2 -j DROP\n"


def test_the_counts_of_cuts_are_found_among_the_rules() -> None:
    listing = """-P FORWARD ACCEPT -c 41 3772
-N cut-1
-N cut-250
-N from-1
-A FORWARD -s 10.77.1.2/32 -c 5 460 -j from-1
-A cut-1 -c 0 0 -j DROP
-A cut-250 -c 123456789012 3772 -j DROP
-A from-1 -d 10.77.2.2/32 -c 4 368 -j cut-1
-A from-1 -d 10.77.3.2/32 -c 1 92 -j NFQUEUE --queue-num 2
"""
    assert parse_cuts(listing) == {"cut-1": 0, "cut-250": 123456789012}


def test_a_cut_needs_no_handler_even_if_the_link_is_shaped() -> None:
    rules = render_rules(TOPOLOGY, {("a", "b"): LinkCondition(cut=True, delay=ConstantDelay(ms=1))})
    assert "-j cut-1" in rules
    assert "NFQUEUE" not in rules


def test_a_dead_handler_never_means_a_perfect_network() -> None:
    assert "bypass" not in render_rules(TOPOLOGY, {("a", "b"): SHAPED})


def test_messages_have_the_layout_of_the_kernel() -> None:
    accept, drop = netlink.verdict_prefixes(513)
    assert len(accept) == len(drop) == 28
    # length, type (subsystem 3, verdict), request; queue in network order; attribute 2
    assert accept[:4] == struct.pack("=I", 32)
    assert accept[4:6] == struct.pack("=H", 0x0301)
    assert accept[18:20] == b"\x02\x01"
    assert accept[20:24] == struct.pack("=HH", 12, 2)
    assert accept[24:] == b"\0\0\0\1"
    assert drop[24:] == b"\0\0\0\0"
    for message in (
        netlink.bind(7, 513),
        netlink.copy_mode(7, 513, True),
        netlink.queue_length(7, 513, 1000),
    ):
        length, kind, flags, sequence, _ = netlink.HEADER.unpack_from(message)
        assert (length, kind, flags, sequence) == (len(message), 0x0302, 5, 7)
        assert len(message) % 4 == 0


def test_a_packet_is_found_among_the_attributes() -> None:
    head = bytes(20) + struct.pack("=HH", 11, 1) + b"1234567\0"
    message = head + struct.pack("=HH", 9, 10) + b"hello\0\0\0"
    assert netlink.payload(memoryview(message)) == b"hello"
    assert netlink.payload(memoryview(head)) == b""


def test_a_packet_tells_when_it_came() -> None:
    message = bytearray(netlink.verdict_prefixes(513)[0][:20])
    message += struct.pack("=HH", 11, 1) + b"\0\0\1\2" + bytes(4)  # the packet's id
    assert netlink.stamp_at(memoryview(message)) is None
    message += struct.pack("=HHI", 8, 5, 7)  # the interface
    message += struct.pack("=HH", 20, 4) + struct.pack(">QQ", 1_700_000_000, 999_999)
    at = netlink.stamp_at(memoryview(message))
    assert at == 40
    fields = netlink.packet(at).unpack_from(message, netlink.QUEUE_AT)
    assert fields == (513, b"\0\0\1\2", netlink.STAMP_HEAD, 1_700_000_000, 999_999)


@pytest.mark.parametrize(
    "condition",
    [
        LinkCondition(),
        LinkCondition(delay=ConstantDelay(ms=5), loss=BernoulliLoss(share=0.1), reorder=0.1),
        LinkCondition(delay=UniformDelay(low_ms=1, high_ms=2), in_order=True, rate_mbit=3.5),
        LinkCondition(delay=NormalDelay(mean_ms=1, stddev_ms=2), duplicate=0.2, cut=True),
        LinkCondition(
            delay=ParetoDelay(scale_ms=1, shape=2),
            loss=GilbertElliottLoss(good_to_bad=0.1, bad_to_good=0.2),
        ),
    ],
)
def test_a_condition_survives_its_encoding(condition: LinkCondition) -> None:
    assert decode(encode(condition)) == condition


def draws(condition: LinkCondition, stream: str) -> tuple[list[bool], list[int]]:
    fates = LinkFates(condition, stream)
    assert fates.lost is not None
    assert fates.due_ns is not None
    return [fates.lost() for _ in range(500)], [fates.due_ns(0) for _ in range(500)]


def test_the_same_stream_repeats_the_same_fates() -> None:
    condition = LinkCondition(
        delay=UniformDelay(low_ms=1, high_ms=9), loss=BernoulliLoss(share=0.3)
    )
    assert draws(condition, "1:a>b") == draws(condition, "1:a>b")
    assert draws(condition, "1:a>b") != draws(condition, "2:a>b")
    assert draws(condition, "1:a>b") != draws(condition, "1:b>a")


def test_another_delay_loses_the_same_packets() -> None:
    one, other = (
        LinkCondition(delay=delay, loss=BernoulliLoss(share=0.3))
        for delay in (UniformDelay(low_ms=1, high_ms=9), NormalDelay(mean_ms=5, stddev_ms=1))
    )
    assert draws(one, "1")[0] == draws(other, "1")[0]


def test_nothing_is_drawn_where_nothing_varies() -> None:
    fates = LinkFates(SHAPED, "1")
    assert fates.wait_ns == 5_000_000
    assert (fates.lost, fates.due_ns, fates.skips, fates.copied) == (None, None, None, None)
    perfect = LinkFates(LinkCondition(), "1")
    assert (perfect.wait_ns, perfect.due_ns, perfect.lost) == (None, None, None)


def test_a_cut_loses_every_packet() -> None:
    lost = LinkFates(CUT, "1").lost
    assert lost is not None
    assert all(lost() for _ in range(100))


def test_in_order_means_never_due_before_the_one_in_front() -> None:
    fates = LinkFates(LinkCondition(delay=UniformDelay(low_ms=1, high_ms=9), in_order=True), "1")
    assert fates.due_ns is not None
    dues = [fates.due_ns(now) for now in range(0, 100_000_000, 1_000_000)]
    assert all(earlier <= later for earlier, later in pairwise(dues))


def test_held_packets_come_out_when_they_are_due() -> None:
    held: Held[str] = Held()
    held.fifo(30).extend([(30, "a"), (31, "b")])
    held.fifo(10).append((12, "c"))
    held.push(20, "d")
    held.push(20, "e")
    assert held.next_due_ns() == 12
    assert held.pop_due(11) == []
    assert held.pop_due(30) == ["a", "c", "d", "e"]
    assert held.next_due_ns() == 31
    assert held.pop_due(31) == ["b"]
    assert held.next_due_ns() is None


def test_overdue_packets_come_out_with_their_due_time() -> None:
    held: Held[str] = Held()
    held.fifo(30).extend([(30, "a"), (31, "b")])
    held.push(20, "c")
    held.push(31, "d")
    assert held.pop_overdue(20) == []
    assert held.pop_overdue(31) == [(30, "a"), (20, "c")]
    assert held.pop_due(31) == ["b", "d"]


def test_held_packets_of_a_cut_link_are_taken_out() -> None:
    held: Held[str] = Held()
    fifo = held.fifo(30)
    fifo.extend([(30, "a1"), (31, "b1")])
    held.push(20, "a2")
    held.push(5, "b2")
    assert sorted(held.remove(lambda item: item.startswith("a"))) == ["a1", "a2"]
    fifo.append((32, "b3"))
    held.keep_fifos(set())
    assert held.pop_due(40) == ["b1", "b3", "b2"]
    held.keep_fifos({30})
    assert held.fifo(30) is fifo, "a fifo in use stays the one that links append to"
    held.keep_fifos(set())
    assert held.fifo(30) is not fifo


class Notes:
    """Stands in for a network: notes what it is told."""

    names = HostNames(brokers=("a", "b"))

    def __init__(self) -> None:
        self.told: list[tuple[tuple[Link, ...], str | None]] = []

    def set(self, links: tuple[Link, ...], *, seed: str | None = None) -> None:
        if not links:
            raise ValueError("nothing to set")
        self.told.append((links, seed))


LINKS = (Link(src="a", dst="b", condition=SHAPED),)


def test_a_trace_is_played_step_by_step() -> None:
    notes = Notes()
    steps = (ProfileStep(at_s=0.0, links=LINKS), ProfileStep(at_s=0.05, links=LINKS))
    player = ProfilePlayer(notes, NetworkProfile(steps=steps, seed=4))
    player.start()
    assert player.join(5)
    assert notes.told == [(LINKS, "4.0"), (LINKS, "4.1")]
    assert [at_s for at_s, _ in player.applied] == [0.0, 0.05]
    assert all(applied_at_s >= at_s for at_s, applied_at_s in player.applied)


def test_a_host_that_only_the_last_step_gets_wrong_is_refused_before_the_first() -> None:
    notes = Notes()
    wrong = (Link(src="a", dst="c", condition=SHAPED),)
    steps = (ProfileStep(at_s=0.0, links=LINKS), ProfileStep(at_s=0.0, links=wrong))
    with pytest.raises(FieldError, match=r"steps\.1\.link: 'c' is not a host here; .*, a, b"):
        ProfilePlayer(notes, NetworkProfile(steps=steps))
    assert notes.told == []


def test_leaving_the_block_stops_the_trace() -> None:
    notes = Notes()
    steps = (ProfileStep(at_s=0.0, links=LINKS), ProfileStep(at_s=60, links=LINKS))
    with ProfilePlayer(notes, NetworkProfile(steps=steps)) as player:
        assert not player.join(0.01)
    assert len(notes.told) <= 1


def test_a_step_that_fails_is_raised_where_it_is_awaited() -> None:
    player = ProfilePlayer(Notes(), NetworkProfile(steps=(ProfileStep(at_s=0.0, links=()),)))
    player.start()
    with pytest.raises(ValueError, match="nothing to set"):
        player.join(5)
    assert player.applied == []
