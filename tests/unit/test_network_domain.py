"""Kinds of delay and loss against their own theory; names, groups and precedence of links."""

from __future__ import annotations

import math
from random import Random

import pytest

import penstock.domain.network
from penstock.domain.network.condition import (
    Cut,
    HostNames,
    Link,
    LinkCondition,
    NetworkProfile,
    ProfileStep,
)
from penstock.domain.network.delay import Delay
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.network.delay_normal import NormalDelay
from penstock.domain.network.delay_pareto import ParetoDelay
from penstock.domain.network.delay_uniform import UniformDelay
from penstock.domain.network.loss import Loss
from penstock.domain.network.loss_bernoulli import BernoulliLoss
from penstock.domain.network.loss_gilbert_elliott import GilbertElliottLoss
from penstock.domain.value import FieldError

DELAYS = [
    ConstantDelay(ms=20),
    UniformDelay(low_ms=5, high_ms=25),
    NormalDelay(mean_ms=20, stddev_ms=4),
    NormalDelay(mean_ms=1, stddev_ms=4),  # a third of it would be negative
    ParetoDelay(scale_ms=5, shape=0.9),
    ParetoDelay(scale_ms=5, shape=3, max_ms=8),  # a quarter of it lies at the cut
]
LOSSES = [
    BernoulliLoss(share=0.0),
    BernoulliLoss(share=0.13),
    BernoulliLoss(share=1.0),
    GilbertElliottLoss(good_to_bad=0.02, bad_to_good=0.25),
    GilbertElliottLoss(good_to_bad=0.1, bad_to_good=0.2, loss_in_bad=0.6, loss_in_good=0.05),
    GilbertElliottLoss(good_to_bad=1.0, bad_to_good=1.0),
]
N = 20_000
Z = 3.89  # two-sided 99.99 %
# Fresh numbers in every run: the intervals must hold for any seed.
RNG = Random()


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
def test_samples_follow_the_distribution(delay: Delay) -> None:
    draw = delay.sampler(RNG)
    samples = sorted(draw() for _ in range(N))
    distance = (math.log(2 / 1e-4) / (2 * N)) ** 0.5
    for rank, sample in enumerate(samples):
        # Where the distribution jumps (at 0, at a cut) the empirical one lies anywhere in the jump.
        assert rank / N <= delay.cdf(sample) + distance
        assert (rank + 1) / N >= delay.cdf(math.nextafter(sample, -math.inf)) - distance
    assert samples[0] >= 0


@pytest.mark.parametrize("delay", DELAYS, ids=repr)
def test_a_cdf_is_one(delay: Delay) -> None:
    assert delay.cdf(-1) == 0
    assert delay.cdf(60_000) == pytest.approx(1)
    values = [delay.cdf(x / 10) for x in range(1000)]
    assert values == sorted(values)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_share_lost_is_the_mean(loss: Loss) -> None:
    lost = loss.sampler(RNG)
    total = sum(lost() for _ in range(N))
    memory = (
        1 - loss.good_to_bad - loss.bad_to_good if isinstance(loss, GilbertElliottLoss) else 0.0
    )
    inflation = (1 + memory) / (1 - memory) if memory > 0 else 1.0
    margin = Z * (N * loss.mean * (1 - loss.mean) * inflation) ** 0.5 + 1
    assert abs(total - N * loss.mean) <= margin


def test_bursts_are_geometric() -> None:
    loss = GilbertElliottLoss(good_to_bad=0.05, bad_to_good=0.4)
    lost = loss.sampler(RNG)
    bursts: list[int] = []
    previous = False
    for _ in range(50_000):
        now = lost()
        if now and previous:
            bursts[-1] += 1
        elif now:
            bursts.append(1)
        previous = now
    deviation = 0.6**0.5 / 0.4
    assert abs(sum(bursts) / len(bursts) - 1 / 0.4) <= Z * deviation / len(bursts) ** 0.5
    for length in (1, 2, 3):
        longer = sum(burst > length for burst in bursts)
        expected = 0.6**length
        margin = Z * (len(bursts) * expected * (1 - expected)) ** 0.5
        assert abs(longer - len(bursts) * expected) <= margin


