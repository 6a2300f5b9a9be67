"""Schedules: times in ns, the file of recorded times, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import report_runs

from penstock import specs
from penstock.domain.arrivals import Arrivals, BurstArrivals, ConstantArrivals, RecordedArrivals
from penstock.domain.errors import BadInput
from penstock.domain.kpi import kpi_of
from penstock.domain.scenario import Scenario
from penstock.domain.workload import MOST_MESSAGES_PER_PRODUCER, Workload
from penstock.load import scenario_file, schedule
from penstock.load.plan import plan_of
from penstock.models.path.from_run import path_spec
from penstock.runs.matrix import cells


def test_a_schedule_ends_with_its_length() -> None:
    due = schedule.due_ns(ConstantArrivals(rate_per_s=100_000), 1.0, Random(1))
    assert len(due) == 100_000
    assert due.dtype == np.int64
    assert due[0] >= 0
    assert due[-1] < 1_000_000_000
    assert np.diff(due) == pytest.approx(10_000, abs=1)


def test_a_schedule_may_be_empty() -> None:
    assert len(schedule.due_ns(ConstantArrivals(rate_per_s=1e-6), 1.0, Random(1))) == 0


def test_no_more_is_drawn_than_is_asked_for() -> None:
    """Two messages in an hour, in spells of a millisecond: to draw 65,536 would take for ever."""
    arrivals = BurstArrivals(calm_per_s=0, busy_per_s=0.001, calm_s=0.001, busy_s=0.001)
    assert len(schedule.due_ns(arrivals, 1.0, Random(1))) < 10


@dataclass(frozen=True, kw_only=True)
class Finite(Arrivals):
    """One message; the rate in the long run is what its author says."""

    rate_per_s: float = 0.0

    def times_s(self, rng: Random) -> Iterator[float]:
        yield 0.0

    @property
    def mean_per_s(self) -> float:
        return self.rate_per_s


def test_arrivals_may_end() -> None:
    spec = replace(report_runs.spec(), workload=Workload(arrivals=Finite()))
    plan = plan_of(spec)
    # They are not spent on the warm-up.
    assert not plan.waits_for_warmth
    plan.check()
    assert len(schedule.due_ns(Finite(), 1.0, Random(1))) == 1
    shares = {"used_mb_per_s": 1.0, "lost_share": 0.0, "duplicated_share": 0.0}
    kpi = kpi_of(spec, acknowledged_per_s=2.0, **shares)
    with pytest.raises(BadInput, match="has no mean rate"):
        path_spec(spec)
    assert (kpi.rate_share, kpi.best_per_s) == (1, 0)


@pytest.mark.parametrize("rate_per_s", [-1.0, math.nan])
def test_a_rate_that_cannot_be_is_refused(rate_per_s: float) -> None:
    workload = Workload(arrivals=Finite(rate_per_s=rate_per_s))
    with pytest.raises(BadInput, match="must be 0 or more"):
        schedule.check(workload, 1)


def test_too_many_messages_are_refused_before_they_are_made() -> None:
    workload = Workload(arrivals=ConstantArrivals(rate_per_s=1e6))
    schedule.check(workload, 50)
    with pytest.raises(BadInput, match="50,000,000") as error:
        schedule.check(workload, 51)
    assert "more producers" in error.value.fix


def test_too_many_messages_are_refused_while_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MOST_MESSAGES_PER_PRODUCER == 50_000_000
    monkeypatch.setattr(schedule, "MOST_MESSAGES_PER_PRODUCER", 100_000)
    with pytest.raises(BadInput, match="messages to send"):
        schedule.due_ns(ConstantArrivals(rate_per_s=1e6), 1.0, Random(1))


def test_random_streams_differ_by_seed_producer_and_purpose() -> None:
    streams = [(s, p, w) for s in (1, 2) for p in (0, 1) for w in ("arrivals", "messages")]
    drawn = [schedule.random_stream(*stream).random() for stream in streams]
    assert len(set(drawn)) == len(streams)
    assert drawn == [schedule.random_stream(*stream).random() for stream in streams]


def _recorded(tmp_path: Path, text: str) -> Workload:
    (tmp_path / "times.txt").write_text(text)
    return Workload(arrivals=RecordedArrivals(file="times.txt"))


def test_a_recording_is_read_from_its_file(tmp_path: Path) -> None:
    workload = _recorded(tmp_path, "# seconds\n0\n0.5  # a comment\n\n2e0\n")
    resolved = scenario_file.with_recording(workload, tmp_path)
    assert isinstance(resolved.arrivals, RecordedArrivals)
    assert resolved.arrivals.at_s == (0.0, 0.5, 2.0)


def test_other_arrivals_need_no_file(tmp_path: Path) -> None:
    workload = Workload(arrivals=ConstantArrivals(rate_per_s=1))
    assert scenario_file.with_recording(workload, tmp_path) is workload


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\nsoon\n", r"times\.txt:2: 'soon' is not a time"),
        ("0\nnan\n", r"times\.txt:2: 'nan' is not a time"),
        ("0\n\n5\n4\n", r"times\.txt:4: 4 is earlier than the time before it \(5\)"),
        ("# nothing\n", r"times\.txt: has no times"),
    ],
)
def test_a_bad_recording_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        scenario_file.with_recording(_recorded(tmp_path, text), tmp_path)


def test_a_missing_recording_is_named(tmp_path: Path) -> None:
    workload = Workload(arrivals=RecordedArrivals(file="none.txt"))
    with pytest.raises(BadInput, match=r"none\.txt"):
        scenario_file.with_recording(workload, tmp_path)
    with pytest.raises(BadInput, match="has not been read yet"):
        schedule.check(workload, 1)


def test_a_recording_in_a_matrix_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "times.txt").write_text("0\n1\n4\n")
    scenario = specs.parse(
        {
            "name": "a",
            "topic": {"name": "a"},
            "workload": {"arrivals": {"kind": "constant", "rate_per_s": 1}},
            "matrix": {"workload.arrivals": [{"kind": "recorded", "file": "times.txt"}]},
        },
        Scenario,
    )
    (cell,) = cells(scenario_file.completed(scenario, tmp_path), "a.yaml")
    assert cell.spec.workload.arrivals.mean_per_s == pytest.approx(3 / 6)


def test_what_was_read_once_is_not_read_again(tmp_path: Path) -> None:
    """A value from `penstock.read` goes to `run`, in another working directory."""
    (tmp_path / "times.txt").write_text("0\n1\n4\n")
    (tmp_path / "client.properties").touch()
    recording = {"kind": "recorded", "file": "times.txt"}
    scenario = specs.parse(
        {
            "name": "a",
            "topic": {"name": "a"},
            "existing": {"bootstrap_servers": "x:1", "client_properties": "client.properties"},
            "workload": {"arrivals": recording},
            "matrix": {"workload.arrivals": [recording]},
        },
        Scenario,
    )
    complete = scenario_file.completed(scenario, tmp_path)
    (tmp_path / "times.txt").unlink()
    assert scenario_file.completed(complete, tmp_path / "elsewhere") == complete
