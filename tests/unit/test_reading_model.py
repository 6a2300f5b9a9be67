"""Consumers that are behind: f_c and what follows from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.domain.arrivals import ConstantArrivals
from penstock.domain.cluster import ClientQuotas, ClusterSpec, TopicSpec
from penstock.domain.consumers import Consumers
from penstock.domain.errors import BadInput
from penstock.domain.run import RunSpec
from penstock.domain.workload import Payload, Workload
from penstock.load.client_counters import Fetched, fetched
from penstock.models.observation import MeasuredReading
from penstock.models.reading import FittedReading, fit_reading, most_read
from penstock.models.record_batch import batch_bytes, record_bytes

_BASE, _MESSAGE, _BYTE = 4e-4, 2e-6, 3e-10


def _reading(size: int, fetch_messages: float, partitions: int = 3) -> MeasuredReading:
    seconds = _BASE + fetch_messages * (_MESSAGE + _BYTE * float(record_bytes(size)))
    return MeasuredReading(
        run=f"{size}-{fetch_messages}",
        message_bytes=size,
        partitions=partitions,
        messages_per_s=fetch_messages / seconds,
        fetch_messages=fetch_messages,
    )


READINGS = [
    _reading(100, 9_000),
    _reading(1_000, 1_000),
    _reading(10_000, 100),
    _reading(100, 100),
    _reading(1_000, 2_000, 12),
]


def _run(size: int = 500, partitions: int = 6, **settings: int) -> RunSpec:
    return RunSpec(
        name="r",
        topic=TopicSpec(name="t", partitions=partitions),
        workload=Workload(
            arrivals=ConstantArrivals(rate_per_s=100), payload=Payload(size_bytes=size)
        ),
        consumers=Consumers(settings=settings),
    )


def test_what_an_answer_costs_is_found_again() -> None:
    fitted = fit_reading(READINGS)
    assert fitted.base_s == pytest.approx(_BASE, rel=1e-6)
    assert fitted.per_message_s == pytest.approx(_MESSAGE, rel=1e-6)
    assert fitted.per_byte_s == pytest.approx(_BYTE, rel=1e-6)
    assert fitted.typical_error < 1e-6
    assert (fitted.message_bytes, fitted.partitions) == ((100, 10_000), (3, 12))


def test_no_cost_is_below_nothing() -> None:
    odd = [replace(one, messages_per_s=one.messages_per_s * 2) for one in READINGS[:1]]
    fitted = fit_reading([*odd, *READINGS[1:]])
    assert min(fitted.base_s, fitted.per_message_s, fitted.per_byte_s) >= 0


def test_too_few_readings_are_refused() -> None:
    with pytest.raises(BadInput, match="3 readings"):
        fit_reading(READINGS[:3])
    with pytest.raises(BadInput, match="of 1 message sizes"):
        fit_reading([READINGS[0]] * 4)


def test_an_answer_holds_the_whole_batches_that_its_limit_allows() -> None:
    fitted = fit_reading(READINGS)
    batch = batch_bytes(100, 500)
    settings = {"max.partition.fetch.bytes": int(3.5 * batch)}
    found = most_read(fitted, _run(**settings), 100)
    # Two partitions of each of three brokers, three batches each.
    assert found.fetch_messages == 600
    seconds = _BASE + 600 * (_MESSAGE + _BYTE * float(record_bytes(500)))
    assert found.messages_per_s == pytest.approx(600 / seconds, rel=1e-6)
    assert found.payload_mb_per_s == pytest.approx(found.messages_per_s * 500 / 1e6)
    # A batch beyond the limit is sent whole.
    alone = most_read(fitted, _run(**{"max.partition.fetch.bytes": 10}), 100)
    assert alone.fetch_messages == 200
    # An answer has a limit, too.
    answer = most_read(fitted, _run(**{"fetch.max.bytes": int(1.5 * batch)}), 100)
    assert answer.fetch_messages == 100


def test_a_quota_holds_a_consumer_back() -> None:
    fitted = fit_reading(READINGS)
    quota = replace(_run(), cluster=ClusterSpec(quotas=ClientQuotas(consumer_mb_per_s=2)))
    found = most_read(fitted, quota, 100)
    assert found.limited_by == "quota"
    assert found.messages_per_s * batch_bytes(100, 500) / 100 == pytest.approx(6e6)
    assert most_read(fitted, _run(), 100).limited_by == "client"


def test_what_was_not_measured_is_named() -> None:
    fitted: FittedReading = fit_reading(READINGS)
    assert most_read(fitted, _run(), 10).outside == ()
    (size,) = most_read(fitted, _run(size=50), 10).outside
    assert size.startswith("50 bytes per message: 2.0 times beyond the 100 to 10000")
    (count,) = most_read(fitted, _run(partitions=24), 10).outside
    assert count.startswith("24 partitions: 2.0 times beyond")


def test_fetches_are_counted_by_the_client() -> None:
    statistics = b'{"rxmsgs": 70, "brokers": {"a": {"req": {"Fetch": 3}}, "b": {"req": {}}}}'
    assert fetched(statistics) == Fetched(answers=3, messages=70)
