"""What runs and facts teach a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from made_up_machine import run_spec
from penstock import specs
from penstock.api.models import fit_model
from penstock.api.observations import read_input
from penstock.domain.errors import BadInput
from penstock.domain.facts import ClusterFacts, FactPoint, PointConditions
from penstock.domain.grid import ExperimentGrid
from penstock.domain.metrics import Distribution, Estimate
from penstock.domain.settings import ProducerSettings
from penstock.models import calibration
from penstock.stats.fit import distribution
from penstock.stats.histogram import Histogram

GRID = ExperimentGrid(
    partitions=(1, 6),
    message_bytes=(1_000,),
    replication=(3,),
    brokers=(3,),
    settings=ProducerSettings(acks="all", linger_ms=0),
)
WHERE = PointConditions(message_bytes=1_000, partitions=6, replication=3, brokers=3)


def _drawn(mean_ms: float) -> Distribution:
    drawn = distribution([Histogram.of([round(mean_ms * 1e6 * k / 10) for k in range(5, 16)])])
    assert drawn is not None
    return drawn


def _facts() -> ClusterFacts:
    latencies = {1: 2.0, 6: 2.5, 12: 3.0}
    produced = [
        FactPoint(
            experiment="production",
            conditions=replace(WHERE, partitions=partitions, producers=1),
            figures={},
            distributions={"latency": _drawn(ms)},
            repeats=1,
        )
        for partitions, ms in latencies.items()
    ]
    streamed = FactPoint(
        experiment="end-to-end",
        conditions=replace(WHERE, producers=2, consumers=2),
        figures={},
        distributions={"end_to_end": _drawn(6.0)},
        repeats=1,
    )
    failed = replace(produced[0], distributions={}, failed=("late",))
    read = [
        FactPoint(
            experiment="consumption",
            conditions=replace(WHERE, consumers=consumers),
            figures={
                "throughput_records_per_s": Estimate(value=400_000.0),
                "fetch_messages": Estimate(value=1_000.0),
            },
            repeats=1,
        )
        for consumers in (1, 2)
    ]
    return ClusterFacts(
        made_at="2026-11-18T10:00:00+00:00",
        machine={"cores": 2, "memory_mb": 8_000},
        versions={"kafka": "4.3.1"},
        grids=dict.fromkeys(("production", "end-to-end", "consumption"), GRID),
        points=(*produced, streamed, failed, *read),
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "facts.json"
    path.write_text(specs.dump_json(_facts()))
    return path


def test_points_with_a_latency_are_observations_of_their_load(file: Path) -> None:
    given = read_input([file])
    assert [one.spec.topic.partitions for one in given.observations] == [1, 6, 12, 6]
    first, *_, stream = given.observations
    assert first.latencies["produce"].mean_ms == pytest.approx(2.0, rel=1e-3)
    assert first.spec.settings.linger_ms == 0
    assert first.messages_per_s == GRID.latency_per_s
    assert list(stream.latencies) == ["end_to_end"]
    assert stream.spec.consumers.count == 2
    assert stream.messages_per_s == 2 * GRID.stream_per_s
    assert len({one.run for one in given.observations}) == 4
    # Only what one consumer reads by itself.
    assert [one.messages_per_s for one in given.readings] == [400_000.0]
    assert given.skipped == []


def test_a_model_is_fitted_to_facts(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "_RADII", (0.3,))
    monkeypatch.setattr(calibration, "_RADII_AGAIN", ())
    monkeypatch.setattr(calibration, "_MESSAGES", 1_000)
    fit = fit_model([file], model=tmp_path / "model.json")
    assert fit.model.record.runs == 4
    assert set(fit.model.record.errors) >= {"produce_mean", "end_to_end_mean"}
    assert fit.model.machine["cores"] == 2


def test_a_file_that_holds_no_facts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(specs.dump_json(run_spec()))
    with pytest.raises(BadInput, match=r"other\.json"):
        read_input([path])


def _written(tmp_path: Path, facts: ClusterFacts) -> Path:
    path = tmp_path / "facts.json"
    path.write_text(specs.dump_json(facts))
    return path


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"grids": {}}, r"facts\.json: grids\.production: is missing"),
        ({"machine": {"cores": "two"}}, r"machine\.cores"),
        ({"machine": {}}, r"machine\.cores"),
        ({"format": 99}, "format: 99 is not 2"),
        ({"points": ()}, "neither latencies nor reading rates"),
    ],
)
def test_facts_that_cannot_be_used_are_named(
    change: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=named):
        read_input([_written(tmp_path, replace(_facts(), **change))])


def test_facts_of_an_earlier_format_are_named_as_such(tmp_path: Path) -> None:
    # It had other words in its fields.
    text = specs.dump_json(replace(_facts(), format=1)).replace("replicas", "copies")
    (tmp_path / "facts.json").write_text(text)
    with pytest.raises(BadInput, match=r"format: 1 is not 2\n.*measure again"):
        read_input([tmp_path / "facts.json"])


def test_an_empty_distribution_is_named(tmp_path: Path) -> None:
    first, *rest = _facts().points
    empty = replace(first, distributions={"latency": replace(_drawn(1.0), buckets=())})
    with pytest.raises(BadInput, match=r"production, .*: its distribution is empty"):
        read_input([_written(tmp_path, replace(_facts(), points=(empty, *rest)))])


def test_cold_points_and_readings_without_figures_are_left_out(tmp_path: Path) -> None:
    first, *rest, alone, two = _facts().points
    cold = replace(first, warnings=("cold: the brokers still got faster",))
    without = replace(alone, figures={"fetch_messages": Estimate(value=10.0)})
    given = read_input([_written(tmp_path, replace(_facts(), points=(cold, *rest, without, two)))])
    assert len(given.observations) == 3
    assert given.readings == []


def test_the_same_facts_by_another_path_are_the_same_runs(file: Path) -> None:
    names = [one.run for one in read_input([file]).observations]
    assert names == [one.run for one in read_input([file.parent / "." / "facts.json"]).observations]
