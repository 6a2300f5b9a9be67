"""The time in which all clients work, and the rests of a consumer group, from hand-made events."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.domain.errors import TestbedError
from penstock.runs.experiments.rebalance import GroupEvent, Rest, What, rebalance_ns, rests
from penstock.runs.experiments.window import Tally, common_window, throughput

S = 1_000_000_000


def tally(starts_s: float, ends_s: float, per_s: int, until_s: float = 20.0) -> Tally:
    """A client of 1 kB records that works from `starts_s` to `ends_s`, written down every 50 ms."""
    at = np.arange(0, until_s + 0.001, 0.05)
    records = np.clip(at - starts_s, 0, ends_s - starts_s) * per_s
    return Tally(
        tuple(np.rint(at * S).astype(int).tolist()),
        tuple(np.rint(records).astype(int).tolist()),
        tuple(np.rint(records).astype(int) * 1000),
    )


def test_the_ramps_at_both_ends_are_cut_off() -> None:
    clients = [tally(0, 16, 1000), tally(2, 19, 1000), tally(5, 20, 1000)]
    begins, ends = common_window(clients, 0, 20 * S)
    assert begins == pytest.approx(5 * S, abs=0.06 * S)
    assert ends == pytest.approx(16 * S, abs=0.06 * S)
    rates = throughput(clients, 0, 20 * S)
    # With the ramps it would be (16 + 17 + 15) · 1000 / 20 = 2,400.
    assert rates.records_per_s.value == pytest.approx(3000, rel=0.002)
    assert rates.mb_per_s.value == pytest.approx(3.0, rel=0.002)


def test_the_measured_time_is_never_exceeded() -> None:
    assert common_window([tally(0, 20, 100)], 3 * S, 8 * S) == (3 * S, 8 * S)


def test_an_uneven_client_has_an_interval_that_holds_its_mean() -> None:
    rng = np.random.default_rng(5)
    each = rng.poisson(100, 400)
    at = tuple((np.arange(401) * S // 20).tolist())
    records = tuple(np.concatenate([[0], np.cumsum(each)]).tolist())
    rates = throughput([Tally(at, records, records)], 0, 20 * S)
    assert rates.records_per_s.low is not None
    assert rates.records_per_s.high is not None
    assert rates.records_per_s.low < 2000 < rates.records_per_s.high


def test_clients_that_never_worked_together_have_no_throughput() -> None:
    with pytest.raises(TestbedError, match="at the same time"):
        throughput([tally(0, 5, 10), tally(6, 12, 10)], 0, 20 * S)
    with pytest.raises(TestbedError, match="did no work"):
        throughput([tally(0, 5, 10), tally(0, 5, 0)], 0, 20 * S)
    with pytest.raises(TestbedError):
        throughput([], 0, 20 * S)


# --- consumer groups -----------------------------------------------------------------------------


def event(at_s: float, member: str, what: What, *partitions: int) -> GroupEvent:
    return GroupEvent(round(at_s * S), member, what, partitions)


# One member has both partitions; a second joins at 5 s and the group is stopped for it.
EAGER = [
    event(0.0, "a", "joins"),
    event(0.3, "a", "assigned", 0, 1),
    event(0.4, "a", "reads", 0),
    event(0.5, "a", "reads", 1),
    event(5.0, "b", "joins"),
    event(7.0, "a", "revoked", 0, 1),
    event(7.1, "a", "assigned", 0),
    event(7.1, "b", "assigned", 1),
    event(7.2, "a", "reads", 0),
    event(7.6, "b", "reads", 1),
]
# The same in two steps: what stays is read all the time.
COOPERATIVE = [
    *EAGER[:5],
    event(7.0, "b", "assigned"),
    event(7.05, "a", "revoked", 1),
    event(9.0, "b", "assigned", 1),
    event(9.4, "b", "reads", 1),
]


@pytest.mark.parametrize(("events", "took_s"), [(EAGER, 2.6), (COOPERATIVE, 4.4)])
def test_a_join_takes_until_every_partition_is_read_again(
    events: list[GroupEvent], took_s: float
) -> None:
    assert rebalance_ns(events, 2, 5 * S) == pytest.approx(took_s * S)
    # However the events come in.
    assert rebalance_ns(events[::-1], 2, 5 * S) == pytest.approx(took_s * S)


def test_the_group_formed_when_the_first_member_read_all() -> None:
    assert rebalance_ns(EAGER, 2, 0, until_ns=5 * S) == pytest.approx(0.5 * S)
    assert list(rests(EAGER, 2)) == [Rest(round(0.5 * S), 5 * S), Rest(round(7.6 * S), None)]


def test_assigned_is_not_read() -> None:
    assert rebalance_ns(EAGER[:-1], 2, 5 * S) is None


def test_what_is_read_by_who_has_lost_it_does_not_count() -> None:
    late = event(7.5, "a", "reads", 1)
    assert rebalance_ns([*EAGER[:-1], late], 2, 5 * S) is None


def test_members_with_unequal_shares_are_not_at_rest() -> None:
    """b has joined and heard of nothing yet; or of too little."""
    events = [
        event(0, "a", "joins"),
        event(1, "a", "assigned", 0, 1, 2, 3),
        event(2, "a", "reads", 0, 1, 2, 3),
        event(3, "b", "joins"),
        event(4, "a", "revoked", 3),
        event(5, "b", "assigned", 3),
        event(6, "b", "reads", 3),
    ]
    assert rebalance_ns(events, 4, 3 * S) is None
    more = [
        event(7, "a", "revoked", 2),
        event(8, "b", "assigned", 2),
        event(9, "b", "reads", 2),
    ]
    assert rebalance_ns([*events, *more], 4, 3 * S) == 6 * S


def test_a_member_that_leaves_takes_its_partitions_along() -> None:
    events = [
        *EAGER,
        event(10, "b", "leaves"),
        event(10.01, "b", "revoked", 1),
        event(12, "a", "revoked", 0),
        event(12.1, "a", "assigned", 0, 1),
        event(12.3, "a", "reads", 0),
        event(12.5, "a", "reads", 1),
    ]
    assert rebalance_ns(events, 2, 10 * S) == pytest.approx(2.5 * S)
    assert rebalance_ns(events, 2, 5 * S, until_ns=10 * S) == pytest.approx(2.6 * S)


def test_a_rest_that_did_not_last_is_not_the_end() -> None:
    events = [
        *EAGER,
        event(8, "a", "revoked", 0),
        event(8.5, "a", "assigned", 0),
        event(8.8, "a", "reads", 0),
    ]
    assert rebalance_ns(events, 2, 5 * S) == pytest.approx(3.8 * S)


def test_a_member_beyond_the_partitions_is_waited_for_only_if_it_will_hear() -> None:
    events = [
        event(0, "a", "joins"),
        event(1, "a", "assigned", 0),
        event(2, "a", "reads", 0),
        event(3, "b", "joins"),
    ]
    assert rebalance_ns(events, 1, 3 * S) is None
    more_events = [*events, event(4, "b", "assigned")]
    assert rebalance_ns(more_events, 1, 3 * S) == S
    # Where brokers assign, nothing is moved and nobody is told anything: never out of rest.
    assert list(rests(events, 1, hear_of_nothing=False)) == [Rest(2 * S, None)]
    assert rebalance_ns(events, 1, 3 * S, hear_of_nothing=False) is None
