"""What is looked at while a run is measured, and what that costs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.runs import sampling
from penstock.runs.sampling import Sampler


class Asked:
    """Stands for brokers: notes whether they were asked or only looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at_ns: dict[str, list[int]] = {"asked": [], "looked at": []}
        monkeypatch.setattr(sampling, "Cluster", Asked)
        monkeypatch.setattr(sampling, "observe", lambda _: self._note("asked"))
        monkeypatch.setattr(sampling, "process_view", lambda _: self._note("looked at"))

    def _note(self, how: str) -> dict[int, Any]:
        self.at_ns[how].append(time.monotonic_ns())
        return {}


def test_brokers_are_not_asked_while_they_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers: Any = Asked(monkeypatch)
    now_ns = time.monotonic_ns()
    measured_ns = (now_ns + 150_000_000, now_ns + 450_000_000)
    clients = {"producer-1": psutil.Process()}
    with Sampler(brokers, clients, tmp_path, every_s=0.05) as sampler:
        sampler.spare(*measured_ns)
        time.sleep(0.6)  # the time that is looked at
    asked, looked = brokers.at_ns["asked"], brokers.at_ns["looked at"]
    assert asked[0] < measured_ns[0]
    assert [at for at in asked if measured_ns[0] <= at < measured_ns[1]] == []
    assert any(at >= measured_ns[1] for at in asked)
    within = [at for at in looked if measured_ns[0] <= at < measured_ns[1]]
    assert len(within) >= 3
    assert sampler.cost.looks == pytest.approx(len(within), abs=1)
    assert 0 < sampler.cost.cpu_s < 0.3
    assert 0 < sampler.cost.share < 1
    written = json.loads((tmp_path / "clients.json").read_text())
    assert len(written) >= len(looked)
    assert {view["client"] for view in written} == {"producer-1"}


def test_without_a_measured_time_brokers_are_asked_at_every_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers: Any = Asked(monkeypatch)
    with Sampler(brokers, {}, tmp_path, every_s=0.05) as sampler:
        time.sleep(0.3)  # the time that is looked at
    assert len(brokers.at_ns["asked"]) >= 4
    assert brokers.at_ns["looked at"] == []
    assert sampler.cost.looks == 0
