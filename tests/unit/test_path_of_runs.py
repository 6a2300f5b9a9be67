"""The path of a run: settings, links and messages in the simulator's terms."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.domain.arrivals import ConstantArrivals, PoissonArrivals
from penstock.domain.cluster import ClientQuotas, ClusterSpec, TopicSpec
from penstock.domain.consumers import Consumers
from penstock.domain.errors import BadInput
from penstock.domain.network import Cut, Link, LinkCondition, NetworkSpec
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.network.delay_uniform import UniformDelay
from penstock.domain.network.loss_bernoulli import BernoulliLoss
from penstock.domain.run import RunSpec
from penstock.domain.settings import ProducerSettings
from penstock.domain.sizes import UniformSizes
from penstock.domain.workload import Payload, Workload
from penstock.models.path import Physics, simulate
from penstock.models.path.from_run import path_arrivals, path_lines, path_spec
from penstock.models.path.spec import UNLIMITED


def run(**fields: Any) -> RunSpec:
    defaults: dict[str, Any] = {
        "name": "a",
        "topic": TopicSpec(name="t", partitions=6, replication=3),
        "workload": Workload(arrivals=PoissonArrivals(rate_per_s=100)),
    }
    return RunSpec(**{**defaults, **fields})


def test_settings_that_are_not_given_have_librdkafkas_defaults() -> None:
    spec = path_spec(run())
    assert (spec.acks, spec.linger_s, spec.in_flight) == ("all", 0.005, UNLIMITED)
    assert (spec.batch_messages, spec.batch_bytes) == (10_000, 1_000_000)
    assert (spec.fetch_min_bytes, spec.fetch_wait_s) == (1, 0.5)
    assert (spec.brokers, spec.partitions, spec.replication, spec.consumers) == (3, 6, 3, 1)


def test_settings_that_are_given_are_used() -> None:
    settings = ProducerSettings(
        acks="1", linger_ms=0, batch_num_messages=7, batch_size=999, in_flight=2
    )
    consumers = Consumers(count=2, settings={"fetch.min.bytes": 5_000, "fetch.wait.max.ms": 100})
    spec = path_spec(run(settings=settings, consumers=consumers))
    assert (spec.acks, spec.linger_s, spec.in_flight) == ("1", 0, 2)
    assert (spec.batch_messages, spec.batch_bytes) == (7, 999)
    assert (spec.fetch_min_bytes, spec.fetch_wait_s, spec.consumers) == (5_000, 0.1, 2)
    assert path_spec(run(settings=ProducerSettings(enable_idempotence=True))).in_flight == 5


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"settings": ProducerSettings(other={"socket.nagle.disable": True})}, "socket.nagle"),
        ({"consumers": Consumers(settings={"fetch.error.backoff.ms": 1_000})}, "fetch.error"),
        (
            {"workload": Workload(arrivals=ConstantArrivals(rate_per_s=1), loop="closed")},
            "workload.loop",
        ),
    ],
)
def test_what_the_model_does_not_know_is_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        path_spec(run(**fields))
    path_spec(run(settings=ProducerSettings(other={"client.id": "x"})))


def network(*links: Link) -> ClusterSpec:
    return ClusterSpec(place="namespaces", network=NetworkSpec(links=links))


def delayed(ms: float, **more: Any) -> LinkCondition:
    return LinkCondition(delay=ConstantDelay(ms=ms), **more)


def test_links_are_taken_by_group_and_direction() -> None:
    cluster = network(
        Link(src="producers", dst="brokers", condition=delayed(30, rate_mbit=8)),
        Link(src="brokers", dst="consumers", both_ways=False, condition=delayed(5)),
        Link(
            src="consumers",
            dst="brokers",
            both_ways=False,
            condition=LinkCondition(loss=BernoulliLoss(share=0.1)),
        ),
    )
    lines = path_lines(run(cluster=cluster))
    assert lines.to_broker.delays_s == lines.to_producer.delays_s == [0.03]
    assert lines.to_broker.rate_bytes_per_s == 1e6
    assert lines.to_reader.delays_s == [0.005] and lines.from_reader.delays_s == [0]
    assert (lines.to_reader.loss, lines.from_reader.loss) == (0, 0.1)
    assert lines.to_follower.delays_s == [0]


def test_delays_that_vary_are_drawn() -> None:
    varies = LinkCondition(delay=UniformDelay(low_ms=10, high_ms=20))
    lines = path_lines(run(cluster=network(Link(src="brokers", dst="brokers", condition=varies))))
    assert lines.to_follower.delays_s.mean() == pytest.approx(0.015, rel=0.02)
    assert 0.010 <= lines.to_follower.delays_s.min() < lines.to_follower.delays_s.max() <= 0.020


@pytest.mark.parametrize(
    ("link", "named"),
    [
        (Link(src="broker-1", dst="brokers", condition=delayed(5)), "differ"),
        (Cut("producers", "brokers"), "cut"),
    ],
)
def test_links_that_the_model_does_not_know_are_refused(link: Link, named: str) -> None:
    with pytest.raises(BadInput, match=named):
        path_lines(run(cluster=network(link)))


def test_without_a_network_links_are_perfect() -> None:
    assert path_lines(run()).to_broker.delays_s == [0]


def test_messages_without_a_key_stay_with_a_partition_for_twice_linger() -> None:
    workload = Workload(arrivals=ConstantArrivals(rate_per_s=1_000))
    spec = run(workload=workload, settings=ProducerSettings(linger_ms=10.25))
    arrivals = path_arrivals(spec, 10)
    changes = np.flatnonzero(np.diff(arrivals.partition)) + 1
    assert set(changes % 21) == {0}  # 20.5 ms
    at_once = path_arrivals(replace(spec, settings=ProducerSettings(linger_ms=0)), 10)
    assert np.mean(np.diff(at_once.partition) != 0) == pytest.approx(5 / 6, abs=0.02)


def test_messages_with_a_key_go_where_librdkafka_sends_them() -> None:
    workload = Workload(arrivals=ConstantArrivals(rate_per_s=1_000), keys=2)
    arrivals = path_arrivals(run(workload=workload), 5)
    expected = {zlib.crc32(key.to_bytes(8, "big")) % 6 for key in range(2)}
    assert set(arrivals.partition) == expected


def test_sizes_have_framing_and_compression() -> None:
    workload = Workload(
        arrivals=ConstantArrivals(rate_per_s=1_000), payload=Payload(size_bytes=200), keys=10
    )
    assert set(path_arrivals(run(workload=workload), 1).size_bytes) == {217}
    half = path_arrivals(run(workload=workload), 1, compression_ratio=2)
    assert set(half.size_bytes) == {108.5}
    varied = Payload(sizes=UniformSizes(min_bytes=100, max_bytes=300))
    many = path_arrivals(run(workload=replace(workload, payload=varied)), 20).size_bytes
    assert many.mean() == pytest.approx(217, rel=0.02) and many.std() > 40


def test_producers_have_arrivals_of_their_own_in_one_order() -> None:
    workload = Workload(arrivals=PoissonArrivals(rate_per_s=100), producers=3)
    arrivals = path_arrivals(run(workload=workload), 20)
    assert np.all(np.diff(arrivals.due_s) >= 0)
    counts = np.bincount(arrivals.producer)
    assert counts.size == 3 and np.all(counts > 1_500) and len(set(counts)) > 1


def test_a_run_is_simulated() -> None:
    cluster = network(
        Link(src="producers", dst="brokers", condition=delayed(30)),
        Link(src="brokers", dst="consumers", condition=delayed(30)),
    )
    spec = run(cluster=cluster, settings=ProducerSettings(linger_ms=0))
    times = simulate(path_spec(spec), path_arrivals(spec, 20), Physics(), lines=path_lines(spec))
    assert np.median(times.produce_s) == pytest.approx(0.060, rel=0.01)


def test_java_has_its_own_defaults_and_partitions() -> None:
    spec = path_spec(run(), "java")
    assert (spec.client, spec.in_flight, spec.batch_bytes) == ("java", 5, 16_384)
    assert spec.batch_messages == UNLIMITED
    # It keeps to a partition for the bytes of a batch: 16,384 / 109 bytes, so 151 messages.
    arrivals = path_arrivals(run(), 200.0, client="java")
    changes = np.flatnonzero(np.diff(arrivals.partition)) + 1
    assert np.all(changes % 151 == 0)
    assert len(changes) > 50


def test_what_the_model_cannot_know_is_refused() -> None:
    quotas = ClusterSpec(quotas=ClientQuotas(producer_mb_per_s=1))
    with pytest.raises(BadInput, match=r"cluster\.quotas"):
        path_spec(run(cluster=quotas))


@pytest.mark.parametrize(
    ("visibility", "rate", "replication", "watched"),
    [("auto", 100, 3, True), ("auto", 9_000, 3, False), ("auto", 100, 1, False), ("on", 9_000, 1, True)],
)  # fmt: skip
def test_a_run_that_is_watched_has_a_second_reader(
    visibility: Any, rate: float, replication: int, watched: bool
) -> None:
    spec = run(
        visibility=visibility,
        workload=Workload(arrivals=PoissonArrivals(rate_per_s=rate)),
        topic=TopicSpec(name="t", replication=replication),
    )
    assert path_spec(spec).is_watched is watched
