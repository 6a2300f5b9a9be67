"""The short runs of a calibration. Pure.

The design: each run makes another cost or queue dominate, so that the costs can be told apart.

    run      what dominates                                        what the fit learns
    light    nothing: 300 messages/s one by one, acks=all          wake-ups, the fixed costs
    heavy    processors: one by one, at 60 % of what they can do   queues for cores, contention
    keyed    10 ms links, keys, light (emulated networks only)     fetches over links
    window   one request in flight, and more to send               a request's time at the broker
    bytes    large batches of 1 kB messages, acks=1                costs of messages and bytes
    single   acks=1, one partition                                 produce apart from replication
    batches  one partition, linger 5 ms, acks=all                  batches, followers' appends
    groups   three producers and three consumers                   many connections
    linked   10 ms links, window of one (emulated networks only)   followers' fetch loops

The first runs at a rate that any machine carries. The rates of the others follow from what it
measured: a share of the requests/s at which the processors would be full. It is made again at the end,
since brokers get faster for minutes, and only the repeat is used. Fewer runs take the first of the
list. On a cluster that others use, every rate is at most the cap, and runs that need more than
it are left out unless saturation is allowed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from penstock.domain.arrivals import Arrivals, ConstantArrivals, PoissonArrivals
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.consumers import Consumers
from penstock.domain.network import Link, LinkCondition
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.run import Existing
from penstock.domain.scenario import Scenario
from penstock.domain.settings import ProducerSettings
from penstock.domain.warm_up import WarmUpLimits
from penstock.domain.workload import Payload, Workload

SECONDS = 12.0
# Messages/s that every machine carries.
LIGHT_PER_S = 300.0
# Messages/s on a cluster of somebody else, unless more is allowed.
DEFAULT_CAP_PER_S = 200.0
# With fewer, a run has too few messages for a p99.
LEAST_CAP_PER_S = 20.0
_LINK_MS = 10.0
_PARTITIONS = 6
# Where nobody can see what requests cost, a rate that small machines carry.
_UNKNOWN_CAPACITY_PER_S = 1_000.0


@dataclass(frozen=True)
class Place:
    """Where the runs are made."""

    cluster: ClusterSpec
    existing: Existing | None = None
    replication: int = 3
    # The highest rate in messages/s; None: as the machine allows.
    cap_per_s: float | None = None

    def capped(self, cap_per_s: float) -> Place:
        return replace(self, cap_per_s=cap_per_s)


@dataclass(frozen=True)
class _Recipe:
    name: str
    # Messages/s, as a share of the requests/s at which the processors would be full.
    share: float
    settings: ProducerSettings
    partitions: int = _PARTITIONS
    size_bytes: int = 200
    clients: int = 1
    keys: int | None = None
    link_ms: float = 0.0
    # "rate": it is of use at any rate; "saturating": only if it may load the cluster.
    needs: Literal["rate", "saturating"] = "rate"


_LINGER_0 = ProducerSettings(acks="all", linger_ms=0)
_RECIPES = (
    _Recipe("light", 0.0, _LINGER_0),
    _Recipe("heavy", 0.6, _LINGER_0, needs="saturating"),
    _Recipe("keyed", 0.05, ProducerSettings(acks="all", linger_ms=5), keys=1_000, link_ms=_LINK_MS),
    _Recipe("window", 1.2, replace(_LINGER_0, in_flight=1), partitions=1, needs="saturating"),
    _Recipe(
        "bytes",
        7.0,
        ProducerSettings(acks="1", linger_ms=5),
        size_bytes=1_000,
        needs="saturating",
    ),
    _Recipe("single", 0.4, ProducerSettings(acks="1", linger_ms=0), partitions=1),
    _Recipe("batches", 4.0, ProducerSettings(acks="all", linger_ms=5), partitions=1),
    _Recipe("groups", 0.4, _LINGER_0, clients=3),
    _Recipe("linked", 0.16, replace(_LINGER_0, in_flight=1), partitions=1, link_ms=_LINK_MS),
)


# Messages per batch, bytes of a message, partitions, and messages/s: more than small machines take.
# What cannot be sent waits in the client's queue, and nothing is dropped.
_SATURATING = (
    (1, 100, 3, 40_000),
    (10, 100, 3, 250_000),
    (100, 100, 3, 600_000),
    (10, 1_000, 3, 120_000),
    (10, 100, 12, 250_000),
)
_SATURATING_S, _SATURATING_WARM_UP_S = 6.0, 20.0


def saturating_runs(place: Place) -> list[Scenario]:
    """Runs whose producer always has more to send: what they send is the most it can."""
    return [
        Scenario(
            name=f"calibrate-full-{batch}-{size}-{partitions}",
            cluster=place.cluster,
            existing=place.existing,
            topic=TopicSpec(
                name=f"penstock-calibrate-full-{batch}-{size}-{partitions}", partitions=partitions
            ),
            workload=Workload(
                arrivals=ConstantArrivals(rate_per_s=rate),
                payload=Payload(size_bytes=size),
                duration_s=_SATURATING_S,
            ),
            settings=ProducerSettings(acks="1", linger_ms=50, batch_num_messages=batch),
            visibility="off",
            steady=False,
            schedule_lag_ms=1_000,
            # The brokers are warm from the runs before.
            cluster_warm_up=WarmUpLimits(limit_s=_SATURATING_WARM_UP_S),
        )
        for batch, size, partitions, rate in _SATURATING
    ]


# Bytes of a message, messages per batch, partitions, and the most bytes of a partition in an answer:
# small answers make their fixed cost count, small messages that of each message.
CATCHING_UP = (
    (100, 500, 3, None),
    (1_000, 100, 3, None),
    (10_000, 20, 3, None),
    (100, 100, 3, 12_000),
    (1_000, 50, 12, None),
)


def first_run(place: Place) -> Scenario:
    """The run that says how much the others may load."""
    return _scenario(_RECIPES[0], LIGHT_PER_S, place)


def further_runs(place: Place, full_per_s: float, most: int | None = None) -> list[Scenario]:
    """The other runs of the design. `full_per_s`: see `capacity_per_s`; `most`: runs altogether, with
    the first, which is made twice."""
    has_network = place.cluster.network is not None
    is_capped = place.cap_per_s is not None
    usable = [
        recipe
        for recipe in _RECIPES[1:]
        if (has_network or not recipe.link_ms) and not (is_capped and recipe.needs == "saturating")
    ]
    if most is not None:
        usable = usable[: most - 2]
    return [_scenario(recipe, recipe.share * full_per_s, place) for recipe in usable]


def _arrivals(rate_per_s: float, place: Place) -> Arrivals:
    """Each producer sends its share; together no more than the cap in any second."""
    rate_per_s = math.floor(10 * rate_per_s) / 10
    if place.cap_per_s is not None:
        return ConstantArrivals(rate_per_s=rate_per_s)
    return PoissonArrivals(rate_per_s=rate_per_s)


def capacity_per_s(cores: float, used_cores: float) -> float:
    """Requests/s, one message each, at which the processors would be full, by what the first run
    used. 0 cores: it cannot be seen."""
    if not cores or not used_cores:
        return _UNKNOWN_CAPACITY_PER_S
    return LIGHT_PER_S * cores / used_cores


def _scenario(recipe: _Recipe, rate_per_s: float, place: Place) -> Scenario:
    if place.cap_per_s is not None:
        rate_per_s = min(rate_per_s, place.cap_per_s)
    cluster, existing = place.cluster, place.existing
    if (network := cluster.network) is not None:
        delay = LinkCondition(delay=ConstantDelay(ms=recipe.link_ms))
        links = (Link(src="any", dst="any", condition=delay),) if recipe.link_ms else ()
        cluster = replace(cluster, network=replace(network, links=links))
    return Scenario(
        name=f"calibrate-{recipe.name}",
        cluster=ClusterSpec() if existing is not None else cluster,
        existing=existing,
        topic=TopicSpec(
            name=f"penstock-calibrate-{recipe.name}",
            partitions=recipe.partitions,
            replication=place.replication,
        ),
        workload=Workload(
            arrivals=_arrivals(rate_per_s / recipe.clients, place),
            producers=recipe.clients,
            keys=recipe.keys,
            payload=Payload(size_bytes=recipe.size_bytes),
            duration_s=SECONDS,
        ),
        consumers=Consumers(count=recipe.clients),
        settings=recipe.settings,
    )
