"""Cluster facts: they are read back as they were written, and joined from several experiments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock import specs
from penstock.domain.errors import BadInput
from penstock.domain.facts import (
    ClusterFacts,
    FactPoint,
    FittedLine,
    MeasuredRange,
    PointConditions,
    merged,
)
from penstock.domain.grid import ExperimentGrid
from penstock.domain.metrics import Distribution, Estimate

WHERE = PointConditions(message_bytes=1000, partitions=48, replication=3, brokers=3, producers=1)
LINE = FittedLine(
    figure="replication_ms",
    over="replicas_per_broker",
    intercept=Estimate(value=2.0, low=1.5, high=2.5),
    slope=Estimate(value=0.1, low=0.08, high=0.12),
    r_squared=0.9,
    residual=0.4,
    observations=15,
    valid_from=1,
    valid_to=192,
    conditions=WHERE,
)
POINT = FactPoint(
    experiment="production",
    conditions=WHERE,
    figures={
        "throughput_mb_per_s": Estimate(value=20.0, low=18.0, high=22.0, batches=(19, 20, 21))
    },
    distributions={
        "latency": Distribution(
            count=3,
            mean_ms=Estimate(value=2.0),
            deviation_ms=0.8,
            percentiles_ms={"50": Estimate(value=2.0), "99.9": Estimate(value=3.0)},
            min_ms=1.0,
            max_ms=3.0,
            buckets=((1_000_000, 1), (2_000_000, 1), (3_000_000, 1)),
        )
    },
    repeats=3,
    failed=("the cluster did not start",),
)
PRODUCTION = ClusterFacts(
    made_at="2026-01-01T00:00:00+00:00",
    machine={"cores": 2, "memory_mb": 24_000},
    versions={"kafka": "4.3.1"},
    grids={"production": ExperimentGrid(partitions=(1, 48), brokers=(3,), replication=(3,))},
    valid={"production.partitions": MeasuredRange(low=1, high=192)},
    caveats=("one machine",),
    producer_mb_per_s=Estimate(value=20.0, low=18.0, high=22.0),
    replication=LINE,
    handles_limit=1_000_000,
    lines=(LINE,),
    points=(POINT,),
)


def test_facts_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(specs.dump_json(PRODUCTION))
    assert specs.load(path, ClusterFacts) == PRODUCTION


def test_facts_that_somebody_broke_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(specs.dump_json(PRODUCTION).replace('"slope"', '"slant"'))
    with pytest.raises(BadInput, match="slope"):
        specs.load(path, ClusterFacts)


def test_a_line_knows_where_it_was_measured() -> None:
    assert LINE.at(10) == pytest.approx(3.0)
    assert LINE.covers(192)
    assert not LINE.covers(193)
    assert not LINE.covers(0)


def test_copies_of_a_broker() -> None:
    assert WHERE.replicas_per_broker == 48
    assert replace(WHERE, brokers=6).replicas_per_broker == 24


def test_joined_facts_have_what_either_has() -> None:
    other = replace(
        PRODUCTION,
        grids={"consumption": ExperimentGrid(consumers=(2,))},
        valid={"consumption.consumers": MeasuredRange(low=1, high=8)},
        caveats=("one machine", "small messages"),
        producer_mb_per_s=None,
        replication=None,
        group_mb_per_s=Estimate(value=100.0),
        lines=(),
        points=(replace(POINT, experiment="consumption"),),
    )
    both = merged(PRODUCTION, other)
    assert both.producer_mb_per_s == PRODUCTION.producer_mb_per_s
    assert both.replication == LINE
    assert both.group_mb_per_s == Estimate(value=100.0)
    assert set(both.grids) == {"production", "consumption"}
    assert set(both.valid) == {"production.partitions", "consumption.consumers"}
    assert both.caveats == ("one machine", "small messages")
    assert [p.experiment for p in both.points] == ["production", "consumption"]
    assert both.lines == (LINE,)


def test_a_later_experiment_replaces_the_points_and_lines_of_its_kind() -> None:
    newer = replace(
        PRODUCTION,
        lines=(replace(LINE, r_squared=0.5),),
        points=(replace(POINT, repeats=5),),
        producer_mb_per_s=Estimate(value=30.0),
    )
    both = merged(PRODUCTION, newer)
    assert [p.repeats for p in both.points] == [5]
    assert [line.r_squared for line in both.lines] == [0.5]
    assert both.producer_mb_per_s == Estimate(value=30.0)


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"machine": {"cores": 64, "memory_mb": 24_000}}, "machines"),
        ({"versions": {"kafka": "3.9.0"}}, "kafka"),
    ],
)
def test_facts_of_different_places_say_so_when_joined(
    change: dict[str, object], phrase: str
) -> None:
    both = merged(PRODUCTION, replace(PRODUCTION, **change))  # type: ignore[arg-type]
    assert any(phrase in caveat for caveat in both.caveats)
    assert not any(phrase in caveat for caveat in merged(PRODUCTION, PRODUCTION).caveats)
