"""The settings that bench/models.py predicts and then measures: none is used in calibration.

`full` is the number of requests/s, one message each, at which the machine's processors would be full
(by the first calibration run): loads are shares of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.domain.arrivals import BurstArrivals, ConstantArrivals, PoissonArrivals
from penstock.domain.cluster import ClusterSpec, TopicSpec
from penstock.domain.consumers import Consumers
from penstock.domain.network import Delay, Link, LinkCondition, NetworkSpec
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.network.delay_uniform import UniformDelay
from penstock.domain.scenario import Scenario
from penstock.domain.settings import ProducerSettings
from penstock.domain.workload import Payload, Workload
from penstock.load.contents.web_log import WebLogContent
from penstock.runs.experiments.catching_up import CatchUp

SECONDS = 12.0
# Hosts for as many clients as any cell has.
NETWORK = NetworkSpec(producers=4, consumers=4)
CLUSTER = ClusterSpec(place="namespaces", network=NETWORK)

Regime = Literal["cpu", "links"]


@dataclass(frozen=True)
class Cell:
    """A setting, and how it is measured."""

    name: str
    scenario: Scenario
    regime: Regime
    client: Literal["librdkafka", "java"] = "librdkafka"
    is_quick: bool = False
    # Measured twice in the quick bench; in the full one every cell is.
    is_repeated: bool = False
    # Offered more than the machine can carry.
    is_too_much: bool = False


def cells(full: float, quick: bool = False) -> list[Cell]:
    """All of them, or those of the quick bench; names are unique."""
    every = [*_cpu(full), *_links(full), *_clients_away(full), *_java(full)]
    assert len({cell.name for cell in every}) == len(every)
    return [cell for cell in every if cell.is_quick or not quick]


def full_cells() -> list[Scenario]:
    """Producers that always have more to send; none of these is in the calibration."""
    found = []
    for batch, size, partitions, rate in (
        (3, 100, 3, 90_000),
        (30, 100, 3, 400_000),
        (10, 400, 3, 200_000),
        (20, 200, 6, 300_000),
        (50, 100, 12, 500_000),
    ):
        cell = _cell(
            f"full-{batch}-{size}-{partitions}",
            "cpu",
            rate,
            acks="1",
            linger=50,
            batch_num_messages=batch,
            size=size,
            partitions=partitions,
            replication=1,
        )
        workload = replace(
            cell.scenario.workload, arrivals=ConstantArrivals(rate_per_s=rate), duration_s=6.0
        )
        found.append(
            replace(
                cell.scenario,
                workload=workload,
                visibility="off",
                steady=False,
                schedule_lag_ms=1_000,
            )
        )
    return found


def reading_cells() -> list[tuple[CatchUp, Scenario]]:
    """Consumers that are behind; none of these is in the calibration."""
    found = []
    for size, batch, partitions, most_bytes in (
        (300, 300, 6, None),
        (2_000, 50, 3, None),
        (5_000, 20, 6, None),
        (200, 100, 12, 50_000),
    ):
        settings = {} if most_bytes is None else {"max.partition.fetch.bytes": most_bytes}
        cell = _cell(f"read-{size}", "cpu", 100, size=size, partitions=partitions)
        scenario = replace(cell.scenario, consumers=Consumers(count=1, settings=settings))
        found.append((CatchUp(size, batch, partitions, 3, settings), scenario))
    return found


def _cpu(full: float) -> list[Cell]:
    def cell(name: str, rate: float, **changes: Any) -> Cell:
        return _cell(f"cpu-{name}", "cpu", rate * full, **changes)

    quick = {"is_quick": True}
    return [
        cell("one-by-one-light", 0.15, **quick, is_repeated=True),
        cell("one-by-one-medium", 0.35),
        cell("one-by-one-heavy", 0.55),
        cell("acks-1-light", 0.2, acks="1"),
        cell("acks-1-medium", 0.6, acks="1", partitions=3),
        cell("acks-1-heavy", 1.0, acks="1"),
        cell("acks-0-light", 0.3, acks="0"),
        cell("acks-0-medium", 0.8, acks="0"),
        cell("linger-1", 0.7, linger=1),
        cell("linger-5", 2.0, linger=5, **quick),
        cell("linger-5-heavy", 6.0, linger=5),
        cell("linger-10-1kb", 3.0, linger=10, size=1_000),
        cell("linger-20", 3.0, linger=20),
        cell("linger-100", 3.0, linger=100),
        cell("batch-3", 1.0, linger=50, batch_num_messages=3),
        cell("batch-10", 2.0, linger=50, batch_num_messages=10, partitions=3),
        cell("batch-100", 6.0, linger=100, batch_num_messages=100),
        cell("batch-1000", 12.0, linger=100, batch_num_messages=1_000),
        cell("batch-2kB", 2.0, linger=50, batch_size=2_000),
        cell("batch-16kB", 4.0, linger=20, batch_size=16_384),
        cell("in-flight-1", 0.8, in_flight=1, partitions=1, **quick, is_repeated=True),
        cell("in-flight-2", 0.8, in_flight=2, partitions=3),
        cell("in-flight-5", 0.4, in_flight=5),
        cell("zstd", 2.0, linger=20, size=500, compression_type="zstd", is_text=True),
        cell("lz4", 2.0, linger=5, size=500, compression_type="lz4", is_text=True),
        cell("gzip", 1.0, linger=20, size=500, compression_type="gzip", is_text=True),
        cell("idempotent", 0.3, enable_idempotence=True),
        cell("idempotent-linger-5", 2.0, linger=5, enable_idempotence=True),
        cell("one-replica", 0.5, replication=1, acks="1"),
        cell("one-replica-linger-5", 4.0, replication=1, linger=5),
        cell("100-B", 2.0, linger=5, size=100),
        cell("10-kB", 0.3, linger=5, size=10_000, **quick),
        cell("10-kB-one-by-one", 0.2, size=10_000),
        cell("1-partition", 0.3, partitions=1),
        cell("12-partitions", 0.3, partitions=12),
        cell("24-partitions", 0.3, partitions=24, **quick),
        cell("24-partitions-linger-5", 2.0, partitions=24, linger=5),
        cell("keys", 1.0, linger=5, keys=1_000),
        cell("skewed-keys", 1.0, linger=5, keys=2),
        cell("bursts", 1.0, linger=5, is_bursty=True),
        cell("2-producers", 0.3, producers=2),
        cell("4-producers", 0.3, producers=4),
        cell("4-producers-linger-5", 2.0, producers=4, linger=5),
        cell("3-consumers", 0.3, consumers=3),
        cell("4-and-4", 0.25, producers=4, consumers=4),
        cell("fetch-10kB", 1.0, linger=5, fetch=(10_000, 100)),
        cell("fetch-1MB", 1.0, linger=5, fetch=(1_000_000, 300)),
        cell("too-much", 1.6, is_too_much=True),
        cell("too-much-acks-1", 3.0, acks="1", batch_num_messages=1, is_too_much=True),
    ]


def _links(full: float) -> list[Cell]:
    """10 ms between any two hosts."""

    def cell(name: str, rate: float, **changes: Any) -> Cell:
        delay: Delay = changes.pop("delay", ConstantDelay(ms=10))
        links = (Link(src="any", dst="any", condition=LinkCondition(delay=delay)),)
        return _cell(f"links-{name}", "links", rate, links=links, **changes)

    jitter = UniformDelay(low_ms=5, high_ms=15)
    return [
        cell("keys-light", 60, linger=5, keys=1_000, is_quick=True, is_repeated=True),
        cell("acks-1", 200, acks="1", linger=5),
        cell("acks-0", 300, acks="0", linger=5),
        cell("linger-50", 300, linger=50, partitions=1, size=1_000, is_quick=True),
        cell("linger-100", 1_000, linger=100),
        cell("linger-20-heavy", 0.8 * full, linger=20, acks="1"),
        cell("one-by-one-acks-1", 300, acks="1"),
        cell("window-1", 120, partitions=1, in_flight=1),
        cell("window-5", 300, partitions=3, in_flight=5),
        cell("jitter", 100, linger=20, delay=jitter, is_quick=True),
        cell("jitter-acks-1", 300, linger=5, acks="1", delay=jitter),
        cell("idempotent", 200, linger=20, enable_idempotence=True),
        cell("3-producers", 100, linger=50, producers=3, consumers=2),
        cell("10-kB", 50, linger=50, size=10_000),
        cell("batch-10", 400, linger=100, batch_num_messages=10, partitions=3),
        cell("too-much", 200, in_flight=1, batch_num_messages=1, partitions=1, is_too_much=True),
    ]


def _clients_away(full: float) -> list[Cell]:
    """The document's network: 30 ms round trip to the clients, brokers together."""
    condition = LinkCondition(delay=ConstantDelay(ms=15))
    pairs = [("producers", "brokers"), ("brokers", "producers")]
    pairs += [("consumers", "brokers"), ("brokers", "consumers")]
    links = tuple(Link(src=src, dst=dst, condition=condition) for src, dst in pairs)

    def cell(name: str, rate: float, **changes: Any) -> Cell:
        return _cell(f"away-{name}", "links", rate, links=links, **changes)

    return [
        cell("one-by-one", 100),
        cell("batch-4", 100, linger=1_000, batch_num_messages=4, partitions=1),
        cell("batch-20", 100, linger=1_000, batch_num_messages=20, partitions=1),
        cell("linger-20", 500, linger=20),
        cell("heavy", 0.6 * full, linger=10),
    ]