def test_every_kind_is_known_and_has_a_name_of_its_own() -> None:
    for word in (penstock.domain.network.Delay, penstock.domain.network.Loss):
        kinds = [kind.kind for kind in word.__subclasses__()]
        assert len(kinds) == len(set(kinds)) >= 2
        assert None not in kinds


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ConstantDelay(ms=-1), "ms"),
        (lambda: ConstantDelay(ms=math.nan), "ms"),
        (lambda: UniformDelay(low_ms=5, high_ms=5), "high_ms"),
        (lambda: NormalDelay(mean_ms=5, stddev_ms=0), "stddev_ms"),
        (lambda: ParetoDelay(scale_ms=5, shape=0), "shape"),
        (lambda: ParetoDelay(scale_ms=5, shape=1, max_ms=4), "max_ms"),
        (lambda: BernoulliLoss(share=1.01), "share"),
        (lambda: GilbertElliottLoss(good_to_bad=0, bad_to_good=0.1), "good_to_bad"),
        (lambda: LinkCondition(rate_mbit=0), "rate_mbit"),
        (lambda: LinkCondition(duplicate=2), "duplicate"),
        (lambda: LinkCondition(reorder=0.1), "reorder"),
        (
            lambda: LinkCondition(reorder=0.1, delay=ConstantDelay(ms=1), in_order=True),
            "reorder",
        ),
        (lambda: NetworkProfile(steps=()), "steps"),
        (
            lambda: NetworkProfile(
                steps=(ProfileStep(at_s=2, links=()), ProfileStep(at_s=1, links=()))
            ),
            "steps",
        ),
    ],
)
def test_impossible_values_are_refused(make: object, field: str) -> None:
    with pytest.raises(FieldError) as refusal:
        make()  # type: ignore[operator]
    assert refusal.value.field == field
    assert refusal.value.rule


def test_what_needs_an_emulator() -> None:
    assert not LinkCondition().shapes_packets
    assert not LinkCondition(rate_mbit=5, cut=True).shapes_packets
    assert LinkCondition(delay=ConstantDelay(ms=0)).shapes_packets
    assert LinkCondition(loss=BernoulliLoss(share=0)).shapes_packets
    assert LinkCondition(duplicate=0.1).shapes_packets


HOSTS = HostNames(
    brokers=("broker-1", "broker-2"),
    producers=("producer-1",),
    consumers=("consumer-1",),
    controllers=("controller-101",),
)
SLOW, SLOWER = (LinkCondition(delay=ConstantDelay(ms=ms)) for ms in (10, 20))


def test_groups_stand_for_hosts() -> None:
    assert HOSTS.resolve("producers") == ("producer-1",)
    assert HOSTS.resolve("brokers") == ("broker-1", "broker-2", "controller-101")
    assert set(HOSTS.resolve("any")) == set(HOSTS.all)
    assert HOSTS.resolve("controller-101") == ("controller-101",)


def test_unknown_names_are_refused_with_those_that_exist() -> None:
    with pytest.raises(FieldError, match=r"broker-3.*broker-1"):
        HOSTS.conditions((Cut("broker-3", "broker-1"),))


def test_later_links_win() -> None:
    conditions = HOSTS.conditions(
        (
            Link(src="any", dst="any", condition=SLOW),
            Link(src="producers", dst="brokers", both_ways=False, condition=SLOWER),
            Cut("broker-1", "producer-1", both_ways=False),
        )
    )
    n = len(HOSTS.all)
    assert len(conditions) == n * (n - 1), "every ordered pair, and none with itself"
    assert conditions["producer-1", "broker-1"] == conditions["producer-1", "broker-2"] == SLOWER
    assert conditions["broker-2", "producer-1"] == SLOW
    assert conditions["broker-1", "producer-1"] == LinkCondition(cut=True)
    assert conditions["broker-1", "broker-2"] == SLOW


def test_one_way_and_both_ways() -> None:
    one = HOSTS.conditions(
        (Link(src="producer-1", dst="broker-1", both_ways=False, condition=SLOW),)
    )
    both = HOSTS.conditions((Link(src="producer-1", dst="broker-1", condition=SLOW),))
    assert set(one) == {("producer-1", "broker-1")}
    assert set(both) == {("producer-1", "broker-1"), ("broker-1", "producer-1")}
