"""Which cells of a campaign share a cluster. Clusters are counted, not started."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import report_runs

from penstock.domain.cluster import ClusterSpec
from penstock.domain.errors import BadInput
from penstock.domain.progress import silent
from penstock.domain.run import Existing
from penstock.domain.scenario import Scenario
from penstock.domain.value import FieldError
from penstock.runs import clusters
from penstock.runs.clusters import Clusters

PARTS: Any = object()
SPEC = report_runs.spec()


class CountedCluster:
    """Healthy, and counted while it runs."""

    started = running = 0
    broker_ids = ()
    admin = SimpleNamespace(out_of_sync=lambda: [])

    def __init__(self, spec: ClusterSpec, **_: object) -> None:
        self.spec = spec

    def __enter__(self) -> CountedCluster:
        CountedCluster.started += 1
        CountedCluster.running += 1
        return self

    def __exit__(self, *_: object) -> None:
        CountedCluster.running -= 1


@pytest.mark.parametrize(("fresh", "expected"), [("when-needed", 2), ("per-cell", 4)])
def test_how_many_clusters_four_cells_start(
    monkeypatch: pytest.MonkeyPatch, fresh: Literal["when-needed", "per-cell"], expected: int
) -> None:
    monkeypatch.setattr(clusters, "Cluster", CountedCluster)
    monkeypatch.setattr(CountedCluster, "started", 0)
    larger = replace(SPEC, cluster=ClusterSpec(brokers=5))
    with Clusters(PARTS, fresh, None, silent) as kept:
        for spec in (SPEC, SPEC, larger, larger):
            with kept.of(spec):
                assert CountedCluster.running == 1
    assert (CountedCluster.started, CountedCluster.running) == (expected, 0)


def test_a_testbed_that_runs_already_is_not_fresh() -> None:
    with (
        Clusters(PARTS, "per-cell", "mine", silent) as kept,
        pytest.raises(BadInput, match="fresh_cluster: per-cell"),
    ):
        kept.check([SPEC])


def test_nor_is_a_cluster_of_the_users_own() -> None:
    with pytest.raises(FieldError, match="existing"):
        Scenario(
            name="orders",
            topic=SPEC.topic,
            workload=SPEC.workload,
            existing=Existing(bootstrap_servers="kafka:9092"),
            fresh_cluster="per-cell",
        )
