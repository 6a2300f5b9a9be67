"""What brokers and clients did in the measured time of a run, from its directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_broker_view import view

from penstock import specs
from penstock.domain.broker_view import ProcessUse, RequestClass
from penstock.domain.errors import TestbedError
from penstock.runs.observation import (
    broker_rates,
    client_cores,
    replication_ms,
    usage,
    young_bytes,
)
from penstock.runs.sampling import BROKERS, CLIENTS, ClientView

SECOND = 1_000_000_000


def client(name: str, at_s: int, cpu_s: float) -> ClientView:
    return ClientView(name, at_s * SECOND, ProcessUse(cpu_s, 1, 1, 1, 0, 0))


def test_rates_are_those_between_the_views_around_the_time(tmp_path: Path) -> None:
    views = [view(8, 0, 0.0, 0), view(10, 1000, 5.0, 50), view(12, 3000, 6.0, 90)]
    (tmp_path / BROKERS).write_text(specs.dump_json([*views, view(20, 9000, 9.0, 900)]))
    found = broker_rates(tmp_path, 10 * SECOND, 12 * SECOND)
    assert found[1].messages_in_per_s == 1000
    assert found[1].requests[RequestClass.PRODUCE].per_s == 20
    # A time without a view before it begins with the first one.
    assert broker_rates(tmp_path, 0, 12 * SECOND)[1].messages_in_per_s == 750
    assert young_bytes(tmp_path) == 0


def test_cores_of_clients(tmp_path: Path) -> None:
    views = [client("producer-1", 0, 1.0), client("producer-1", 4, 3.0), client("consumer-1", 0, 0)]
    (tmp_path / CLIENTS).write_text(specs.dump_json(views))
    assert client_cores(tmp_path, 0, 4 * SECOND) == {"producer-1": 0.5}


def test_use_is_that_of_the_time_with_the_most_handles_in_it(tmp_path: Path) -> None:
    def look(at_s: int, cpu_s: float, handles: int, resident: int) -> ClientView:
        use = ProcessUse(cpu_s, resident, handles, 1, 0, at_s * 5_000_000)
        return ClientView("consumer-1", at_s * SECOND, use)

    looks = [look(0, 0, 900, 9), look(2, 1, 100, 2), look(5, 4, 106, 8), look(6, 5, 1, 1)]
    (tmp_path / CLIENTS).write_text(specs.dump_json([*looks, look(9, 50, 500, 1)]))
    figures = usage(tmp_path, round(2.5 * SECOND), round(5.5 * SECOND))
    assert figures["client_cpu_cores"] == pytest.approx(1.0)  # (5 - 1) / (6 - 2)
    assert figures["client_disk_written_mb_per_s"] == pytest.approx(5.0)
    assert figures["client_open_handles"] == 106
    assert figures["client_resident_mb"] == pytest.approx(8e-6)
    assert figures["broker_cpu_cores"] == 0


def test_waiting_for_copies_is_the_mean_over_the_requests_of_the_time(tmp_path: Path) -> None:
    views = [view(0, 0, 0.0, 100, 50.0), view(2, 0, 1.0, 200, 26.0), view(6, 0, 5.0, 300, 18.0)]
    (tmp_path / BROKERS).write_text(specs.dump_json(views))
    # (18·300 - 26·200) / 100 = 2 ms each.
    found = replication_ms(tmp_path, round(2.5 * SECOND), 5 * SECOND)
    assert found == pytest.approx(2.0)
    assert replication_ms(tmp_path / "nowhere", 0, 1) is None


def test_a_run_without_views_has_no_rates(tmp_path: Path) -> None:
    assert broker_rates(tmp_path, 0, SECOND) == {} == client_cores(tmp_path, 0, SECOND)


@pytest.mark.parametrize("text", ["{", '[{"broker": 1}]', "[1]"])
def test_a_file_that_is_broken_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / BROKERS).write_text(text)
    with pytest.raises(TestbedError, match=BROKERS):
        broker_rates(tmp_path, 0, SECOND)
