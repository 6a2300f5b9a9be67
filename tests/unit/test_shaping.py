"""HTB classes: what is rendered for a rate, and that a change touches nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.domain.network.condition import LinkCondition
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.value import FieldError
from penstock.testbed.lease import Lease
from penstock.testbed.network.shaping import (
    LinkClass,
    Queue,
    parse_queues,
    rate_class,
    render,
    render_segments,
)
from penstock.testbed.network.topology import MOST_HOSTS, Topology

TOPOLOGY = Topology(Lease("t", Path("/nowhere/t")), ("a", "b", "c"))
TEN = LinkClass(10_000_000, ("bfifo", "limit", "93750"))
TWENTY = LinkClass(20_000_000, ("bfifo", "limit", "187500"))


def test_a_rate_becomes_a_class_with_a_queue_of_75_ms() -> None:
    assert rate_class(LinkCondition(rate_mbit=10)) == TEN
    assert rate_class(LinkCondition(rate_mbit=0.5)) == LinkClass(
        500_000, ("bfifo", "limit", "64000")
    )


@pytest.mark.parametrize(
    "condition",
    [
        LinkCondition(),
        LinkCondition(delay=ConstantDelay(ms=5)),
        LinkCondition(rate_mbit=10, cut=True),
    ],
)
def test_no_rate_needs_no_class(condition: LinkCondition) -> None:
    assert rate_class(condition) is None


def test_the_first_class_on_an_interface_brings_the_root() -> None:
    assert render(TOPOLOGY, {}, {("a", "c"): TEN}) == [
        "qdisc add dev to3 root handle 1: htb",
        "class add dev to3 parent 1: classid 1:1 htb"
        " rate 10000000bit burst 3200 cburst 3200 quantum 1600",
        "qdisc add dev to3 parent 1:1 handle 1001: bfifo limit 93750",
        "filter add dev to3 parent 1: protocol ip prio 1 u32 match ip src 10.77.1.2/32 flowid 1:1",
    ]


def test_a_second_class_leaves_the_first_alone() -> None:
    lines = render(TOPOLOGY, {("a", "c"): TEN}, {("a", "c"): TEN, ("b", "c"): TWENTY})
    assert len(lines) == 3
    assert all("1:2" in line or "prio 2" in line for line in lines)
    assert not any("root" in line for line in lines)


def test_a_new_rate_changes_class_and_queue_in_place() -> None:
    both = {("a", "c"): TEN, ("b", "c"): TEN}
    assert render(TOPOLOGY, both, {**both, ("b", "c"): TWENTY}) == [
        "class change dev to3 parent 1: classid 1:2 htb"
        " rate 20000000bit burst 3200 cburst 3200 quantum 1600",
        "qdisc change dev to3 parent 1:2 handle 1002: bfifo limit 187500",
    ]


def test_another_kind_of_leaf_replaces_the_old_one() -> None:
    delayed = LinkClass(10_000_000, ("netem", "limit", "100000", "delay", "5ms"))
    assert render(TOPOLOGY, {("a", "c"): TEN}, {("a", "c"): delayed}) == [
        "qdisc del dev to3 parent 1:1 handle 1001:",
        "qdisc add dev to3 parent 1:1 handle 1001: netem limit 100000 delay 5ms",
    ]


def test_a_class_goes_alone_and_the_last_takes_the_root_along() -> None:
    both = {("a", "c"): TEN, ("b", "c"): TEN}
    assert render(TOPOLOGY, both, {("b", "c"): TEN}) == [
        "filter del dev to3 parent 1: protocol ip prio 1",
        "class del dev to3 classid 1:1",
    ]
    assert render(TOPOLOGY, both, {}) == ["qdisc del dev to3 root"]


def test_no_change_gives_no_command() -> None:
    both = {("a", "c"): TEN, ("b", "a"): TWENTY}
    assert render(TOPOLOGY, both, dict(reversed(both.items()))) == []
    assert render_segments(TOPOLOGY, both, both) == {}


def test_senders_of_limited_links_send_packets_one_by_one() -> None:
    begin = render_segments(TOPOLOGY, {}, {("a", "c"): TEN, ("a", "b"): TEN})
    assert begin == {"a": "link set eth0 gso_max_segs 1\n"}
    cease = render_segments(TOPOLOGY, {("a", "c"): TEN}, {("b", "c"): TEN})
    assert cease == {
        "a": "link set eth0 gso_max_segs 65535\n",
        "b": "link set eth0 gso_max_segs 1\n",
    }


def test_the_counts_of_a_link_are_those_of_its_leaf() -> None:
    queues = [
        {"dev": "lo", "kind": "noqueue", "root": True, "packets": 0, "drops": 0},
        {"dev": "to3", "kind": "htb", "root": True, "packets": 9, "drops": 9},
        {"dev": "to3", "kind": "bfifo", "parent": "1:1", "packets": 5, "drops": 2},
        {"dev": "to1", "kind": "netem", "parent": "1:2", "packets": 7, "drops": 1},
    ]
    assert parse_queues(TOPOLOGY, queues) == {
        ("a", "c"): Queue("bfifo", 5, 2),
        ("b", "a"): Queue("netem", 7, 1),
    }


def test_class_ids_are_hexadecimal_and_numbers_stay_in_range() -> None:
    big = Topology(TOPOLOGY.lease, tuple(f"host-{n}" for n in range(MOST_HOSTS)))
    lines = render(big, {}, {("host-249", "host-0"): TEN})
    assert "classid 1:fa " in lines[1]
    assert "prio 250 u32 match ip src 10.77.250.2/32 flowid 1:fa" in lines[3]
    assert big.link_number(("host-249", "host-248")) < 65_535
    assert len(big.router_interface("host-249")) <= 15
    with pytest.raises(FieldError, match="250 or less"):
        Topology(TOPOLOGY.lease, (*big.hosts, "one-more"))


def test_numbers_and_addresses_are_distinct() -> None:
    pairs = [(s, d) for s in TOPOLOGY.hosts for d in TOPOLOGY.hosts if s != d]
    assert len({TOPOLOGY.link_number(pair) for pair in pairs}) == len(pairs)
    addresses = {f(host) for f in (TOPOLOGY.address, TOPOLOGY.gateway) for host in TOPOLOGY.hosts}
    assert len(addresses) == 6
