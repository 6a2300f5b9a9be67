"""Conditions rendered for netem, and the choice of the backend."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from penstock.domain.errors import MissingPart
from penstock.domain.network.condition import LinkCondition
from penstock.domain.network.delay import Delay
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.network.delay_normal import NormalDelay
from penstock.domain.network.delay_pareto import ParetoDelay
from penstock.domain.network.delay_uniform import UniformDelay
from penstock.domain.network.loss_bernoulli import BernoulliLoss
from penstock.domain.network.loss_gilbert_elliott import GilbertElliottLoss
from penstock.domain.value import FieldError
from penstock.testbed.lease import Lease
from penstock.testbed.network.emulator import choose_backend
from penstock.testbed.network.namespaces import require_root, tool
from penstock.testbed.network.netem import netem_class, netem_leaf
from penstock.testbed.network.shaping import UNLIMITED_BIT, LinkClass, classes, render
from penstock.testbed.network.topology import Topology

TOPOLOGY = Topology(Lease("t", Path("/nowhere/t")), ("a", "b"))
DELAY = ConstantDelay(ms=5)


def leaf(**fields: object) -> str:
    return " ".join(netem_leaf(LinkCondition(**fields)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("delay", "arguments"),
    [
        (ConstantDelay(ms=12.5), "delay 12.5ms"),
        (UniformDelay(low_ms=5, high_ms=25), "delay 15.0ms 10.0ms"),
        (NormalDelay(mean_ms=20, stddev_ms=4), "delay 20ms 4ms distribution normal"),
    ],
)
def test_delay(delay: Delay, arguments: str) -> None:
    assert leaf(delay=delay) == f"netem limit 100000 {arguments}"


def test_loss() -> None:
    assert leaf(loss=BernoulliLoss(share=0.1)) == "netem limit 100000 loss random 10.000000%"
    bursts = GilbertElliottLoss(
        good_to_bad=0.02, bad_to_good=0.25, loss_in_bad=0.9, loss_in_good=0.01
    )
    # tc calls the last two 1-h and 1-k: the loss while bad, the loss while good.
    assert leaf(loss=bursts) == (
        "netem limit 100000 loss gemodel 2.000000% 25.000000% 90.000000% 1.000000%"
    )


def test_duplicates_and_reordering() -> None:
    assert leaf(duplicate=0.05) == "netem limit 100000 duplicate 5.000000%"
    assert leaf(delay=DELAY, reorder=0.25) == ("netem limit 100000 delay 5ms reorder 25.000000%")


def test_order_is_kept_by_a_rate() -> None:
    jitter = UniformDelay(low_ms=1, high_ms=3)
    assert leaf(delay=jitter, in_order=True) == (
        "netem limit 100000 delay 2.0ms 1.0ms rate 100000000000bit"
    )


def test_everything_at_once_in_the_order_tc_reads_it() -> None:
    assert leaf(delay=DELAY, loss=BernoulliLoss(share=0.5), duplicate=0.1, reorder=0.2) == (
        "netem limit 100000 delay 5ms loss random 50.000000%"
        " duplicate 10.000000% reorder 20.000000%"
    )


def test_a_cut_loses_everything_whatever_else_is_asked() -> None:
    assert leaf(cut=True, delay=DELAY) == "netem limit 100000 loss random 100%"


def test_a_perfect_link_has_no_class_and_a_rate_alone_no_netem() -> None:
    assert netem_class(LinkCondition()) is None
    assert netem_class(LinkCondition(rate_mbit=8)) == LinkClass(
        8_000_000, ("bfifo", "limit", "75000")
    )


def test_delay_and_rate_share_a_class() -> None:
    assert netem_class(LinkCondition(delay=DELAY, rate_mbit=8)) == LinkClass(
        8_000_000, ("netem", "limit", "100000", "delay", "5ms")
    )
    unlimited = netem_class(LinkCondition(delay=DELAY))
    assert unlimited is not None
    assert unlimited.rate_bit == UNLIMITED_BIT


def test_the_commands_of_a_link() -> None:
    link_classes = classes({("a", "b"): LinkCondition(delay=DELAY, rate_mbit=8)}, netem_class)
    assert render(TOPOLOGY, {}, link_classes) == [
        "qdisc add dev to2 root handle 1: htb",
        "class add dev to2 parent 1: classid 1:1 htb"
        " rate 8000000bit burst 3200 cburst 3200 quantum 1600",
        "qdisc add dev to2 parent 1:1 handle 1001: netem limit 100000 delay 5ms",
        "filter add dev to2 parent 1: protocol ip prio 1 u32 match ip src 10.77.1.2/32 flowid 1:1",
    ]


def change(old: LinkCondition, new: LinkCondition) -> list[str]:
    pair = ("a", "b")
    return render(TOPOLOGY, classes({pair: old}, netem_class), classes({pair: new}, netem_class))


def test_other_numbers_change_the_leaf_in_place() -> None:
    lines = change(LinkCondition(delay=DELAY), LinkCondition(delay=ConstantDelay(ms=9)))
    assert lines == ["qdisc change dev to2 parent 1:1 handle 1001: netem limit 100000 delay 9ms"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The kernel would keep the table of the normal distribution …
        (
            LinkCondition(delay=NormalDelay(mean_ms=20, stddev_ms=4)),
            LinkCondition(delay=UniformDelay(low_ms=5, high_ms=25)),
        ),
        # … the rate that keeps the order …
        (LinkCondition(delay=DELAY, in_order=True), LinkCondition(delay=DELAY)),
        # … and the share that skips the delay.
        (LinkCondition(delay=DELAY, reorder=0.1), LinkCondition(delay=DELAY)),
    ],
)
def test_options_that_would_linger_are_removed_with_their_leaf(
    old: LinkCondition, new: LinkCondition
) -> None:
    lines = change(old, new)
    assert lines[0] == "qdisc del dev to2 parent 1:1 handle 1001:"
    assert lines[1].startswith("qdisc add dev to2 parent 1:1 handle 1001: netem")


def test_healing_removes_what_was_made() -> None:
    assert change(LinkCondition(delay=DELAY), LinkCondition()) == ["qdisc del dev to2 root"]


def test_the_backend_is_netem_where_the_kernel_has_it() -> None:
    assert choose_backend("auto", lambda: True) == "netem"
    assert choose_backend("auto", lambda: False) == "nfqueue"
    assert choose_backend("netem", lambda: True) == "netem"
    with pytest.raises(MissingPart, match="no netem") as missing:
        choose_backend("netem", lambda: False)
    assert "nfqueue" in missing.value.fix


def test_the_kernel_is_not_asked_when_the_answer_does_not_matter() -> None:
    def probe() -> bool:
        raise AssertionError("asked")

    assert choose_backend("nfqueue", probe) == "nfqueue"


def test_what_is_missing_comes_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingPart, match="needs root") as missing:
        require_root()
    assert "sudo" in missing.value.fix
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(MissingPart, match="`tc` is not installed") as missing:
        tool.__wrapped__("tc")
    assert "iproute2" in missing.value.fix


def test_what_netem_cannot_do_is_refused_and_not_approximated() -> None:
    with pytest.raises(FieldError, match="nfqueue"):
        ParetoDelay(scale_ms=4, shape=3).netem()
