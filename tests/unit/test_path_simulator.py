"""The path simulator against closed forms, and against itself on random cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.domain.errors import BadInput
from penstock.domain.value import FieldError
from penstock.models.path import (
    Arrivals,
    Line,
    Lines,
    PathSpec,
    PathTimes,
    Physics,
    SimulatedMachines,
    simulate,
)

# One broker, so that nothing is replicated; batches of one; answers as soon as it is appended.
PLAIN = PathSpec(brokers=1, replication=1, acks="1", linger_s=0, batch_messages=1)


def poisson(
    per_s: float, count: int, *, producers: int = 1, partitions: int = 1, size: float = 100.0
) -> Arrivals:
    rng = np.random.default_rng(7)
    return Arrivals(
        np.cumsum(rng.exponential(1 / per_s, count)),
        rng.integers(0, producers, count),
        rng.integers(0, partitions, count),
        np.full(count, size),
    )


def regular(every_s: float, count: int, size: float = 100.0) -> Arrivals:
    none = np.zeros(count, np.int64)
    return Arrivals(every_s * np.arange(1.0, count + 1), none, none, np.full(count, size))


def error_of(values: Any, groups: int = 50) -> float:
    """The standard error of a mean of values that depend on their neighbours: by batch means."""
    means = [part.mean() for part in np.array_split(values, groups)]
    return float(np.std(means, ddof=1) / np.sqrt(groups))


def assert_mean(values: Any, expected: float, errors: float = 4.0) -> None:
    assert abs(values.mean() - expected) < errors * error_of(values), (values.mean(), expected)


# --- the producer --------------------------------------------------------------------------------


def test_linger_holds_a_batch_from_its_first_message_on() -> None:
    per_s, linger_s = 300.0, 0.02
    spec = replace(PLAIN, linger_s=linger_s, batch_messages=10_000)
    times = simulate(spec, poisson(per_s, 60_000), Physics())
    # The first waits for the whole time, and those that follow, λL on average, for half of it.
    expected = (linger_s + per_s * linger_s**2 / 2) / (1 + per_s * linger_s)
    assert_mean(times.parts_s["wait"], expected)
    assert np.nanmax(times.parts_s["wait"]) == pytest.approx(linger_s)


def test_a_full_batch_does_not_wait_for_linger() -> None:
    spec = replace(PLAIN, linger_s=100.0, batch_messages=10)
    times = simulate(spec, poisson(1_000, 50_000), Physics())
    assert_mean(times.parts_s["wait"], 9 / 2 / 1_000)
    assert set(times.batch_messages) == {10}


def test_a_batch_is_full_by_bytes_too() -> None:
    spec = replace(PLAIN, linger_s=100.0, batch_messages=10_000, batch_bytes=500)
    times = simulate(spec, regular(0.001, 1_000), Physics())
    assert set(times.batch_messages) == {5}


def test_the_window_of_requests_in_flight_is_a_queue() -> None:
    """One at a time over a round trip: M/D/1 with that service time."""
    round_s, per_s = 0.01, 60.0
    lines = Lines(to_broker=Line.constant(round_s / 2), to_producer=Line.constant(round_s / 2))
    times = simulate(replace(PLAIN, in_flight=1), poisson(per_s, 60_000), Physics(), lines=lines)
    load = per_s * round_s
    assert_mean(times.produce_s, round_s + load * round_s / (2 * (1 - load)))


def test_batches_grow_while_one_request_waits_beyond_the_window() -> None:
    round_s = 0.02
    lines = Lines(to_broker=Line.constant(round_s / 2), to_producer=Line.constant(round_s / 2))
    spec = replace(PLAIN, in_flight=1, batch_messages=10_000)
    times = simulate(spec, regular(0.001, 4_000), Physics(), lines=lines)
    late = times.due_s > 1
    # A request leaves every round trip with the messages of one; it was formed one before.
    assert np.median(times.batch_messages[late]) == 20
    assert times.produce_s[late].max() == pytest.approx(3 * round_s, rel=0.1)


def test_java_sends_a_batch_of_every_partition_in_one_request() -> None:
    arrivals = Arrivals(
        np.repeat(np.arange(1.0, 101.0) * 0.1, 4),
        np.zeros(400, np.int64),
        np.tile(np.arange(4), 100),
        np.full(400, 100.0),
    )
    spec = replace(PLAIN, partitions=4, linger_s=0.01)
    assert simulate(spec, arrivals, Physics()).requests == 400
    assert simulate(replace(spec, client="java"), arrivals, Physics()).requests == 100


def test_java_has_no_request_beyond_the_window() -> None:
    round_s = 0.02
    lines = Lines(to_broker=Line.constant(round_s / 2), to_producer=Line.constant(round_s / 2))
    spec = replace(PLAIN, in_flight=1, batch_messages=10_000, client="java")
    times = simulate(spec, regular(0.001, 4_000), Physics(), lines=lines)
    assert times.produce_s[times.due_s > 1].max() == pytest.approx(2 * round_s, rel=0.1)


def test_without_acks_sent_is_acknowledged() -> None:
    lines = Lines(to_broker=Line.constant(0.05), to_reader=Line.constant(0.05))
    times = simulate(replace(PLAIN, acks="0"), regular(1.0, 100), Physics(), lines=lines)
    assert times.produce_s.max() == 0
    assert times.end_to_end_s == pytest.approx(np.full(100, 0.1))


# --- the broker ----------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_a_connection_is_an_m_g_1_queue(spread: float) -> None:
    service_s, per_s = 0.002, 350.0
    physics = Physics(broker_request=service_s, spread=spread)
    times = simulate(PLAIN, poisson(per_s, 400_000), physics)
    second = service_s**2 * np.exp(spread**2)
    load = per_s * service_s
    # Pollaczek and Khinchine
    assert_mean(times.produce_s, service_s + per_s * second / (2 * (1 - load)))


def test_cores_are_shared_by_connections() -> None:
    """Many connections, one core: M/D/1 at the core, since no connection queues."""
    service_s, per_s = 0.002, 350.0
    spec = replace(PLAIN, producers=300)
    arrivals = poisson(per_s, 200_000, producers=300)
    times = simulate(
        spec, arrivals, Physics(broker_request=service_s), machines=SimulatedMachines(cores=1)
    )
    load = per_s * service_s
    assert_mean(times.produce_s, service_s + load * service_s / (2 * (1 - load)), errors=5)
    used = times.cpu_s[0] / arrivals.due_s[-1]
    assert used == pytest.approx(load, rel=0.02)


def test_a_process_that_did_nothing_for_long_is_cold() -> None:
    physics = Physics(broker_request=0.001, cold=1.5, cooling=0.002)
    far, near = (
        simulate(PLAIN, regular(every_s, 500), physics, machines=SimulatedMachines(cores=1))
        for every_s in (0.1, 0.003)
    )
    assert far.produce_s == pytest.approx(np.full(500, 0.0015))
    # Idle for 3 ms less what the last one took, of which e^(-idle / 2 ms) is still warm.
    took = near.produce_s[-1]
    assert took == pytest.approx(
        0.001 * (1 + 0.5 * (1 - np.exp(-(0.003 - took) / 0.002))), rel=0.01
    )


def test_a_cold_process_warms_up_as_it_works() -> None:
    """A second of rest, then twenty requests one right after the other."""
    at_s = np.repeat(np.arange(1.0, 6.0), 20) + np.tile(0.01 * np.arange(20), 5)
    none = np.zeros(100, np.int64)
    arrivals = Arrivals(at_s, none, none, np.full(100, 100.0))
    physics = Physics(broker_request=0.001, cold=2.0, cooling=0.1, warming=0.003)
    took = simulate(
        PLAIN, arrivals, physics, machines=SimulatedMachines(cores=1)
    ).produce_s.reshape(5, 20)
    assert took[:, 0] == pytest.approx(np.full(5, 0.002), rel=0.01)
    assert np.all(np.diff(took[:, :6], axis=1) < 0)
    assert np.all(took[:, -1] < 0.0014)


def test_work_takes_longer_while_other_cores_work() -> None:
    """Two requests at once on two hyperthreads; one alone is not slowed down."""
    physics = Physics(broker_request=0.001, contention=1.7)
    spec = replace(PLAIN, producers=2, consumers=0)
    at_once = Arrivals(
        np.repeat(np.arange(1.0, 51.0), 2),
        np.tile([0, 1], 50),
        np.zeros(100, np.int64),
        np.full(100, 100.0),
    )
    both = simulate(spec, at_once, physics, machines=SimulatedMachines(cores=2))
    assert sorted(both.produce_s.round(6))[::50] == pytest.approx([0.001, 0.0017])
    assert both.cpu_s[0] == pytest.approx(50 * 0.0027)
    alone = simulate(spec, regular(1.0, 50), physics, machines=SimulatedMachines(cores=2))
    assert alone.produce_s == pytest.approx(np.full(50, 0.001))


def test_a_network_that_is_not_emulated_is_part_of_the_physics() -> None:
    physics = Physics(client_delay=0.004, broker_delay=0.010)
    times = simulate(PathSpec(linger_s=0), regular(0.1, 50), physics)
    assert times.produce_s == pytest.approx(np.full(50, 0.008 + 0.020))
    assert times.end_to_end_s == pytest.approx(np.full(50, 0.004 + 0.020 + 0.004))


def test_making_messages_uses_cores_without_delaying_them() -> None:
    alone = simulate(
        PLAIN,
        regular(0.01, 100),
        Physics(client_produce=0.004),
        machines=SimulatedMachines(cores=2),
    )
    assert alone.produce_s.max() == 0
    assert alone.cpu_s[0] == pytest.approx(0.4)


def test_machines_apart_have_cores_of_their_own() -> None:
    physics = Physics(broker_request=0.004, client_request=0.004)
    arrivals = poisson(200, 20_000)
    shared = simulate(PLAIN, arrivals, physics, machines=SimulatedMachines(cores=1))
    apart = simulate(PLAIN, arrivals, physics, machines=SimulatedMachines(cores=1, is_shared=False))
    assert apart.cpu_s.size == 3  # a producer, a broker, a consumer
    assert apart.produce_s.mean() < 0.5 * shared.produce_s.mean()


def test_a_collection_pauses_the_broker() -> None:
    physics = Physics(heap_request_bytes=1_000, heap_young_bytes=100_000, heap_pause=0.05)
    times = simulate(replace(PLAIN, consumers=0), regular(0.01, 10_000), physics)
    # One pause of 35 to 65 ms per 100 requests, each of which delays 4 to 7 of them.
    assert 0.03 < np.mean(times.produce_s > 0) < 0.08
    assert 0.05 < times.produce_s.max() <= 0.065


# --- replication and reading -----------------------------------------------------------------------


@pytest.mark.parametrize(("acks", "rounds"), [("1", 0), ("all", 1)])
def test_replication_takes_a_round_trip_and_is_in_the_end_to_end_latency(
    acks: Any, rounds: int
) -> None:
    spec = PathSpec(acks=acks, linger_s=0)
    lines = Lines(*(Line.constant(ms / 1000) for ms in (3, 3, 10, 10, 5, 5)))
    times = simulate(spec, regular(0.1, 50), Physics(), lines=lines)
    assert times.produce_s == pytest.approx(np.full(50, 0.006 + rounds * 0.020))
    assert times.append_to_visible_s == pytest.approx(np.full(50, 0.020))
    assert times.end_to_end_s == pytest.approx(np.full(50, 0.003 + 0.020 + 0.005))


def test_a_busy_connection_with_acks_all_takes_one_request_per_replication_round_trip() -> None:
    """Seen on real brokers (FACTS.md): 45 requests/s over links of 10 ms."""
    lines = Lines(to_follower=Line.constant(0.010), to_leader=Line.constant(0.010))
    spec = PathSpec(linger_s=0, batch_messages=1)
    times = simulate(spec, regular(0.001, 2_000), Physics(), lines=lines)
    assert 2_000 / times.answered_s.max() == pytest.approx(50, rel=0.05)


def test_a_message_just_missed_by_a_fetch_waits_for_the_next() -> None:
    lines = Lines(to_follower=Line.constant(0.010), to_leader=Line.constant(0.010))
    arrivals = Arrivals(
        np.array([1.0, 1.001]), np.array([0, 1]), np.zeros(2, np.int64), np.full(2, 100.0)
    )
    times = simulate(PathSpec(producers=2, linger_s=0), arrivals, Physics(), lines=lines)
    # The first's answer left at 1.0; the fetch that carries the second comes at 1.020.
    assert times.readable_s == pytest.approx([1.020, 1.040])


def test_fetch_min_bytes_makes_readers_wait() -> None:
    spec = replace(PLAIN, fetch_min_bytes=1e9, fetch_wait_s=0.1)
    times = simulate(spec, poisson(200, 20_000), Physics())
    assert_mean(times.parts_s["fetch"], 0.05)
    enough = simulate(replace(spec, fetch_min_bytes=100), poisson(200, 20_000), Physics())
    assert enough.parts_s["fetch"].max() == 0


def test_the_application_gets_messages_one_by_one() -> None:
    spec = replace(PLAIN, linger_s=0.01, batch_messages=10)
    arrivals = replace(regular(0.1, 10), due_s=np.full(10, 1.0))
    times = simulate(spec, arrivals, Physics(reader_message=0.001))
    assert np.diff(np.sort(times.received_s)) == pytest.approx(np.full(9, 0.001))


def test_the_watcher_reads_everything_beside_the_consumers() -> None:
    lines = Lines(to_reader=Line.constant(0.02), to_follower=Line.constant(0.01))
    spec = PathSpec(linger_s=0, partitions=3, consumers=2)
    arrivals = poisson(50, 2_000, partitions=3)
    physics = Physics(reader_fetch=1e-4, reader_answer=1e-4)
    alone = simulate(spec, arrivals, physics, lines=lines)
    watched = simulate(replace(spec, is_watched=True), arrivals, physics, lines=lines)
    assert np.all(np.isnan(alone.seen_s)) and not np.any(np.isnan(watched.seen_s))
    # It is beside the brokers, so it sees a message before consumers do.
    assert np.median(watched.received_s - watched.seen_s) == pytest.approx(0.02, abs=0.001)
    assert np.all(watched.append_to_visible_s >= watched.readable_s - watched.appended_s)
    # Its fetches cost the brokers as much as the consumers' do.
    assert watched.cpu_s.sum() == pytest.approx(2 * alone.cpu_s.sum(), rel=0.1)


# --- links ---------------------------------------------------------------------------------------


def test_a_rate_is_a_queue() -> None:
    spec = replace(PLAIN, request_bytes=0)
    lines = Lines(to_broker=Line(rate_bytes_per_s=100_000))
    times = simulate(spec, poisson(600, 60_000), Physics(), lines=lines)
    assert_mean(times.produce_s, 0.001 + 0.6 * 0.001 / (2 * 0.4))


def test_large_requests_after_idling_take_more_round_trips() -> None:
    """TCP begins with ten segments; FACTS.md: 100 kB gain a round trip, 16 kB do not."""
    lines = Lines(to_broker=Line.constant(0.01))
    small = simulate(PLAIN, regular(5.0, 3, size=14_000), Physics(), lines=lines)
    large = simulate(PLAIN, regular(5.0, 3, size=40_000), Physics(), lines=lines)
    assert small.produce_s == pytest.approx(np.full(3, 0.01))
    assert large.produce_s == pytest.approx(np.full(3, 0.03))


def test_a_lost_packet_is_sent_again_after_the_time_out() -> None:
    lines = Lines(to_broker=Line(loss=0.1))
    times = simulate(PLAIN, regular(20.0, 20_000), Physics(), lines=lines)
    # The time-out doubles: 0.2 s × Σ l^k·2^(k−1)
    assert_mean(times.produce_s, 0.2 * 0.1 / (1 - 2 * 0.1))


def test_delays_are_drawn_and_keep_their_order() -> None:
    lines = Lines(to_broker=Line(np.linspace(0.001, 0.009, 4096)))
    far = simulate(PLAIN, regular(1.0, 20_000), Physics(), lines=lines)
    assert_mean(far.produce_s, 0.005)
    near = simulate(PLAIN, regular(0.001, 20_000), Physics(), lines=lines)
    assert np.all(np.diff(near.answered_s) >= 0)
    assert near.produce_s.mean() > 0.006


def test_of_several_packets_the_longest_delay_counts() -> None:
    """A fetch response with records is three writes; a request of 4 kB is three segments. The longest
    of three draws from 5 to 15 ms is 12.5 ms on average."""
    drawn = Line(np.linspace(0.005, 0.015, 4096))
    reading = simulate(PLAIN, regular(0.1, 20_000), Physics(), lines=Lines(to_reader=drawn))
    assert_mean(reading.parts_s["fetch"], 0.0125)
    sending = simulate(
        PLAIN, regular(0.1, 20_000, size=4_000), Physics(), lines=Lines(to_broker=drawn)
    )
    assert_mean(sending.produce_s, 0.0125)
    spec = PathSpec(linger_s=0, replication=2)
    copying = simulate(spec, regular(0.1, 20_000), Physics(), lines=Lines(to_follower=drawn))
    assert_mean(copying.append_to_visible_s, 0.0125)


# --- all of it -------------------------------------------------------------------------------------

SPECS = st.builds(
    PathSpec,
    producers=st.integers(1, 3),
    consumers=st.integers(0, 3),
    is_watched=st.booleans(),
    partitions=st.integers(1, 7),
    replication=st.integers(1, 3),
    client=st.sampled_from(["librdkafka", "java"]),
    acks=st.sampled_from(["0", "1", "all"]),
    linger_s=st.sampled_from([0.0, 0.005, 0.1]),
    batch_messages=st.sampled_from([1, 3, 10_000]),
    batch_bytes=st.sampled_from([50.0, 700.0, 1e6]),
    in_flight=st.sampled_from([1, 5, 1_000_000]),
    fetch_min_bytes=st.sampled_from([1.0, 5_000.0]),
)
BUSY = Physics(
    client_produce=1e-5,
    cold=1.2,
    client_request=1e-4,
    client_answer=1e-4,
    broker_request=1e-4,
    broker_answer=1e-4,
    follower_fetch=1e-4,
    follower_answer=1e-4,
    follower_append=1e-4,
    reader_fetch=1e-4,
    reader_answer=1e-4,
    reader_request=1e-4,
    wake=1e-4,
    tick=1e-4,
    spread=0.4,
    after=0.3,
    contention=1.4,
    heap_request_bytes=25_000,
    heap_per_byte=3,
    heap_young_bytes=5e6,
    heap_pause=0.01,
    background_per_s=5,
    background_burst=0.003,
)


def check(spec: PathSpec, arrivals: Arrivals, times: PathTimes) -> None:
    order = [times.due_s, times.formed_s, times.handled_s, times.appended_s, times.readable_s]
    if spec.consumers:
        order.append(times.received_s)
        total = sum(times.parts_s.values())
        assert total == pytest.approx(times.end_to_end_s)
    if spec.is_watched:
        assert np.all(times.seen_s >= times.readable_s)
    for earlier, later in pairwise(order):
        assert np.all(later - earlier > -1e-9)  # also: none is missing
    assert np.all(times.answered_s >= times.formed_s)
    assert times.batch_messages.max() <= spec.batch_messages
    queue = arrivals.producer * spec.partitions + arrivals.partition
    for number in np.unique(queue):  # Kafka keeps the order of a producer in a partition
        assert np.all(np.diff(times.appended_s[queue == number]) >= 0)


@settings(max_examples=60, deadline=None)
@given(spec=SPECS, seed=st.integers(0, 1000), per_s=st.sampled_from([20.0, 300.0]))
def test_every_message_arrives_once_and_in_order(spec: PathSpec, seed: int, per_s: float) -> None:
    arrivals = poisson(per_s, 400, producers=spec.producers, partitions=spec.partitions)
    lines = Lines(*(Line(np.linspace(0, 0.01, 64), 1e6, 0.01) for _ in range(6)))
    times = simulate(spec, arrivals, BUSY, lines=lines, machines=SimulatedMachines(2), seed=seed)
    check(spec, arrivals, times)


def test_a_seed_repeats_a_simulation() -> None:
    arrivals = poisson(300, 2_000, partitions=3)
    one, same, other = (
        simulate(PathSpec(partitions=3), arrivals, BUSY, machines=SimulatedMachines(2), seed=seed)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one.received_s, same.received_s)
    assert not np.array_equal(one.received_s, other.received_s)


def test_overload_ends_with_the_simulated_time() -> None:
    times = simulate(PLAIN, poisson(1_000, 2_000), Physics(broker_request=0.01), until_s=3)
    assert times.ended_s <= 3
    assert 0.8 < np.mean(np.isnan(times.answered_s)) < 0.9


def test_bad_input_is_named() -> None:
    with pytest.raises(FieldError, match="replication"):
        PathSpec(brokers=1, replication=2)
    with pytest.raises(BadInput, match="no messages"):
        simulate(PLAIN, regular(1.0, 0), Physics())
    with pytest.raises(BadInput, match="order"):
        Arrivals(np.array([2.0, 1.0]), np.zeros(2, int), np.zeros(2, int), np.ones(2))