def _java(full: float) -> list[Cell]:
    """Kafka's ProducerPerformance, which sends at a constant rate."""

    def cell(name: str, regime: Regime, rate: float, linger: float, **changes: Any) -> Cell:
        condition = LinkCondition(delay=ConstantDelay(ms=10))
        links = (Link(src="any", dst="any", condition=condition),) if regime == "links" else ()
        found = _cell(f"java-{name}", regime, rate, linger=linger, links=links, **changes)
        workload = replace(
            found.scenario.workload, arrivals=ConstantArrivals(rate_per_s=round(rate, 1))
        )
        # Nobody reads what it sends.
        scenario = replace(found.scenario, workload=workload, visibility="off")
        return replace(found, scenario=scenario, client="java")

    return [
        cell("acks-1", "links", 200, 5, acks="1", partitions=1),
        cell("acks-all", "links", 200, 5, partitions=1),
        cell("unqueued", "links", 200, 100, partitions=1),
        cell("1-kB", "links", 1_000, 50, size=1_000, acks="1", partitions=1),
        cell("cpu-acks-1", "cpu", 0.4 * full, 5, acks="1", partitions=1),
        cell("cpu-linger-20", "cpu", 1.0 * full, 20, partitions=1),
    ]


def _cell(
    name: str,
    regime: Regime,
    rate: float,
    *,
    acks: Any = "all",
    linger: float = 0,
    partitions: int = 6,
    replication: int = 3,
    size: int = 200,
    producers: int = 1,
    consumers: int = 1,
    keys: int | None = None,
    links: tuple[Link, ...] = (),
    fetch: tuple[int, int] | None = None,
    is_text: bool = False,
    is_bursty: bool = False,
    is_quick: bool = False,
    is_repeated: bool = False,
    is_too_much: bool = False,
    **settings: Any,
) -> Cell:
    each = round(rate / producers, 1)
    if is_bursty:
        # Half the time at twice the rate, by spells below a second.
        arrivals: Any = BurstArrivals(calm_per_s=0.0, busy_per_s=2 * each, calm_s=0.2, busy_s=0.2)
    else:
        arrivals = PoissonArrivals(rate_per_s=each)
    content: dict[str, Any] = {"content": WebLogContent()} if is_text else {}
    read: dict[str, int] = {}
    if fetch is not None:
        read = {"fetch.min.bytes": fetch[0], "fetch.wait.max.ms": fetch[1]}
    scenario = Scenario(
        name=name.lower(),
        cluster=replace(CLUSTER, network=replace(NETWORK, links=links)),
        topic=TopicSpec(name=name.lower(), partitions=partitions, replication=replication),
        workload=Workload(
            arrivals=arrivals,
            producers=producers,
            keys=keys,
            payload=Payload(size_bytes=size, **content),
            duration_s=SECONDS,
        ),
        consumers=Consumers(count=consumers, settings=read),
        settings=ProducerSettings(acks=acks, linger_ms=linger, **settings),
    )
    return Cell(
        name,
        scenario,
        regime,
        is_quick=is_quick,
        is_repeated=is_repeated,
        is_too_much=is_too_much,
    )
