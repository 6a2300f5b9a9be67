"""Each fault on the real thing: it takes effect, it is undone, and if it cannot it says so."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from clients import produce

from penstock.domain.cluster import TopicSpec
from penstock.domain.errors import BadInput, FaultDidNotTake, TestbedError
from penstock.domain.fault import When
from penstock.domain.network import LinkCondition
from penstock.domain.network.delay_constant import ConstantDelay
from penstock.domain.value import FieldError
from penstock.kafka.waiting import wait_until
from penstock.testbed.cluster import Cluster
from penstock.testbed.fault_injector import FaultInjector
from penstock.testbed.faults.cut_link import CutLink
from penstock.testbed.faults.kill import Kill
from penstock.testbed.faults.pause import Pause
from penstock.testbed.faults.restart import Restart
from penstock.testbed.faults.slow_cpu import SlowCpu
from penstock.testbed.faults.slow_link import SlowLink
from penstock.testbed.faults.stop import Stop
from penstock.testbed.observe import active_controller

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def healthy(cluster: Cluster) -> None:
    """What a failed test left broken must not fail the next one."""
    for broker in cluster.broker_ids:
        process = cluster.process(broker)
        if process.is_paused:
            process.send(signal.SIGCONT)
        elif not process.is_running:
            process.start()
    cluster.wait_ready(probe=False)


@pytest.fixture
def topic(cluster: Cluster, unique: Callable[[str], str]) -> str:
    name = unique("faulty")
    cluster.create_topic(
        TopicSpec(name=name, partitions=3, replication=3, config={"min.insync.replicas": "2"})
    )
    return name


def _wait_for_leader_other_than(cluster: Cluster, topic: str, broker: int) -> None:
    wait_until(
        lambda: cluster.admin.leader(topic, 0) not in (broker, -1),
        timeout_s=30,
        what="another leader",
    )


def test_a_killed_leader_is_replaced_and_comes_back(cluster: Cluster, topic: str) -> None:
    leader = cluster.admin.leader(topic, 0)
    struck = Kill(broker=f"leader of {topic}-0").strike(cluster)
    assert struck.sentence == f"killed broker {leader}"
    assert not cluster.process(leader).is_running
    _wait_for_leader_other_than(cluster, topic, leader)
    assert produce(cluster, topic, 100, acks="all") == []

    assert struck.undo is not None
    struck.undo()
    assert cluster.admin.broker_ids() == {1, 2, 3}
    assert cluster.admin.out_of_sync() == []


def test_a_stopped_broker_hands_over_first(cluster: Cluster, topic: str) -> None:
    leader = cluster.admin.leader(topic, 0)
    struck = Stop(broker=leader).strike(cluster)
    assert "controlled shutdown" in cluster.process(leader).log.read_text().lower()
    _wait_for_leader_other_than(cluster, topic, leader)
    assert struck.undo is not None
    struck.undo()
    assert cluster.admin.out_of_sync() == []


def test_a_restarted_broker_is_a_new_process_in_sync(cluster: Cluster, topic: str) -> None:
    before = cluster.process(2).pid
    Restart(broker=2).strike(cluster)
    assert cluster.process(2).pid != before
    assert cluster.admin.out_of_sync() == []


def test_a_paused_broker_answers_nothing_until_resumed(cluster: Cluster, topic: str) -> None:
    leader = cluster.admin.leader(topic, 0)
    with FaultInjector(cluster, (Pause(broker=leader, for_s=2),)) as injector:
        wait_until(lambda: cluster.process(leader).is_paused, timeout_s=5, what="the pause")
        with pytest.raises(FaultDidNotTake, match="paused already"):
            Pause(broker=leader).strike(cluster)
        injector.join()
    assert not cluster.process(leader).is_paused
    assert [event.sentence for event in injector.events] == [
        f"paused broker {leader}",
        f"undone: paused broker {leader}",
    ]
    assert injector.events[1].at_s - injector.events[0].at_s == pytest.approx(2, abs=0.5)


@pytest.mark.root
def test_a_slow_cpu_really_is_slow(cluster: Cluster, topic: str) -> None:
    """The broker is given 0.1 cores and plenty to do; it must not use more."""
    leader = cluster.admin.leader(topic, 0)
    process = cluster.process(leader).process
    assert process is not None
    struck = SlowCpu(broker=leader, cores=0.1).strike(cluster)
    used_before, began = sum(process.cpu_times()[:2]), time.monotonic()
    produce(cluster, topic, 20_000, acks="1", size_bytes=500)
    cores = (sum(process.cpu_times()[:2]) - used_before) / (time.monotonic() - began)
    assert struck.undo is not None
    struck.undo()
    assert 0.05 < cores < 0.15


@pytest.mark.root
def test_a_slow_link_delays_that_broker_only(cluster: Cluster, topic: str) -> None:
    condition = LinkCondition(delay=ConstantDelay(ms=40))
    slow, fast = (cluster.node(broker) for broker in (1, 2))
    struck = SlowLink(broker=1, condition=condition).strike(cluster)
    assert _connect_ms(cluster, slow.address, slow.port) == pytest.approx(80, abs=15)
    assert _connect_ms(cluster, fast.address, fast.port) < 15
    assert struck.undo is not None
    struck.undo()
    assert _connect_ms(cluster, slow.address, slow.port) < 15


def _connect_ms(cluster: Cluster, address: str, port: int) -> float:
    best = float("inf")
    with cluster.inside("producer-1"):
        for _ in range(5):
            began = time.monotonic()
            socket.create_connection((address, port), timeout=5).close()
            best = min(best, (time.monotonic() - began) * 1e3)
    return best


@pytest.mark.root
def test_a_cut_link_stops_producers_until_it_heals(cluster: Cluster, topic: str) -> None:
    cut = CutLink(src="producer-1", dst="brokers", for_s=3)
    with FaultInjector(cluster, (cut,)) as injector:
        wait_until(lambda: bool(injector.events), timeout_s=5, what="the cut")
        soon: dict[str, Any] = {"message.timeout.ms": 1500}
        failed = produce(cluster, topic, 10, **soon)
        assert failed == ["_MSG_TIMED_OUT"] * 10
        assert produce(cluster, topic, 10, host="producer-2") == []
        injector.join()
    assert produce(cluster, topic, 10) == []


@pytest.mark.root
def test_a_cut_that_is_there_already_is_an_error(cluster: Cluster) -> None:
    cut = CutLink(src="producer-1", dst="producer-2")
    struck = cut.strike(cluster)
    with pytest.raises(FaultDidNotTake, match="these links have that condition already"):
        cut.strike(cluster)
    assert struck.undo is not None
    struck.undo()


def test_a_fault_waits_for_its_condition(cluster: Cluster, topic: str) -> None:
    before = cluster.admin.end_offsets(topic)
    messages = sum(before.values())
    fault = Pause(broker=1, for_s=0.5, when=When(signal="mine", at_least=500))
    signals = {"mine": lambda: sum(cluster.admin.end_offsets(topic).values()) - messages}
    with FaultInjector(cluster, (fault,), signals) as injector:
        assert injector.events == []
        assert produce(cluster, topic, 600, acks="all") == []
        injector.join()
    assert len(injector.events) == 2


def test_brokers_own_counters_are_signals(cluster: Cluster, topic: str) -> None:
    fault = Pause(broker=1, for_s=0.2, when=When(signal="messages_in", at_least=1, within_s=20))
    with FaultInjector(cluster, (fault,)) as injector:
        while not injector.events:
            produce(cluster, topic, 100)
        injector.join()
    assert len(injector.events) == 2


def test_a_fault_strikes_at_its_time_while_another_broker_is_down(cluster: Cluster) -> None:
    faults = (Kill(broker=1, at_s=0, for_s=6), Restart(broker=2, at_s=1))
    with FaultInjector(cluster, faults) as injector:
        injector.join()
    times = {event.sentence.split(",")[0]: event.at_s for event in injector.events}
    assert times["killed broker 1"] == pytest.approx(0, abs=0.5)
    assert times["restarted broker 2"] == pytest.approx(1, abs=0.5)
    assert times["undone: killed broker 1"] == pytest.approx(6, abs=1)


def test_a_fault_whose_moment_never_came_is_an_error(cluster: Cluster) -> None:
    injector = FaultInjector(cluster, (Kill(broker=1, at_s=60),))
    with pytest.raises(FaultDidNotTake, match="ended before the moment"), injector:
        pass
    assert cluster.process(1).is_running


def test_an_unknown_signal_is_named(cluster: Cluster) -> None:
    fault = Kill(broker=1, when=When(signal="mesages_in", at_least=1))
    with pytest.raises(BadInput, match=r"mesages_in.*unknown"):
        FaultInjector(cluster, (fault,))


def test_an_unknown_broker_is_named(cluster: Cluster) -> None:
    with pytest.raises(BadInput, match="no broker 9"):
        Kill(broker=9).strike(cluster)


def test_a_killed_controller_is_replaced(cluster: Cluster) -> None:
    before = active_controller(cluster)
    struck = Kill(broker="controller").strike(cluster)
    assert not cluster.process(before).is_running
    controllers: list[int] = []

    def another() -> bool:
        with suppress(TestbedError):
            controllers.append(active_controller(cluster))
        return bool(controllers)

    wait_until(another, timeout_s=30, what="another active controller")
    assert controllers[0] != before
    assert struck.undo is not None
    struck.undo()


def test_an_unknown_host_is_named_before_anything_happens(cluster: Cluster) -> None:
    if cluster.network is None:
        pytest.skip("hosts exist with root only")
    with pytest.raises(FieldError, match="broker-9"):
        FaultInjector(cluster, (CutLink(src="broker-9", dst="brokers", at_s=50),))
